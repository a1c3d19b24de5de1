package jobs

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

// gang is the machines of one incarnation with their agents.
type gang struct {
	o         *outside
	id        cloud.ClusterID
	ids       []string // machines by rank
	dead      []bool
	plan      *plan
	rng       *rand.Rand
	cut       bool // nobody reaches the agents
	watched   bool
	given     bool      // back, because somebody asked for it
	hung      bool      // it does nothing any more, and its provider calls it running
	stuck     bool      // only a worker hangs, and the head says that it is silent
	lied      bool      // the cloud lies about one of the machines at the moment
	confirmed time.Time // when the provider said so
	run       *run
	timers    []*time.Timer
	quiet     time.Time // since when its head says nothing to servers; zero: it does
}

// heardLast is when servers heard of the head last.
func (g *gang) heardLast() time.Time {
	if g.quiet.IsZero() {
		return time.Now()
	}
	return g.quiet
}

// run is one job on a gang's head.
type run struct {
	job     agentapi.Job
	started time.Time
	over    chan struct{}
	left    bool      // its processes ended by themselves
	by      time.Time // it was asked to end by itself, and has until then; zero: not asked
	stored  bool      // a server said that it has stored how it ended
}

// The life of a gang.

// born gives a new incarnation its machines and plans its troubles.
func (o *outside) born(c *row, nodes []cloud.Node, p *plan, job int) *gang {
	g := o.machines[c.Hash]
	if g == nil {
		o.count.clusters++
		g = &gang{o: o, id: id(c), plan: p, dead: make([]bool, p.nodes), rng: rand.New(rand.NewPCG(o.seed, uint64(job)<<20|uint64(o.seq)))}
		o.machines[c.Hash] = g
		if !o.steady {
			g.plague()
		}
	}
	if g.ids == nil {
		g.ids = make([]string, p.nodes)
	}
	for _, n := range nodes {
		if n.Rank == 0 && g.ids[0] != "" && g.ids[0] != n.ID && g.run != nil {
			g.forgets() // a new head knows of nothing
		}
		g.ids[n.Rank], g.dead[n.Rank] = n.ID, false
	}
	return g
}

func (g *gang) after(d time.Duration, f func()) {
	g.timers = append(g.timers, time.AfterFunc(d, func() {
		g.o.mu.Lock()
		defer g.o.mu.Unlock()
		f()
	}))
}

// plague plans what goes wrong.
func (g *gang) plague() {
	if g.plan.spot && g.rng.IntN(3) == 0 {
		rank := g.rng.IntN(g.plan.nodes)
		g.after(time.Duration(g.rng.Int64N(int64(g.plan.work))), func() { g.lose(rank) })
	}
	if g.rng.IntN(6) == 0 {
		at, long := time.Duration(g.rng.Int64N(int64(g.plan.work))), time.Duration(g.rng.Int64N(int64(30*time.Minute)))
		g.after(at, g.partition)
		g.after(at+long, g.heal)
	}
	if g.o.patience > 0 && g.rng.IntN(15) == 0 {
		f := g.hang
		if g.plan.nodes > 1 && g.rng.IntN(2) == 0 {
			f = g.stick
		}
		g.after(time.Duration(g.rng.Int64N(int64(g.plan.work))), f)
	}
	if g.rng.IntN(10) == 0 { // the cloud lies about a machine for a while
		rank := g.rng.IntN(g.plan.nodes)
		at, long := time.Duration(g.rng.Int64N(int64(g.plan.work))), time.Duration(g.rng.Int64N(int64(time.Minute)))
		g.after(at, func() {
			if g.cut || g.ids == nil || g.ids[rank] == "" || g.dead[rank] {
				return // with the agents out of reach, too, nobody could know better
			}
			g.lied = true
			g.o.count.lies++
			fault := model.Fault{ID: "lie-" + g.id.Hash, Kind: model.Lie, Instance: g.ids[rank], State: []string{"terminated", "stopped"}[g.rng.IntN(2)]}
			if err := g.o.cloud.Inject(fault); err != nil {
				panic(err)
			}
			g.after(long, func() {
				g.o.cloud.Remove(fault.ID)
				g.lied = false
			})
		})
	}
}

// lose takes a machine away, as clouds do with spot machines.
func (g *gang) lose(rank int) {
	if g.ids == nil || g.dead[rank] || g.ids[rank] == "" {
		return
	}
	if err := g.o.cloud.Kill(g.ids[rank], "preempted"); err != nil {
		return
	}
	g.o.count.preempted++
	g.dead[rank] = true
	if rank == 0 && g.quiet.IsZero() {
		g.quiet = time.Now()
	}
	r := g.run
	if r == nil || r.job.Status.Terminal() {
		g.broken()
		return
	}
	if g.hung {
		return
	}
	g.saved(r)
	if rank == 0 {
		g.broken()
		return
	}
	if g.rng.IntN(2) == 0 { // its peers know before the cloud tells
		late := model.Fault{ID: "lie-" + g.id.Hash, Kind: model.Lie, Instance: g.ids[rank], State: "running"}
		if err := g.o.cloud.Inject(late); err != nil {
			panic(err)
		}
		g.after(time.Duration(g.rng.Int64N(int64(40*time.Second))), func() { g.o.cloud.Remove(late.ID) })
	}
	g.after(time.Second, func() { // the head notices
		if !g.dead[0] && !g.hung && g.run == r {
			g.ends(r, api.JobFailedDriver, nil)
		}
		g.broken()
	})
}

// hang makes the machines stop working, for ever, in a way that the provider
// does not notice.
func (g *gang) hang() {
	if g.hung || g.gone() || g.lied {
		return
	}
	g.hung = true
	g.o.count.hung++
	if r := g.run; r != nil && !r.job.Status.Terminal() {
		g.saved(r)
	}
	g.partition()
}

// stick makes a worker stop working, for ever, under a head that goes on.
func (g *gang) stick() {
	if g.hung || g.cut || g.gone() || g.lied {
		return
	}
	g.hung, g.stuck = true, true
	g.o.count.hung++
	if r := g.run; r != nil && !r.job.Status.Terminal() {
		g.saved(r)
	}
	g.broken()
}

// leave is what an agent does that is to end its job gracefully: the job is
// cancelled at once, and its log ends when its processes have.
func (g *gang) leave(grace time.Duration) {
	r := g.run
	if r == nil || r.job.Status.Terminal() {
		return
	}
	r.job.Status, r.job.EndedAt, r.by = api.JobCancelled, float64(time.Now().UnixMicro())/1e6, time.Now().Add(grace)
	g.after(min(g.plan.leaves, grace), func() {
		if g.run == r && !g.dead[0] {
			r.left = true
			close(r.over)
		}
	})
}

// saved keeps what a run that was cut off had written to its checkpoint, one a
// minute.
func (g *gang) saved(r *run) {
	done := time.Since(r.started)
	kept := done.Truncate(time.Minute)
	g.plan.left -= min(kept, g.plan.left)
	g.o.count.redone += done - kept
	g.o.count.lostRuns++
}

func (g *gang) partition() {
	if !g.cut && !g.gone() && !g.lied {
		g.cut = true
		if g.quiet.IsZero() {
			g.quiet = time.Now()
		}
		g.o.count.partitions++
		g.broken()
	}
}

func (g *gang) heal() {
	if g.hung {
		return
	}
	g.cut = false
	if g.ids != nil && !g.dead[0] {
		g.quiet = time.Time{}
	}
	g.o.ring(g.id.Hash)
}

func (g *gang) gone() bool {
	for _, d := range g.dead {
		if !d {
			return false
		}
	}
	return true
}

func (g *gang) whole() bool {
	for _, d := range g.dead {
		if d {
			return false
		}
	}
	return true
}

// healthy reports whether a job runs undisturbed.
func (g *gang) healthy() bool {
	return !g.given && !g.hung && g.whole() && g.run != nil && !g.run.job.Status.Terminal()
}

// broken is what servers notice at once: their connection breaks. One of them
// looks until the agents are back or the cluster is gone, as the watcher of
// package cluster does.
func (g *gang) broken() {
	g.o.ring(g.id.Hash)
	if g.watched {
		return
	}
	g.watched = true
	var look func(wait time.Duration)
	look = func(wait time.Duration) {
		g.after(wait, func() {
			c := g.o.records[g.id.Name]
			if c == nil || c.Hash != g.id.Hash || c.Status != api.ClusterUp || g.whole() && !g.cut {
				g.watched = false
				return
			}
			if len(g.o.listen()) > 0 {
				select {
				case c.locked <- struct{}{}:
					g.o.mu.Unlock()
					_, _ = g.o.refresh(context.Background(), c)
					g.o.mu.Lock()
					<-c.locked
				default:
				}
			}
			look(min(2*wait, 10*time.Second))
		})
	}
	look(100 * time.Millisecond)
}

// submit runs a job once per key, whatever is sent how often.
func (g *gang) submit(key string) (int, error) {
	if g.cut || g.dead[0] {
		return 0, errors.New("the agent does not answer")
	}
	if g.run != nil && g.run.job.Key == key {
		return g.run.job.ID, nil
	}
	id := 1
	if g.run != nil {
		id = g.run.job.ID + 1
		if !g.run.job.Status.Terminal() {
			return 0, errors.New("a job of an earlier attempt still runs")
		}
	}
	p := g.plan
	if p.won {
		g.o.violation("cluster %s: %s runs again after it succeeded", g.id.Name, key)
	}
	r := &run{job: agentapi.Job{ID: id, Key: key, Status: api.JobRunning}, started: time.Now(), over: make(chan struct{})}
	g.run = r
	g.after(p.left, func() {
		if !g.whole() || g.hung || g.run != r || r.job.Status.Terminal() {
			return
		}
		code := p.results[min(p.runs, len(p.results)-1)]
		p.runs++
		g.o.count.completed++
		switch {
		case code == 0:
			g.ends(r, api.JobSucceeded, []int{0})
			if p.spot && !g.o.steady && g.rng.IntN(2) == 0 { // its machine goes right afterwards
				g.after(time.Duration(g.rng.Int64N(int64(5*time.Second))), func() { g.lose(0) })
			} else if !g.cut && len(g.o.listen()) > 0 {
				p.won = true
			}
		case p.setup:
			g.ends(r, api.JobFailedSetup, []int{code})
		default:
			p.left = p.work
			g.ends(r, api.JobFailed, []int{code})
		}
	})
	return id, nil
}

func (g *gang) ends(r *run, s api.JobStatus, codes []int) {
	if r.job.Status.Terminal() {
		return
	}
	r.job.Status, r.job.ExitCodes, r.job.EndedAt = s, codes, float64(time.Now().UnixMicro())/1e6
	close(r.over)
	if !g.cut {
		g.o.ring(g.id.Hash)
	}
	g.report(r)
}

// report tells the servers that live how a job ended, again every second until one
// has stored it, as agents do.
func (g *gang) report(r *run) {
	if r.stored || g.run != r || g.dead[0] || g.given {
		return
	}
	if !g.cut && g.o.tell != nil {
		job, hash := r.job, g.id.Hash
		for _, m := range g.o.tell() {
			g.o.mu.Unlock()
			err := m.Ended(context.Background(), hash, job)
			g.o.mu.Lock()
			if err == nil {
				if r.stored = true; job.Status == api.JobSucceeded {
					g.plan.won = true // from now on it must not run again
				}
			}
		}
	}
	if !r.stored {
		g.after(time.Second, func() { g.report(r) })
	}
}

// forgets is what a new head does with the job of the one before.
func (g *gang) forgets() {
	if !g.run.job.Status.Terminal() {
		close(g.run.over)
	}
	g.run = nil
}

// end is what remains of a gang whose machines are given back.
func (g *gang) end() {
	for _, t := range g.timers {
		t.Stop()
	}
	g.o.cloud.Remove("lie-" + g.id.Hash)
	if g.run != nil && !g.run.job.Status.Terminal() {
		close(g.run.over)
		g.run.job.Status = api.JobCancelled
	}
}
