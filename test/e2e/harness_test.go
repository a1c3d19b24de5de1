//go:build e2e && linux

// Package e2e runs the real binary as a user does: a home folder of its own, a
// real API server, real agents, real processes.
//
//	go test -tags e2e ./test/e2e
//
// Worlds know nothing of each other, and most tests wait most of the time: they run
// at the same time, those apart that share a database server and restart it.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/porttest"
)

// binary is sky as it is released, with an agent for nodes; built once for all
// tests.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == tunnelTo {
		os.Exit(tunnel(os.Args[2]))
	}
	dir, err := os.MkdirTemp("", "sky-e2e-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "sky")
	if built := os.Getenv("SKY_E2E_BINARY"); built != "" { // whatever it is called
		if err := os.Symlink(built, binary); err != nil {
			panic(err)
		}
		code := m.Run()
		os.RemoveAll(dir)
		os.Exit(code)
	}
	for _, args := range [][]string{
		{"run", "../../internal/remote/agents/pack", runtime.GOOS + "/" + runtime.GOARCH},
		{"build", "-tags", "agents", "-o", binary, "../../cmd/sky"},
	} {
		build := exec.Command("go", args...)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building sky: go %s: %v\n%s", strings.Join(args, " "), err, out)
			os.Exit(1)
		}
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// world is one user's machine: home folder, server, clusters.
type world struct {
	t    testing.TB
	home string
	port int
	env  []string
}

// newWorld makes a world and, when the test ends, checks that taking it down
// leaves neither a process nor a node's folder.
func newWorld(t testing.TB) *world {
	t.Helper()
	home, err := os.MkdirTemp("", "sky-home-")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, home: home, port: porttest.Free(t)}
	w.env = []string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "USER=tester", "SHELL=/bin/bash", "LANG=C.UTF-8",
		"SKY_API_PORT=" + strconv.Itoa(w.port),
	}
	t.Cleanup(w.close)
	return w
}

func (w *world) close() {
	if w.t.Failed() {
		w.t.Logf("server log:\n%s", tailOf(filepath.Join(w.home, ".sky/api_server/server.log"), 6000))
	}
	out, code := w.run("down", "-a", "-y")
	if code != 0 {
		w.t.Errorf("down -a: exit %d\n%s", code, out)
	}
	w.run("api", "stop")
	if left := w.folders(); len(left) > 0 {
		w.t.Errorf("folders left behind: %v", left)
	}
	deadline := time.Now().Add(5 * time.Second)
	for len(w.processes()) > 0 && time.Now().Before(deadline) {
		time.Sleep(50 * time.Millisecond)
	}
	if left := w.processes(); len(left) > 0 {
		w.t.Errorf("processes left behind: %v", left)
		for pid := range left {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	os.RemoveAll(w.home)
}

// folders are the node folders that exist.
func (w *world) folders() []string {
	left, _ := filepath.Glob(filepath.Join(w.home, ".sky/local/*/node-*"))
	return left
}

// processes are those that live in this world, by pid, whoever started them.
func (w *world) processes() map[int]string {
	out := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		env, err := os.ReadFile(filepath.Join(d, "environ"))
		if err != nil || pid == os.Getpid() || !bytes.Contains(env, []byte("HOME="+w.home)) {
			continue
		}
		cmd, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		if len(cmd) == 0 {
			continue // a zombie
		}
		out[pid] = strings.TrimSpace(string(bytes.ReplaceAll(cmd, []byte{0}, []byte{' '})))
	}
	return out
}

// command prepares one run of sky.
func (w *world) command(args ...string) *exec.Cmd {
	c := exec.Command(binary, args...)
	c.Env, c.Dir = w.env, w.home
	return c
}

// run runs sky to its end and returns what it printed and its exit code.
func (w *world) run(args ...string) (string, int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, binary, args...)
	c.Env, c.Dir = w.env, w.home
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	if ctx.Err() != nil {
		w.t.Errorf("sky %s did not end in time\n%s", strings.Join(args, " "), out.String())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return out.String(), c.ProcessState.ExitCode()
}

// sky runs a command that must succeed.
func (w *world) sky(args ...string) string {
	w.t.Helper()
	out, code := w.run(args...)
	if code != 0 {
		w.t.Fatalf("sky %s: exit %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// fails runs a command that must end with the code and say all of the texts.
func (w *world) fails(code int, says []string, args ...string) string {
	w.t.Helper()
	out, got := w.run(args...)
	if got != code {
		w.t.Errorf("sky %s: exit %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	wants(w.t, out, says...)
	return out
}

func wants(t testing.TB, out string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(out, text) {
			t.Errorf("%q is missing in:\n%s", text, out)
		}
	}
}

// write puts a file below the home folder and returns its path.
func (w *world) write(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// node is the home folder of a cluster's node.
func (w *world) node(cluster string, rank int) string {
	w.t.Helper()
	found, _ := filepath.Glob(filepath.Join(w.home, ".sky/local", cluster+"-*", fmt.Sprintf("node-%d", rank), "home"))
	if len(found) != 1 {
		w.t.Fatalf("node %d of %s: %v", rank, cluster, found)
	}
	return found[0]
}

// status is the state of a cluster, "" if there is none.
func (w *world) status(cluster string) string {
	w.t.Helper()
	var records []struct{ Name, Status string }
	out := w.stdout("status", "-o", "json", cluster)
	if err := json.Unmarshal([]byte(out), &records); err != nil {
		w.t.Fatalf("%v in %q", err, out)
	}
	for _, r := range records {
		if r.Name == cluster {
			return r.Status
		}
	}
	return ""
}

// stdout runs a command and returns only what it printed to standard output.
func (w *world) stdout(args ...string) string {
	w.t.Helper()
	c := w.command(args...)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		w.t.Fatalf("sky %s: %v\n%s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return string(out)
}

// serverPID is the pid of the running API server, 0 if there is none.
func (w *world) serverPID() int {
	var i struct{ PID int }
	b, err := os.ReadFile(filepath.Join(w.home, ".sky/api_server/instance.json"))
	if err != nil || json.Unmarshal(b, &i) != nil {
		return 0
	}
	if syscall.Kill(i.PID, 0) != nil {
		return 0
	}
	return i.PID
}

// killServer ends the API server as a power cut would.
func (w *world) killServer() {
	if pid := w.serverPID(); pid != 0 {
		syscall.Kill(pid, syscall.SIGKILL)
		for syscall.Kill(pid, 0) == nil {
			time.Sleep(time.Millisecond)
		}
	}
}

// agents are the pids of the running agents, as they note them down: a process
// that one is just starting for a job looks like an agent too for a moment.
func (w *world) agents() []int {
	var pids []int
	files, _ := filepath.Glob(filepath.Join(w.home, ".sky/local/*/node-*/home/.sky/agent/agent.json"))
	for _, f := range files {
		var a struct{ PID int }
		b, err := os.ReadFile(f)
		if err != nil || json.Unmarshal(b, &a) != nil {
			continue
		}
		if cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", a.PID)); bytes.Contains(cmd, []byte("agent\x00--home")) {
			pids = append(pids, a.PID)
		}
	}
	return pids
}

// eventually waits until f holds.
func eventually(t testing.TB, what string, limit time.Duration, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, limit)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func tailOf(path string, n int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if len(b) > n {
		b = b[len(b)-n:]
	}
	return string(b)
}
