package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

const (
	lost      = fsm.ManagedLost
	cancelled = fsm.ManagedCancelled
)

// errAsked is the cause of a launch's context that ends because the job is to
// be cancelled.
var errAsked = errors.New("the managed job is being cancelled")

// launch waits for its turn, brings the attempt's cluster up and submits the
// job.
func (c *controller) launch(ctx context.Context, s situation) error {
	if !c.slot {
		if s.job.Schedule != api.ScheduleAliveWaiting {
			if err := schedule(s.job, queued); err != nil {
				return err
			}
			s.task.Details = "waits for other jobs to launch"
			return c.save(ctx, s)
		}
		wctx, stop := c.untilCancelled(ctx)
		err := c.m.slots.acquire(wctx, s.job.Priority, c.id)
		stop()
		if err != nil {
			return nil // decided anew
		}
		c.slot = true
	}
	if s.job.Schedule != api.ScheduleLaunching {
		if err := schedule(s.job, claimed); err != nil {
			return err
		}
	}
	if err := c.starting(ctx, s); err != nil {
		return err
	}
	lctx, stop := c.untilCancelled(ctx)
	at, err := c.bring(lctx, s)
	asked := errors.Is(context.Cause(lctx), errAsked)
	stop()
	c.out.StopSpin()
	c.freeSlot()
	if err == nil {
		return c.ran(ctx, s, at)
	}
	if ctx.Err() != nil || asked {
		return nil // left as it is, or decided anew
	}
	return c.notLaunched(ctx, s, err)
}

// untilCancelled is a context that also ends when the job is to be cancelled.
func (c *controller) untilCancelled(ctx context.Context) (context.Context, func()) {
	cctx, cancel := context.WithCancelCause(ctx)
	bell, unlisten := c.m.rows.Listen(c.id)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if j, err := c.m.store.ManagedJobs().Get(cctx, c.id); err == nil && j.CancelAsked {
				cancel(errAsked)
			}
			select {
			case <-cctx.Done():
				return
			case <-bell:
			}
		}
	}()
	return cctx, func() {
		cancel(nil)
		<-done
		unlisten()
	}
}

// starting says what is being done.
func (c *controller) starting(ctx context.Context, s situation) error {
	t := s.task
	t.Details = ""
	var events []state.ManagedEvent
	if t.Status == api.ManagedPending {
		e, reason := fsm.ManagedLaunch, "getting a cluster"
		if t.Attempt > 1 {
			e, reason = fsm.ManagedRelaunch, "getting another cluster"
		}
		event, err := move(t, e, reason, time.Now())
		if err != nil {
			return err
		}
		events = append(events, event)
	}
	return c.save(ctx, s, events...)
}

// bring is one launch.
func (c *controller) bring(ctx context.Context, s situation) (placed, error) {
	losses, err := c.losses(ctx, s)
	if err != nil {
		return placed{}, err
	}
	t, err := taskOf(s.job, s.task.Index)
	if err != nil {
		return placed{}, err
	}
	for i := range t.Resources {
		t.Resources[i].Autostop = nil // the job decides when its cluster goes
	}
	text, err := (&task.Dag{Name: t.Name, Execution: task.Serial, Tasks: []*task.Task{t}}).YAML()
	if err != nil {
		return placed{}, err
	}
	call := c.call(s)
	if c.m.admit != nil {
		var sent map[string]any
		if len(s.job.Config) > 0 {
			if err := json.Unmarshal(s.job.Config, &sent); err != nil {
				return placed{}, fmt.Errorf("the stored configuration of managed job %d: %w", c.id, err)
			}
		}
		var admitted string
		if admitted, call.Config, err = c.m.admit(ctx, call.User, string(text), sent, c.out); err != nil {
			return placed{}, err
		}
		text = []byte(admitted)
	}
	call.Load = func() []byte { return s.attempt.Progress }
	call.Save = c.keep(s)
	c.out.Printf("Launching cluster %s (attempt %d of task %d, %q)", s.attempt.ClusterName, s.attempt.Number, s.task.Index, s.task.Name)
	return c.m.world.Launch(ctx, launch{
		call: call, task: string(text), attempt: s.attempt,
		managed: execution.Managed{
			JobID: c.id, TaskID: runID(s.job, s.task), Envs: variables(s.job),
			Order: func(offers []cloud.Offer) [][]cloud.Offer {
				return order(s.policy.strategy, offers, losses, time.Now())
			},
		},
	})
}

// losses are the places that took this task's machines away.
func (c *controller) losses(ctx context.Context, s situation) ([]loss, error) {
	if s.task.Attempt <= 1 {
		return nil, nil
	}
	all, err := c.m.store.ManagedJobs().Attempts(ctx, c.id)
	if err != nil {
		return nil, err
	}
	var out []loss
	for _, a := range all {
		if a.Task == s.task.Index && outcome(a.Outcome) == outLost && a.Offer.Cloud != "" {
			out = append(out, loss{a.Offer.Place, a.EndedAt})
		}
	}
	return out, nil
}

// progress keeps what a launch must remember, with the attempt.
func (c *controller) progress(ctx context.Context, s situation, b []byte) error {
	for {
		a := *s.attempt
		a.Progress = b
		err := c.m.store.ManagedJobs().Save(ctx, state.ManagedChange{Job: s.job, Attempt: &a})
		if err == nil {
			s.attempt.Progress = b
			return nil
		}
		if !errors.Is(err, state.ErrConflict) {
			return err
		}
		// A cancel moved the version on. The job is about to be submitted or
		// was: that must be known whatever comes next.
		fresh, err := c.m.store.ManagedJobs().Get(ctx, c.id)
		if err != nil {
			return err
		}
		if fresh.Epoch != c.lease.Epoch {
			return errLeaseLost
		}
		*s.job = *fresh
		s.task = fresh.Tasks[s.task.Index]
	}
}

// ran writes down that the cluster has the job.
func (c *controller) ran(ctx context.Context, s situation, at placed) error {
	now := time.Now()
	a := s.attempt
	a.ClusterHash, a.ClusterJob, a.Offer, a.Nodes, a.NodeNames = at.Hash, at.Job, at.Offer, at.Nodes, at.NodeNames
	a.Resources, a.Full, a.RanAt = at.Resources, at.Full, now
	c.seen = observation{}
	for {
		scheduled(s.job, launched)
		t := s.job.Tasks[a.Task]
		t.Tries = 0
		var events []state.ManagedEvent
		if t.Status != api.ManagedCancelling {
			e, err := move(t, fsm.ManagedRan, fmt.Sprintf("runs on cluster %s (%v)", a.ClusterName, at.Offer.Place), now)
			if err != nil {
				return err
			}
			events = append(events, e)
		}
		err := c.save(ctx, s, events...)
		if !errors.Is(err, state.ErrConflict) {
			return err
		}
		fresh, err := c.m.store.ManagedJobs().Get(context.WithoutCancel(ctx), c.id)
		if err != nil {
			return err
		}
		if fresh.Epoch != c.lease.Epoch {
			return errLeaseLost
		}
		s.job = fresh
	}
}

// notLaunched deals with a launch that failed.
func (c *controller) notLaunched(ctx context.Context, s situation, err error) error {
	c.out.Printf("The launch failed: %v", err)
	ran := !s.task.StartedAt.IsZero()
	switch judge(err, ran) {
	case lostIt:
		return c.settle(ctx, s, action{outcome: outLost, reason: err.Error()})
	case badSetup:
		return c.settle(ctx, s, action{outcome: outSetup, reason: err.Error()})
	case never:
		return c.settle(ctx, s, action{outcome: outRefused, reason: err.Error()})
	}
	// If the job may have been submitted, its cluster is left alone: the next
	// try finds out.
	if execution.ParseProgress(s.attempt.Progress).Submitting == "" {
		if err := c.m.world.Down(ctx, s.attempt, c.call(s)); err != nil {
			return err
		}
	}
	t := s.task
	t.Tries++
	wait := pause(t.Tries, rand.Float64())
	t.NotBefore = time.Now().Add(wait)
	scheduled(s.job, paused)
	event, merr := move(t, fsm.ManagedBackoff, fmt.Sprintf("nothing to be had; trying again in %v: %s", wait.Round(time.Second), firstLine(err.Error())), time.Now())
	if merr != nil {
		return merr
	}
	t.Details = event.Reason
	return c.save(ctx, s, event)
}
