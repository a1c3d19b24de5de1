package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
)

// seeAgain is how often those who wait for a job look by themselves: another
// server may be running it.
const seeAgain = time.Second

// Wait waits until a job, or one task of it, has ended, and returns what
// following it would exit with.
func (m *Manager) Wait(ctx context.Context, call cluster.Call, b api.JobsWaitBody) (int, error) {
	j, err := m.find(ctx, call, b.JobID, b.Name)
	if err != nil {
		return 0, err
	}
	if j == nil {
		return api.ExitJobNotFound, nil
	}
	which, err := findTask(j, b.Task)
	if err != nil {
		return 0, err
	}
	wctx := ctx
	if b.Timeout != nil {
		var cancel context.CancelFunc
		wctx, cancel = context.WithTimeout(ctx, time.Duration(*b.Timeout*float64(time.Second)))
		defer cancel()
	}
	changed, stop := m.rows.Subscribe(j.ID)
	defer stop()
	for {
		if j, err = m.store.ManagedJobs().Get(ctx, j.ID); err != nil {
			return 0, err
		}
		if s := status(j, which); s.Terminal() {
			return s.ExitCode(), nil
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-wctx.Done():
			return 0, &api.Error{Type: "TimeoutError", Message: fmt.Sprintf("Managed job %d is still %s after %v seconds.", j.ID, status(j, which), *b.Timeout)}
		case <-changed:
		case <-time.After(seeAgain):
		}
	}
}

// Events lists what happened to a job, the newest first.
func (m *Manager) Events(ctx context.Context, call cluster.Call, b api.JobsEventsBody) ([]api.JobsEvent, error) {
	if j, err := m.find(ctx, call, &b.JobID, nil); err != nil || j == nil {
		return []api.JobsEvent{}, err
	}
	which, limit := -1, 10
	if b.TaskID != nil {
		which = *b.TaskID
	}
	if b.Limit != nil {
		limit = *b.Limit
	}
	events, err := m.store.ManagedJobs().Events(ctx, b.JobID, which, limit)
	if err != nil {
		return nil, err
	}
	out := []api.JobsEvent{}
	for _, e := range events {
		out = append(out, api.JobsEvent{JobID: b.JobID, TaskID: &e.Task, NewStatus: &e.Status, Code: e.Code, Reason: e.Reason, Timestamp: secondsOf(e.At)})
	}
	if !b.IncludeClusterEvents {
		return out, nil
	}
	return m.withClusterEvents(ctx, b.JobID, which, limit, out)
}
