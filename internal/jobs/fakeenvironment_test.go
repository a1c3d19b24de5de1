package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/notify"
	"github.com/skypilot-go/sky/internal/state"
)

// fakeEnvironment is what one server reaches, as long as it lives.
type fakeEnvironment struct {
	*outside
	life    *life
	changes *notify.Keyed[string]
}

var _ environment = (*fakeEnvironment)(nil)

func (e *fakeEnvironment) get(name, hash string) *row {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.records[name]
	if c == nil || hash != "" && c.Hash != hash {
		return nil
	}
	return c
}

func (e *fakeEnvironment) Taken(_ context.Context, name string, job int) (bool, error) {
	return live(e.life, func() (bool, error) {
		c := e.get(name, "")
		return c != nil && c.Holder != state.JobHolder(job), nil
	})
}

func (e *fakeEnvironment) Launch(ctx context.Context, l launch) (placed, error) {
	return live(e.life, func() (placed, error) { return e.launch(ctx, l) })
}

func (e *fakeEnvironment) launch(ctx context.Context, l launch) (placed, error) {
	a, p := l.attempt, e.plans[l.attempt.JobID]
	if s := execution.ParseProgress(a.Progress).Submitting; s != "" && e.get(a.ClusterName, s) == nil {
		return placed{}, &lostError{"the cluster was gone before its job was seen"}
	}
	c := e.get(a.ClusterName, "")
	if c != nil && c.EverUp && a.Number > 1 {
		e.supersede(c, a)
	}
	if c == nil || c.Status != api.ClusterUp {
		var err error
		if c, err = e.bringUp(ctx, l, c, p); err != nil {
			return placed{}, err
		}
	}
	if err := e.life.breath(); err != nil {
		return placed{}, err
	}
	if err := l.call.Save(ctx, fmt.Appendf(nil, `{"submitting": %q}`, c.Hash)); err != nil {
		return placed{}, err
	}
	if a.Number > 1 {
		e.supersede(c, a)
	}
	e.mu.Lock()
	job, err := e.machines[c.Hash].submit(l.call.RequestID)
	e.mu.Unlock()
	if err != nil {
		return placed{}, err
	}
	if err := e.life.breath(); err != nil {
		return placed{}, err
	}
	if err := l.call.Save(ctx, fmt.Appendf(nil, `{"submitting": %q, "job_id": %d}`, c.Hash, job)); err != nil {
		return placed{}, err
	}
	return placed{Hash: c.Hash, Job: job, Offer: c.Offer, Nodes: p.nodes}, nil
}

// supersede ends what earlier attempts run on a cluster.
func (e *fakeEnvironment) supersede(c *row, a *state.ManagedAttempt) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.machines[c.Hash]
	if g == nil || g.run == nil || g.cut || g.dead[0] {
		return
	}
	for range superseded([]agentapi.Job{g.run.job}, a) {
		g.ends(g.run, api.JobCancelled, nil)
	}
}

// bringUp gets the machines of an attempt.
func (e *fakeEnvironment) bringUp(ctx context.Context, l launch, c *row, p *plan) (*row, error) {
	a := l.attempt
	keep := c != nil && c.EverUp
	if keep {
		e.mu.Lock()
		e.count.repairs++
		e.mu.Unlock()
	}
	if c == nil {
		e.mu.Lock()
		e.seq++
		c = &row{request: l.call.RequestID, locked: make(chan struct{}, 1), Cluster: state.Cluster{
			Name: a.ClusterName, Hash: fmt.Sprintf("%s-%d", a.ClusterName, e.seq), NameOnCloud: a.ClusterName,
			Status: api.ClusterInit, NumNodes: p.nodes, LaunchedAt: time.Now(), Holder: l.held.Holder,
		}}
		e.records[c.Name] = c
		e.mu.Unlock()
	}
	offers := []cloud.Offer{c.Offer}
	if !keep {
		var all []cloud.Offer
		for _, o := range e.offers {
			if o.Spot == p.spot {
				all = append(all, o)
			}
		}
		offers = nil
		for _, tier := range l.held.Order(all) {
			offers = append(offers, tier...)
		}
		e.judgeOrder(a, p, offers[0])
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if now := e.get(c.Name, c.Hash); now == nil {
		return nil, errors.New("the cluster was given back meanwhile")
	} else if now.Status == api.ClusterUp {
		return now, nil
	}
	var errs []error
	for _, offer := range offers {
		if err := e.life.breath(); err != nil {
			return nil, err
		}
		e.mu.Lock()
		c.Offer = offer
		e.mu.Unlock()
		spec := cloud.LaunchSpec{ID: id(c), Offer: offer, Nodes: p.nodes, Token: fmt.Sprint(l.call.RequestID, offer.Place), MachineSpec: cloud.MachineSpec{DiskGB: 10}}
		err := persist(ctx, func() error { return e.provider.Prepare(ctx, spec) })
		var nodes []cloud.Node
		if err == nil {
			err = persist(ctx, func() (err error) { nodes, err = e.provider.Launch(ctx, spec); return err })
		}
		if err == nil {
			return e.up(ctx, c, nodes, p, a.JobID)
		}
		if err := e.life.breath(); err != nil {
			return nil, err
		}
		if errors.Is(context.Cause(ctx), state.ErrHandover) {
			return nil, err // left as it is
		}
		errs = append(errs, err)
		if keep {
			return nil, errors.Join(errs...)
		}
		clean := e.life.ctx // not ended by a cancel
		if err := persist(clean, func() error { return e.provider.Terminate(clean, id(c)) }); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	if err := e.down(ctx, c); err != nil {
		return nil, err
	}
	return nil, errors.Join(errs...)
}

func (e *fakeEnvironment) up(_ context.Context, c *row, nodes []cloud.Node, p *plan, job int) (*row, error) {
	if err := e.life.breath(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.born(c, nodes, p, job)
	c.Status, c.EverUp, g.confirmed = api.ClusterUp, true, time.Time{}
	return c, nil
}

func (e *fakeEnvironment) Recorded(_ context.Context, a *state.ManagedAttempt) observation {
	o, err := live(e.life, func() (observation, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.recorded(a), nil
	})
	if err != nil {
		return observation{observed: true}
	}
	return o
}

func (e *fakeEnvironment) recorded(a *state.ManagedAttempt) observation {
	o := observation{observed: true}
	if c := e.records[a.ClusterName]; c == nil || c.Hash != a.ClusterHash {
		o.cluster, o.confirmed, o.reason = clusterGone, true, "the cluster is gone"
	} else {
		o.recorded(&c.Cluster, time.Now())
	}
	return o
}

func (e *fakeEnvironment) Heard(_ context.Context, a *state.ManagedAttempt) time.Time {
	return e.HeardLast(a)
}

func (e *fakeEnvironment) HeardLast(a *state.ManagedAttempt) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if g := e.machines[a.ClusterHash]; g != nil {
		return g.heardLast()
	}
	return time.Time{}
}

func (e *fakeEnvironment) Observe(_ context.Context, a *state.ManagedAttempt) observation {
	o, err := live(e.life, func() (observation, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		o := e.recorded(a)
		if o.cluster == clusterGone || o.cluster == clusterBroken && a.Nodes == 1 {
			return o, nil
		}
		g := e.machines[a.ClusterHash]
		switch {
		case g.cut || g.dead[0]:
			o.silent = "no answer"
		case g.run == nil || g.run.job.ID != a.ClusterJob:
			o.noJob = true
		default:
			job := g.run.job
			if g.stuck && !job.Status.Terminal() {
				job.Silent = "worker1 cannot be reached: no answer"
			}
			o.answered(&job)
		}
		return o, nil
	})
	if err != nil {
		return observation{observed: true}
	}
	return o
}

func (e *fakeEnvironment) Confirm(ctx context.Context, a *state.ManagedAttempt) (clusterState, string, error) {
	c, err := live(e.life, func() (*row, error) { return e.get(a.ClusterName, a.ClusterHash), nil })
	if err != nil {
		return clusterUnknown, "", err
	}
	if c == nil {
		return clusterGone, "the cluster is gone", nil
	}
	began := time.Now()
	unlock, err := c.lock(ctx)
	if err != nil {
		return clusterUnknown, "", err
	}
	defer unlock()
	v, err := live(e.life, func() (cluster.Verdict, error) {
		if e.get(c.Name, c.Hash) == nil {
			return cluster.Verdict{Gone: true, Reason: "the cluster is gone"}, nil
		}
		e.mu.Lock()
		found := c.Status != api.ClusterUp && c.StatusUpdatedAt.After(began) // by somebody, meanwhile
		e.mu.Unlock()
		if found {
			return cluster.Verdict{}, nil
		}
		return e.refresh(ctx, c)
	})
	switch {
	case err != nil:
		return clusterUnknown, "", err
	case v.Gone:
		return clusterGone, v.Reason, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s, reason := stateOf(&c.Cluster)
	return s, reason, nil
}

func (e *fakeEnvironment) End(_ context.Context, a *state.ManagedAttempt, grace time.Duration) error {
	return liveOnly(e.life, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		g := e.machines[a.ClusterHash]
		if g == nil || g.cut || g.dead[0] {
			return errors.New("no answer")
		}
		g.leave(grace)
		return nil
	})
}

func (e *fakeEnvironment) Down(ctx context.Context, a *state.ManagedAttempt, _ cluster.Call) error {
	return liveOnly(e.life, func() error {
		c := e.get(a.ClusterName, "")
		if c == nil || c.Holder != state.JobHolder(a.JobID) {
			return nil
		}
		unlock, err := c.lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
		e.mu.Lock()
		if g := e.machines[c.Hash]; g != nil && g.healthy() && outcome(a.Outcome) != outAborted {
			e.violation("cluster %s of a healthy job is given back: attempt %d %s: %s", c.Name, a.Number, a.Outcome, a.Reason)
		}
		if g := e.machines[c.Hash]; g != nil && outcome(a.Outcome) == outAborted {
			e.judgeLeave(g)
		}
		if g := e.machines[c.Hash]; g != nil {
			g.given = true
		}
		e.mu.Unlock()
		return e.down(ctx, c)
	})
}

func (e *fakeEnvironment) Log(ctx context.Context, a *state.ManagedAttempt, _ int64) (io.ReadCloser, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.machines[a.ClusterHash]
	if g == nil || g.run == nil || g.cut || g.dead[0] {
		return nil, errors.New("no answer")
	}
	return &logStream{ctx, g.run.over}, nil
}

// logStream is an empty log that ends with its job.
type logStream struct {
	ctx  context.Context
	over chan struct{}
}

func (s *logStream) Close() error { return nil }
func (s *logStream) Read([]byte) (int, error) {
	select {
	case <-s.over:
		return 0, io.EOF
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}

func (e *fakeEnvironment) Changed(a *state.ManagedAttempt) (<-chan struct{}, func()) {
	return e.changes.Subscribe(a.ClusterHash)
}

func (e *fakeEnvironment) Callback(context.Context, *state.ManagedAttempt, string, agentapi.CallbackRequest) (*agentapi.CallbackResult, error) {
	return nil, errNoNode // simulated jobs have no callbacks
}
