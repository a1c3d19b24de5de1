//go:build e2e && linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestARecoveringJobSurvivesItsServer takes the machine of a job away and kills the
// server when the agent of the next machine has just taken the job, which is when the
// server has not written that down yet. The next server takes over the job that runs: it is
// not cancelled and does not run a third time.
//
//	SKY_E2E_KILLS=20 go test -tags e2e -run ARecoveringJobSurvives ./test/e2e
func TestARecoveringJobSurvivesItsServer(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	r := seed(t)
	for n := 1; n <= kills(t, 5); n++ {
		begun, end := filepath.Join(w.home, fmt.Sprintf("begun%d", n)), filepath.Join(w.home, fmt.Sprintf("end%d", n))
		task := w.write("again.yaml", fmt.Sprintf(`
name: again
run: |
  echo begun >> %s
  until [ -e %s ]; do sleep 0.1; done
`, begun, end))
		w.sky("jobs", "launch", "-y", "-d", task)
		id := fmt.Sprintf("%d.0", n)
		w.reaches(id, "RUNNING")
		eventually(t, "it begins", time.Minute, func() bool { return begins(begun) == 1 })
		pid := w.serverPID()
		w.preempt(fmt.Sprintf("again-%d", n))
		logs := filepath.Join(w.home, fmt.Sprintf(".sky/local/again-%d-*/node-*/home/sky_logs/*", n)) // begun as the agent takes the job
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Microsecond) {
			if found, _ := filepath.Glob(logs); len(found) > 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("round %d: it does not begin again: %+v", n, w.managed()[id])
			}
		}
		time.Sleep(time.Duration(r.IntN(8)) * time.Millisecond)
		syscall.Kill(pid, syscall.SIGKILL)
		for syscall.Kill(pid, 0) == nil {
			time.Sleep(time.Millisecond)
		}
		w.sky("api", "start")
		w.reaches(id, "RUNNING")
		eventually(t, "it begins again", time.Minute, func() bool { return begins(begun) == 2 })
		time.Sleep(time.Second) // what the new server does to it would show by now
		if err := os.WriteFile(end, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if j := w.done(id); j.Status != "SUCCEEDED" || j.Recoveries != 1 || begins(begun) != 2 {
			t.Errorf("round %d: %+v, which began %d times", n, j, begins(begun))
		}
	}
}

// begins is how many lines a file has; none if it is not there.
func begins(path string) (n int) {
	b, _ := os.ReadFile(path)
	for _, c := range b {
		if c == '\n' {
			n++
		}
	}
	return n
}
