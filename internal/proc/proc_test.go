//go:build unix

package proc

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// start runs a shell script in its own session with the marker SKY_TEST=value.
func start(t *testing.T, value, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = append(os.Environ(), "SKY_TEST="+value)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = End(context.Background(), func() []int { return Tree(cmd.Process.Pid, true, "SKY_TEST", value) }, 0)
		_ = cmd.Wait()
	})
	return cmd
}

func marker(t *testing.T) string {
	return strings.ReplaceAll(t.Name(), "/", "-") + strconv.Itoa(os.Getpid())
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within a minute: %s", what)
}

func TestIdentity(t *testing.T) {
	mine, err := StartTime(os.Getpid())
	if err != nil || mine == "" {
		t.Fatalf("own start time: %q, %v", mine, err)
	}
	if again, _ := StartTime(os.Getpid()); again != mine {
		t.Errorf("identity changed from %q to %q", mine, again)
	}
	if !Alive(os.Getpid(), mine) || !Alive(os.Getpid(), "") {
		t.Error("this process is not alive")
	}
	if Alive(os.Getpid(), mine+"0") {
		t.Error("another start time counts as this process")
	}
	if Alive(0, "") || Alive(-1, "") {
		t.Error("process groups count as processes")
	}
	if BootID() == "" {
		t.Error("no boot id")
	}
}

func TestZombieIsDead(t *testing.T) {
	cmd := start(t, marker(t), "exit 0")
	eventually(t, "zombie counts as dead", func() bool { return !Alive(cmd.Process.Pid, "") })
	if _, err := StartTime(1 << 22); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("no such process: got %v", err)
	}
}

func TestMarkedAndDescendants(t *testing.T) {
	value := marker(t)
	cmd := start(t, value, "sleep 60 & sleep 60; :")
	eventually(t, "shell and two sleeps are marked", func() bool { return len(Marked("SKY_TEST", value)) == 3 })
	if got := Descendants(cmd.Process.Pid); len(got) != 2 {
		t.Errorf("descendants of the shell: %v, want two", got)
	}
	if !slices.Contains(Descendants(os.Getpid()), cmd.Process.Pid) {
		t.Error("a child is not a descendant")
	}
	if got := Marked("SKY_TEST", value+"x"); len(got) != 0 {
		t.Errorf("marked with another value: %v", got)
	}
	if got := Marked("KY_TEST", value); len(got) != 0 {
		t.Errorf("marked with a part of the name: %v", got)
	}
}

// Trees that try to get away; each prints a line when it is set up.
var escapes = map[string]string{
	"plain children":       "sleep 60 & sleep 60 & echo up; wait",
	"ignores TERM":         "trap '' TERM; sleep 60 & echo up; while :; do sleep 1; done",
	"double fork":          "(setsid sh -c 'sleep 60 & echo up; wait' &) & wait; sleep 60",
	"leader is gone":       "(setsid sleep 60 &); echo up",
	"cleared environment":  "env -i sleep 60 & echo up; wait",
	"stopped":              "sh -c 'kill -STOP $$; sleep 60' & echo up; sleep 60",
	"starts more on TERM":  "trap 'sleep 61 & sleep 61' TERM; echo up; sleep 60; sleep 60",
	"cleared, own session": "setsid env -i sh -c 'sleep 60; :' & echo up; wait",
}

func TestEndLeavesNothing(t *testing.T) {
	for name, script := range escapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			value := marker(t)
			out := filepath.Join(t.TempDir(), "out")
			cmd := start(t, value, "exec >"+out+"; "+script)
			eventually(t, "script is up", func() bool { b, _ := os.ReadFile(out); return len(b) > 0 })
			time.Sleep(30 * time.Millisecond) // let background children exec
			seen := map[int]string{}
			find := func() []int {
				pids := Tree(cmd.Process.Pid, true, "SKY_TEST", value)
				for _, pid := range pids {
					seen[pid], _ = StartTime(pid)
				}
				return pids
			}
			if err := End(t.Context(), find, 300*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if len(seen) == 0 {
				t.Fatal("found nothing to end")
			}
			for pid, id := range seen {
				if id != "" && Alive(pid, id) {
					t.Errorf("process %d still lives", pid)
				}
			}
		})
	}
}

// What a process starts to end well is left to it.
func TestEndLetsProcessesSave(t *testing.T) {
	value := marker(t)
	out := filepath.Join(t.TempDir(), "out")
	cmd := start(t, value, "exec >"+out+"; trap 'sh -c \"sleep 0.5; echo saved\"; exit' TERM; echo up; while :; do sleep 0.05; done")
	eventually(t, "script is up", func() bool { b, _ := os.ReadFile(out); return len(b) > 0 })
	if err := End(t.Context(), func() []int { return Tree(cmd.Process.Pid, true, "SKY_TEST", value) }, time.Hour); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(out); string(b) != "up\nsaved\n" {
		t.Errorf("it wrote %q", b)
	}
}

// Each process is asked once and has the whole grace, whoever else ends the same
// processes, and although the first of them is gone at once.
func TestAnEndingIsShared(t *testing.T) {
	value := marker(t)
	out := filepath.Join(t.TempDir(), "out")
	// The inner shell saves until a file says that it may end.
	start(t, value, "exec >"+out+`; sh -c 'trap "echo asked" TERM; echo up; until [ -e `+out+`.end ]; do sleep 0.02; done; echo saved' & wait`)
	written := func() string { b, _ := os.ReadFile(out); return string(b) }
	eventually(t, "script is up", func() bool { return written() == "up\n" })
	find := func() []int { return Tree(0, false, "SKY_TEST", value) }
	var e Ending
	e.Within(time.Hour)
	ended := make(chan error, 2)
	go func() { ended <- e.Run(t.Context(), find) }()
	eventually(t, "it is asked, and the outer shell is gone", func() bool { return written() == "up\nasked\n" && len(find()) <= 2 })
	e.Default(0) // as whoever clears up behind the outer shell
	e.Within(2 * time.Hour)
	go func() { ended <- e.Run(t.Context(), find) }()
	time.Sleep(100 * time.Millisecond) // several looks
	if err := os.WriteFile(out+".end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	if got := written(); got != "up\nasked\nsaved\n" {
		t.Errorf("it wrote %q, want one TERM and no KILL", got)
	}
}

func TestAnEndThatWasAskedForIsNotPutOff(t *testing.T) {
	var e Ending
	start := time.Now()
	left := func() time.Duration { return e.deadline.Sub(start).Round(time.Minute) }
	e.Default(time.Minute)
	e.Within(time.Hour)
	if left() != time.Hour {
		t.Errorf("a default limits what is asked for: %v", left())
	}
	e.Within(2 * time.Hour)
	e.Default(time.Minute)
	if left() != time.Hour {
		t.Errorf("an end is put off: %v", left())
	}
	e.Within(time.Minute)
	if left() != time.Minute {
		t.Errorf("an earlier end is not taken: %v", left())
	}
}

func TestEndStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := End(ctx, func() []int { return []int{1 << 22} }, time.Hour)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestWait(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	id, err := StartTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := Wait(ctx, pid, id); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a living process: got %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- Wait(t.Context(), pid, id) }()
	if err := in.(io.Closer).Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("an exited process: got %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("reaping after Wait: %v", err)
	}
	if err := Wait(t.Context(), pid, id); err != nil {
		t.Errorf("a reaped process: got %v", err)
	}
}

func BenchmarkTree(b *testing.B) {
	for b.Loop() {
		Tree(0, false, "SKY_TEST", "nobody")
	}
}

// The process that the others come from is ended with them, and not counted.
func TestTheRootOfAnEndingIsNotCounted(t *testing.T) {
	value := marker(t)
	cmd := start(t, value, "sleep 1000 & wait")
	find := func() []int { return Tree(0, false, "SKY_TEST", value) }
	eventually(t, "both run", func() bool { return len(find()) == 2 })
	var e Ending
	e.Root(cmd.Process.Pid)
	e.Within(time.Hour)
	if err := e.Run(t.Context(), find); err != nil || e.Count() != 1 {
		t.Errorf("%d counted, %v", e.Count(), err)
	}
}

// A process that ends between the look that finds it and the step is counted once.
func TestAProcessThatEndsIsCountedOnce(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var e Ending
	e.Within(time.Hour)
	pids := []int{cmd.Process.Pid}
	e.step(pids, time.Now())
	_ = cmd.Wait()
	e.step(pids, time.Now())
	if n := e.Count(); n != 1 {
		t.Errorf("counted %d times", n)
	}
}
