package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
)

const (
	agentTimeout   = 5 * time.Second  // one question to an agent
	lackTimeout    = 2 * time.Second  // one to an agent whose machine is said to be gone
	providerLimit  = 60 * time.Second // one question to a provider
	refreshAtOnce  = 32               // clusters looked at in parallel
	staleAfter     = 2 * time.Second  // an AUTO refresh trusts younger records
	refreshPeriod  = 60 * time.Second // the background look at every cluster
	restartTimeout = time.Minute      // bringing a dead agent back
	busyPatience   = 30 * time.Second // with somebody who works on a cluster whose agent does not answer
	lookPatience   = 20 * time.Second // of a user's look with those of others
)

// Refresh looks at the provider and the agent and brings the record up to
// date. It returns nil when the cluster turned out to be gone. While somebody
// else works on the cluster the record is returned as it is.
func (m *Manager) Refresh(ctx context.Context, name string) (*state.Cluster, error) {
	c, _, err := m.look(ctx, name, claim{looks: true, waits: forNobody})
	return c, err
}

// refreshNow is Refresh for a user who wants to know what is true now: it waits
// for somebody else's look at the cluster. Whoever does more with it is not waited
// for: that is what the error says beside the record as it is.
func (m *Manager) refreshNow(ctx context.Context, name string) (*state.Cluster, error) {
	t := time.NewTimer(lookPatience)
	defer t.Stop()
	c, ok, err := m.look(ctx, name, claim{looks: true, waits: forLooks, late: t.C})
	if err == nil && !ok {
		err = errBusy
	}
	return c, err
}

// look brings the record up to date if the claim on the cluster's lock is met.
func (m *Manager) look(ctx context.Context, name string, want claim) (c *state.Cluster, ok bool, err error) {
	began := now()
	lctx, unlock, ok, err := busy(m.locks.lock(ctx, name, want))
	switch {
	case err != nil:
		return nil, false, err
	case !ok:
		c, err = m.Store.Clusters().Get(ctx, name)
		return c, false, err
	}
	defer unlock()
	c, err = m.Store.Clusters().Get(lctx, name)
	if err == nil && !m.provenSince(c, began) {
		c, err = m.refresh(lctx, c)
	}
	return c, true, err
}

// refreshNext is Refresh that waits a while for whoever works on the cluster:
// most likely they are bringing its agent back.
func (m *Manager) refreshNext(ctx context.Context, name string) (*state.Cluster, error) {
	t := time.NewTimer(busyPatience)
	defer t.Stop()
	c, _, err := m.look(ctx, name, claim{looks: true, waits: forAll, late: t.C})
	return c, err
}

// refresh brings the record of a cluster whose lock is held up to date.
func (m *Manager) refresh(ctx context.Context, c *state.Cluster) (*state.Cluster, error) {
	if why := c.Notes.GivingBack; why != "" {
		if err := m.forget(ctx, nil, c, why); err != nil {
			return c, &api.Error{Type: api.ErrStatusFetching, Message: fmt.Sprintf("Cluster %q is being given back: %v", c.Name, err), Err: err}
		}
		return nil, nil
	}
	if c.Notes.SwitchingOff != "" {
		return m.endIdle(ctx, c)
	}
	began := now()
	o := m.observe(ctx, c)
	if o.Agent != nil && o.Agent.Ended && o.NodesErr == nil {
		return m.endIdle(ctx, c)
	}
	v := Decide(c, o, now())
	if v.RestartAgent {
		if info, err := m.restartAgents(ctx, c); err == nil {
			o.Agent, o.Silent = info, 0
			v = Decide(c, o, now())
		} else {
			m.Log.WarnContext(ctx, "agent not restarted", "cluster", c.Name, "err", err)
		}
	}
	name := c.Name
	c, err := m.apply(ctx, c, o, v)
	if err == nil {
		m.locks.looked(name, began)
	}
	return c, err
}

func (m *Manager) observe(ctx context.Context, c *state.Cluster) Observation {
	var o Observation
	p, err := m.provider(c)
	if err != nil {
		o.NodesErr = err
		return o
	}
	pctx, cancel := context.WithTimeout(ctx, providerLimit)
	defer cancel()
	if o.NodesErr = m.SameAccount(pctx, c, p); o.NodesErr != nil {
		return o
	}
	o.Nodes, o.NodesErr = p.Nodes(pctx, m.Provision.ClusterID(c))
	if remote.Agentless(c) {
		return o
	}
	m.askAgents(ctx, c, &o)
	return o
}

// askAgents asks the agents of all running machines at once. Those of machines
// that ran and that the provider shows no longer are asked as well, and have
// less time: lists may be late or wrong.
func (m *Manager) askAgents(ctx context.Context, c *state.Cluster, o *Observation) {
	infos := make([]*agentapi.Info, len(o.Nodes))
	errs := make([]error, len(o.Nodes))
	var g errgroup.Group
	for i, n := range o.Nodes {
		if n.State != cloud.NodeRunning || n.Rank >= len(c.Nodes) {
			continue
		}
		g.Go(func() error {
			if infos[i], errs[i] = m.askAgent(ctx, c, n.Rank); errs[i] != nil {
				infos[i] = nil
			}
			return nil
		})
	}
	lacking := missing(c, o)
	there := make([]bool, len(lacking))
	for i, rank := range lacking {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, lackTimeout)
			defer cancel()
			_, err := m.askAgent(ctx, c, rank)
			there[i] = err == nil
			return nil
		})
	}
	g.Wait()
	for i, rank := range lacking {
		if there[i] {
			o.Answered = append(o.Answered, rank)
		}
	}
	for i, n := range o.Nodes {
		if errs[i] != nil {
			o.Silent++
		}
		if n.Rank == 0 {
			o.Agent, o.AgentErr = infos[i], errs[i]
		}
	}
}

func (m *Manager) askAgent(ctx context.Context, c *state.Cluster, rank int) (*agentapi.Info, error) {
	client, err := m.Remote.Node(c, rank)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	return client.Info(ctx)
}

// restartAgents brings dead agents of a cluster back; they adopt their jobs.
func (m *Manager) restartAgents(ctx context.Context, c *state.Cluster) (*agentapi.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	if err := m.Remote.Ensure(ctx, c); err != nil {
		return nil, err
	}
	info, err := m.askAgent(ctx, c, 0)
	if err != nil {
		return nil, err
	}
	nodes := c.Nodes
	updated, err := m.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		c.Nodes = nodes
		return nil
	})
	if err != nil {
		return nil, err
	}
	*c = *updated
	m.event(ctx, c, "DEBUG", c.Status, "the agents were restarted")
	return info, nil
}

// apply makes the record what the verdict says.
func (m *Manager) apply(ctx context.Context, c *state.Cluster, o Observation, v Verdict) (*state.Cluster, error) {
	switch {
	case v.Gone:
		if err := m.forget(ctx, nil, c, ended(c, v.Reason)); err != nil {
			return nil, err
		}
		return nil, nil
	case v.Unknown:
		return c, &api.Error{Type: api.ErrStatusFetching, Message: fmt.Sprintf("The state of cluster %q could not be found out: %s", c.Name, v.Reason)}
	}
	from := c.Status
	v.Reason = withAutostop(c, v.Status, v.Reason)
	updated, err := m.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		c.StatusUpdatedAt = now()
		if v.Status != c.Status {
			c.Status, c.LastEvent = v.Status, v.Reason
		}
		if v.Status == api.ClusterUp {
			c.EverUp = true
		}
		if o.Agent != nil && o.Agent.Autostop != nil {
			c.AutostopMinutes, c.AutostopDown = o.Agent.Autostop.IdleMinutes, o.Agent.Autostop.Down
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if updated.Status != from {
		m.event(ctx, updated, "STATUS_CHANGE", from, v.Reason)
		m.usage(ctx, updated)
		m.watcher.wake()
		m.watcher.changes.Notify(updated.Hash)
	}
	return updated, nil
}

// usage opens or closes the cluster's usage interval as its status says.
func (m *Manager) usage(ctx context.Context, c *state.Cluster) {
	var err error
	if c.Status == api.ClusterStopped {
		err = m.Store.Clusters().CloseUsage(ctx, c.Hash, now())
	} else {
		err = m.Store.Clusters().OpenUsage(ctx, c.Hash, now())
	}
	if err != nil {
		m.Log.WarnContext(ctx, "usage not stored", "cluster", c.Name, "err", err)
	}
}

// RefreshAll looks at many clusters at once and returns the records that are
// left, in the same order. Those that could not be refreshed stay as they are;
// the second result says why, by name.
func (m *Manager) RefreshAll(ctx context.Context, clusters []*state.Cluster, need func(*state.Cluster) bool) ([]*state.Cluster, map[string]error) {
	return refreshAll(ctx, clusters, need, m.Refresh)
}

func refreshAll(ctx context.Context, clusters []*state.Cluster, need func(*state.Cluster) bool,
	refresh func(context.Context, string) (*state.Cluster, error)) ([]*state.Cluster, map[string]error) {
	out := make([]*state.Cluster, len(clusters))
	errs := make([]error, len(clusters))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(refreshAtOnce)
	for i, c := range clusters {
		if !need(c) {
			out[i] = c
			continue
		}
		g.Go(func() error {
			fresh, err := refresh(gctx, c.Name)
			switch {
			case err == nil:
				out[i] = fresh
			case errors.Is(err, state.ErrNotFound):
			default:
				out[i], errs[i] = cmp.Or(fresh, c), err
			}
			return nil
		})
	}
	g.Wait()
	var left []*state.Cluster
	failed := map[string]error{}
	for i, c := range out {
		if c != nil {
			left = append(left, c)
		}
		if errs[i] != nil {
			failed[clusters[i].Name] = errs[i]
		}
	}
	return left, failed
}

// stale reports whether an AUTO refresh should look: machines may vanish by
// themselves, and the record is not from just now.
func stale(c *state.Cluster, now time.Time) bool {
	mayVanish := c.Offer.Spot || c.AutostopMinutes >= 0 && c.Status != api.ClusterStopped || c.Status == api.ClusterAutostopping
	return mayVanish && now.Sub(c.StatusUpdatedAt) > staleAfter
}

// client is the agent of one node.
func (m *Manager) client(c *state.Cluster, rank int) (*agentclient.Client, error) {
	client, err := m.Remote.Node(c, rank)
	if err != nil {
		return nil, &remote.NodeError{Node: remote.NodeName(rank), Step: "connecting", Err: err}
	}
	return client, nil
}
