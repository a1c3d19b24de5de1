//go:build e2e && linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// kills is how often each crash test kills; SKY_E2E_KILLS changes it.
func kills(t *testing.T, usual int) int {
	t.Helper()
	if v := os.Getenv("SKY_E2E_KILLS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return usual
}

// seed makes a failing schedule repeatable with SKY_E2E_SEED.
func seed(t *testing.T) *rand.Rand {
	t.Helper()
	s := uint64(time.Now().UnixNano())
	if v := os.Getenv("SKY_E2E_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		s = n
	}
	t.Logf("SKY_E2E_SEED=%d", s)
	return rand.New(rand.NewPCG(s, s))
}

// TestTheServerDiesDuringLaunchExecAndDown kills the server at random moments.
// Whatever was under way ends, well or with a reason; no job runs twice; a
// cluster that is down leaves nothing.
func TestTheServerDiesDuringLaunchExecAndDown(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	r := seed(t)
	runs := w.write("runs", "") // every run of a job leaves a line here
	w.write("proj/file", strings.Repeat("x", 100_000))
	w.sky("api", "start")
	died := 0
	for round := 0; died < kills(t, 50); round++ {
		name := fmt.Sprintf("c%d", round)
		mark := func(what string) string { return fmt.Sprintf("echo %s-%s >> %s", name, what, runs) }
		task := w.write(name+".yaml", fmt.Sprintf("workdir: %s\nnum_nodes: 2\nsetup: sleep 0.0%d\nrun: |\n  [ $SKYPILOT_NODE_RANK != 0 ] || %s\n",
			filepath.Join(w.home, "proj"), r.IntN(9), mark("launch")))
		steps := [][]string{
			{"launch", "-y", "-d", "-c", name, task},
			{"exec", name, "-d", "--", mark("exec")},
			{"down", "-y", name},
		}
		for _, args := range steps {
			c := w.command(args...)
			out, _ := os.CreateTemp(w.home, "out-")
			c.Stdout, c.Stderr = out, out
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- c.Wait() }()
			if r.IntN(3) > 0 {
				time.Sleep(time.Duration(r.IntN(600)) * time.Millisecond)
				w.killServer()
				died++
				w.sky("api", "start")
			}
			select {
			case <-ended:
			case <-time.After(60 * time.Second):
				t.Errorf("sky %v hangs after the server came back:\n%s", args, tailOf(out.Name(), 3000))
				c.Process.Kill()
				<-ended
			}
			out.Close()
			w.settled()
		}
		// The kill may have hit before a request was accepted: make sure.
		w.run("down", "-y", name)
		w.settled()
	}
	for _, what := range []string{"sky.launch", "sky.exec", "sky.down"} {
		for id, status := range w.requestsOf(what) {
			if status == "PENDING" || status == "RUNNING" {
				t.Errorf("%s %s is still %s", what, id, status)
			}
		}
	}
	for line, n := range lines(t, runs) {
		if n > 1 {
			t.Errorf("%s ran %d times", line, n)
		}
	}
	eventually(t, "the sweep has taken what was left", 90*time.Second, func() bool { return len(w.folders()) == 0 })
	t.Logf("%d kills", died)
}

// settled waits until no launch, exec or down is under way.
func (w *workstation) settled() {
	w.t.Helper()
	eventually(w.t, "requests end", 90*time.Second, func() bool {
		for _, what := range []string{"sky.launch", "sky.exec", "sky.down"} {
			for _, status := range w.requestsOf(what) {
				if status == "PENDING" || status == "RUNNING" {
					return false
				}
			}
		}
		return true
	})
}

// TestTheAgentsDie kills agents of a cluster at random moments while jobs come
// and run. Every job ends as it should, and ran once.
func TestTheAgentsDie(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	r := seed(t)
	runs := w.write("runs", "")
	w.sky("launch", "-y", "-c", "c1", "--num-nodes", "2")
	const jobs = 12
	submitted := 0
	for died := 0; died < kills(t, 50); {
		if submitted < jobs {
			task := w.write("job.yaml", fmt.Sprintf("num_nodes: 2\nrun: |\n  [ $SKYPILOT_NODE_RANK != 0 ] || echo job-%d >> %s\n  for i in 1 2 3 4; do echo line $i of job %d; sleep 0.3; done\n",
				submitted, runs, submitted))
			if out, code := w.run("exec", "c1", "-d", task); code == 0 {
				submitted++
			} else {
				t.Logf("exec during a kill: exit %d: %s", code, lastLine(out))
			}
		}
		pids := w.agents()
		if len(pids) == 0 {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		syscall.Kill(pids[r.IntN(len(pids))], syscall.SIGKILL)
		died++
		time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
	}
	var out string
	defer func() {
		if t.Failed() {
			t.Logf("%s\nhead:\n%s\nworker:\n%s", out, tailOf(filepath.Join(w.node("c1", 0), ".sky/agent/agent.log"), 4000),
				tailOf(filepath.Join(w.node("c1", 1), ".sky/agent/agent.log"), 4000))
		}
	}()
	eventually(t, "all jobs end", 2*time.Minute, func() bool {
		var code int
		out, code = w.run("queue", "c1")
		return code == 0 && !strings.Contains(out, "PENDING") && !strings.Contains(out, "RUNNING") &&
			!strings.Contains(out, "SETTING_UP") && !strings.Contains(out, "INIT") && strings.Contains(out, "SUCCEEDED")
	})
	out = w.sky("queue", "c1")
	if n := strings.Count(out, "SUCCEEDED"); n < submitted {
		t.Errorf("%d of %d jobs succeeded:\n%s", n, submitted, out)
	}
	for line, n := range lines(t, runs) {
		if n > 1 {
			t.Errorf("%s ran %d times", line, n)
		}
	}
	for id := 1; id <= submitted; id++ {
		out := w.sky("logs", "c1", strconv.Itoa(id), "--no-follow")
		for i := 1; i <= 4; i++ {
			if n := strings.Count(out, fmt.Sprintf("line %d of job", i)); n != 2 {
				t.Errorf("job %d: line %d stands %d times in the log, want 2 (one a node)\n%s", id, i, n, out)
				break
			}
		}
	}
}

// TestALogStreamIsResumed kills the server under a follower.
func TestALogStreamIsResumed(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	w.sky("launch", "-y", "-c", "c1", "-d", "--", "for i in $(seq 1 60); do echo n=$i.; sleep 0.1; done")
	c := w.command("logs", "c1", "--tail", "0")
	out, _ := os.CreateTemp(w.home, "out-")
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		time.Sleep(1200 * time.Millisecond)
		w.killServer()
		w.sky("api", "start")
	}
	err := c.Wait()
	got, _ := os.ReadFile(out.Name())
	if err != nil {
		t.Errorf("%v\n%s", err, got)
	}
	for i := 1; i <= 60; i++ {
		if n := strings.Count(string(got), fmt.Sprintf("n=%d.", i)); n != 1 {
			t.Errorf("line %d was shown %d times", i, n)
		}
	}
	wants(t, string(got), "SUCCEEDED")
}

// TestASyncIsResumed kills an agent while files are on their way to it.
func TestASyncIsResumed(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	for i := range 40 {
		w.write(fmt.Sprintf("proj/f%d", i), noise(i, 4<<20))
	}
	w.sky("launch", "-y", "-c", "c1")
	task := w.write("task.yaml", "workdir: ./proj\nrun: ls | wc -l; cat f* | wc -c\n")
	c := w.command("exec", "c1", task)
	out, _ := os.CreateTemp(w.home, "out-")
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(250 * time.Millisecond)
	for _, pid := range w.agents() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	err := c.Wait()
	got, _ := os.ReadFile(out.Name())
	if err != nil {
		t.Fatalf("%v\n%s", err, got)
	}
	wants(t, string(got), ") 40", fmt.Sprint(40*(4<<20)))
}

func noise(seed, n int) string {
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

func lines(t *testing.T, path string) map[string]int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, l := range strings.Fields(string(b)) {
		out[l]++
	}
	return out
}

func lastLine(s string) string {
	ls := strings.Split(strings.TrimSpace(s), "\n")
	return ls[len(ls)-1]
}
