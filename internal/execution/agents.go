package execution

import (
	"context"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/trace"
	"github.com/skypilot-go/sky/task"
)

// startAgents makes an agent run on each machine, and prepares nodes that are new.
// It fills in the agents' addresses in c.Nodes.
func (x *Executor) startAgents(ctx context.Context, call cluster.Call, t *task.Task, cfg *config.Config, c *state.Cluster) error {
	if remote.Agentless(c) {
		fmt.Fprintf(call.Out, "⚠ without_agents is set for %s: the nodes of cluster %s count as records of an emulator; no agent is started and nothing can run there.\n", c.Offer.Cloud, c.Name)
	} else {
		call.Out.Spin("Starting the agents on cluster " + c.Name)
	}
	containers, err := containers(call, t, cfg, c)
	if err != nil {
		return err
	}
	if err := trace.Do(ctx, "start agents", func(ctx context.Context) error {
		ctx, end := provision.ReportProgress(ctx, call.Out, "starting the agents on cluster "+c.Name)
		defer end()
		return x.Provision.WhileRunning(ctx, c, func(ctx context.Context) error { return x.Remote.Install(ctx, c, containers) })
	}); err != nil {
		return err
	}
	return x.firstRun(ctx, call, c, placed(cfg, c)(c.Offer.Place))
}

// markUp writes down that the cluster is up.
func (x *Executor) markUp(ctx context.Context, call cluster.Call, c *state.Cluster) (*state.Cluster, error) {
	ready, owner := c.Nodes, x.account(ctx, c)
	c, err := x.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		if len(owner) > 0 {
			c.Owner = owner
		}
		c.Nodes, c.AgentBuild = ready, x.BuildID
		c.Status, c.StatusUpdatedAt, c.EverUp = api.ClusterUp, time.Now(), true
		c.LastUse = command(call, c.LastUse)
		c.LastEvent = "all machines run and the agent answers"
		if remote.Agentless(c) {
			c.LastEvent = "all machines run"
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	x.event(ctx, c, "STATUS_CHANGE", api.ClusterInit, c.LastEvent)
	x.Clusters.Woken()
	return c, nil
}
