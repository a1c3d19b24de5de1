package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A container whose first process is asked to end lets each of its programs save what
// it has, asks it once, and stops the agent before: it sees none of that.
func TestTheFirstProcessOfAContainerGivesTheOthersTime(t *testing.T) {
	shells := []string{"sh", "bash", "busybox"}
	if out, err := exec.Command("unshare", "--fork", "--pid", "--mount-proc", "true").CombinedOutput(); err != nil {
		t.Skipf("no namespaces of processes here: %v: %s", err, out)
	}
	for _, shell := range shells {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		argv := []string{path}
		if shell == "busybox" {
			argv = append(argv, "sh")
		}
		for _, form := range []string{`%d\n`, `{"pid":%d,"start":"x"}\n`, `%d`} {
			dir := t.TempDir()
			file := func(name string) string { return filepath.Join(dir, name) }
			has := func(name string) string { b, _ := os.ReadFile(file(name)); return string(b) }
			agent := `trap 'echo told >` + file("agent-told") + `' TERM; printf '` + form + `' $$ >` + file("agent") + `; while :; do sleep 0.05; done`
			program := `trap 'echo asked >>` + file("asked") + `' TERM; : >` + file("ready") + `; until [ -e ` + file("go") + ` ]; do sleep 0.05; done; echo saved >` + file("saved")
			script := "sh -c " + quote(agent) + " &\nsh -c " + quote(program) + " &\n" + FirstProcess(file("agent"), "trap 'exit 77' USR1\n")
			cmd := exec.Command("unshare", append([]string{"--fork", "--pid", "--mount-proc", "--kill-child"}, append(argv, "-c", script)...)...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			eventually(t, shell+" is up", func() bool { return has("agent") != "" && len(Descendants(cmd.Process.Pid)) > 3 })
			eventually(t, shell+": the program is up", func() bool { _, err := os.Stat(file("ready")); return err == nil })
			first := Descendants(cmd.Process.Pid)[0]
			eventually(t, shell+": the first process listens", func() bool { return catches(first, syscall.SIGTERM) }) // before, the kernel drops it
			if err := syscall.Kill(first, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			eventually(t, shell+": the program is asked", func() bool { return has("asked") != "" })
			if err := os.WriteFile(file("go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Errorf("%s: it ended with %v", shell, err)
			}
			if has("asked") != "asked\n" || has("saved") != "saved\n" || has("agent-told") != "" {
				t.Errorf("%s, %q: asked %q, saved %q, the agent was told %q", shell, form, has("asked"), has("saved"), has("agent-told"))
			}
		}
	}
}

// In a container that shares its processes with the machine, the others are not ours.
func TestAContainersFirstProcessEndsNothingOutside(t *testing.T) {
	if out, err := exec.Command("unshare", "--fork", "--pid", "--mount-proc", "true").CombinedOutput(); err != nil {
		t.Skipf("no namespaces of processes here: %v: %s", err, out)
	}
	out, err := exec.Command("unshare", "--fork", "--pid", "--mount-proc", "--kill-child", "sh", "-c",
		`sh -c 'trap "echo asked" TERM; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done; echo through' & other=$!
sh -c `+quote(FirstProcess("/none", ""))+` & first=$!
sleep 0.3; kill -TERM $first; wait $first; echo ended $?; wait $other`).CombinedOutput()
	if got := string(out); err != nil || got != "ended 0\nthrough\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// catches reports whether a process has a handler for a signal.
func catches(pid int, signal syscall.Signal) bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if mask, ok := strings.CutPrefix(line, "SigCgt:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && bits&(1<<(signal-1)) != 0
		}
	}
	return false
}

// The first process does not wait for its own sleep, which may have missed the signal.
func TestTheFirstProcessOfAContainerEndsWhenItsSleepDoesNot(t *testing.T) {
	if out, err := exec.Command("unshare", "--fork", "--pid", "--mount-proc", "true").CombinedOutput(); err != nil {
		t.Skipf("no namespaces of processes here: %v: %s", err, out)
	}
	real, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	deaf := "#!/bin/sh\ntrap '' TERM\n: >" + filepath.Join(dir, "sleeps") + "\nexec " + real + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "sleep"), []byte(deaf), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--fork", "--pid", "--mount-proc", "--kill-child", "sh", "-c", FirstProcess(filepath.Join(dir, "none"), ""))
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	eventually(t, "it sleeps", func() bool { _, err := os.Stat(filepath.Join(dir, "sleeps")); return err == nil })
	first := Descendants(cmd.Process.Pid)[0]
	eventually(t, "it listens", func() bool { return catches(first, syscall.SIGTERM) })
	if err := syscall.Kill(first, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		t.Error("it waits for its sleep")
	}
}
