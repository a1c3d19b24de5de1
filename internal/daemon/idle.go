package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// ErrIdle is why [Run] returns when nothing was left to do for as long as
// [Options.UntilIdle] says.
var ErrIdle = errors.New("there was nothing to do any more")

// idlePoll is how often it is looked whether there is something to do.
const idlePoll = 5 * time.Second

// waitIdle returns when there was nothing to do for that long, or ctx ends.
func (d *daemon) waitIdle(ctx context.Context, long time.Duration) {
	t := time.NewTicker(min(idlePoll, long/4))
	defer t.Stop()
	for since := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if d.busy(ctx) {
			since = time.Now()
		} else if time.Since(since) >= long {
			return
		}
	}
}

// busy reports whether there is anything to do: a request, a managed job, a
// schedule, a service, or a cluster that somebody has to give back. What cannot be found out
// counts as work.
func (d *daemon) busy(ctx context.Context) bool {
	if l := d.engine.Load(); l.Running+l.Waiting > 0 {
		return true
	}
	requests, err := d.engine.List(ctx, state.RequestFilter{Statuses: []api.RequestStatus{api.RequestPending, api.RequestRunning}, Limit: 1})
	if err != nil || len(requests) > 0 {
		return true
	}
	jobs, err := d.store.ManagedJobs().List(ctx, state.ManagedFilter{Live: true, Limit: 1})
	if err != nil || jobs.Total > 0 {
		return true
	}
	schedules, err := d.store.ManagedSchedules().List(ctx, state.ScheduleFilter{Live: true})
	if err != nil || len(schedules) > 0 {
		return true
	}
	services, err := d.store.Services().List(ctx, state.ServiceFilter{})
	if err != nil || len(services) > 0 {
		return true
	}
	clusters, err := d.store.Clusters().List(ctx, state.ClusterFilter{Limit: 1})
	return err != nil || len(clusters) > 0
}
