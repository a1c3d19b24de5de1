//go:build unix

package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/proc"
)

// power is a machine's switch.
type power struct {
	mu  sync.Mutex
	off string // how it was switched off; "": it is on
	at  time.Time
}

func (p *power) turn(how string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off, p.at = how, time.Now()
	return nil
}

func (p *power) Stop(context.Context) error      { return p.turn("stop") }
func (p *power) Terminate(context.Context) error { return p.turn("terminate") }

func (p *power) state() (off string, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.off, p.at
}

// returned is an agent that comes back in the middle of a teardown.
func returned(t *testing.T, left storedTeardown, spec agentapi.ClusterSpec) (*Agent, *power) {
	t.Helper()
	q, err := openQueue(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &power{}
	a := &Agent{
		o: Options{Home: t.TempDir(), Machine: p}, log: slog.New(slog.DiscardHandler), now: time.Now, queue: q, hub: newHub(),
		kicked: make(chan struct{}, 1), looked: make(chan struct{}, 1), state: agentapi.AgentRunning, spec: &spec,
		jobs: map[int]*openJob{}, counts: map[api.JobStatus]int{},
	}
	a.ctx, a.stop = context.WithCancelCause(context.Background())
	t.Cleanup(func() {
		a.stop(nil)
		a.wg.Wait()
		q.close()
	})
	if err := q.put("teardown", left); err != nil {
		t.Fatal(err)
	}
	if err := a.recoverTeardown(); err != nil {
		t.Fatal(err)
	}
	return a, p
}

// An agent that finds on its disk that its machine was about to be switched off does
// not know whether that happened and somebody has switched it on again. It waits for
// a word, and stops no machine that is wanted.
func TestAnAgentThatComesBackStopsNoMachineThatIsWanted(t *testing.T) {
	spec := agentapi.ClusterSpec{Name: "c", Hash: "h", Epoch: 3, Nodes: []agentapi.Node{{ID: "n0"}}}
	worker := spec
	worker.Nodes, worker.Self = []agentapi.Node{{ID: "n0"}, {ID: "n1"}}, 1
	left := storedTeardown{Boot: proc.BootID(), Run: "r", Event: "stop", Last: true, Epoch: 3}
	with := func(change func(*storedTeardown)) storedTeardown {
		s := left
		change(&s)
		return s
	}
	for _, tt := range []struct {
		name  string
		left  storedTeardown
		spec  agentapi.ClusterSpec
		epoch int64 // that it is told after half of the grace; 0: nobody says anything
		off   string
	}{
		{"nobody wants it", left, spec, 0, "stop"},
		{"nobody wants it, and it is to go", with(func(s *storedTeardown) { s.Event = "down" }), spec, 0, "terminate"},
		{"it is told the same again", left, spec, 3, "stop"},
		{"it was started again", left, spec, 4, ""},
		{"it was started again before", with(func(s *storedTeardown) { s.Epoch = 2 }), spec, 0, ""},
		{"the machine was switched off and on", with(func(s *storedTeardown) { s.Boot = "earlier" }), spec, 0, ""},
		{"a worker leaves that to its head", left, worker, 0, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			a, p := returned(t, tt.left, tt.spec)
			time.Sleep(restartGrace / 2)
			if off, _ := p.state(); off != "" {
				t.Errorf("%s: switched off before anybody could say a word", tt.name)
			}
			if tt.epoch > 0 {
				next := tt.spec
				next.Epoch = tt.epoch
				if _, err := a.configure(&next); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10 * restartGrace)
			off, at := p.state()
			if off != tt.off {
				t.Errorf("%s: machine %q, want %q", tt.name, off, tt.off)
			}
			if tt.off != "" && at.Sub(start) != restartGrace {
				t.Errorf("%s: switched off after %v", tt.name, at.Sub(start))
			}
			if tt.off == "" && a.info().State != agentapi.AgentRunning {
				t.Errorf("%s: it says that it is %s", tt.name, a.info().State)
			}
		})
	}
}

// A job that had ended before its machine was restarted keeps its result, also while
// something of it was still to be cleared up.
func TestARestartOfTheMachineChangesNoResult(t *testing.T) {
	dir := t.TempDir()
	q, err := openQueue(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer q.close()
	rec, _, err := q.submit("key", &agentapi.JobSpec{Run: "true", NumNodes: 1}, func(r *record) { r.Boot, r.Job.Status = "earlier", api.JobPending })
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []jobEvent{evRun, evSucceeded} {
		if _, err := q.update(rec.Job.ID, func(r *record) error { return r.move(e, time.Now()) }); err != nil {
			t.Fatal(err)
		}
	}
	a := &Agent{
		ctx: t.Context(), o: Options{Home: t.TempDir(), Dir: dir}, log: slog.New(slog.DiscardHandler), now: time.Now, queue: q, hub: newHub(),
		spec: &agentapi.ClusterSpec{Nodes: []agentapi.Node{{ID: "n0"}}}, jobs: map[int]*openJob{}, counts: map[api.JobStatus]int{}, reports: map[int]agentapi.Job{},
	}
	if err := a.recoverJobs(); err != nil {
		t.Fatalf("the agent does not start: %v", err)
	}
	if got, err := q.get(rec.Job.ID); err != nil || got.Job.Status != api.JobSucceeded || got.Job.Reason != "" {
		t.Errorf("%+v, %v", got, err)
	}
}

// Processes that are ended can put their things away first: those of ranks whose peer
// has failed, and those of a job that is cancelled.
func TestProcessesThatAreEndedHaveTimeToPutTheirThingsAway(t *testing.T) {
	t.Parallel()
	const trap = `trap 'echo kept >~/kept; exit 0' TERM; echo x >~/ready; while :; do sleep 0.05; done`
	for _, tt := range []struct {
		name  string
		nodes int
		run   string
		end   func(c *testCluster, id int)
	}{
		{"another rank fails", 2, `if [ $SKYPILOT_NODE_RANK = 1 ]; then until [ -s $READY ]; do sleep 0.05; done; exit 7; fi; ` + trap, func(*testCluster, int) {}},
		{"the job is cancelled", 1, trap, func(c *testCluster, id int) {
			awaitFile(c.t, "x", c.nodes[0].home, "ready")
			if _, err := c.head.Cancel(c.t.Context(), agentapi.CancelRequest{IDs: []int{id}}); err != nil {
				c.t.Error(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, tt.nodes, twoCPUs, true, time.Minute)
			id := c.submit(agentapi.JobSpec{NumNodes: tt.nodes, Run: tt.run, Envs: map[string]string{"READY": filepath.Join(c.nodes[0].home, "ready")}})
			tt.end(c, id)
			c.follow(id)
			if _, err := os.Stat(filepath.Join(c.nodes[0].home, "kept")); err != nil {
				t.Errorf("job %s: %v", mustJSON(c.job(id)), err)
			}
		})
	}
}
