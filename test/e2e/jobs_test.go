//go:build e2e && linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/test/harness"
)

// managedJob is one task in the list of managed jobs.
type managedJob = harness.ManagedJob

// managed lists managed jobs by "job.task".
func (w *workstation) managed() map[string]managedJob {
	w.t.Helper()
	return w.of().Managed()
}

// reaches waits until a task of a managed job has a state.
func (w *workstation) reaches(task, status string) managedJob {
	w.t.Helper()
	var last managedJob
	deadline := time.Now().Add(60 * time.Second)
	for time.Now().Before(deadline) {
		last = w.managed()[task]
		if last.Status == status {
			return last
		}
		time.Sleep(100 * time.Millisecond)
	}
	log, _ := w.run("jobs", "logs", "--controller", "--no-follow", strings.Split(task, ".")[0])
	w.t.Fatalf("%s is %+v, not %s; its controller says:\n%s", task, last, status, log)
	return last
}

// done waits until a managed job has given everything back.
func (w *workstation) done(task string) managedJob {
	w.t.Helper()
	eventually(w.t, "job "+task+" is done", 60*time.Second, func() bool { return w.managed()[task].Schedule == "DONE" })
	if left := w.folders(); len(left) > 0 {
		log, _ := os.ReadFile(filepath.Join(w.home, ".sky/api_server/jobs", strings.Split(task, ".")[0], "controller.log"))
		w.t.Errorf("job %s left %v; its controller says:\n%s", task, left, log)
	}
	return w.managed()[task]
}

// ran counts the lines of a file that jobs write to.
func ran(t *testing.T, path, line string) int {
	t.Helper()
	return lines(t, path)[line]
}

func TestAManagedJobRunsToItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	w.write("proj/data", "from the working folder")
	w.write("proj/.skyignore", "skipped\n")
	w.write("proj/skipped", "x")
	task := w.write("task.yaml", `
name: hello
workdir: ./proj
envs: {WHO: world}
secrets: {TOKEN: s3cret-t0ken}
setup: echo setting up
run: |
  cat data; ls; echo hello $WHO ${#TOKEN} job=$SKYPILOT_MANAGED_JOB_ID id=$SKYPILOT_TASK_ID ids=$SKYPILOT_TASK_IDS
`)
	out := w.sky("jobs", "launch", "-y", task)
	wants(t, out, "setting up", "from the working folder", "hello world 12 job=1", "_hello_1-0", "SUCCEEDED", "Managed Job ID: 1")
	if strings.Contains(out, "skipped") {
		t.Errorf("an ignored file was copied:\n%s", out)
	}
	j := w.done("1.0")
	if j.Status != "SUCCEEDED" || j.Recoveries != 0 {
		t.Errorf("%+v", j)
	}
	eventually(t, "files of an ended job are removed", time.Minute, func() bool {
		files, _ := filepath.Glob(filepath.Join(w.home, ".sky/api_server/jobs/files/*"))
		return len(files) == 0
	})
	if out := w.sky("status"); strings.Contains(out, "hello-1") {
		t.Errorf("the job's cluster is shown:\n%s", out)
	}
	wants(t, w.sky("jobs", "logs", "--no-follow", "1"), "hello world", "from the working folder")
	wants(t, w.sky("jobs", "logs", "1", "--tail", "1"), "hello world", "SUCCEEDED")
	wants(t, w.sky("jobs", "logs", "--controller", "1"), "Cluster launched: hello-1", "SUCCEEDED")
	wants(t, w.sky("jobs", "logs", "-s", "1"), "Job 1 logs: ~/sky_logs/")
	if b, _ := os.ReadFile(filepath.Join(w.home, ".sky/api_server/server.log")); strings.Contains(string(b), "s3cret") {
		t.Error("a secret is in the server's log")
	}
	if b, _ := os.ReadFile(filepath.Join(w.home, ".sky/api_server/jobs/1/controller.log")); strings.Contains(string(b), "s3cret") {
		t.Error("a secret is in the controller's log")
	}
	w.fails(102, []string{"no managed job 9"}, "jobs", "logs", "9")
}

func TestManagedJobsThatFail(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	runs := w.write("runs", "")
	w.fails(100, []string{"FAILED", "exit code 3"}, "jobs", "launch", "-y", "-n", "bad", "--", "echo before; exit 3")
	if j := w.done("1.0"); j.Status != "FAILED" || !strings.Contains(j.Failure, "exit code 3") {
		t.Errorf("%+v", j)
	}
	w.fails(100, []string{"before", "exit code 3"}, "jobs", "logs", "1", "--no-follow")

	setup := w.write("setup.yaml", "name: s\nsetup: exit 4\nrun: echo never\n")
	w.fails(100, []string{"FAILED_SETUP"}, "jobs", "launch", "-y", setup)
	w.done("2.0")

	again := w.write("again.yaml", fmt.Sprintf("name: again\nresources: {job_recovery: {max_restarts_on_errors: 2}}\nrun: |\n  echo try >> %s\n  exit 1\n", runs))
	w.fails(100, []string{"Starting again", "FAILED"}, "jobs", "launch", "-y", again)
	if j := w.done("3.0"); j.Recoveries != 2 || ran(t, runs, "try") != 3 {
		t.Errorf("%+v, %d runs", j, ran(t, runs, "try"))
	}

	codes := w.write("codes.yaml", fmt.Sprintf("name: codes\nresources: {job_recovery: {recover_on_exit_codes: [33]}}\nrun: |\n  echo code >> %s\n  [ $(grep -c code %[1]s) = 3 ] || exit 33\n", runs))
	wants(t, w.sky("jobs", "launch", "-y", codes), "SUCCEEDED")
	if j := w.done("4.0"); j.Recoveries != 2 || ran(t, runs, "code") != 3 {
		t.Errorf("%+v, %d runs", j, ran(t, runs, "code"))
	}

	never := w.write("never.yaml", "name: never\nresources: {infra: local, cpus: 9999+}\nrun: echo hi\n")
	w.fails(100, []string{"FAILED_PRECHECKS"}, "jobs", "launch", "-y", never)
	w.done("5.0")
	w.fails(1, []string{"--pool cannot be used yet", "nothing was changed"}, "jobs", "launch", "-y", "--pool", "p", "--", "true")
	w.fails(1, []string{"pools yet", "sky jobs queue"}, "jobs", "cancel", "-y", "--pool", "p")
	group := w.write("group.yaml", "name: g\nexecution: parallel\n---\nname: a\nrun: echo a\n---\nname: b\nrun: echo b\n")
	w.fails(1, []string{"job groups", "depends_on"}, "jobs", "launch", "-y", group)
	pool := w.write("pool.yaml", "pool: {workers: 2}\nresources: {infra: local}\n")
	for _, command := range [][]string{{"apply", "-y", "-p", "p", pool}, {"apply", "-y", "-p", "p", "--workers", "3"}, {"down", "-y", "p"}, {"down", "-y", "-a"}, {"logs", "p", "--controller"}, {"logs", "p", "--sync-down"}} {
		w.fails(1, []string{"yet", "nothing was changed"}, append([]string{"jobs", "pool"}, command...)...)
	}
	wants(t, w.sky("jobs", "pool", "status"), "No existing pools")
}

func TestAPipelineRunsInOrder(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	runs := w.write("runs", "")
	pipeline := w.write("p.yaml", fmt.Sprintf(`
name: pipe
---
name: first
run: echo first >> %s; echo of the first $SKYPILOT_TASK_IDS
---
name: second
run: echo second >> %[1]s; exit 7
---
name: third
run: echo third >> %[1]s
`, runs))
	out := w.fails(100, []string{"of the first", "_pipe_second_1-1", "Task 1 of 3: second", "FAILED"}, "jobs", "launch", "-y", pipeline)
	w.done("1.0")
	all := w.managed()
	for task, want := range map[string]string{"1.0": "SUCCEEDED", "1.1": "FAILED", "1.2": "CANCELLED"} {
		if all[task].Status != want {
			t.Errorf("%s is %s, want %s\n%s", task, all[task].Status, want, out)
		}
	}
	if b, _ := os.ReadFile(runs); string(b) != "first\nsecond\n" {
		t.Errorf("ran: %q", b)
	}
	wants(t, w.sky("jobs", "logs", "1", "first", "--no-follow"), "of the first")
}

func TestManagedJobsAreCancelled(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	w.sky("jobs", "launch", "-y", "-d", "-n", "long", "--", "sleep 1000")
	w.reaches("1.0", "RUNNING")
	wants(t, w.sky("jobs", "cancel", "-y", "1"), "Job with ID 1 is scheduled to be cancelled")
	w.reaches("1.0", "CANCELLED")
	w.done("1.0")
	w.fails(103, []string{"CANCELLED"}, "jobs", "logs", "1")

	w.sky("jobs", "launch", "-y", "-d", "-n", "soon", "--", "sleep 1000") // while it is launched
	w.sky("jobs", "cancel", "-y", "-n", "soon")
	w.reaches("2.0", "CANCELLED")
	w.done("2.0")

	w.sky("jobs", "launch", "-y", "-d", "-n", "dies", "--", "sleep 1000")
	w.reaches("3.0", "RUNNING")
	w.sky("jobs", "cancel", "-y", "-a") // and the server dies at once
	w.killServer()
	w.sky("api", "start")
	w.reaches("3.0", "CANCELLED")
	w.done("3.0")
	wants(t, w.sky("jobs", "cancel", "-y", "-a"), "No job to cancel")

	w.sky("jobs", "launch", "-y", "-d", "-n", "saves", "--", "trap 'sleep 12; echo saved all; exit' TERM; echo begun; while :; do sleep 0.2; done")
	w.reaches("4.0", "RUNNING")
	eventually(t, "the job has begun", 60*time.Second, func() bool {
		return strings.Contains(w.sky("jobs", "logs", "--no-follow", "4"), "begun")
	})
	w.sky("jobs", "cancel", "-y", "--graceful", "--graceful-timeout", "600", "4")
	w.reaches("4.0", "CANCELLED")
	w.done("4.0")
	if out, _ := w.run("jobs", "logs", "--no-follow", "4"); !strings.Contains(out, "saved all") {
		t.Errorf("it was killed before it had saved all:\n%s", out)
	}
}

func TestAManagedJobRecovers(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	runs := w.write("runs", "")
	task := w.write("task.yaml", fmt.Sprintf("name: train\nrun: |\n  echo run >> %s\n  n=$(grep -c run %[1]s)\n  echo attempt $n began\n  [ $n = 2 ] || sleep 1000\n  echo all done\n", runs))
	c := w.command("jobs", "launch", "-y", task)
	out, _ := os.CreateTemp(w.home, "out-")
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job runs", time.Minute, func() bool { return ran(t, runs, "run") == 1 })
	w.reaches("1.0", "RUNNING")
	eventually(t, "its log is followed", time.Minute, func() bool { // what is still on the machine goes with it
		got, _ := os.ReadFile(out.Name())
		return strings.Contains(string(got), "attempt 1 began")
	})
	w.preempt("train-1")
	start := time.Now()
	j := w.reaches("1.0", "SUCCEEDED")
	t.Logf("recovered and done after %v", time.Since(start).Round(10*time.Millisecond))
	if j.Recoveries != 1 || ran(t, runs, "run") != 2 {
		t.Errorf("%+v, %d runs", j, ran(t, runs, "run"))
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	got, _ := os.ReadFile(out.Name())
	for _, line := range []string{"attempt 1 began", "attempt 2 began", "all done", "Starting again"} {
		if n := strings.Count(string(got), line); n != 1 {
			t.Errorf("%q stands %d times in the log\n%s", line, n, got)
		}
	}
	w.done("1.0")
}

// TestTheServerDiesUnderManagedJobs kills the server at random moments of a
// job's life. The job ends well, and ran once.
func TestTheServerDiesUnderManagedJobs(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	r := seed(t)
	runs := w.write("runs", "")
	w.sky("api", "start")
	died := 0
	for round := 1; died < kills(t, 12) && !t.Failed(); round++ {
		task := w.write("task.yaml", fmt.Sprintf("name: j%d\nsetup: sleep 0.%d\nrun: |\n  echo j%[1]d >> %[3]s\n  for i in 1 2 3 4 5; do echo n=$i.; sleep 0.1; done\n", round, r.IntN(5), runs))
		c := w.command("jobs", "launch", "-y", task)
		out, _ := os.CreateTemp(w.home, "out-")
		c.Stdout, c.Stderr = out, out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for range 1 + r.IntN(2) {
			time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
			w.killServer()
			died++
			w.sky("api", "start")
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("job %d: %v\n%s", round, err, tailOf(out.Name(), 3000))
			}
		case <-time.After(60 * time.Second):
			c.Process.Kill()
			t.Fatalf("following job %d hangs:\n%s", round, tailOf(out.Name(), 3000))
		}
		id := fmt.Sprintf("%d.0", round)
		if j := w.done(id); j.Status != "SUCCEEDED" || j.Recoveries != 0 {
			t.Errorf("job %d: %+v", round, j)
		}
		if n := ran(t, runs, fmt.Sprintf("j%d", round)); n != 1 {
			t.Errorf("job %d ran %d times", round, n)
		}
		got, _ := os.ReadFile(out.Name())
		for i := 1; i <= 5; i++ {
			if n := strings.Count(string(got), fmt.Sprintf("n=%d.", i)); n != 1 {
				t.Errorf("job %d: line %d was shown %d times\n%s", round, i, n, got)
			}
		}
	}
	t.Logf("%d kills", died)
}

// TestAJobThatEndsWhileNobodyLooksRanOnce lets a job end while there is no
// server.
func TestAJobThatEndsWhileNobodyLooksRanOnce(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	runs := w.write("runs", "")
	w.sky("jobs", "launch", "-y", "-d", "-n", "quiet", "--", "echo run >> "+runs+"; sleep 1; echo the end")
	w.reaches("1.0", "RUNNING")
	w.killServer()
	time.Sleep(2500 * time.Millisecond)
	w.sky("api", "start")
	if j := w.reaches("1.0", "SUCCEEDED"); j.Recoveries != 0 || ran(t, runs, "run") != 1 {
		t.Errorf("%+v, %d runs", j, ran(t, runs, "run"))
	}
	w.done("1.0")
	wants(t, w.sky("jobs", "logs", "1", "--no-follow"), "the end")
}
