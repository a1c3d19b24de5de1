//go:build unix

package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/proc"
)

// Jobs of all kinds come and are cancelled while agents are killed. In the end
// every job has one outcome that fits what it did, no process and no reservation
// is left, and the cluster works.
func TestChaos(t *testing.T) {
	t.Parallel()
	steps := 60
	if testing.Short() {
		steps = 15
	}
	seed := rand.Uint64()
	if s := os.Getenv("SKY_CHAOS_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SKY_CHAOS_SEED=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	c := newCluster(t, 2, agentapi.Capacity{CPUs: 2}, false)
	mark := `echo x >>~/ran-$SKYPILOT_INTERNAL_JOB_ID-$SKYPILOT_NODE_RANK; `
	kinds := []agentapi.JobSpec{
		{Run: mark + "true"},
		{Run: mark + "echo out; sleep 0.3; exit 2", Setup: "sleep 0.1"},
		{Run: mark + "sleep 0.5; echo out", NumNodes: 2, CPUs: 1},
		{Run: mark + "(setsid sleep 1000 >/dev/null 2>&1 &); sleep 0.1"},
		{Run: mark + `[ $SKYPILOT_NODE_RANK = 1 ] && exit 3; sleep 1000`, NumNodes: 2},
		{Run: mark + "true", Setup: "exit 4", NumNodes: 2},
		{Setup: "sleep 0.2"},
		{Run: mark + "sleep 1000", CPUs: 2, NumNodes: 2}, // ends only by cancel
	}
	kindOf := map[int]int{}
	cancelled := 0
	var ids []int
	for range steps {
		switch n := rnd.IntN(10); {
		case n < 5:
			k := rnd.IntN(len(kinds))
			id := c.insist(fmt.Sprintf("chaos-%d", len(ids)), kinds[k])
			ids = append(ids, id)
			kindOf[id] = k
		case n < 7 && len(ids) > 0:
			id := ids[rnd.IntN(len(ids))]
			ctx, stop := context.WithTimeout(context.Background(), time.Duration(rnd.IntN(300))*time.Millisecond)
			_, _ = c.head.Cancel(ctx, agentapi.CancelRequest{IDs: []int{id}}) // the answer may be lost, the effect not
			stop()
		case n < 9:
			victim := c.nodes[rnd.IntN(2)]
			victim.kill()
			time.Sleep(time.Duration(rnd.IntN(60)) * time.Millisecond)
			victim.spawn()
		default:
			time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
		}
	}
	for _, id := range ids { // the endless ones
		if kindOf[id] == len(kinds)-1 {
			for {
				_, err := c.head.Cancel(context.Background(), agentapi.CancelRequest{IDs: []int{id}})
				if err == nil {
					break
				}
			}
		}
	}
	wants := []api.JobStatus{api.JobSucceeded, api.JobFailed, api.JobSucceeded, api.JobSucceeded, api.JobFailed, api.JobFailedSetup, api.JobSucceeded, api.JobCancelled}
	for _, id := range ids {
		job := c.awaitEnd(id)
		if job.Status == api.JobCancelled {
			cancelled++
		}
		spec := kinds[kindOf[id]]
		if job.Status != wants[kindOf[id]] && job.Status != api.JobCancelled || job.EndedAt == 0 {
			t.Errorf("%q became %s", spec.Run, mustJSON(job))
		}
		for rank := range max(spec.NumNodes, 1) {
			ran := 0
			for _, n := range c.nodes {
				ran += strings.Count(readFile(t, n.home, fmt.Sprintf("ran-%d-%d", id, rank)), "x")
			}
			switch {
			case ran > 1, ran == 0 && job.Status == api.JobSucceeded && spec.Run != "", ran > 0 && job.Status == api.JobFailedSetup:
				t.Errorf("rank %d of %s ran %d times", rank, mustJSON(job), ran)
			}
		}
		c.follow(id)
	}
	last := c.submit(agentapi.JobSpec{Run: "true", CPUs: 2, NumNodes: 2}) // needs everything
	if job := c.awaitEnd(last); job.Status != api.JobSucceeded {
		t.Errorf("job after all: %s", mustJSON(job))
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		left := 0
		for _, n := range c.nodes {
			dirs, err := os.ReadDir(filepath.Join(n.home, ".sky", "agent", "ranks"))
			if err != nil {
				t.Fatal(err)
			}
			left += len(dirs)
		}
		if left == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d ranks are not cleared up", left)
		}
	}
	for _, id := range ids {
		for rank := range 2 {
			for _, p := range []phase{phaseSetup, phaseRun} {
				if pids := proc.Marked(markerEnv, fmt.Sprintf("%s-%d-%s-%d", c.spec.Hash, id, p, rank)); len(pids) > 0 {
					t.Errorf("processes of job %d are left: %v", id, pids)
				}
			}
		}
	}
	t.Logf("%d jobs, %d cancelled", len(ids), cancelled)
}
