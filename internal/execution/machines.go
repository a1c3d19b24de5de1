package execution

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// bring gets the machines of a cluster on record and sets up their agents.
// keep says that they have been up before: nothing is terminated then. On
// failure of a cluster that never was up, machines and record go.
func (x *Executor) bring(ctx context.Context, call cluster.Call, t *task.Task, c *state.Cluster, offers rentable, keep bool) (*state.Cluster, error) {
	up, err := x.getMachines(ctx, call, t, c, offers, keep)
	if err == nil {
		call.Out.StopSpin()
		fmt.Fprintf(call.Out, "✓ Cluster launched: %s.\n", up.Name)
		return up, nil
	}
	if errors.Is(context.Cause(ctx), state.ErrHandover) {
		return nil, context.Cause(ctx)
	}
	var left *provision.LeftoverError
	if keep || errors.As(err, &left) {
		return nil, x.launchError(c, err, keep)
	}
	// Never up: nothing may stay behind, even if the request was cancelled. The
	// record says by now where the last attempt was.
	if now, gerr := x.Store.Clusters().Get(context.WithoutCancel(ctx), c.Name); gerr == nil && now.Hash == c.Hash {
		c = now
	}
	if rerr := x.Clusters.Release(context.WithoutCancel(ctx), call.Out, c, "launch failed: "+err.Error()); rerr != nil {
		return nil, &provision.LeftoverError{Cluster: c.Name, Place: c.Offer.Place, Err: rerr, Cause: err}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, x.launchError(c, err, keep)
}

// getMachines takes a cluster on record from INIT to UP: the record says that
// machines are wanted, the machines are there, their agents run.
func (x *Executor) getMachines(ctx context.Context, call cluster.Call, t *task.Task, c *state.Cluster, offers rentable, keep bool) (*state.Cluster, error) {
	c, err := x.markInit(ctx, call, c)
	if err != nil {
		return nil, err
	}
	cfg, err := settings(call, t)
	if err != nil {
		return nil, err
	}
	if c.Machine.Clone != nil && !c.EverUp {
		if c, err = x.makeImage(ctx, call, c); err != nil {
			return nil, err
		}
	}
	if c, err = x.provision(ctx, call, t, cfg, c, offers, keep); err != nil {
		return nil, err
	}
	if err := x.startAgents(ctx, call, t, cfg, c); err != nil {
		return nil, err
	}
	if c, err = x.markUp(ctx, call, c); err != nil || c.Machine.Clone == nil {
		return c, err
	}
	return x.dropImage(ctx, call, c)
}

// markInit writes down that machines are about to be had.
func (x *Executor) markInit(ctx context.Context, call cluster.Call, c *state.Cluster) (*state.Cluster, error) {
	from := c.Status
	c, err := x.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		if c.Status == api.ClusterStopped {
			cluster.SwitchedOn(c)
		}
		c.Status, c.StatusUpdatedAt = api.ClusterInit, time.Now()
		c.Epoch++
		c.Notes.BroughtUpBy = call.RequestID
		cluster.Keep(c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	x.event(ctx, c, "STATUS_CHANGE", from, "getting machines")
	call.Out.Spin(fmt.Sprintf("Launching cluster %s (%s)", c.Name, nodes(c.NumNodes)))
	return c, nil
}

// provision gets the machines and notes them in the record.
func (x *Executor) provision(ctx context.Context, call cluster.Call, t *task.Task, cfg *config.Config, c *state.Cluster, offers rentable, keep bool) (*state.Cluster, error) {
	key, err := x.Remote.PublicKey(c.UserHash)
	if err != nil {
		return nil, err
	}
	mounted, err := x.Volumes.Mounted(ctx, c, placed(cfg, c))
	if err != nil {
		return nil, err
	}
	if mounted != nil && keep {
		if err := x.Store.Volumes().Attached(ctx, c.Hash, command(call, c.LastUse)); err != nil {
			return nil, err
		}
	}
	if p, ok := x.Providers.Get(c.Offer.Cloud); ok && keep {
		if err := x.Clusters.SameAccount(ctx, c, p); err != nil {
			return nil, err
		}
	}
	offer, got, err := x.Provision.Provision(ctx, provision.Request{
		Cluster: c, Nodes: c.NumNodes, Tiers: offers.tiers, Most: offers.most, Agreed: offers.agreed, Extra: offers.extra, Keep: keep, AuthorizedKey: key, Out: call.Out,
		EndGrace: endGrace(t), Settings: placed(cfg, c), Options: provisionOptions(cfg),
		Login: loginOf(t, c), Volumes: mounted,
	})
	if err != nil {
		return nil, err
	}
	c, err = x.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		c.Offer, c.Nodes = offer, carryAgents(got, c.Nodes)
		x.noteContainer(c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	x.usage(ctx, c)
	return c, nil
}

// noteContainer notes the container in which everything runs on the machines that a
// cluster got. Where nodes are containers themselves there is none.
func (x *Executor) noteContainer(c *state.Cluster) {
	if p, ok := x.Providers.Get(c.Offer.Cloud); ok && p.Features().Containers {
		return
	}
	if _, container := c.Machine.ImagesAt(c.Offer.Place); container != "" {
		c.Notes.Container = container
	}
}

// carryAgents keeps the agents' addresses that are known already.
func carryAgents(got, known []cloud.Node) []cloud.Node {
	for i := range got {
		for _, k := range known {
			if k.ID == got[i].ID && got[i].Reach.Agent == "" {
				got[i].Reach.Agent = k.Reach.Agent
			}
		}
	}
	return got
}
