//go:build unix

package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// insist submits until there is an answer, as a server does.
func (c *testCluster) insist(key string, spec agentapi.JobSpec) int {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		resp, err := c.head.Submit(context.Background(), agentapi.SubmitRequest{Key: key, Epoch: c.spec.Epoch, Spec: spec})
		if err == nil {
			return resp.JobID
		}
	}
	c.t.Fatal("submit was not answered within 30 s")
	return 0
}

// count reads how often something happened that was noted with echo >>file.
func count(t *testing.T, path string) (n int) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(data), "\n")
}

// checkLines checks that a rank's numbered lines are in a log once each and in
// order.
func checkLines(t *testing.T, log, prefix, word string, n int) {
	t.Helper()
	next := 1
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		_, rest, _ := strings.Cut(line, ") ")
		if !strings.HasPrefix(rest, word) {
			continue
		}
		if want := fmt.Sprintf("%s %d\n", word, next); rest != want {
			t.Errorf("line %q where %q must be", line, want)
			return
		}
		next++
	}
	if next != n+1 {
		t.Errorf("%d lines of %s%s, want %d", next-1, prefix, word, n)
	}
}

// The agents of a cluster are killed again and again while jobs go through all
// their stages. Nothing may be lost, doubled or run twice.
func TestKilledAgentsLoseNothing(t *testing.T) {
	t.Parallel()
	kills := 40
	if testing.Short() {
		kills = 8
	}
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			c := newCluster(t, nodes, agentapi.Capacity{CPUs: 2}, false)
			const lines = 100
			spec := agentapi.JobSpec{
				NumNodes: nodes, CPUs: 1,
				Setup: "echo s >>~/setups-$SKYPILOT_INTERNAL_JOB_ID; for i in {1..20}; do echo setup $i; sleep 0.002; done",
				Run: fmt.Sprintf("echo r >>~/runs-$SKYPILOT_INTERNAL_JOB_ID; for i in {1..%d}; do echo run $i; sleep 0.002; done; "+
					"printf 'open end'; exit $((SKYPILOT_INTERNAL_JOB_ID %% 3))", lines),
			}
			var ids []int
			for done := 0; done < kills/nodes; {
				if open := len(ids) - c.ended(ids); open < 3 {
					ids = append(ids, c.insist(fmt.Sprintf("job-%d", len(ids)), spec))
				}
				time.Sleep(time.Duration(rnd.IntN(150)) * time.Millisecond)
				victim := c.nodes[rnd.IntN(nodes)]
				victim.kill()
				time.Sleep(time.Duration(rnd.IntN(40)) * time.Millisecond)
				victim.spawn()
				done++
			}
			for i, id := range ids {
				if again := c.insist(fmt.Sprintf("job-%d", i), spec); again != id {
					t.Errorf("job %d of key %d became %d", id, i, again)
				}
				log := c.follow(id)
				job := c.awaitEnd(id)
				wantStatus, codes := api.JobSucceeded, slices.Repeat([]int{0}, nodes)
				if id%3 != 0 {
					wantStatus, codes = api.JobFailed, slices.Repeat([]int{id % 3}, nodes)
				}
				// A rank may be ended because the other failed a moment earlier.
				if wantStatus == api.JobFailed && nodes > 1 && slices.Contains(job.ExitCodes, codeEnded) && slices.Contains(job.ExitCodes, id%3) {
					codes = job.ExitCodes
				} else {
					for rank := range nodes {
						prefix := map[int]string{0: "(head, rank=0, pid=", 1: "(worker1, rank=1, pid="}[rank]
						if nodes == 1 {
							prefix = "(task, pid="
						}
						checkLines(t, log, prefix, "run", lines)
					}
				}
				if job.Status != wantStatus || !slices.Equal(job.ExitCodes, codes) {
					t.Errorf("job: %s", mustJSON(job))
				}
				if nodes == 1 {
					checkLines(t, log, "(setup pid=", "setup", 20)
					if strings.Count(log, "open end") != 1 {
						t.Error("the last, open line is not there once")
					}
				}
				for _, note := range []string{"Waiting for task resources", "Job started", "ERROR: Job"} {
					if n := strings.Count(log, note); n != 1 && !(note == "ERROR: Job" && wantStatus == api.JobSucceeded && n == 0) {
						t.Errorf("%q is there %d times", note, n)
					}
				}
				for _, n := range c.nodes {
					for _, file := range []string{"setups", "runs"} {
						if ran := count(t, filepath.Join(n.home, fmt.Sprintf("%s-%d", file, id))); ran != 1 {
							t.Errorf("%s of job %d ran %d times", file, id, ran)
						}
					}
				}
				if t.Failed() {
					t.Fatalf("job %d: %s\n%s", id, mustJSON(job), log)
				}
			}
			t.Logf("%d jobs, %d kills", len(ids), kills/nodes)
		})
	}
}

func (c *testCluster) ended(ids []int) (n int) {
	for _, id := range ids {
		if job, err := c.head.Job(context.Background(), id); err == nil && job.Status.Terminal() {
			n++
		}
	}
	return n
}

// What ends while no agent runs is known to the next one.
func TestEndsWhileAgentIsDown(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, false)
	started := func(id int) {
		c.await(id, "started", func(*agentapi.Job) bool { return strings.Contains(c.logNow(id), ") up\n") })
	}
	ok := c.submit(agentapi.JobSpec{Run: "echo up; sleep 0.5; echo late; exit 6"})
	started(ok)
	lost := c.submit(agentapi.JobSpec{Run: "echo up; sleep 1000"})
	started(lost)
	waits := c.submit(agentapi.JobSpec{Run: "echo waited", CPUs: 2})
	n := c.nodes[0]
	n.kill()
	// A crash of the wrapper itself leaves no exit code.
	for _, pid := range proc.Marked(markerEnv, fmt.Sprintf("%s-%d-run-0", c.spec.Hash, lost)) {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
	time.Sleep(700 * time.Millisecond)
	n.spawn()
	if log := c.follow(ok); !strings.Contains(log, ") late\n") || c.job(ok).ExitCodes[0] != 6 {
		t.Errorf("job: %s\n%s", mustJSON(c.job(ok)), log)
	}
	if job := c.awaitEnd(lost); job.Status != api.JobFailed || !strings.Contains(job.Reason, "disappeared") {
		t.Errorf("job: %s", mustJSON(job))
	}
	if log := c.follow(waits); !strings.Contains(log, ") waited\n") {
		t.Errorf("queued job:\n%s", log)
	}
}

func TestOneAgentInAFolder(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // do not wait for the other one to go
	err := Run(ctx, Options{Home: c.nodes[0].home, Listen: "127.0.0.1:0"})
	if err == nil || !strings.Contains(err.Error(), "another agent runs in") {
		t.Errorf("a second agent: %v", err)
	}
	life := readFile(t, c.nodes[0].home, ".sky", "agent", "agent.json")
	if !strings.Contains(life, c.nodes[0].address) || !strings.Contains(life, fmt.Sprintf(`"pid":%d,`, os.Getpid())) {
		t.Errorf("agent.json: %s", life)
	}
}

// A machine that was restarted has lost its jobs.
func TestReboot(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	running := c.submit(agentapi.JobSpec{Run: "sleep 1000", CPUs: 2})
	queued := c.submit(agentapi.JobSpec{Run: "true", CPUs: 2})
	c.awaitStatus(running, api.JobRunning)
	if _, err := c.head.Autostop(t.Context(), agentapi.Autostop{IdleMinutes: 5}); err != nil {
		t.Fatal(err)
	}
	n := c.nodes[0]
	n.stop()
	c.rewriteBoot(n)
	n.runHere()
	for _, id := range []int{running, queued} {
		if job := c.awaitEnd(id); job.Status != api.JobFailedDriver || job.EndedAt == 0 || job.Reason == "" {
			t.Errorf("job: %s", mustJSON(job))
		}
	}
	if info, err := n.client.Info(t.Context()); err != nil || info.Autostop != nil {
		t.Errorf("autostop of an earlier boot counts: %+v, %v", info, err)
	}
	if next := c.submit(agentapi.JobSpec{Run: "true", CPUs: 2}); c.awaitEnd(next).Status != api.JobSucceeded {
		t.Error("the cluster is not usable after the restart")
	}
}

// rewriteBoot makes a stopped agent's files look like those of an earlier boot.
func (c *testCluster) rewriteBoot(n *testNode) {
	c.t.Helper()
	q, err := openQueue(filepath.Join(n.home, ".sky", "agent"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer q.close()
	recs, err := q.open()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, rec := range recs {
		if _, err := q.update(rec.Job.ID, func(r *record) error {
			r.Boot = "earlier"
			return nil
		}); err != nil {
			c.t.Fatal(err)
		}
	}
	var set storedAutostop
	if _, err := q.load("autostop", &set); err != nil {
		c.t.Fatal(err)
	}
	set.Boot = "earlier"
	if err := q.put("autostop", set); err != nil {
		c.t.Fatal(err)
	}
}
