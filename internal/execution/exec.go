package execution

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/credentials"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
)

// How long exec waits for a cluster that is being brought up.
const (
	execWait = time.Hour
	execPoll = 500 * time.Millisecond
)

// Exec submits a job to a cluster that is up: the working folder is copied,
// setup and file mounts are not.
func (x *Executor) Exec(ctx context.Context, call cluster.Call, body api.ExecBody, launching func(context.Context, string) (bool, error)) (*api.LaunchResult, error) {
	t, err := oneTask(body.Task, "exec")
	if err != nil {
		return nil, err
	}
	if err := x.runnable(t); err != nil {
		return nil, err
	}
	p := load(call)
	c, err := x.usable(ctx, call, body.ClusterName, launching)
	if err != nil {
		if p.JobID != 0 {
			return &api.LaunchResult{JobID: &p.JobID}, nil // submitted in an earlier life
		}
		return nil, err
	}
	if err := cluster.RefuseHeld(c); err != nil {
		return nil, err
	}
	if p.Submitting != "" && p.Submitting != c.Hash {
		return nil, &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf(
			"The server was restarted while it submitted this job to cluster %q, and the cluster was replaced since. The job may have run; it is not started again.", c.Name)}
	}
	if c.Status == api.ClusterAutostopping {
		return nil, cluster.NotUp(c, "Running a job")
	}
	if err := credentials.May(call, c); err != nil {
		return nil, err
	}
	if err := x.Clusters.MayRunAs(call, c); err != nil {
		return nil, err
	}
	if err := fits(c, t, true); err != nil {
		return nil, err
	}
	warnSmaller(call, c, t, true)
	if err := x.warnVolumes(ctx, call, c, t); err != nil {
		return nil, err
	}
	if body.Dryrun {
		fmt.Fprintln(call.Out, "Dryrun finished.")
		return &api.LaunchResult{Handle: x.Clusters.Handle(c)}, nil
	}
	job := &submission{x: x, call: call, cluster: c, task: t}
	if remote.Agentless(c) {
		if err := job.checkAgentless(); err != nil {
			return nil, err
		}
	}
	if err := job.syncFiles(ctx, false); err != nil {
		return nil, err
	}
	if c, err = x.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		c.LastUse = command(call, c.LastUse)
		return nil
	}); err != nil {
		return nil, err
	}
	job.cluster = c
	return job.submit(ctx)
}

// usable waits while the cluster is being launched and returns it when it is
// up.
func (x *Executor) usable(ctx context.Context, call cluster.Call, name string, launching func(context.Context, string) (bool, error)) (*state.Cluster, error) {
	for began := time.Now(); ; {
		c, err := x.Store.Clusters().Get(ctx, name)
		if err == nil && c.Status == api.ClusterUp {
			return c, nil
		}
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return nil, err
		}
		busy, err := launching(ctx, name)
		if err != nil {
			return nil, err
		}
		if !busy || time.Since(began) >= execWait {
			return x.Clusters.Up(ctx, name, "Running a job")
		}
		call.Out.Spin("Waiting until cluster " + name + " is launched")
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(execPoll):
		}
	}
}
