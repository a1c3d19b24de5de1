//go:build e2e && linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

// steps is how many each checkpointing job takes; it saves every fifth.
const steps = 40

// training computes a number in steps, keeps what it has below dir, and notes
// each step. Two runs of one job at the same time would be noticed.
const training = `
name: train
resources: {infra: fluffycloud, cpus: 1, use_spot: true}
run: |
  dir=%s/$SKYPILOT_JOB_RANK
  mkdir -p $dir
  exec 9>$dir/lock
  flock -n 9 || echo rank $SKYPILOT_JOB_RANK >> %[1]s/overlaps
  step=0 acc=7
  if [ -s $dir/checkpoint ]; then read -r step acc < $dir/checkpoint; fi
  while [ $step -lt %[2]d ]; do
    sleep 0.2
    step=$((step + 1)) acc=$(((acc * 31 + step) %% 1000003))
    echo $step >> $dir/work
    if [ $((step %% 5)) = 0 ]; then
      echo $step $acc > $dir/new
      mv $dir/new $dir/checkpoint
    fi
  done
  echo $acc > $dir/answer
`

// TestCheckpointingJobsOnBadDays runs jobs that keep checkpoints on a cloud that
// takes machines away all the time, under a server that is killed now and then.
// Each job ends with the right answer, and none ever runs twice at a time.
//
//	SKY_E2E_JOBS=50 go test -tags e2e -timeout 2h -run CheckpointingJobs ./test/e2e
func TestCheckpointingJobsOnBadDays(t *testing.T) {
	t.Parallel()
	n := 4
	if v := os.Getenv("SKY_E2E_JOBS"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	f := newFluffy(t, 0)
	r := seed(t)
	dir := filepath.Join(f.home, "bucket") // machines share this one's disk
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	task := f.write("train.yaml", fmt.Sprintf(training, dir, steps))
	start := time.Now()
	f.sky("jobs", "launch", "-y", "-d", "--num-jobs", strconv.Itoa(n), task)
	taken, kills := 0, 0
	nextKill := time.Now().Add(time.Duration(5+r.IntN(10)) * time.Second)
	deadline := time.Now().Add(10*time.Minute + time.Duration(n)*time.Minute)
	for !f.allDone() {
		if time.Now().After(deadline) {
			t.Fatalf("not done after %v: %+v\n%s", time.Since(start), f.managed(), f.trail())
		}
		for range 1 + n/10 {
			if taken < 2*n && f.takeOne(r) {
				taken++
			}
		}
		if kills < 1+n/5 && time.Now().After(nextKill) {
			f.killServer()
			f.sky("api", "start")
			kills++
			nextKill = time.Now().Add(time.Duration(5+r.IntN(20)) * time.Second)
		}
		time.Sleep(time.Duration(500+r.IntN(2500)) * time.Millisecond)
	}
	took := time.Since(start)
	recoveries := 0
	for id, j := range f.managed() {
		if recoveries += j.Recoveries; j.Status != "SUCCEEDED" {
			t.Errorf("job %s: %+v", id, j)
		}
	}
	acc := 7
	for step := 1; step <= steps; step++ {
		acc = (acc*31 + step) % 1000003
	}
	done := 0
	for rank := range n {
		answer, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(rank), "answer"))
		if err != nil || strings.TrimSpace(string(answer)) != strconv.Itoa(acc) {
			t.Errorf("rank %d: the answer is %q, not %d (%v)", rank, answer, acc, err)
		}
		for _, times := range lines(t, filepath.Join(dir, strconv.Itoa(rank), "work")) {
			done += times
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "overlaps")); err == nil {
		t.Errorf("ran twice at a time:\n%s", b)
	}
	t.Logf("%d jobs of %d steps in %v: %d machines taken away, %d server kills, %d recoveries; %d steps done again (%.1f%% of the work)",
		n, steps, took.Round(time.Second), taken, kills, recoveries, done-n*steps, 100*float64(done-n*steps)/float64(n*steps))
	f.nothingLeft()
}

// trail is what the server knows of the managed jobs that have not ended, for a
// test that waited in vain.
func (f *fluffy) trail() string {
	f.t.Helper()
	var b strings.Builder
	for _, args := range [][]string{{"jobs", "queue", "-v"}, {"status", "-v"}, {"api", "status"}} {
		out, _ := f.run(args...)
		fmt.Fprintf(&b, "$ sky %s\n%s\n", strings.Join(args, " "), out)
	}
	for id, j := range f.managed() {
		if j.Schedule != "DONE" {
			out, _ := f.run("jobs", "logs", "--controller", "--no-follow", strconv.Itoa(j.JobID))
			fmt.Fprintf(&b, "controller of job %s:\n%s\n", id, out)
		}
	}
	for _, m := range f.machines() {
		fmt.Fprintf(&b, "machine %s: %s %v\n", m.ID, m.State, m.Tags)
	}
	return b.String()
}

// allDone reports whether every managed job has ended and given everything back.
func (f *fluffy) allDone() bool {
	f.t.Helper()
	for _, j := range f.managed() {
		if j.Schedule != "DONE" {
			return false
		}
	}
	return true
}

// takeOne takes a machine away on which a job runs, now and then any that runs,
// with a short notice or none.
func (f *fluffy) takeOne(r *rand.Rand) bool {
	f.t.Helper()
	jobs := f.managed()
	wanted := func(m model.Machine) bool {
		if m.State != fluffyapi.Running {
			return false
		}
		for _, j := range jobs {
			if j.Status == "RUNNING" && strings.HasPrefix(m.Tags[cloud.TagCluster]+"-", fmt.Sprintf("%s-%d-", j.TaskName, j.JobID)) {
				return true
			}
		}
		return r.IntN(8) == 0
	}
	var running []model.Machine
	for _, m := range f.machines() {
		if wanted(m) {
			running = append(running, m)
		}
	}
	if len(running) == 0 {
		return false
	}
	m := running[r.IntN(len(running))]
	if r.IntN(2) == 0 {
		return f.try("POST", "instances/"+m.ID+"/preempt", map[string]any{"after": r.Float64() * 2}) == nil
	}
	return f.try("POST", "instances/"+m.ID+"/kill", nil) == nil
}

// TestALostNodeOfAGangIsReplacedAlone takes one machine of three away: the
// others stay, and the job runs on all three again.
func TestALostNodeOfAGangIsReplacedAlone(t *testing.T) {
	t.Parallel()
	f := newFluffy(t, 0)
	begun, end := f.write("begun", ""), filepath.Join(f.home, "end")
	task := f.write("gang.yaml", fmt.Sprintf(`
name: gang
num_nodes: 3
resources: {infra: fluffycloud, cpus: 1, use_spot: true, job_recovery: {recovery: node}}
run: |
  echo node$SKYPILOT_NODE_RANK >> %s
  until [ -e %s ]; do sleep 0.2; done
`, begun, end))
	f.sky("jobs", "launch", "-y", "-d", task)
	all := func(times int) func() bool {
		return func() bool {
			got := lines(t, begun)
			return got["node0"] == times && got["node1"] == times && got["node2"] == times
		}
	}
	eventually(t, "all nodes have begun", 5*time.Minute, all(1))
	f.reaches("1.0", "RUNNING")
	before := f.byNode()
	f.operate("POST", "instances/"+before["2"]+"/kill", nil)
	eventually(t, "all nodes have begun again", 5*time.Minute, all(2))
	eventually(t, "the job is known to run again", 2*time.Minute, func() bool {
		j := f.managed()["1.0"]
		return j.Status == "RUNNING" && j.Recoveries == 1
	})
	after := f.byNode()
	if len(after) != 3 || after["0"] != before["0"] || after["1"] != before["1"] || after["2"] == before["2"] {
		t.Errorf("machines by node: %v before, %v after", before, after)
	}
	f.write("end", "")
	eventually(t, "the job is done", 5*time.Minute, func() bool { return f.managed()["1.0"].Schedule == "DONE" })
	if j := f.managed()["1.0"]; j.Status != "SUCCEEDED" {
		t.Errorf("%+v", j)
	}
	wants(t, f.sky("jobs", "queue", "-v"), "node_lost")
	f.nothingLeft()
}

// byNode is the machines that run, by the rank of their node.
func (f *fluffy) byNode() map[string]string {
	f.t.Helper()
	out := map[string]string{}
	for _, m := range f.machines() {
		out[m.Tags[cloud.TagRank]] = m.ID
	}
	return out
}
