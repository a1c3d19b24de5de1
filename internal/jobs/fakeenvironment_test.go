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

// hands is the world as one server touches it, as long as it lives.
type hands struct {
	*outside
	life    *life
	changes *notify.Keyed[string]
}

var _ environment = (*hands)(nil)

func (h *hands) get(name, hash string) *row {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.records[name]
	if c == nil || hash != "" && c.Hash != hash {
		return nil
	}
	return c
}

func (h *hands) Taken(_ context.Context, name string, job int) (bool, error) {
	return live(h.life, func() (bool, error) {
		c := h.get(name, "")
		return c != nil && c.Holder != state.JobHolder(job), nil
	})
}

func (h *hands) Launch(ctx context.Context, l launch) (placed, error) {
	return live(h.life, func() (placed, error) { return h.launch(ctx, l) })
}

func (h *hands) launch(ctx context.Context, l launch) (placed, error) {
	a, p := l.attempt, h.plans[l.attempt.JobID]
	if s := execution.ParseProgress(a.Progress).Submitting; s != "" && h.get(a.ClusterName, s) == nil {
		return placed{}, &lostError{"the cluster was gone before its job was seen"}
	}
	c := h.get(a.ClusterName, "")
	if c != nil && c.EverUp && a.Number > 1 {
		h.supersede(c, a)
	}
	if c == nil || c.Status != api.ClusterUp {
		var err error
		if c, err = h.bringUp(ctx, l, c, p); err != nil {
			return placed{}, err
		}
	}
	if err := h.life.breath(); err != nil {
		return placed{}, err
	}
	if err := l.call.Save(ctx, fmt.Appendf(nil, `{"submitting": %q}`, c.Hash)); err != nil {
		return placed{}, err
	}
	if a.Number > 1 {
		h.supersede(c, a)
	}
	h.mu.Lock()
	job, err := h.machines[c.Hash].submit(l.call.RequestID)
	h.mu.Unlock()
	if err != nil {
		return placed{}, err
	}
	if err := h.life.breath(); err != nil {
		return placed{}, err
	}
	if err := l.call.Save(ctx, fmt.Appendf(nil, `{"submitting": %q, "job_id": %d}`, c.Hash, job)); err != nil {
		return placed{}, err
	}
	return placed{Hash: c.Hash, Job: job, Offer: c.Offer, Nodes: p.nodes}, nil
}

// supersede ends what earlier attempts run on a cluster.
func (h *hands) supersede(c *row, a *state.ManagedAttempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.machines[c.Hash]
	if g == nil || g.run == nil || g.cut || g.dead[0] {
		return
	}
	for range superseded([]agentapi.Job{g.run.job}, a) {
		g.ends(g.run, api.JobCancelled, nil)
	}
}

// bringUp gets the machines of an attempt.
func (h *hands) bringUp(ctx context.Context, l launch, c *row, p *plan) (*row, error) {
	a := l.attempt
	keep := c != nil && c.EverUp
	if keep {
		h.mu.Lock()
		h.count.repairs++
		h.mu.Unlock()
	}
	if c == nil {
		h.mu.Lock()
		h.seq++
		c = &row{request: l.call.RequestID, locked: make(chan struct{}, 1), Cluster: state.Cluster{
			Name: a.ClusterName, Hash: fmt.Sprintf("%s-%d", a.ClusterName, h.seq), NameOnCloud: a.ClusterName,
			Status: api.ClusterInit, NumNodes: p.nodes, LaunchedAt: time.Now(), Holder: l.held.Holder,
		}}
		h.records[c.Name] = c
		h.mu.Unlock()
	}
	offers := []cloud.Offer{c.Offer}
	if !keep {
		var all []cloud.Offer
		for _, o := range h.offers {
			if o.Spot == p.spot {
				all = append(all, o)
			}
		}
		offers = nil
		for _, tier := range l.held.Order(all) {
			offers = append(offers, tier...)
		}
		h.judgeOrder(a, p, offers[0])
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if now := h.get(c.Name, c.Hash); now == nil {
		return nil, errors.New("the cluster was given back meanwhile")
	} else if now.Status == api.ClusterUp {
		return now, nil
	}
	var errs []error
	for _, offer := range offers {
		if err := h.life.breath(); err != nil {
			return nil, err
		}
		h.mu.Lock()
		c.Offer = offer
		h.mu.Unlock()
		spec := cloud.LaunchSpec{ID: id(c), Offer: offer, Nodes: p.nodes, Token: fmt.Sprint(l.call.RequestID, offer.Place), MachineSpec: cloud.MachineSpec{DiskGB: 10}}
		err := persist(ctx, func() error { return h.provider.Prepare(ctx, spec) })
		var nodes []cloud.Node
		if err == nil {
			err = persist(ctx, func() (err error) { nodes, err = h.provider.Launch(ctx, spec); return err })
		}
		if err == nil {
			return h.up(ctx, c, nodes, p, a.JobID)
		}
		if err := h.life.breath(); err != nil {
			return nil, err
		}
		if errors.Is(context.Cause(ctx), state.ErrHandover) {
			return nil, err // left as it is
		}
		errs = append(errs, err)
		if keep {
			return nil, errors.Join(errs...)
		}
		clean := h.life.ctx // not ended by a cancel
		if err := persist(clean, func() error { return h.provider.Terminate(clean, id(c)) }); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	if err := h.down(ctx, c); err != nil {
		return nil, err
	}
	return nil, errors.Join(errs...)
}

func (h *hands) up(_ context.Context, c *row, nodes []cloud.Node, p *plan, job int) (*row, error) {
	if err := h.life.breath(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.born(c, nodes, p, job)
	c.Status, c.EverUp, g.proven = api.ClusterUp, true, time.Time{}
	return c, nil
}

func (h *hands) Recorded(_ context.Context, a *state.ManagedAttempt) observation {
	o, err := live(h.life, func() (observation, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.recorded(a), nil
	})
	if err != nil {
		return observation{looked: true}
	}
	return o
}

func (h *hands) recorded(a *state.ManagedAttempt) observation {
	o := observation{looked: true}
	if c := h.records[a.ClusterName]; c == nil || c.Hash != a.ClusterHash {
		o.cluster, o.proven, o.reason = clusterGone, true, "the cluster is gone"
	} else {
		o.recorded(&c.Cluster, time.Now())
	}
	return o
}

func (h *hands) Heard(_ context.Context, a *state.ManagedAttempt) time.Time { return h.HeardLast(a) }

func (h *hands) HeardLast(a *state.ManagedAttempt) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g := h.machines[a.ClusterHash]; g != nil {
		return g.heardLast()
	}
	return time.Time{}
}

func (h *hands) Look(_ context.Context, a *state.ManagedAttempt) observation {
	o, err := live(h.life, func() (observation, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		o := h.recorded(a)
		if o.cluster == clusterGone || o.cluster == clusterBroken && a.Nodes == 1 {
			return o, nil
		}
		g := h.machines[a.ClusterHash]
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
		return observation{looked: true}
	}
	return o
}

func (h *hands) Prove(ctx context.Context, a *state.ManagedAttempt) (clusterState, string, error) {
	c, err := live(h.life, func() (*row, error) { return h.get(a.ClusterName, a.ClusterHash), nil })
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
	v, err := live(h.life, func() (cluster.Verdict, error) {
		if h.get(c.Name, c.Hash) == nil {
			return cluster.Verdict{Gone: true, Reason: "the cluster is gone"}, nil
		}
		h.mu.Lock()
		found := c.Status != api.ClusterUp && c.StatusUpdatedAt.After(began) // by somebody, meanwhile
		h.mu.Unlock()
		if found {
			return cluster.Verdict{}, nil
		}
		return h.refresh(ctx, c)
	})
	switch {
	case err != nil:
		return clusterUnknown, "", err
	case v.Gone:
		return clusterGone, v.Reason, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s, reason := stateOf(&c.Cluster)
	return s, reason, nil
}

func (h *hands) End(_ context.Context, a *state.ManagedAttempt, grace time.Duration) error {
	return liveOnly(h.life, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		g := h.machines[a.ClusterHash]
		if g == nil || g.cut || g.dead[0] {
			return errors.New("no answer")
		}
		g.leave(grace)
		return nil
	})
}

func (h *hands) Down(ctx context.Context, a *state.ManagedAttempt, _ cluster.Call) error {
	return liveOnly(h.life, func() error {
		c := h.get(a.ClusterName, "")
		if c == nil || c.Holder != state.JobHolder(a.JobID) {
			return nil
		}
		unlock, err := c.lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
		h.mu.Lock()
		if g := h.machines[c.Hash]; g != nil && g.healthy() && outcome(a.Outcome) != outAborted {
			h.violation("cluster %s of a healthy job is given back: attempt %d %s: %s", c.Name, a.Number, a.Outcome, a.Reason)
		}
		if g := h.machines[c.Hash]; g != nil && outcome(a.Outcome) == outAborted {
			h.judgeLeave(g)
		}
		if g := h.machines[c.Hash]; g != nil {
			g.given = true
		}
		h.mu.Unlock()
		return h.down(ctx, c)
	})
}

func (h *hands) Log(ctx context.Context, a *state.ManagedAttempt, _ int64) (io.ReadCloser, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.machines[a.ClusterHash]
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

func (h *hands) Changed(a *state.ManagedAttempt) (<-chan struct{}, func()) {
	return h.changes.Subscribe(a.ClusterHash)
}

func (h *hands) Callback(context.Context, *state.ManagedAttempt, string, agentapi.CallbackRequest) (*agentapi.CallbackResult, error) {
	return nil, errNoNode // simulated jobs have no callbacks
}
