//go:build e2e && linux

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestWrongTaskFiles(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	for _, tt := range []struct {
		name, text string
		says       []string
	}{
		{"unknown field", "nme: x\nrun: echo hi\n", []string{"task.yaml:1:1", "name"}},
		{"wrong type", "num_nodes: many\nrun: echo hi\n", []string{"task.yaml:1:", "num_nodes"}},
		{"missing workdir", "workdir: ./nowhere\nrun: echo hi\n", []string{"nowhere"}},
		{"missing mount", "file_mounts: {~/x: ./nothing}\nrun: echo hi\n", []string{"nothing"}},
		{"two tasks", "name: a\nrun: echo 1\n---\nname: b\nrun: echo 2\n", []string{"sky jobs launch"}},
		{"a GPU that is not there", "resources: {accelerators: A100:8}\nrun: echo hi\n", []string{"A100"}},
		{"a bucket", "file_mounts: {~/x: s3://bucket}\nrun: echo hi\n", []string{"s3://bucket"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &workstation{t: t, home: w.home, port: w.port, env: w.env}
			out, code := w.run("launch", "-y", "-c", "wrong", w.write("task.yaml", tt.text))
			if code == 0 {
				t.Errorf("it was accepted:\n%s", out)
			}
			wants(t, out, tt.says...)
			if s := w.status("wrong"); s != "" {
				t.Errorf("a cluster was left: %s", s)
			}
		})
	}
	if left := w.folders(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestWrongClusters(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	for _, args := range [][]string{{"exec", "nosuch", "--", "true"}, {"logs", "nosuch"}, {"queue", "nosuch"}, {"ssh", "nosuch", "--", "true"}} {
		out, code := w.run(args...)
		if args[0] != "queue" && code == 0 {
			t.Errorf("sky %v succeeded:\n%s", args, out)
		}
		wants(t, out, "nosuch")
	}
	w.fails(1, []string{"bad_name!"}, "launch", "-y", "-c", "bad_name!", "--", "true")
	w.fails(2, []string{"Usage:"}, "launch", "--no-such-flag")
}

func TestAnotherUsersClusterIsAskedAbout(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	w.sky("launch", "-y", "-c", "mine")
	other := &workstation{t: t, home: w.home, port: w.port, env: append([]string{"SKYPILOT_USER_ID=abcdef01", "SKYPILOT_USER=someone"}, w.env...)}
	out, code := other.run("launch", "-c", "mine", "--", "true")
	if code == 0 {
		t.Errorf("it was taken without asking:\n%s", out)
	}
	wants(t, out, "tester")
}

func TestAnUnreadableFile(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		if _, err := exec.LookPath("setpriv"); err != nil {
			t.Skip("root reads everything, and setpriv is not there to become somebody else")
		}
	}
	w := newWorkstation(t)
	secret := w.write("proj/secret", "x")
	os.Chmod(secret, 0)
	task := w.write("task.yaml", "workdir: ./proj\nrun: ls\n")
	args := []string{"launch", "-y", "-c", "c1", task}
	if os.Geteuid() == 0 {
		// Everything, the server included, as nobody.
		if err := exec.Command("chown", "-R", "nobody", w.home).Run(); err != nil {
			t.Fatal(err)
		}
		os.Chmod(filepath.Dir(binary), 0o755)
		as := func(args ...string) (string, error) {
			c := exec.Command("setpriv", append([]string{"--reuid", "nobody", "--clear-groups", binary}, args...)...)
			c.Env, c.Dir = w.env, w.home
			out, err := c.CombinedOutput()
			return string(out), err
		}
		t.Cleanup(func() { // it is nobody's server, so root does not touch it
			for _, args := range [][]string{{"down", "-a", "-y"}, {"api", "stop"}} {
				if out, err := as(args...); err != nil {
					t.Errorf("sky %v: %v\n%s", args, err, out)
				}
			}
		})
		out, err := as(args...)
		if err == nil {
			t.Errorf("it succeeded:\n%s", out)
		}
		wants(t, out, "secret", "ermission")
		return
	}
	wants(t, w.fails(1, []string{"secret"}, args...), "ermission")
}

func TestThePortIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", w.port))
	if err != nil {
		t.Fatal(err)
	}
	go http.Serve(l, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "hello") }))
	out, code := w.run("status")
	l.Close()
	if code == 0 {
		t.Errorf("it succeeded:\n%s", out)
	}
	wants(t, out, fmt.Sprint(w.port))
}

func TestAServerOfAnotherVersion(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", w.port))
	if err != nil {
		t.Fatal(err)
	}
	go http.Serve(l, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("X-SkyPilot-API-Version", "7")
		rw.Header().Set("X-SkyPilot-Version", "0.1.0")
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprint(rw, `{"status":"healthy","api_version":"7","version":"0.1.0","commit":"old"}`)
	}))
	out, code := w.run("status")
	l.Close()
	if code == 0 {
		t.Errorf("it succeeded:\n%s", out)
	}
	wants(t, out, "0.1.0")
}

// TestJobsThatPrintWildly looks at output that breaks naive log handling.
func TestJobsThatPrintWildly(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	w.sky("launch", "-y", "-c", "c1")
	out := w.sky("exec", "c1", "--", `printf 'bin \x00\xff\xfe end\n'; head -c 3000000 /dev/zero | tr '\0' x; echo; echo done`)
	wants(t, out, "done", "end")
	if n := strings.Count(out, "x"); n < 3_000_000 {
		t.Errorf("the long line lost bytes: %d", n)
	}
	// A gigabyte, not followed: the agent and the server stay small.
	w.sky("exec", "c1", "-d", "--", "yes 0123456789012345678901234567890123456789012345678901234567890123456789 | head -c 1000000000; echo; echo gigabyte done")
	eventually(t, "the job ends", 3*time.Minute, func() bool {
		_, code := w.run("logs", "c1", "2", "--status")
		return code == 0
	})
	wants(t, w.sky("logs", "c1", "2", "--tail", "5"), "gigabyte done")
	for pid := range w.processes() {
		if kb := rss(pid); kb > 200_000 {
			t.Errorf("process %d uses %d MB", pid, kb/1000)
		}
	}
}

// TestAFullDisk launches onto a file system that has no room left.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	w := newWorkstation(t)
	w.sky("api", "start")
	small := filepath.Join(w.home, ".sky", "local")
	os.MkdirAll(small, 0o755)
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small).CombinedOutput(); err != nil {
		t.Skipf("mounting is not permitted here: %s", out)
	}
	defer exec.Command("umount", "-l", small).Run()
	w.write("proj/big", noise(1, 8<<20))
	task := w.write("task.yaml", "workdir: ./proj\nrun: echo hi\n")
	out, code := w.run("launch", "-y", "-c", "full", task)
	if code == 0 {
		t.Errorf("it succeeded:\n%s", out)
	}
	wants(t, out, "full")
	if !strings.Contains(out, "disk") && !strings.Contains(out, "space") {
		t.Errorf("it does not say that the disk is full:\n%s", out)
	}
	w.sky("down", "-a", "-y")
	if left := w.folders(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func rss(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		var kb int
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kb); err == nil {
			return kb
		}
	}
	return 0
}
