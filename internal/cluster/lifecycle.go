package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/state"
)

const (
	endSlack    = 20 * time.Second // for the answer of an agent that ends its jobs, beside their grace
	hookTimeout = time.Hour        // for hooks, beside that
	takeDown    = 15 * time.Minute // one Terminate or Stop of a provider
)

// Stop switches a cluster's machines off and keeps their disks.
func (m *Manager) Stop(ctx context.Context, call Call, body api.StopBody) error {
	c, err := m.Get(ctx, body.ClusterName)
	if err != nil {
		return err
	}
	grace, err := Grace(body.Graceful, body.GracefulTimeout)
	if err != nil {
		return err
	}
	if err := RefuseHeld(c); err != nil {
		return err
	}
	p, err := m.provider(c)
	if err != nil {
		return err
	}
	if err := m.SameAccount(ctx, c, p); err != nil {
		return err
	}
	stopper, ok := cloud.As[cloud.Stopper](p)
	if reason, lacks := cloud.Lacking(p, c.Offer, cloud.FeatureStop); lacks || !ok {
		return &api.Error{
			Type:    api.ErrNotSupported,
			Message: fmt.Sprintf("Cluster %q cannot be stopped on %s: %s", c.Name, p.DisplayName(), orElse(reason, "its machines cannot be off and keep their disks")),
			Hint:    "To give it back for good: sky down " + c.Name,
		}
	}
	ctx, unlock, err := m.preemptAndLock(ctx, call, c.Name)
	if err != nil {
		return err
	}
	defer unlock()
	if c, err = m.Get(ctx, c.Name); err != nil {
		return err
	}
	if c.Status != api.ClusterStopped {
		call.Out.Spin("Stopping cluster " + c.Name)
		m.endWork(ctx, call.Out, c, "stop", grace)
	}
	sctx, cancel := context.WithTimeout(ctx, takeDown)
	defer cancel()
	sctx, end := provision.ReportProgress(sctx, call.Out, "stopping cluster "+c.Name)
	err = stopper.Stop(sctx, m.Provision.ClusterID(c))
	end()
	if err != nil && !body.Purge {
		return fmt.Errorf("stopping cluster %s: %w", c.Name, err)
	}
	_, err = m.stopped(ctx, c, call.Command, "stopped by "+call.User.Name)
	return err
}

// stopped notes that a cluster's machines were switched off.
func (m *Manager) stopped(ctx context.Context, c *state.Cluster, by, reason string) (*state.Cluster, error) {
	from := c.Status
	c, err := m.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		c.Status, c.StatusUpdatedAt, c.Notes.SwitchingOff = api.ClusterStopped, now(), ""
		c.LastUse = orElse(by, c.LastUse)
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.Provision.Freed()
	m.event(ctx, c, "STATUS_CHANGE", from, reason)
	m.usage(ctx, c)
	m.Remote.Forget(c.Hash)
	m.watcher.wake()
	return c, nil
}

// Down gives a cluster's machines back and removes the record.
func (m *Manager) Down(ctx context.Context, call Call, body api.StopBody) error {
	c, err := m.Get(ctx, body.ClusterName)
	if err != nil {
		if call.Attempt > 1 && errors.Is(err, state.ErrNotFound) {
			return nil // the attempt before the crash got that far
		}
		return err
	}
	if err := RefuseHeld(c); err != nil && !body.Purge {
		return err
	}
	grace, err := Grace(body.Graceful, body.GracefulTimeout)
	if err != nil {
		return err
	}
	return m.down(ctx, call, c, body.Purge, grace)
}

// down gives one incarnation of a cluster back.
func (m *Manager) down(ctx context.Context, call Call, c *state.Cluster, purge bool, grace time.Duration) error {
	hash := c.Hash
	ctx, unlock, err := m.preemptAndLock(ctx, call, c.Name)
	if err != nil {
		return err
	}
	defer unlock()
	if c, err = m.Store.Clusters().Get(ctx, c.Name); errors.Is(err, state.ErrNotFound) || err == nil && c.Hash != hash {
		return nil // somebody else's down was quicker
	}
	if err != nil {
		return err
	}
	call.Out.Spin("Terminating cluster " + c.Name)
	if c.Status != api.ClusterStopped {
		m.endWork(ctx, call.Out, c, "down", grace)
	}
	dctx, cancel := context.WithTimeout(ctx, takeDown)
	defer cancel()
	if err := m.forget(dctx, call.Out, c, terminatedBy+call.User.Name); err != nil {
		if !purge {
			return fmt.Errorf("terminating cluster %s: %w", c.Name, err)
		}
		fmt.Fprintf(call.Out, "The machines of cluster %s could not be given back (%v); the cluster is forgotten as --purge asks. They may still run and cost money.\n", c.Name, err)
		m.event(ctx, c, "TERMINAL", c.Status, "purged although its machines could not be given back: "+err.Error())
		if err := m.Store.Clusters().Delete(ctx, c.Name, c.Hash); err != nil && !errors.Is(err, state.ErrNotFound) {
			return err
		}
		m.Remote.Gone(c.Hash)
		m.watcher.wake()
	}
	return nil
}

// Release gives back a cluster on behalf of a request that already holds its
// lock (a launch that failed, or one with --down that is through). out, if not
// nil, hears of machines that are not gone in time.
func (m *Manager) Release(ctx context.Context, out io.Writer, c *state.Cluster, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, takeDown)
	defer cancel()
	return m.forget(ctx, out, c, reason)
}

// preemptAndLock ends other requests in flight for the cluster and takes its lock.
func (m *Manager) preemptAndLock(ctx context.Context, call Call, name string) (context.Context, func(), error) {
	if call.Out != nil {
		call.Out.Spin("Waiting for other requests on cluster " + name + " to end")
	}
	_, end := provision.ReportProgress(ctx, call.Out, "waiting for other requests on cluster "+name+" to end")
	defer end()
	if m.CancelRequests != nil {
		if err := m.CancelRequests(ctx, name, call.RequestID); err != nil {
			return nil, nil, err
		}
	}
	return m.Lock(ctx, name)
}

// endWork lets the agents run hooks and end their jobs, whose processes have grace
// between TERM and KILL; 0: as usual. An agent that does not answer must not keep its
// machine alive.
func (m *Manager) endWork(ctx context.Context, out io.Writer, c *state.Cluster, event string, grace time.Duration) {
	client, err := m.Remote.Head(c)
	if err != nil {
		return
	}
	ictx, cancel := context.WithTimeout(ctx, agentTimeout)
	info, err := client.Info(ictx)
	cancel()
	headGone := err != nil
	if headGone {
		if u := unsaved(c); u != nil && out != nil {
			fmt.Fprintf(out, "WARNING: the agents of cluster %s do not answer; when they last did, its mounted buckets lacked %s.\n", c.Name, amount(u.Files, u.Bytes))
		}
		if len(c.Notes.Mounts) == 0 || len(c.Nodes) < 2 {
			return
		} // the others may have files that are not uploaded
	}
	timeout, doing := cmp.Or(grace, proc.Grace)+endSlack, "waiting for the agents of cluster "+c.Name+" to end its jobs"
	flush := time.Duration(0)
	if len(c.Notes.Mounts) > 0 {
		flush = cmp.Or(grace, agentapi.FlushTime)
		timeout += flush
		doing += " and to upload what they wrote to mounted buckets"
	}
	if !headGone && info.Autostop != nil && info.Autostop.Hooks != nil && len(*info.Autostop.Hooks) > 0 {
		timeout += hookTimeout
		doing = "waiting for the hooks of cluster " + c.Name
	}
	_, end := provision.ReportProgress(ctx, out, doing)
	defer end()
	ends := event
	shutdown := func(rank int, event string) {
		node, err := m.client(c, rank)
		if err != nil {
			return
		}
		sctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		last, err := node.Shutdown(sctx, agentapi.ShutdownRequest{Event: event, GraceSeconds: graceSeconds(grace), FlushSeconds: graceSeconds(flush)})
		if err != nil {
			m.Log.InfoContext(ctx, "agent did not shut down by itself", "cluster", c.Name, "node", rank, "err", err)
			return
		}
		m.leftUnsaved(ctx, out, c, rank, ends == "down", last.Mounts)
	}
	if !headGone {
		shutdown(0, event) // runs hooks, for which the others may be needed
	}
	// Those that are gone do not answer: they are not waited for one by one.
	var g errgroup.Group
	g.SetLimit(refreshAtOnce)
	for rank := 1; rank < len(c.Nodes); rank++ {
		g.Go(func() error { shutdown(rank, ""); return nil })
	}
	g.Wait()
}

// CanAutostop refuses an autostop of a cluster whose machines cannot be stopped. To
// cancel one (less than 0 minutes) is always possible, and so is an autodown.
func (m *Manager) CanAutostop(c *state.Cluster, minutes int, down bool) error {
	p, err := m.provider(c)
	if err != nil {
		return err
	}
	reason, lacks := cloud.Lacking(p, c.Offer, cloud.FeatureAutostop)
	if _, stays := cloud.Lacking(p, c.Offer, cloud.FeatureStop); lacks && stays && minutes >= 0 && !down {
		return &api.Error{Type: api.ErrNotSupported, Message: fmt.Sprintf("Cluster %q cannot do this on %s: %s", c.Name, p.DisplayName(), reason),
			Hint: "To have it given back when it is idle, add: --down"}
	}
	return nil
}

// TellAutostop says on out what an autostop depends on that is not in the power of the
// cluster's machines.
func (m *Manager) TellAutostop(out io.Writer, c *state.Cluster, a agentapi.Autostop) {
	p, err := m.provider(c)
	if err != nil || a.IdleMinutes < 0 {
		return
	}
	feature, does := cloud.FeatureAutostop, "stops"
	if a.Down {
		feature, does = cloud.FeatureAutodown, "gives back"
	}
	if reason, lacks := cloud.Lacking(p, c.Offer, feature); lacks {
		fmt.Fprintf(out, "The API server %s cluster %s when it has been idle, and must run then: %s.\n", does, c.Name, reason)
	}
}

// Autostop sets or cancels when a cluster stops itself.
func (m *Manager) Autostop(ctx context.Context, call Call, body api.AutostopBody) error {
	c, err := m.Up(ctx, body.ClusterName, "Setting autostop")
	if err != nil {
		return err
	}
	if err := RefuseHeld(c); err != nil {
		return err
	}
	if err := m.CanAutostop(c, body.IdleMinutes, body.Down); err != nil {
		return err
	}
	a := agentapi.Autostop{IdleMinutes: body.IdleMinutes, Down: body.Down, WaitFor: api.WaitForJobsAndSSH}
	if body.IdleMinutes == 0 {
		a.IdleMinutes = 1
		fmt.Fprintln(call.Out, "An idle time of 0 minutes counts as 1 minute.")
	}
	if body.WaitFor != nil {
		a.WaitFor = *body.WaitFor
	}
	if body.Hook != nil {
		if err := m.MayRunAs(call, c); err != nil {
			return err
		}
		event := "stop"
		if body.Down {
			event = "down"
		}
		hook := agentapi.Hook{Run: *body.Hook, Events: []string{event}}
		if body.HookTimeout != nil {
			hook.Timeout = *body.HookTimeout
		}
		a.Hooks = &[]agentapi.Hook{hook}
	}
	if err := m.SetAutostop(ctx, c.Name, a); err != nil {
		return err
	}
	m.TellAutostop(call.Out, c, a)
	return nil
}

// SetAutostop tells the cloud what it means when the machines switch themselves
// off, then the head agent, and then the record.
func (m *Manager) SetAutostop(ctx context.Context, name string, a agentapi.Autostop) error {
	var hash string
	err := m.ask(ctx, name, "Setting autostop", func(c *state.Cluster, client *agentclient.Client) error {
		actx, cancel := context.WithTimeout(ctx, agentTimeout)
		defer cancel()
		hash = c.Hash
		if err := m.whenOff(ctx, c, a.IdleMinutes >= 0 && a.Down); err != nil {
			return err
		}
		_, err := client.Autostop(actx, a)
		return err
	})
	if err != nil {
		return err
	}
	_, err = m.Store.Clusters().Update(ctx, name, hash, func(c *state.Cluster) error {
		c.AutostopMinutes, c.AutostopDown, c.AutostopWaitFor = a.IdleMinutes, a.Down, a.WaitFor
		if a.IdleMinutes < 0 {
			c.AutostopMinutes, c.AutostopDown = -1, false
		}
		Awake(c)
		return nil
	})
	return err
}

// WithoutAutostop notes that a cluster which was switched on stays without the
// autostop that it had before.
func (m *Manager) WithoutAutostop(ctx context.Context, c *state.Cluster) error {
	if !Waking(c) {
		return nil
	}
	_, err := m.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error { Awake(c); return nil })
	return err
}

// whenOff says to the cloud what becomes of machines that switch themselves
// off. Those without an autodown are stopped then, which is what a cloud does
// that was never told anything else.
func (m *Manager) whenOff(ctx context.Context, c *state.Cluster, ends bool) error {
	p, err := m.provider(c)
	if err != nil {
		return err
	}
	off, ok := cloud.As[cloud.OffSwitch](p)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, providerLimit)
	defer cancel()
	if err := off.WhenOff(ctx, m.Provision.ClusterID(c), ends); err != nil {
		return fmt.Errorf("telling %s what to do with machines that switch themselves off: %w", p.DisplayName(), err)
	}
	return nil
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
