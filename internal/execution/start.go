package execution

import (
	"context"
	"fmt"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/task"
)

// Start switches a stopped cluster on again, where it is.
func (x *Executor) Start(ctx context.Context, call cluster.Call, body api.StartBody) (*api.Handle, error) {
	if body.Down && body.IdleMinutesAutostop == nil {
		return nil, &api.Error{Type: api.ErrValue, Message: "Starting with --down also needs the idle minutes after which the cluster goes down (-i)."}
	}
	if _, err := x.Clusters.Get(ctx, body.ClusterName); err != nil {
		return nil, err
	}
	return untilUp(ctx, x, call, &task.Task{}, body.RetryUntilUp, func(ctx context.Context) (*api.Handle, error) {
		return x.start(ctx, call, body)
	})
}

func (x *Executor) start(ctx context.Context, call cluster.Call, body api.StartBody) (*api.Handle, error) {
	call.Out.Spin("Waiting for other requests on cluster " + body.ClusterName)
	_, end := provision.ReportProgress(ctx, call.Out, "waiting for other requests on cluster "+body.ClusterName)
	ctx, unlock, err := x.Clusters.Lock(ctx, body.ClusterName)
	end()
	if err != nil {
		return nil, err
	}
	defer unlock()
	c, err := x.Clusters.Get(ctx, body.ClusterName)
	if err != nil {
		return nil, err
	}
	if cluster.GivingBack(c) {
		return nil, &api.Error{Type: api.ErrClusterNotUp, Message: fmt.Sprintf("Cluster %q is being given back and cannot be started.", c.Name),
			Hint: "Its machines go as soon as the cloud lets them; sky status shows why they have not. A new one starts with: sky launch -c " + c.Name}
	}
	want := cluster.AutostopOf(c)
	switch up := c.Status == api.ClusterUp && !body.Force; {
	case up && call.Attempt <= 1 && !cluster.Waking(c):
		fmt.Fprintf(call.Out, "Cluster %s is UP already.\n", c.Name)
		return x.Clusters.Handle(c), nil
	case !up: // else an earlier life of this request, or another start, got as far as the autostop
		if c, err = x.bring(ctx, call, &task.Task{}, c, exactly(c.Offer), true); err != nil {
			return nil, err
		}
	}
	if err := x.Buckets.Remount(ctx, c); err != nil { // jobs wait until it is done, which is tried again
		fmt.Fprintf(call.Out, "Buckets of cluster %s are not mounted yet: %v\n", c.Name, err)
	}
	if body.IdleMinutesAutostop != nil {
		want = agentapi.Autostop{IdleMinutes: *body.IdleMinutesAutostop, Down: body.Down, WaitFor: api.WaitForJobsAndSSH}
		if body.WaitFor != nil {
			want.WaitFor = *body.WaitFor
		}
	}
	if want.IdleMinutes == 0 {
		want.IdleMinutes = 1
	}
	if want.IdleMinutes > 0 {
		if err = x.Clusters.SetAutostop(ctx, c.Name, want); err == nil {
			x.Clusters.TellAutostop(call.Out, c, want)
		}
	} else {
		err = x.Clusters.WithoutAutostop(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	return x.Clusters.Handle(c), nil
}
