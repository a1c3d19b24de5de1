//go:build nodes && linux

// Package nodes runs the real binary against real machines: hosts with Debian's
// sshd in network namespaces, and a container engine. It starts them by itself
// (setup.sh), which takes root on Debian:
//
//	go test -tags nodes ./test/nodes
package nodes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/porttest"
	"github.com/skypilot-go/sky/test/harness"
)

var (
	binary, fluffycloud string

	place string            // where setup.sh works
	given map[string]string // what setup.sh says
)

func TestMain(m *testing.M) {
	os.Exit(inPlace(m.Run))
}

// inPlace builds the binary, starts the machines, runs the tests and ends what
// it started. With SKY_TEST_PLACE, a folder, machines and binary stay there for
// the next time; "setup.sh down $SKY_TEST_PLACE" ends them.
func inPlace(tests func() int) (code int) {
	dir := os.Getenv("SKY_TEST_PLACE")
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "sky-nodes-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		defer func() {
			if out, err := exec.Command("sh", "setup.sh", "down", dir).CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "cleaning up: %v\n%s", err, out)
				code = 1
			}
		}()
	}
	place = dir
	said, err := os.ReadFile(filepath.Join(dir, "given"))
	if err != nil {
		up := exec.Command("sh", "setup.sh", "up", dir)
		up.Stderr = os.Stderr
		if said, err = up.Output(); err != nil {
			fmt.Fprintf(os.Stderr, "setup.sh up: %v\n%s", err, said)
			return 1
		}
	}
	given = map[string]string{}
	for line := range strings.Lines(string(said)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		given[key] = value
	}
	for name, into := range map[string]*string{"sky": &binary, "fluffycloud": &fluffycloud} {
		*into = filepath.Join(dir, name)
		build := exec.Command("go", "build", "-o", *into, "../../cmd/"+name)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building %s: %v\n%s", name, err, out)
			return 1
		}
	}
	return tests()
}

// workstation is a [harness.Workstation] with pools: a home folder, and a server.
type workstation struct {
	t    *testing.T
	home string
	env  []string
	ends []func() // after all is given back
}

func (w *workstation) of() *harness.Workstation {
	return &harness.Workstation{T: w.t, Home: w.home, Env: w.env, Binary: binary}
}

func newWorkstation(t *testing.T) *workstation {
	t.Helper()
	home, err := os.MkdirTemp(place, "user-")
	if err != nil {
		t.Fatal(err)
	}
	port := porttest.Free(t)
	w := &workstation{t: t, home: home, env: []string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "USER=tester", "SHELL=/bin/bash", "LANG=C.UTF-8",
		"SKY_API_PORT=" + strconv.Itoa(port), "DOCKER_HOST=unix://" + given["SKY_TEST_DOCKER"],
	}}
	var pools strings.Builder
	fmt.Fprintf(&pools, "lab:\n  user: root\n  identity_file: %s\n  hosts:\n", given["SKY_TEST_KEY"])
	for i := 1; i <= 4; i++ {
		fmt.Fprintf(&pools, "  - %s\n", host(i))
	}
	w.write(".sky/ssh_node_pools.yaml", pools.String())
	t.Cleanup(w.close)
	return w
}

// hosts is how many setup.sh makes.
const hosts = 17

// host is the address of a host, homeOf its home folder as seen from here.
func host(i int) string   { return given[fmt.Sprint("SKY_TEST_HOST", i)] }
func homeOf(i int) string { return filepath.Join(place, fmt.Sprint("h", i), "home") }

// link is this machine's end of the cable to a host.
func link(i int) string { return fmt.Sprintf("skyv%s-%d", given["SKY_TEST_TAG"], i) }

// close gives everything back and looks whether anything is left.
func (w *workstation) close() {
	if w.t.Failed() {
		w.t.Logf("server log:\n%s", harness.TailOf(w.of().ServerLog(), 6000))
	}
	if out, code := w.run("down", "-a", "-y"); code != 0 {
		w.t.Errorf("down -a: exit %d\n%s", code, out)
	}
	w.run("api", "stop")
	w.nothingLeft()
	for _, end := range w.ends {
		end()
	}
	os.RemoveAll(w.home)
}

func (w *workstation) serverLog() string { return harness.TailOf(w.of().ServerLog(), 1<<30) }

// killServer ends the server without a word.
func (w *workstation) killServer() {
	w.t.Helper()
	if w.of().ServerPID() == 0 {
		w.t.Fatal("no server runs")
	}
	w.of().KillServer()
}

// nothingLeft looks at all hosts and at the engine.
func (w *workstation) nothingLeft() {
	w.t.Helper()
	for i := 1; i <= hosts; i++ {
		home := homeOf(i)
		filepath.WalkDir(home, func(path string, d os.DirEntry, err error) error {
			switch rel, _ := filepath.Rel(home, path); rel {
			case ".", ".bashrc", ".ssh", ".ssh/authorized_keys":
			default:
				w.t.Errorf("h%d: %s is left", i, rel)
			}
			return err
		})
	}
	for pid, cmd := range processes() {
		w.t.Errorf("process %d is left: %s", pid, cmd)
	}
	if names := containers(w.t); len(names) > 0 {
		w.t.Errorf("containers are left: %v", names)
	}
}

// processes are those of nodes on the hosts of this run: others that are tested on this
// machine have the same paths.
func processes() map[int]string {
	all := marked("SKY_NODE=/root/.sky/nodes/")
	maps.DeleteFunc(all, func(pid int, _ string) bool { return !onOurs(fmt.Sprint("/proc/", pid)) })
	return all
}

// marked are the processes in whose environment a variable begins so.
func marked(variable string) map[int]string {
	out := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		env, err := os.ReadFile(filepath.Join(d, "environ"))
		if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+variable)) {
			continue
		}
		cmd, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		if pid, _ := strconv.Atoi(filepath.Base(d)); len(cmd) > 0 {
			out[pid] = strings.ReplaceAll(string(cmd), "\x00", " ")
		}
	}
	// A process that is about to run another program is no second one of its parent.
	maps.DeleteFunc(out, func(pid int, cmd string) bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		var state string
		parent := 0
		_, _ = fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &parent)
		return out[parent] == cmd
	})
	return out
}

type container struct {
	Names []string
	State string
}

// ours are the engine's containers of sky.
func ours(t *testing.T) []container {
	t.Helper()
	out, err := exec.Command("curl", "-fsg", "--unix-socket", given["SKY_TEST_DOCKER"], `http://d/containers/json?all=1&filters={"label":["sky-installation"]}`).Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []container
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

func containers(t *testing.T) (names []string) {
	t.Helper()
	for _, c := range ours(t) {
		names = append(names, c.Names...)
	}
	return names
}

func containerStates(t *testing.T) (states []string) {
	t.Helper()
	for _, c := range ours(t) {
		states = append(states, c.State)
	}
	return states
}

func (w *workstation) write(name, text string) string {
	w.t.Helper()
	return w.of().Write(name, text)
}

// run runs sky and returns what it printed and its exit code.
func (w *workstation) run(args ...string) (string, int) {
	w.t.Helper()
	return w.of().RunFor(4*time.Minute, args...)
}

// sky runs a command that must succeed and say all of the texts.
func (w *workstation) sky(says []string, args ...string) string {
	w.t.Helper()
	out, code := w.run(args...)
	if code != 0 {
		w.t.Fatalf("sky %s: exit %d\n%s", strings.Join(args, " "), code, out)
	}
	harness.Wants(w.t, out, says...)
	return out
}

// status is the state of a cluster, "" if there is none.
func (w *workstation) status(name string) string {
	w.t.Helper()
	var list []struct{ Name, Status string }
	if err := w.of().JSON(&list, "status", "--refresh", "-o", "json", name); err != nil {
		w.t.Fatal(err)
	}
	for _, r := range list {
		if r.Name == name {
			return r.Status
		}
	}
	return ""
}

func eventually(t *testing.T, what string, limit time.Duration, f func() bool) {
	t.Helper()
	harness.Eventually(t, what, limit, f)
}

// agents are the agents' processes on the hosts.
func agents() []int {
	var pids []int
	for pid, cmd := range processes() {
		if strings.Contains(cmd, "agent --home") {
			pids = append(pids, pid)
		}
	}
	return pids
}

func kill(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
}
