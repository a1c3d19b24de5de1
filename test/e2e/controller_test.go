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

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

// newLaptop is a workstation with FluffyCloud whose managed jobs are looked after by a
// controller there.
func newLaptop(t *testing.T, idle string) *fluffy {
	f := newFluffy(t, 0)
	f.write(".sky/config.yaml", fmt.Sprintf(`
jobs: {controller: {mode: cluster, resources: {infra: fluffycloud, cpus: 1+, memory: 1+}, autostop: %s}}
allowed_clouds: [fluffycloud]
`, idle))
	return f
}

// controllers are the machines of jobs controllers.
func (f *fluffy) controllers() (out []model.Machine) {
	f.t.Helper()
	for _, m := range f.machines() {
		if strings.HasPrefix(m.Tags[cloud.TagCluster], "sky-jobs-controller-") {
			out = append(out, m)
		}
	}
	return out
}

// controller is the name of the one controller that there is.
func (f *fluffy) controller() string {
	f.t.Helper()
	var records []struct{ Name string }
	if err := json.Unmarshal([]byte(f.stdout("status", "-o", "json")), &records); err != nil {
		f.t.Fatal(err)
	}
	if len(records) != 1 || !strings.HasPrefix(records[0].Name, "sky-jobs-controller-") {
		f.t.Fatalf("clusters: %+v", records)
	}
	return records[0].Name
}

// TestJobsGoOnWhileTheLaptopSleeps hands a job to a controller, takes the job's
// machine away while no server runs here, and finds everything when one does.
func TestJobsGoOnWhileTheLaptopSleeps(t *testing.T) {
	t.Parallel()
	f := newLaptop(t, "2m")
	f.write("work/data.txt", "from-the-workdir\n")
	begun, end := f.write("begun", ""), filepath.Join(f.home, "end")
	task := f.write("train.yaml", fmt.Sprintf(`
name: train
workdir: %s
resources: {infra: fluffycloud, cpus: 1, use_spot: true}
secrets: {TOKEN: s3cret}
run: |
  cat data.txt
  echo the secret has ${#TOKEN} letters
  echo begun >> %s
  until [ -e %s ]; do sleep 0.2; done
`, filepath.Join(f.home, "work"), begun, end))
	out, code := f.bring("jobs", "launch", "-y", "-d", task)
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, out)
	}
	wants(t, out, "The jobs controller is ready.", "Managed job submitted, ID: 1")
	name := f.controller()
	// What the job's files were is no matter any more.
	if err := os.RemoveAll(filepath.Join(f.home, "work")); err != nil {
		t.Fatal(err)
	}
	starts := func(n int) func() bool { return func() bool { return lines(t, begun)["begun"] == n } }
	eventually(t, "the job has begun", 5*time.Minute, starts(1))
	f.reaches("1.0", "RUNNING")
	f.fails(1, []string{"in progress"}, "down", "-y", name)
	f.fails(2, []string{"not supported"}, "stop", "-y", name)

	f.sky("api", "stop")
	for _, m := range f.machines() {
		if strings.HasPrefix(m.Tags[cloud.TagCluster], "train-") {
			f.operate("POST", "instances/"+m.ID+"/kill", nil)
		}
	}
	eventually(t, "the job has begun again", 5*time.Minute, starts(2))
	if pid := f.serverPID(); pid != 0 {
		t.Errorf("a server runs here (pid %d)", pid)
	}
	// The server here comes back, killed once while a log is followed.
	eventually(t, "the job is known to run again", 2*time.Minute, func() bool {
		j := f.managed()["1.0"]
		return j.Status == "RUNNING" && j.Recoveries == 1
	})
	f.killServer()
	dir := f.sky("jobs", "logs", "1", "--sync-down")
	wants(t, dir, "Job 1 logs: ")
	copies, _ := filepath.Glob(filepath.Join(f.home, "sky_logs", "managed_jobs", "*", "*"))
	if len(copies) == 0 {
		t.Errorf("no log was downloaded:\n%s", dir)
	}
	f.write("end", "")
	eventually(t, "the job is done", 5*time.Minute, func() bool { return f.managed()["1.0"].Schedule == "DONE" })
	log := f.sky("jobs", "logs", "1")
	wants(t, log, "from-the-workdir", "the secret has 6 letters", "SUCCEEDED")
	wants(t, f.sky("jobs", "logs", "--controller", "1"), "RECOVERING")

	os.Remove(end)
	task = f.write("second.yaml", fmt.Sprintf("name: second\nresources: {infra: fluffycloud, cpus: 1}\nrun: until [ -e %s ]; do sleep 0.2; done\n", end))
	f.sky("jobs", "launch", "-y", "-d", task)
	wants(t, f.sky("jobs", "cancel", "-y", "2"), "2")
	eventually(t, "the second job is given up", 5*time.Minute, func() bool { return f.managed()["2.0"].Schedule == "DONE" })
	if j := f.managed()["2.0"]; j.Status != "CANCELLED" {
		t.Errorf("%+v", j)
	}

	// With nothing to do the controller stops, and keeps what it knows.
	eventually(t, "the controller stops", 10*time.Minute, func() bool {
		time.Sleep(time.Second)
		f.sky("status", "-r", name)
		return f.status(name) == "STOPPED"
	})
	wants(t, f.sky("jobs", "queue"), "is STOPPED", "sky jobs queue --refresh")
	out, code = f.bring("jobs", "queue", "-r")
	if code != 0 {
		t.Errorf("exit %d", code)
	}
	wants(t, out, "SUCCEEDED", "CANCELLED")
	f.sky("down", "-y", name)
	f.nothingLeft()
}

// TestTheServerDiesWhileAJobIsHandedOver kills the server here at random moments
// of making the controller and of handing jobs to it. There is one controller, and
// each job is submitted once at most, and once if its launch said so.
func TestTheServerDiesWhileAJobIsHandedOver(t *testing.T) {
	t.Parallel()
	f := newLaptop(t, "10m")
	r := seed(t)
	f.sky("api", "start")
	ran := f.write("ran", "")
	usual := 15 * time.Second // of the first launch, which makes the controller
	n := kills(t, 3)
	told := map[string]bool{}
	for round := range n {
		name := fmt.Sprintf("j%d", round)
		task := f.write(name+".yaml", fmt.Sprintf("name: %s\nresources: {infra: fluffycloud, cpus: 1}\nrun: echo %[1]s >> %s\n", name, ran))
		c := f.command("jobs", "launch", "-y", "-d", task)
		said, err := os.CreateTemp(f.home, "out-")
		if err != nil {
			t.Fatal(err)
		}
		c.Stdout, c.Stderr = said, said
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		time.Sleep(time.Duration(r.Int64N(int64(usual))))
		f.killServer()
		f.sky("api", "start")
		select {
		case <-ended:
		case <-time.After(10 * time.Minute):
			t.Errorf("round %d: the launch hangs:\n%s", round, tailOf(said.Name(), 3000))
			c.Process.Kill()
			<-ended
		}
		said.Close()
		told[name] = c.ProcessState.ExitCode() == 0
		if text := tailOf(said.Name(), 5000); !told[name] && !strings.Contains(text, "cannot reach the API server") {
			t.Errorf("round %d: exit %d\n%s", round, c.ProcessState.ExitCode(), text)
		}
		eventually(t, "requests end", 10*time.Minute, func() bool {
			time.Sleep(300 * time.Millisecond)
			for _, status := range f.requestsOf("sky.jobs.launch") {
				if status == "PENDING" || status == "RUNNING" {
					return false
				}
			}
			return true
		})
		if got := len(f.controllers()); got > 1 {
			t.Fatalf("round %d: %d controllers", round, got)
		}
		usual = 2 * time.Second // from now on it is there
	}
	eventually(t, "all jobs are done", 10*time.Minute, f.allDone)
	jobs := map[string]int{}
	for _, j := range f.managed() {
		if jobs[j.TaskName]++; j.Status != "SUCCEEDED" {
			t.Errorf("%+v", j)
		}
	}
	for name, heard := range told {
		if jobs[name] > 1 || heard && jobs[name] != 1 || lines(t, ran)[name] != jobs[name] {
			t.Errorf("job %s: submitted %d times, ran %d times, its launch said so: %v", name, jobs[name], lines(t, ran)[name], heard)
		}
	}
	if got := f.controllers(); len(got) == 1 {
		f.sky("down", "-y", f.controller())
	}
	f.nothingLeft()
}
