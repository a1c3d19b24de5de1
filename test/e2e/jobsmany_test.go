//go:build e2e && linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestJobArrays submits a job several times in one go and ends what is left of
// it by name.
func TestJobArrays(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	ranks := w.write("ranks", "")
	out := w.sky("jobs", "launch", "-y", "-n", "sweep", "--num-jobs", "3", "--",
		"echo $SKYPILOT_JOB_RANK/$SKYPILOT_NUM_JOBS >> "+ranks+"; [ $SKYPILOT_JOB_RANK = 0 ] || sleep 1000")
	wants(t, out, "Jobs submitted with IDs: 1,2,3", "sky jobs cancel --name sweep")
	w.done1("1.0")
	eventually(t, "all have begun", 60*time.Second, func() bool { return len(lines(t, ranks)) == 3 })
	for i := range 3 {
		if n := ran(t, ranks, fmt.Sprintf("%d/3", i)); n != 1 {
			t.Errorf("rank %d ran %d times", i, n)
		}
	}
	wants(t, w.sky("jobs", "cancel", "-y", "-n", "sweep"), "Jobs with IDs 2, 3 are scheduled")
	for id, want := range map[string]string{"1.0": "SUCCEEDED", "2.0": "CANCELLED", "3.0": "CANCELLED"} {
		w.reaches(id, want)
	}
	w.done("2.0")
	w.done("3.0")
	w.fails(1, []string{"should be from 1 to"}, "jobs", "launch", "-y", "--num-jobs", "20000", "--", "true")
	wants(t, w.sky("jobs", "queue", "-v"), "Attempts", "$/HR", "sweep-1", "succeeded", "aborted")
}

// done1 is done while other jobs go on.
func (w *workstation) done1(task string) {
	w.t.Helper()
	eventually(w.t, "job "+task+" is done", 60*time.Second, func() bool { return w.managed()[task].Schedule == "DONE" })
}

// TestSchedules keeps a schedule through the death of the server and lets it
// submit jobs.
func TestSchedules(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	runs := w.write("runs", "")
	if err := os.Mkdir(filepath.Join(w.home, "work"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.write("work/what", "scheduled\n")
	task := w.write("task.yaml", "name: often\nschedule: \"@every 2s\"\nworkdir: work\nrun: cat what >> "+runs+"\n")
	wants(t, w.sky("jobs", "launch", "-y", task), "Schedule kept, ID: 1", "sky jobs schedule cancel 1")
	w.killServer()
	os.RemoveAll(filepath.Join(w.home, "work")) // the server has a copy
	w.sky("api", "start")
	eventually(t, "the schedule ran twice", 60*time.Second, func() bool { return ran(t, runs, "scheduled") >= 2 })
	wants(t, w.sky("jobs", "schedule", "ls"), "often", "@every 2s", "ACTIVE")
	wants(t, w.sky("jobs", "schedule", "cancel", "-y", "1"), "Ended: 1")
	wants(t, w.sky("jobs", "schedule", "ls"), "No schedules.")
	var list []struct {
		Runs int `json:"runs"`
	}
	if err := json.Unmarshal([]byte(w.stdout("jobs", "schedule", "ls", "-a", "-o", "json")), &list); err != nil || len(list) != 1 || list[0].Runs < 2 {
		t.Fatalf("%v %+v", err, list)
	}
	w.sky("jobs", "cancel", "-y", "-a")
	eventually(t, "its jobs have ended", 60*time.Second, func() bool {
		for _, j := range w.managed() {
			if j.Schedule != "DONE" {
				return false
			}
		}
		return true
	})
	if jobs := w.managed(); len(jobs) != list[0].Runs {
		t.Errorf("%d jobs of %d runs", len(jobs), list[0].Runs)
	}
	eventually(t, "the files of the schedule are gone", time.Minute, func() bool {
		left, _ := filepath.Glob(filepath.Join(w.home, ".sky/api_server/jobs/files/*"))
		return len(left) == 0
	})
}

// TestCancelAtAnyMoment cancels jobs at random moments of their lives, now and
// then with the server dying right after, and takes their machines away now
// and then before. Each ends CANCELLED and leaves nothing behind.
func TestCancelAtAnyMoment(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	r := seed(t)
	w.sky("api", "start")
	rounds := kills(t, 8)
	for n := 1; n <= rounds && !t.Failed(); n++ {
		task := w.write("task.yaml", fmt.Sprintf("name: c%d\nsetup: sleep 0.%d\nrun: sleep 1000\n", n, r.IntN(8)))
		w.sky("jobs", "launch", "-y", "-d", task)
		id := fmt.Sprintf("%d.0", n)
		time.Sleep(time.Duration(r.IntN(2500)) * time.Millisecond)
		how := []string{"plain"}
		if r.IntN(3) == 0 { // it recovers, or is about to
			if found, _ := filepath.Glob(filepath.Join(w.home, ".sky/local", fmt.Sprintf("c%d-%d-*", n, n))); len(found) > 0 && w.managed()[id].Status == "RUNNING" {
				w.preempt(fmt.Sprintf("c%d-%d", n, n))
				time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
				how = append(how, "preempted")
			}
		}
		was := w.managed()[id].Status
		w.sky("jobs", "cancel", "-y", fmt.Sprint(n))
		if r.IntN(2) == 0 {
			time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
			w.killServer()
			w.sky("api", "start")
			how = append(how, "server killed")
		}
		if j := w.done(id); j.Status != "CANCELLED" {
			t.Errorf("job %d (%s, was %s): %+v", n, strings.Join(how, ", "), was, j)
		}
		t.Logf("job %d was %s: %s", n, was, strings.Join(how, ", "))
	}
}

// TestManagedJobsThatCannotBe are refused with a reason, and leave nothing.
func TestManagedJobsThatCannotBe(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	bad := w.write("bad.yaml", "name: bad\nresources: {job_recovery: FAILOVERR}\nrun: echo\n")
	w.fails(1, []string{"bad.yaml:2:", "FAILOVERR", "FAILOVER"}, "jobs", "launch", "-y", bad)
	gone := w.write("gone.yaml", "name: gone\nworkdir: ./gone\nrun: echo\n")
	w.fails(1, []string{"gone.yaml:2:", "./gone", "does not exist"}, "jobs", "launch", "-y", gone)
	w.fails(100, []string{"FAILED_PRECHECKS", "100000"}, "jobs", "launch", "-y", "-n", "big", "--cpus", "100000", "--", "echo")
	if j := w.done("1.0"); j.Status != "FAILED_PRECHECKS" || j.Failure == "" {
		t.Errorf("%+v", j)
	}
	wants(t, w.sky("jobs", "schedule", "ls"), "No schedules.")
	w.fails(1, []string{"no schedule"}, "jobs", "launch", "-y", w.write("when.yaml", "schedule: sometimes\nrun: echo\n"))
}
