//go:build linux

package harness

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/porttest"
)

// A Workstation is one user's machine: home folder, server, clusters.
type Workstation struct {
	T      testing.TB
	Home   string
	Port   int
	Env    []string
	Binary string // sky; "": what [Main] built
}

// New makes a workstation and, when the test ends, checks that taking it down leaves
// neither a process nor a node's folder.
func New(t testing.TB) *Workstation {
	t.Helper()
	home, err := os.MkdirTemp("", "sky-home-")
	if err != nil {
		t.Fatal(err)
	}
	w := At(t, home)
	t.Cleanup(w.Close)
	return w
}

// At is a workstation in a home folder that the caller made and takes down.
func At(t testing.TB, home string) *Workstation {
	t.Helper()
	port := porttest.Free(t)
	return &Workstation{T: t, Home: home, Port: port, Env: environment(home, "SKY_API_PORT="+strconv.Itoa(port))}
}

// environment is that of a user with a home folder. GOCOVERDIR is where a sky that counts
// what it covers writes that; see .ci/coverage.
func environment(home string, more ...string) []string {
	env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "USER=tester", "SHELL=/bin/bash", "LANG=C.UTF-8"}
	if dir := os.Getenv("GOCOVERDIR"); dir != "" {
		env = append(env, "GOCOVERDIR="+dir)
	}
	return append(env, more...)
}

// With is the same user with more environment.
func (w *Workstation) With(env ...string) *Workstation {
	other := *w
	other.Env = append(append([]string(nil), w.Env...), env...)
	return &other
}

// Close takes the workstation down and reports what is left.
func (w *Workstation) Close() {
	if w.T.Failed() {
		w.T.Logf("server log:\n%s", TailOf(w.ServerLog(), 6000))
	}
	out, code := w.Run("down", "--all-users", "-y")
	if code != 0 {
		w.T.Errorf("down --all-users: exit %d\n%s", code, out)
	}
	// The server gives back the clusters of managed jobs that have just ended.
	Within(time.Minute, func() bool { return len(w.Folders()) == 0 })
	w.Run("api", "stop")
	if left := w.Folders(); len(left) > 0 {
		w.T.Errorf("folders left behind: %v", left)
	}
	Within(5*time.Second, func() bool { return len(w.Processes()) == 0 })
	if left := w.Processes(); len(left) > 0 {
		w.T.Errorf("processes left behind: %v", left)
		for pid := range left {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	os.RemoveAll(w.Home)
}

// ServerLog is the path of the server's log.
func (w *Workstation) ServerLog() string { return filepath.Join(w.Home, ".sky/api_server/server.log") }

// Folders are the folders of local nodes that exist.
func (w *Workstation) Folders() []string {
	left, _ := filepath.Glob(filepath.Join(w.Home, ".sky/local/*/node-*"))
	return left
}

// Processes are those that live in this workstation, by pid, whoever started them.
func (w *Workstation) Processes() map[int]string {
	out := map[int]string{}
	for _, pid := range having("HOME=" + w.Home) {
		cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if len(cmd) == 0 || pid == os.Getpid() {
			continue // a zombie
		}
		out[pid] = strings.TrimSpace(string(bytes.ReplaceAll(cmd, []byte{0}, []byte{' '})))
	}
	return out
}

// having are the processes with a text in their environment.
func having(text string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		env, err := os.ReadFile(f)
		if err == nil && bytes.Contains(env, []byte(text)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// ProcessesOf are the processes of the local nodes below a folder.
func ProcessesOf(dir string) []int { return having("SKY_NODE=" + dir) }

// Command prepares one run of sky.
func (w *Workstation) Command(args ...string) *exec.Cmd {
	c := exec.Command(cmp.Or(w.Binary, Sky()), args...)
	c.Env, c.Dir = w.Env, w.Home
	return c
}

// Run runs sky to its end, at most two minutes, and returns what it printed and
// its exit code.
func (w *Workstation) Run(args ...string) (string, int) {
	w.T.Helper()
	return w.RunFor(2*time.Minute, args...)
}

// RunFor is Run with another limit. To reach it is an error of the test.
func (w *Workstation) RunFor(limit time.Duration, args ...string) (string, int) {
	w.T.Helper()
	var out bytes.Buffer
	code := w.into(limit, &out, &out, args...)
	return out.String(), code
}

func (w *Workstation) into(limit time.Duration, stdout, stderr io.Writer, args ...string) int {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, cmp.Or(w.Binary, Sky()), args...)
	c.Env, c.Dir = w.Env, w.Home
	c.Stdout, c.Stderr = stdout, stderr
	c.WaitDelay = 10 * time.Second
	err := c.Run()
	if ctx.Err() != nil {
		w.T.Errorf("sky %s did not end within %v\n%s", strings.Join(args, " "), limit, stdout)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		w.T.Errorf("sky %s: %v", strings.Join(args, " "), err)
		return -1
	}
	return c.ProcessState.ExitCode()
}

// Sky runs a command that must succeed.
func (w *Workstation) Sky(args ...string) string {
	w.T.Helper()
	out, code := w.Run(args...)
	if code != 0 {
		w.T.Fatalf("sky %s: exit %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// Fails runs a command that must end with the code and say all of the texts.
func (w *Workstation) Fails(code int, says []string, args ...string) string {
	w.T.Helper()
	out, got := w.Run(args...)
	if got != code {
		w.T.Errorf("sky %s: exit %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	Wants(w.T, out, says...)
	return out
}

// Stdout runs a command that must succeed and returns only what it printed to
// standard output.
func (w *Workstation) Stdout(args ...string) string {
	w.T.Helper()
	var out, errs bytes.Buffer
	if code := w.into(2*time.Minute, &out, &errs, args...); code != 0 {
		w.T.Fatalf("sky %s: exit %d\n%s%s", strings.Join(args, " "), code, &out, &errs)
	}
	return out.String()
}

// JSON runs a command and reads what it printed to standard output.
func (w *Workstation) JSON(into any, args ...string) error {
	w.T.Helper()
	var out, errs bytes.Buffer
	if code := w.into(2*time.Minute, &out, &errs, args...); code != 0 {
		return fmt.Errorf("sky %s: exit %d\n%s%s", strings.Join(args, " "), code, &out, &errs)
	}
	if err := json.Unmarshal(out.Bytes(), into); err != nil {
		return fmt.Errorf("sky %s: %w in %q", strings.Join(args, " "), err, &out)
	}
	return nil
}

// Write puts a file below the home folder and returns its path.
func (w *Workstation) Write(name, text string) string {
	w.T.Helper()
	path := filepath.Join(w.Home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.T.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		w.T.Fatal(err)
	}
	return path
}

// Node is the home folder of a local cluster's node.
func (w *Workstation) Node(cluster string, rank int) string {
	w.T.Helper()
	found, _ := filepath.Glob(filepath.Join(w.Home, ".sky/local", cluster+"-*", fmt.Sprintf("node-%d", rank), "home"))
	if len(found) != 1 {
		w.T.Fatalf("node %d of %s: %v", rank, cluster, found)
	}
	return found[0]
}

// Status is the state of a cluster, "" if there is none.
func (w *Workstation) Status(cluster string) string {
	w.T.Helper()
	var records []struct{ Name, Status string }
	if err := w.JSON(&records, "status", "-o", "json", cluster); err != nil {
		w.T.Fatal(err)
	}
	for _, r := range records {
		if r.Name == cluster {
			return r.Status
		}
	}
	return ""
}

// ServerPID is the pid of the running API server, 0 if there is none.
func (w *Workstation) ServerPID() int {
	var i struct{ PID int }
	b, err := os.ReadFile(filepath.Join(w.Home, ".sky/api_server/instance.json"))
	if err != nil || json.Unmarshal(b, &i) != nil || i.PID == 0 {
		return 0
	}
	if syscall.Kill(i.PID, 0) != nil {
		return 0
	}
	return i.PID
}

// KillServer ends the API server as a power cut would.
func (w *Workstation) KillServer() {
	if pid := w.ServerPID(); pid != 0 {
		syscall.Kill(pid, syscall.SIGKILL)
		for syscall.Kill(pid, 0) == nil {
			time.Sleep(time.Millisecond)
		}
	}
}

// Agents are the pids of the running agents of local nodes, as they note them
// down: a process that one is just starting for a job looks like an agent too for
// a moment.
func (w *Workstation) Agents() []int {
	var pids []int
	files, _ := filepath.Glob(filepath.Join(w.Home, ".sky/local/*/node-*/home/.sky/agent/agent.json"))
	for _, f := range files {
		if pid := agentOf(f); pid != 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// agentOf is the pid that an agent noted in its file, 0 if it does not run.
func agentOf(file string) int {
	var a struct{ PID int }
	b, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(b, &a) != nil {
		return 0
	}
	if cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", a.PID)); !bytes.Contains(cmd, []byte("agent\x00--home")) {
		return 0
	}
	return a.PID
}

// Requests are the requests on record of a name, such as sky.launch: id to
// status.
func (w *Workstation) Requests(name string) map[string]string {
	w.T.Helper()
	out, err := w.requests(name)
	if err != nil {
		w.T.Fatal(err)
	}
	return out
}

func (w *Workstation) requests(name string) (map[string]string, error) {
	w.T.Helper()
	var rows []struct {
		ID     string `json:"request_id"`
		Name   string `json:"name"`
		Status string `json:"status"`
	}
	if err := w.JSON(&rows, "api", "status", "-a", "-l", "all", "-o", "json"); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, r := range rows {
		if name == "" || r.Name == name {
			out[r.ID] = r.Status
		}
	}
	return out, nil
}

// A ManagedJob is one task in the list of managed jobs.
type ManagedJob struct {
	JobID      int    `json:"job_id"`
	TaskID     int    `json:"task_id"`
	JobName    string `json:"job_name"`
	TaskName   string `json:"task_name"`
	Status     string `json:"status"`
	Schedule   string `json:"schedule_state"`
	Recoveries int    `json:"recovery_count"`
	Details    string `json:"details"`
	Failure    string `json:"failure_reason"`
}

// Managed lists managed jobs by "job.task".
func (w *Workstation) Managed() map[string]ManagedJob {
	w.T.Helper()
	var rows []ManagedJob
	if err := w.JSON(&rows, "jobs", "queue", "-o", "json", "--all"); err != nil {
		w.T.Fatal(err)
	}
	all := map[string]ManagedJob{}
	for _, r := range rows {
		all[fmt.Sprintf("%d.%d", r.JobID, r.TaskID)] = r
	}
	return all
}

// Preempt takes the machines of a local cluster away as a cloud does: at once,
// with all that runs on them. It reports whether there was one.
func (w *Workstation) Preempt(cluster string) bool {
	found, _ := filepath.Glob(filepath.Join(w.Home, ".sky/local", cluster+"-*"))
	taken := false
	for _, dir := range found {
		// A machine ends in one moment: nothing on it sees its files go, and nothing is
		// to be started there again.
		for _, pid := range ProcessesOf(dir) {
			syscall.Kill(pid, syscall.SIGSTOP)
		}
		gone, err := os.MkdirTemp(w.Home, "gone-")
		if err == nil {
			err = os.Rename(dir, filepath.Join(gone, "node"))
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) { // else it was given back meanwhile
			w.T.Error(err)
			return false
		}
		taken = taken || err == nil
		// Once: the next machine may get the same name at once.
		for _, pid := range ProcessesOf(dir) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return taken
}
