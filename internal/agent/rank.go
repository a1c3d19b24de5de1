//go:build unix

package agent

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/proc"
)

// scripts are what runs around each task; see there.
//
//go:embed scripts/*.sh
var scripts embed.FS

// markerEnv holds a rank's key in the environment of all its processes.
const markerEnv = "SKY_RANK"

// Exit codes that we give, as shells do.
const (
	codeEnded    = 137 // we ended it: 128 + KILL
	codeNotFound = 127
	codeNoExec   = 126
	codeLost     = 255 // its process is gone and nobody saw how
)

// rankSpec is what a node needs to start one rank of a job.
type rankSpec struct {
	Key     string            `json:"key"`
	Epoch   int64             `json:"epoch"`
	Script  string            `json:"script"`
	Env     map[string]string `json:"env"`
	Workdir string            `json:"workdir"`
	// Known: it was started before, so if nothing is known of it here it is lost.
	Known bool `json:"known"`
	// Keep: what it leaves in the background when it succeeds runs on, until the next
	// such rank starts here or the cluster stops.
	Keep bool `json:"keep,omitempty"`
	// Mounts: it starts when the buckets of the node are mounted, as far as it may use them.
	Mounts bool `json:"mounts,omitempty"`
	// Uses are the paths at which its task mounts buckets.
	Uses []string `json:"uses,omitempty"`
	// Output is where its output goes, on the head itself; else into its folder.
	Output string `json:"-"`
}

// rankState is how far a rank is.
type rankState string

const (
	rankAbsent  rankState = "absent" // never started here
	rankRunning rankState = "running"
	rankExited  rankState = "exited"
	rankLost    rankState = "lost" // ended without an exit code
)

// rankStatus is what a node knows of a rank.
type rankStatus struct {
	State  rankState `json:"state"`
	PID    int       `json:"pid,omitempty"`
	Code   int       `json:"code,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Ended  bool      `json:"ended,omitempty"` // by us, before it exited by itself
	// Leftovers is how many processes it left behind that had to be ended.
	Leftovers int `json:"leftovers,omitempty"`
	// Note is lines for the log of the job.
	Note string `json:"note,omitempty"`
}

func (s rankStatus) over() bool { return s.State == rankExited || s.State == rankLost }

// rankDir is the folder that keeps what must outlive the agent about one rank.
// Its files are the truth; the agent's memory is only a way to wait.
type rankDir string

func (d rankDir) file(name string) string { return filepath.Join(string(d), name) }
func (d rankDir) key() string             { return filepath.Base(string(d)) }

// exitRoom is the size of the file "exit" from the beginning.
var exitRoom = bytes.Repeat([]byte{' '}, 16)

// prepare writes what the rank runs. It does not touch one that has started.
func (d rankDir) prepare(s *rankSpec) error {
	if _, err := os.Stat(d.file("pid")); err == nil {
		return nil
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(d.file("exit"), exitRoom, 0o600); err != nil {
		return err
	}
	if s.Keep {
		if err := os.WriteFile(d.file("keep"), nil, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(d.file("script"), []byte(s.Script), 0o600)
}

// keeps reports whether what the rank has left in the background is to run on.
func (d rankDir) keeps() bool {
	if _, err := os.Stat(d.file("keep")); err != nil {
		return false
	}
	st := d.status()
	return st.State == rankExited && st.Code == 0
}

// status reads the files: what the wrapper noted, or what we did to it.
func (d rankDir) status() rankStatus {
	pid, started := d.number("pid")
	code, exited := d.number("exit")
	_, err := os.Stat(d.file("ended"))
	switch {
	case err == nil:
		return rankStatus{State: rankExited, PID: pid, Code: codeEnded, Ended: true}
	case exited:
		return rankStatus{State: rankExited, PID: pid, Code: code}
	case !started:
		return rankStatus{State: rankAbsent}
	case d.alive(pid):
		return rankStatus{State: rankRunning, PID: pid}
	}
	// It may have ended between the two looks.
	if code, exited := d.number("exit"); exited {
		return rankStatus{State: rankExited, PID: pid, Code: code}
	}
	return rankStatus{State: rankLost, PID: pid, Code: codeLost, Reason: "its process disappeared and left no exit code"}
}

func (d rankDir) alive(pid int) bool {
	return proc.Alive(pid, "") && proc.HasEnv(pid, markerEnv, d.key())
}

// number reads a file that holds a number and a newline.
func (d rankDir) number(name string) (int, bool) {
	data, err := os.ReadFile(d.file(name))
	if err != nil {
		return 0, false
	}
	word, _, complete := bytes.Cut(data, []byte("\n"))
	n, err := strconv.Atoi(string(word))
	return n, err == nil && complete
}

// record notes an exit code in the wrapper's place.
func (d rankDir) record(code int) error {
	f, err := os.OpenFile(d.file("exit"), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(strconv.Itoa(code)+"\n"), 0)
	return errors.Join(err, f.Close())
}

// tree returns what finds the rank's processes. owned: pid is our child and not yet
// reaped.
func (d rankDir) tree(pid int, owned bool) func() []int {
	return func() []int {
		pids := append(proc.Tree(pid, owned, markerEnv, d.key()), proc.InCgroup(d.cgroup())...)
		slices.Sort(pids)
		return slices.Compact(pids)
	}
}

// cgroup is the one that holds the rank's processes, "" if none does.
func (d rankDir) cgroup() string {
	path, err := os.ReadFile(d.file("cgroup"))
	if err != nil {
		return ""
	}
	return string(path)
}

// launch starts the rank's process in its own session. Output goes straight to
// a file, so that the process does not need us.
func (d rankDir) launch(s *rankSpec, home, sh, shell, lib string) (*exec.Cmd, error) {
	out, err := os.OpenFile(s.Output, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	dir, err := workdir(home, s.Workdir)
	if err != nil {
		fmt.Fprintln(out, "sky:", err)
		return nil, err
	}
	command := func() *exec.Cmd {
		cmd := exec.Command(sh, filepath.Join(lib, "wrapper.sh"), string(d), shell, filepath.Join(lib, "prologue.sh"))
		cmd.Dir = dir
		cmd.Stdout, cmd.Stderr = out, out
		cmd.Env = environment(home, s.Env, d.key())
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return cmd
	}
	cmd := command()
	confined, release := d.confine(cmd.SysProcAttr)
	err = cmd.Start()
	release()
	if err != nil && confined && !errors.Is(err, syscall.E2BIG) { // an old kernel, or cgroups that are not ours
		cmd = command()
		err = cmd.Start()
	}
	if err != nil {
		if errors.Is(err, syscall.E2BIG) {
			err = errors.New("its environment variables are too long for this system: put big values into a file")
		}
		fmt.Fprintln(out, "sky: the job's process cannot be started:", err)
		return nil, err
	}
	return cmd, nil
}

// environment is the agent's own with the job's on top.
func environment(home string, vars map[string]string, key string) []string {
	all := map[string]string{"PYTHONUNBUFFERED": "1"}
	for _, kv := range os.Environ() {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "NOTIFY_SOCKET" && name != "INVOCATION_ID" {
			all[name] = value
		}
	}
	all["HOME"] = home
	maps.Copy(all, vars)
	all[markerEnv] = key
	if devices, ok := os.LookupEnv(agentapi.DevicesEnv); ok {
		asked, restricted := vars["CUDA_VISIBLE_DEVICES"]
		all["CUDA_VISIBLE_DEVICES"] = visibleDevices(devices, asked, restricted)
		if all["CUDA_DEVICE_ORDER"] == "" {
			all["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID" // that of the indexes
		}
	}
	env := make([]string, 0, len(all))
	for name, value := range all {
		if !strings.ContainsRune(name+value, 0) {
			env = append(env, name+"="+value)
		}
	}
	slices.Sort(env)
	return env
}

// visibleDevices are the machine's GPUs for what counts those of the node's share from
// 0: asked has such numbers if restricted, else it is all of them. Names (UUIDs) stay,
// numbers that the share has not are left out. It is pure.
func visibleDevices(share, asked string, restricted bool) string {
	if !restricted || share == "" {
		return share
	}
	own := strings.Split(share, ",")
	var out []string
	for d := range strings.SplitSeq(asked, ",") {
		switch i, err := strconv.Atoi(strings.TrimSpace(d)); {
		case err != nil && d != "":
			out = append(out, d)
		case err == nil && i >= 0 && i < len(own):
			out = append(out, own[i])
		}
	}
	return strings.Join(out, ",")
}

// workdir is where scripts start: "" is ~/sky_workdir if that exists, else ~.
func workdir(home, dir string) (string, error) {
	if dir == "" {
		dir = filepath.Join(home, "sky_workdir")
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			return home, nil
		}
		return dir, nil
	}
	if rest, ok := strings.CutPrefix(dir, "~"); ok && (rest == "" || rest[0] == '/') {
		dir = filepath.Join(home, rest)
	} else if !filepath.IsAbs(dir) {
		dir = filepath.Join(home, dir)
	}
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("the working directory %s does not exist on this node", dir)
	case err != nil:
		return "", err
	case !st.IsDir():
		return "", fmt.Errorf("the working directory %s is not a directory", dir)
	}
	return dir, nil
}
