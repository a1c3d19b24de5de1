package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
)

// Ending reports whether the controller may end now: nothing on it has work left.
// Until done is called nothing is handed to it.
func (c *Controller) Ending(ctx context.Context) (done func(), err error) {
	if !c.handing.TryLock() {
		return nil, &api.Error{Type: api.ErrNotSupported, Message: fmt.Sprintf("Work is handed to the controller %s at this moment.", c.Name()),
			Hint: "See what it is with: sky api status"}
	}
	if err := c.unfinished(ctx); err != nil {
		c.handing.Unlock()
		return nil, err
	}
	return c.handing.Unlock, nil
}

// mostListed is how many of the latest jobs are looked at for clusters that are
// still given back; those before have long ended.
const mostListed = 500

// unfinished is why the controller may not end; nil: it may.
func (c *Controller) unfinished(ctx context.Context) error {
	cl, err := c.look(ctx)
	if err != nil || cl == nil || !cl.EverUp || cl.Status == api.ClusterStopped || cluster.GivingBack(cl) {
		return err // one that stopped did so because it had nothing to do
	}
	if cl.Status != api.ClusterUp {
		if fresh, err := c.Clusters.Refresh(ctx, cl.Name); err == nil {
			if fresh == nil || fresh.Status == api.ClusterStopped {
				return nil
			}
			cl = fresh
		}
	}
	if job, err := c.serverJob(ctx, cl); err == nil && rested(job) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return c.Kind.unfinished(c, ctx, cl)
}

// unknown is the error of a controller that does not say what it has to do.
func (c *Controller) unknown(cl *state.Cluster, what string, err error) error {
	return &api.Error{
		Type: api.ErrRuntime, Err: err,
		Message: fmt.Sprintf("Whether the controller %s has unfinished %s cannot be found out: %v", cl.Name, what, plain(err)),
		Hint:    "What a controller that goes has begun is looked after by nobody. To end it all the same: sky down --purge " + cl.Name,
	}
}

func (c *Controller) unfinishedServices(ctx context.Context, cl *state.Cluster) error {
	var list []api.Service
	if err := c.ask(ctx, cl, "/serve/status", api.ServeStatusBody{}, &list); err != nil {
		return c.unknown(cl, "services", err)
	}
	var names []string
	for _, s := range list {
		names = append(names, s.Name)
	}
	if len(names) == 0 {
		return nil
	}
	return &api.Error{
		Type:    api.ErrNotSupported,
		Message: fmt.Sprintf("The controller %s looks after services: %s.", cl.Name, strings.Join(names, ", ")),
		Hint:    "End them first, and wait for them: sky serve down -a",
	}
}

func (c *Controller) servicesBefore(ctx context.Context, scope *state.Scope) string {
	list, err := c.Store.Services().List(ctx, state.ServiceFilter{Kind: state.KindService})
	n := 0
	for _, s := range list {
		if scope == nil || scope.Sees(s.Workspace) {
			n++
		}
	}
	if err != nil || n == 0 {
		return ""
	}
	return fmt.Sprintf("%d services from before the controller go on on this server: sky serve status --config serve.controller.mode=server", n)
}

func (c *Controller) jobsBefore(ctx context.Context, scope *state.Scope) string {
	live, err := c.Store.ManagedJobs().List(ctx, state.ManagedFilter{Live: true, Scope: scope, Limit: 1})
	if err != nil || live.Total == 0 {
		return ""
	}
	return fmt.Sprintf("%d managed jobs from before the controller go on on this server: sky jobs queue --config jobs.controller.mode=server", live.Total)
}

func (c *Controller) unfinishedJobs(ctx context.Context, cl *state.Cluster) error {
	var jobs []int
	var page struct {
		Jobs []struct {
			JobID    int    `json:"job_id"`
			Schedule string `json:"schedule_state"`
		} `json:"jobs"`
	}
	var schedules []api.JobsSchedule
	latest := mostListed
	err := errors.Join(
		c.ask(ctx, cl, "/jobs/queue/v2", api.JobsQueueBody{AllUsers: true, SkipFinished: true}, &page),
		c.ask(ctx, cl, "/jobs/schedules", api.JobsSchedulesBody{AllUsers: true}, &schedules))
	live := page.Jobs
	page.Jobs = nil
	if err == nil {
		err = c.ask(ctx, cl, "/jobs/queue/v2", api.JobsQueueBody{AllUsers: true, Limit: &latest}, &page)
	}
	if err != nil {
		return c.unknown(cl, "jobs", err)
	}
	for _, j := range slices.Concat(live, page.Jobs) {
		if j.Schedule != string(api.ScheduleDone) && !slices.Contains(jobs, j.JobID) {
			jobs = append(jobs, j.JobID)
		}
	}
	slices.Sort(jobs)
	switch {
	case len(jobs) > 0:
		return &api.Error{
			Type:    api.ErrNotSupported,
			Message: fmt.Sprintf("The controller %s looks after managed jobs that have not ended, or whose machines are not given back yet: %v.", cl.Name, jobs),
			Hint:    "End them first, and wait for them: sky jobs cancel -a",
		}
	case len(schedules) > 0:
		return &api.Error{
			Type:    api.ErrNotSupported,
			Message: fmt.Sprintf("The controller %s keeps %d schedules, which would submit nothing any more.", cl.Name, len(schedules)),
			Hint:    "End them first: sky jobs schedule cancel -a",
		}
	}
	return nil
}

// keepEvery is how often it is looked whether the far server runs.
const keepEvery = 20 * time.Second

// Keep starts the far server again when it has gone although there is work, such
// as after its machine was started again, until ctx ends.
func (c *Controller) Keep(ctx context.Context) {
	t := time.NewTicker(keepEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		cl, err := c.look(ctx)
		if err != nil || cl == nil || !cl.EverUp || cl.Status != api.ClusterUp {
			continue
		}
		job, err := c.serverJob(ctx, cl)
		if err != nil || rested(job) || job != nil && !job.Status.Terminal() {
			continue
		}
		if _, err := c.Ensure(ctx, cluster.Call{RequestID: uuid.NewString(), Out: unheard{}}); err != nil && ctx.Err() == nil {
			c.Log.WarnContext(ctx, "the server on the "+c.Kind.name+" could not be started again", "cluster", cl.Name, "err", err)
		}
	}
}

// unheard is the output of what nobody waits for.
type unheard struct{}

func (unheard) Write(p []byte) (int, error) { return len(p), nil }
func (unheard) Spin(string)                 {}
func (unheard) StopSpin()                   {}
