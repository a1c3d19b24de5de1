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

// CheckVolumes refuses tasks that could not mount their volumes, or have their buckets, if
// they were launched now.
func (x *Executor) CheckVolumes(ctx context.Context, call cluster.Call, text string) error {
	dag, err := parse(text)
	if err != nil {
		return err
	}
	for _, t := range dag.Tasks {
		if _, err := x.bindVolumes(ctx, call, t, "", api.PlanOptions{}); err != nil {
			return err
		}
		if err := x.checkBuckets(ctx, call, t, api.PlanOptions{}, false); err != nil {
			return err
		}
	}
	return nil
}

// NoNamedVolumes refuses tasks that name volumes, for a server that has none.
func NoNamedVolumes(text string) error {
	dag, err := parse(text)
	if err != nil {
		return err
	}
	for _, t := range dag.Tasks {
		for path, v := range t.Volumes {
			if v.Name != "" {
				return &api.Error{Type: api.ErrNotSupported,
					Message: fmt.Sprintf("The task mounts the volume %s at %s, but managed jobs are looked after by a server of their own here (jobs.controller.mode: cluster), which knows no volumes of this one.", v.Name, path),
					Hint:    "Give the job a volume of its own (size: in place of a name), or let this server look after managed jobs."}
			}
		}
	}
	return nil
}
