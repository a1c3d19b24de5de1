package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/state"
)

// Held clusters belong to something other than a user, such as a managed job. Users
// neither see them in lists nor end them; the holder's controller is told when
// something happens to them.

// holders are how messages name the kinds of holders, and what ends one with its
// clusters.
var holders = map[state.HolderKind]struct{ noun, end string }{
	state.HeldByJob:     {"managed job", "sky jobs cancel"},
	state.HeldByService: {"service", "sky serve down"},
	state.HeldByPool:    {"pool", "sky jobs pool down"},
}

// holderName is how messages name a cluster's holder.
func holderName(h state.Holder) string { return holders[h.Kind].noun + " " + h.Name() }

// RefuseHeld refuses what users may not do to held clusters: end them, and
// whatever would make the holder's controller see an end that its work did not have.
func RefuseHeld(c *state.Cluster) error {
	if !c.Held() {
		return nil
	}
	h := holders[c.Holder.Kind]
	return &api.Error{
		Type:    api.ErrNotSupported,
		Message: fmt.Sprintf("Cluster %q belongs to %s, which alone decides what runs there and when it ends.", c.Name, holderName(c.Holder)),
		Hint:    fmt.Sprintf("To end the %s and its cluster: %s %s", h.noun, h.end, c.Holder.Name()),
	}
}

// DownHeld gives the cluster of a holder back. One that is gone, or whose name
// belongs to somebody else, is no error.
func (m *Manager) DownHeld(ctx context.Context, call Call, name string, holder state.Holder) error {
	return m.downHeld(ctx, call, name, holder, false)
}

// PurgeHeld forgets the cluster of a holder, after a last try to give it back. call.Out
// hears of machines that may still be there.
func (m *Manager) PurgeHeld(ctx context.Context, call Call, name string, holder state.Holder) error {
	return m.downHeld(ctx, call, name, holder, true)
}

func (m *Manager) downHeld(ctx context.Context, call Call, name string, holder state.Holder, purge bool) error {
	c, err := m.Store.Clusters().Get(ctx, name)
	if errors.Is(err, state.ErrNotFound) || err == nil && c.Holder != holder {
		return nil
	}
	if err != nil {
		return err
	}
	return m.down(ctx, call, c, purge, 0)
}

// Confirm is [Manager.Refresh] that waits for whoever works on the cluster: what
// it returns was confirmed by the provider, who was asked since. nil, nil: the cluster
// is gone.
func (m *Manager) Confirm(ctx context.Context, name string) (*state.Cluster, error) {
	c, _, err := m.look(ctx, name, claim{looks: true, waits: forAll})
	if errors.Is(err, state.ErrNotFound) {
		return nil, nil
	}
	return c, err
}

// MayRun reports whether all machines of a cluster may run: its provider shows them so,
// or cannot tell.
func (m *Manager) MayRun(ctx context.Context, c *state.Cluster) bool {
	p, err := m.provider(c)
	if err != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, providerLimit)
	defer cancel()
	nodes, err := p.Nodes(ctx, m.Provision.ClusterID(c))
	if err != nil {
		return true
	}
	running := 0
	for _, n := range nodes {
		if n.State == cloud.NodeRunning {
			running++
		}
	}
	return running == c.Machines()
}

// provenSince reports whether a record is what a provider said who was asked after a
// time: by this server, or by another one that found the cluster not running. Of
// one that runs the agents tell, too, so its record proves nothing.
func (m *Manager) provenSince(c *state.Cluster, since time.Time) bool {
	if GivingBack(c) {
		return false
	}
	running := c.Status == api.ClusterUp || c.Status == api.ClusterAutostopping
	return m.locks.lookedSince(c.Name, since) || !running && c.StatusUpdatedAt.After(since)
}

// AgentJob asks the head agent of a cluster about a job, once.
func (m *Manager) AgentJob(ctx context.Context, c *state.Cluster, id int) (*agentapi.Job, error) {
	client, err := m.Remote.Head(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	return client.Job(ctx, id)
}

// AgentNotice asks the head agent of a cluster what the cloud has announced about its
// machine; nil: nothing.
func (m *Manager) AgentNotice(ctx context.Context, c *state.Cluster) (*agentapi.Notice, error) {
	client, err := m.Remote.Head(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	info, err := client.Info(ctx)
	if err != nil {
		return nil, err
	}
	return info.Notice, nil
}

// AgentDial connects to an address as the head of a cluster sees it. The connection
// outlives ctx.
func (m *Manager) AgentDial(ctx context.Context, c *state.Cluster, address string) (net.Conn, error) {
	client, err := m.Remote.Head(c)
	if err != nil {
		return nil, err
	}
	return client.DialLasting(ctx, address)
}

// AgentEnd asks for a job of a cluster to be ended: its processes have grace
// between TERM and KILL; 0: as usual. It does not wait for them; the job's log ends with them.
func (m *Manager) AgentEnd(ctx context.Context, c *state.Cluster, id int, grace time.Duration) error {
	client, err := m.Remote.Head(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	_, err = client.Cancel(ctx, agentapi.CancelRequest{IDs: []int{id}, GraceSeconds: graceSeconds(cmp.Or(grace, proc.Grace))})
	return err
}

// AgentCancel ends those jobs of a cluster that which picks from all of them, and
// waits for their processes.
func (m *Manager) AgentCancel(ctx context.Context, c *state.Cluster, which func([]agentapi.Job) []int) error {
	client, err := m.Remote.Head(c)
	if err != nil {
		return err
	}
	lctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	all, err := client.Jobs(lctx)
	if err != nil {
		return err
	}
	ids := which(all)
	if len(ids) == 0 { // without ids the request would mean another job
		return nil
	}
	ctx, cancel = context.WithTimeout(ctx, proc.Grace+endSlack)
	defer cancel()
	_, err = client.Cancel(ctx, agentapi.CancelRequest{IDs: ids})
	return err
}

// AgentCallback runs a script on the head of a cluster beside its jobs, and waits
// for its end. The same key again is the same run.
func (m *Manager) AgentCallback(ctx context.Context, c *state.Cluster, key string, r agentapi.CallbackRequest) (*agentapi.CallbackResult, error) {
	client, err := m.Remote.Head(c)
	if err != nil {
		return nil, err
	}
	return client.Callback(ctx, key, r)
}

// AgentLog follows the log of a job from a byte on, until the job has ended
// and all of it was read.
func (m *Manager) AgentLog(ctx context.Context, c *state.Cluster, id int, offset int64) (io.ReadCloser, int64, error) {
	client, err := m.Remote.Head(c)
	if err != nil {
		return nil, 0, err
	}
	return client.Log(ctx, id, agentclient.LogOptions{Offset: offset, Follow: true})
}

// Resources is how people see what a cluster consists of: short, and in full.
func Resources(c *state.Cluster) (short, full string) {
	return resourcesString(c, false), resourcesString(c, true)
}

// Changed returns a channel on which something comes soon after something
// happened to the cluster or its jobs, and what ends that. Looking is the
// receiver's business: many happenings may be one.
func (m *Manager) Changed(hash string) (<-chan struct{}, func()) {
	if !m.watcher.follows(hash) {
		m.watcher.wake() // it may be a cluster that another server launched
	}
	return m.watcher.changes.Subscribe(hash)
}
