package execution

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/state"
)

// autostoppingPoll is how often a launch looks whether a cluster that is
// stopping itself is through with it.
const autostoppingPoll = 500 * time.Millisecond

// bringUp returns the cluster, up, with agents that answer.
func (l *launch) bringUp(ctx context.Context) (*state.Cluster, error) {
	if err := l.waitAutostopping(ctx); err != nil {
		return nil, err
	}
	l.call.Out.Spin("Waiting for other requests on cluster " + l.name)
	ctx, unlock, err := l.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c, err := l.x.Store.Clusters().Get(ctx, l.name)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return l.createAnew(ctx)
	case err != nil:
		return nil, err
	}
	if err := l.mine(c); err != nil {
		return nil, err
	}
	if !l.call.Scope.Sees(c.Workspace) || !l.call.Scope.Owns(c.UserHash) { // it was made while this request waited
		return nil, &api.Error{Type: api.ErrPermissionDenied, Message: fmt.Sprintf("Cluster %q belongs to %s.", c.Name, c.UserName)}
	}
	if cluster.GivingBack(c) || c.Status == api.ClusterInit && !c.EverUp {
		return l.takeOver(ctx, c)
	}
	if err := l.fits(c); err != nil {
		return nil, err
	}
	if err := l.x.warnVolumes(ctx, l.call, c, l.task); err != nil {
		return nil, err
	}
	if c, err = l.openPorts(ctx, c); err != nil {
		return nil, err
	}
	if c.Machine.Clone != nil && c.EverUp { // of a launch that a crash cut off
		if c, err = l.x.dropImage(ctx, l.call, c); err != nil {
			return nil, err
		}
	}
	if c.Status == api.ClusterUp && len(c.Nodes) > 0 {
		if up, err := l.reuse(ctx, c); err == nil {
			l.found = true
			return up, nil
		} else if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		} else if lost, ok := errors.AsType[*provision.LostError](err); ok && l.held != nil {
			return nil, lost // its holder goes where there is room
		}
		l.call.Out.Spin("The agents of cluster " + l.name + " do not answer; looking at its machines")
	}
	return l.x.bring(ctx, l.call, l.task, c, l.existing(c), true)
}

func (l *launch) waitAutostopping(ctx context.Context) error {
	for {
		c, err := l.x.Store.Clusters().Get(ctx, l.name)
		if errors.Is(err, state.ErrNotFound) || err == nil && c.Status != api.ClusterAutostopping {
			return nil
		}
		if err != nil {
			return err
		}
		l.call.Out.Spin("Cluster " + l.name + " is stopping itself; waiting until it is through")
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(autostoppingPoll):
		}
	}
}

// lock waits for the cluster's lock.
func (l *launch) lock(ctx context.Context) (_ context.Context, unlock func(), err error) {
	_, end := provision.ReportProgress(ctx, l.call.Out, "waiting for other requests on cluster "+l.name)
	defer end()
	return l.x.Clusters.Lock(ctx, l.name)
}

// fits checks that a cluster which exists can take the task, and the autostop
// that comes with it.
func (l *launch) fits(c *state.Cluster) error {
	if err := fits(c, l.task, false); err != nil {
		return err
	}
	if err := mountable(c.Offer.Cloud, l.task); err != nil {
		return err
	}
	warnSmaller(l.call, c, l.task, false)
	if p, ok := l.x.Providers.Get(c.Offer.Cloud); ok {
		warnDisk(l.call, p, l.task)
	}
	if want, ok := autostopOf(l.task); ok {
		return l.x.Clusters.CanAutostop(c, want.IdleMinutes, want.Down)
	}
	return nil
}

// openPorts opens the ports that the task names on a cluster that exists. They are
// recorded first, and opened again by every launch that names them, so that a crash in
// between loses nothing; a cluster that is stopped gets them when it starts.
func (l *launch) openPorts(ctx context.Context, c *state.Cluster) (*state.Cluster, error) {
	want := l.task.Resources[0].Ports
	p, ok := l.x.Providers.Get(c.Offer.Cloud)
	if len(want) == 0 || !ok {
		return c, nil
	}
	if why := p.Features().Lacks[cloud.FeaturePorts]; why != "" && !l.held.replica() {
		return nil, mismatchError(c, []string{fmt.Sprintf("ports (%s) cannot be opened there: %s", strings.Join(want, ", "), why)})
	}
	if !containsAll(c.Ports, want) {
		var err error
		if c, err = l.x.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
			for _, port := range want {
				if !slices.Contains(c.Ports, port) {
					c.Ports = append(c.Ports, port)
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if opener, ok := cloud.As[cloud.PortOpener](p); ok && c.Status == api.ClusterUp && provision.OpensPorts(p, c) {
		if err := opener.OpenPorts(ctx, l.x.Provision.ClusterID(c), c.Ports); err != nil {
			return nil, fmt.Errorf("opening ports %s of cluster %s: %w", strings.Join(c.Ports, ", "), c.Name, err)
		}
	}
	return c, nil
}

// mine refuses held clusters to users, and other clusters to a holder.
func (l *launch) mine(c *state.Cluster) error {
	if err := l.x.Clusters.Here(c); err != nil {
		return err
	}
	if err := l.x.Clusters.MayRunAs(l.call, c); err != nil {
		return err
	}
	switch {
	case l.held != nil && c.Holder != l.held.Holder:
		return &api.Error{Type: api.ErrInvalidClusterName, Message: fmt.Sprintf("The name %q belongs to another cluster.", c.Name)}
	case l.held == nil:
		return cluster.RefuseHeld(c)
	}
	return nil
}

// reuse makes sure that the agents of a cluster on record as UP are there and
// of this build.
func (l *launch) reuse(ctx context.Context, c *state.Cluster) (*state.Cluster, error) {
	ectx, end := provision.ReportProgress(ctx, l.call.Out, "reaching the agents on cluster "+c.Name)
	err := l.x.Provision.WhileRunning(ectx, c, func(ctx context.Context) error { return l.x.Remote.Ensure(ctx, c) })
	end()
	if err != nil {
		return nil, err
	}
	nodes := c.Nodes
	return l.x.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		c.Nodes, c.AgentBuild = nodes, l.x.BuildID
		c.LastUse = command(l.call, c.LastUse)
		return nil
	})
}

// takeOver deals with a record whose launch never ended: our own, cut off by a
// crash, goes on; somebody else's is given back first. So is what was being given
// back already.
func (l *launch) takeOver(ctx context.Context, c *state.Cluster) (*state.Cluster, error) {
	if c.Notes.LaunchedBy == l.call.RequestID && !c.EverUp {
		offers, err := l.offers(ctx)
		if err != nil {
			return nil, err
		}
		// Provisioning takes up what the earlier life was doing.
		return l.x.bring(ctx, l.call, l.task, c, offers, false)
	}
	if err := l.x.Clusters.Release(ctx, l.call.Out, c, "its launch never ended; launched anew"); err != nil {
		return nil, fmt.Errorf("giving back what the earlier cluster %s left: %w", c.Name, err)
	}
	return l.createAnew(ctx)
}
