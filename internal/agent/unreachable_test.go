//go:build unix

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/proc"
)

// A gang starts on all its nodes or on none: with a node that does not answer
// the job waits and says why.
func TestGangWaitsForSilentNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, twoCPUs, true)
	c.nodes[1].stop()
	id := c.submit(agentapi.JobSpec{NumNodes: 2, Run: "echo started on $SKYPILOT_NODE_RANK"})
	job := c.await(id, "waiting with a reason", func(j *agentapi.Job) bool {
		return strings.Contains(j.Reason, "worker1 cannot be reached")
	})
	if job.Status != api.JobPending {
		t.Errorf("job: %s", mustJSON(job))
	}
	if log := c.logNow(id); strings.Contains(log, "started on") {
		t.Errorf("a rank has started:\n%s", log)
	}
	c.nodes[1].runHere()
	log := c.follow(id)
	if job := c.job(id); job.Status != api.JobSucceeded || job.Reason != "" {
		t.Errorf("job: %s\n%s", mustJSON(job), log)
	}
	if got := output(log); len(got) != 2 {
		t.Errorf("output %q", got)
	}
}

// What was made ready for a job that has not begun is cleared up after its end,
// whichever life of the head made it ready.
func TestAJobThatIsCancelledBeforeItBeganLeavesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, twoCPUs, false)
	c.nodes[1].kill() // which keeps the job from beginning
	id := c.submit(agentapi.JobSpec{NumNodes: 2, Run: "true"})
	ready := func() int {
		dirs, err := os.ReadDir(filepath.Join(c.nodes[0].home, ".sky", "agent", "ranks"))
		if err != nil {
			t.Fatal(err)
		}
		return len(dirs)
	}
	c.await(id, "ready on the head", func(*agentapi.Job) bool { return ready() == 1 })
	c.nodes[0].kill()
	// A head that died as soon as it had noted that the job is cancelled.
	q, err := openQueue(filepath.Join(c.nodes[0].home, ".sky", "agent"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.update(id, func(r *record) error { return r.move(evCancelled, time.Now()) }); err != nil {
		t.Fatal(err)
	}
	if err := q.close(); err != nil {
		t.Fatal(err)
	}
	c.nodes[0].spawn()
	c.nodes[1].spawn()
	for end := time.Now().Add(time.Minute); ready() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("what was made ready for the job is still there")
		}
	}
	if job := c.awaitEnd(id); job.Status != api.JobCancelled {
		t.Errorf("job: %s", mustJSON(job))
	}
}

// Silence is not failure: ranks on a node that does not answer go on.
func TestSilentNodeDoesNotFailItsJob(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, twoCPUs, false)
	id := c.submit(agentapi.JobSpec{NumNodes: 2, Run: "for i in {1..40}; do echo tick $i; sleep 0.05; done"})
	c.await(id, "ticking on both", func(*agentapi.Job) bool { return strings.Count(c.logNow(id), ") tick 3\n") == 2 })
	c.nodes[1].kill()
	c.await(id, "missing a node", func(j *agentapi.Job) bool { return strings.Contains(j.Silent, "worker1 cannot be reached") })
	time.Sleep(time.Second)
	c.nodes[1].spawn()
	log := c.follow(id)
	if job := c.job(id); job.Status != api.JobSucceeded || job.Silent != "" {
		t.Errorf("job: %s", mustJSON(job))
	}
	checkLines(t, log, "(head, rank=0,", "tick", 40)
	checkLines(t, log, "(worker1, rank=1,", "tick", 40)
}

// A cancelled job on a silent node is cancelled at once; its processes end, and
// its resources come free, when the node answers again.
func TestCancelOnSilentNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, twoCPUs, false)
	id := c.submit(agentapi.JobSpec{NumNodes: 2, CPUs: 2, Run: "echo up; sleep 1000"})
	c.await(id, "up on both", func(*agentapi.Job) bool { return strings.Count(c.logNow(id), ") up\n") == 2 })
	c.nodes[1].kill()
	done := make(chan []int, 1)
	go func() {
		resp, err := c.head.Cancel(t.Context(), agentapi.CancelRequest{IDs: []int{id}})
		if err != nil {
			t.Error(err)
		}
		done <- resp.Cancelled
	}()
	if job := c.awaitEnd(id); job.Status != api.JobCancelled {
		t.Errorf("job: %s", mustJSON(job))
	}
	next := c.submit(agentapi.JobSpec{NumNodes: 2, CPUs: 2, Run: "true"})
	if got := <-done; !slices.Equal(got, []int{id}) {
		t.Errorf("cancelled %v", got)
	}
	if job := c.job(next); job.Status != api.JobPending {
		t.Errorf("the next job does not wait for the node: %s", mustJSON(job))
	}
	c.nodes[1].spawn()
	if job := c.awaitEnd(next); job.Status != api.JobSucceeded {
		t.Errorf("job: %s", mustJSON(job))
	}
	if left := proc.Marked(markerEnv, fmt.Sprintf("%s-%d-run-1", c.spec.Hash, id)); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
}

// A node that was replaced has taken its ranks with it.
func TestReplacedNodeFailsItsJob(t *testing.T) {
	c := newCluster(t, 2, twoCPUs, true)
	id := c.submit(agentapi.JobSpec{NumNodes: 2, Run: "echo up; sleep 1000"})
	c.await(id, "up on both", func(*agentapi.Job) bool { return strings.Count(c.logNow(id), ") up\n") == 2 })
	old := c.nodes[1]
	old.stop()
	c.nodes[1] = c.addNode(1)
	c.nodes[1].runHere()
	t.Cleanup(func() {
		c.nodes = append(c.nodes, old) // for its processes to be ended
		old.stop = func() {}
		c.clear()
		c.nodes = nil
	})
	c.spec.Epoch++
	c.spec.Nodes[1] = agentapi.Node{ID: "new", IP: "10.0.0.9", Address: c.nodes[1].address}
	c.configure()
	job := c.awaitEnd(id)
	if job.Status != api.JobFailed || !strings.Contains(job.Reason, "no longer part of the cluster") || !slices.Equal(job.ExitCodes, []int{codeEnded, codeLost}) {
		t.Errorf("job: %s", mustJSON(job))
	}
	if next := c.submit(agentapi.JobSpec{NumNodes: 2, Run: "echo $SKYPILOT_NODE_IPS"}); !slices.Contains(output(c.follow(next)), "10.0.0.0 10.0.0.9") {
		t.Error("the new node is not used")
	}
}

// A machine that becomes part of another cluster begins anew.
func TestAnotherCluster(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	id := c.submit(agentapi.JobSpec{Name: "x", Run: "echo first; sleep 1000"})
	c.await(id, "running", func(*agentapi.Job) bool { return strings.Contains(c.logNow(id), ") first\n") })
	ended, err := c.head.Submit(t.Context(), agentapi.SubmitRequest{Key: "ended", Epoch: c.spec.Epoch, Report: true,
		Spec: agentapi.JobSpec{Run: "true", Secrets: map[string]string{"A": "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	c.awaitEnd(ended.JobID)
	c.await(ended.JobID, "told", func(*agentapi.Job) bool { return len(c.told()) == 1 })
	key := filepath.Join(c.nodes[0].home, ".sky", "agent", "job-keys", "0123456789abcdef")
	if err := os.WriteFile(key, nil, 0o600); err != nil { // a crash left it
		t.Fatal(err)
	}
	hash := c.spec.Hash
	c.spec.Hash += "b"
	c.spec.Epoch++
	c.configure()
	if left := proc.Marked(markerEnv, fmt.Sprintf("%s-%d-run-0", hash, id)); len(left) > 0 {
		t.Errorf("processes of the earlier cluster: %v", left)
	}
	if got := c.told(); len(got) > 0 {
		t.Errorf("told of the earlier cluster: %s", mustJSON(got))
	}
	if _, err := os.Stat(key); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the key of a secret of the earlier cluster: %v", err)
	}
	again := c.submit(agentapi.JobSpec{Name: "x", Run: "echo second"})
	if again != id {
		t.Errorf("ids go on at %d", again)
	}
	if got := output(c.follow(again)); !slices.Equal(got, []string{"second"}) {
		t.Errorf("output %q", got)
	}
	if info, err := c.head.Info(t.Context()); err != nil || len(info.Jobs) != 1 || info.Jobs[string(api.JobSucceeded)] != 1 {
		t.Errorf("info %+v, %v", info, err)
	}
}

// A node that answers again says nothing for another one that does not.
func TestEachSilentNodeIsMissed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, twoCPUs, false)
	id := c.submit(agentapi.JobSpec{NumNodes: 3, Run: "echo up; sleep 1000"})
	c.await(id, "up on all", func(*agentapi.Job) bool { return strings.Count(c.logNow(id), ") up\n") == 3 })
	missing := func(node string) {
		t.Helper()
		c.await(id, "missing "+node, func(j *agentapi.Job) bool { return strings.Contains(j.Silent, node+" cannot be reached") })
	}
	c.nodes[1].kill()
	missing("worker1")
	c.nodes[2].kill()
	c.nodes[1].spawn()
	missing("worker2")
	c.nodes[2].spawn()
	c.await(id, "missing none", func(j *agentapi.Job) bool { return j.Silent == "" && j.Reason == "" })
}
