package execution

import (
	"context"
	"fmt"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/volumes"
	"github.com/skypilot-go/sky/task"
)

// bindVolumes finds a task's volumes, for a cluster that is planned, and makes
// the task run where they are; nil if it has none. A plan over clouds that are
// only assumed to be enabled asks for none.
func (x *Executor) bindVolumes(ctx context.Context, call cluster.Call, t *task.Task, name string, o api.PlanOptions) (*volumes.Use, error) {
	if len(t.Volumes) == 0 || len(o.AssumeEnabled) > 0 {
		return nil, nil
	}
	c, err := settings(call, t)
	if err != nil {
		return nil, err
	}
	use, err := x.Volumes.Resolve(ctx, call, c, t, name)
	if err != nil {
		return nil, err
	}
	leftOut, err := use.Bind(t)
	for _, reason := range leftOut {
		fmt.Fprintf(call.Out, "Left out of the plan: %s\n", reason)
	}
	return use, err
}

// warnVolumes says which of a task's volumes a cluster that exists will not get.
func (x *Executor) warnVolumes(ctx context.Context, call cluster.Call, c *state.Cluster, t *task.Task) error {
	lacks, err := x.Volumes.Lacks(ctx, c, t)
	if err == nil && lacks != "" {
		fmt.Fprintf(call.Out, "⚠ Cluster %s exists and mounts what it was launched with; it does not get: %s. To have that, launch on a new cluster.\n", c.Name, lacks)
	}
	return err
}
