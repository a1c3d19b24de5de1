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
	"github.com/skypilot-go/sky/internal/lease"
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
func (r *runner) launch(ctx context.Context, s situation) error {
	if !r.slot {
		if r.phase != api.ScheduleAliveWaiting {
			r.does(api.ScheduleAliveWaiting)
			s.task.Details = "waits for other jobs to launch"
			return r.save(ctx, s)
		}
		wctx, stop := r.untilCancelled(ctx, s.end.at)
		err := r.m.slots.acquire(wctx, s.job.Priority, r.id)
		stop()
		if err != nil {
			return nil // decided anew
		}
		r.slot = true
	}
	r.does(api.ScheduleLaunching)
	if err := r.starting(ctx, s); err != nil {
		return err
	}
	lctx, stop := r.untilCancelled(ctx, s.end.at)
	at, err := r.bring(lctx, s)
	asked := errors.Is(context.Cause(lctx), errAsked)
	stop()
	r.out.StopSpin()
	r.freeSlot()
	if err == nil {
		return r.ran(ctx, s, at)
	}
	if ctx.Err() != nil || asked {
		return nil // left as it is, or decided anew
	}
	return r.notLaunched(ctx, s, err)
}

// untilCancelled is a context that also ends when the job is to be cancelled or
// the task to be ended.
func (r *runner) untilCancelled(ctx context.Context, end time.Time) (context.Context, func()) {
	timed := func() {}
	if !end.IsZero() {
		ctx, timed = context.WithDeadlineCause(ctx, end, errAsked)
	}
	cctx, cancel := context.WithCancelCause(ctx)
	changed, unlisten := r.m.rows.Subscribe(r.id)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if j, err := r.m.store.ManagedJobs().Get(cctx, r.id); err == nil && j.CancelAsked {
				cancel(errAsked)
			}
			select {
			case <-cctx.Done():
				return
			case <-changed:
			}
		}
	}()
	return cctx, func() {
		cancel(nil)
		timed()
		<-done
		unlisten()
	}
}

// starting says what is being done.
func (r *runner) starting(ctx context.Context, s situation) error {
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
	return r.save(ctx, s, events...)
}

// bring is one launch.
func (r *runner) bring(ctx context.Context, s situation) (placed, error) {
	losses, err := r.losses(ctx, s)
	if err != nil {
		return placed{}, err
	}
	t, err := taskOf(s.job, s.task.Index)
	if err != nil {
		return placed{}, err
	}
	whole, err := r.whole(ctx, s)
	if err != nil {
		return placed{}, err
	}
	for i := range t.Resources {
		t.Resources[i].Autostop = nil // the job decides when its cluster goes
	}
	t.DependsOn, t.MaxDuration = nil, 0 // the controller's
	have, err := r.m.files.Bring(ctx, t, s.job.Files)
	if err != nil {
		return placed{}, err
	}
	text, err := (&task.Dag{Name: t.Name, Execution: task.Serial, Tasks: []*task.Task{t}}).YAML()
	if err != nil {
		return placed{}, err
	}
	call := r.call(s)
	call.Files = have
	if r.m.admit != nil {
		var sent map[string]any
		if len(s.job.Config) > 0 {
			if err := json.Unmarshal(s.job.Config, &sent); err != nil {
				return placed{}, fmt.Errorf("the stored configuration of managed job %d: %w", r.id, err)
			}
		}
		var admitted string
		if admitted, call.Config, err = r.m.admit(ctx, call.User, string(text), sent, r.out); err != nil {
			return placed{}, err
		}
		text = []byte(admitted)
	}
	call.Load = func() []byte { return s.attempt.Progress }
	call.Save = r.remember(s)
	r.out.Printf("Launching cluster %s (attempt %d of task %d, %q)", s.attempt.ClusterName, s.attempt.Number, s.task.Index, s.task.Name)
	return r.m.env.Launch(ctx, launch{
		call: call, task: string(text), attempt: s.attempt,
		held: execution.Held{
			Holder: state.JobHolder(r.id), TaskID: runID(s.job, s.task), Envs: variables(s.job), Job: whole,
			Order: func(offers []cloud.Offer) [][]cloud.Offer {
				return order(s.policy.strategy, offers, losses, time.Now())
			},
		},
	})
}

// whole is the job that the task is one of, as it is planned: what is launched is what the
// plan of all tasks says. nil if each task is planned by itself.
func (r *runner) whole(ctx context.Context, s situation) (*execution.Job, error) {
	if !r.graph.joint {
		return nil, nil
	}
	dag, err := dagOf(s.job)
	if err != nil {
		return nil, err
	}
	for _, t := range dag.Tasks {
		for i := range t.Resources {
			t.Resources[i].Autostop = nil
		}
	}
	all, err := r.m.store.ManagedJobs().Attempts(ctx, r.id)
	if err != nil {
		return nil, err
	}
	j := &execution.Job{Dag: dag, Index: s.task.Index, Placed: map[int]cloud.Place{}}
	for _, a := range all {
		if a.Task != s.task.Index && a.Number == s.job.Tasks[a.Task].Attempt && a.Offer.Cloud != "" && !outcome(a.Outcome).lost() {
			j.Placed[a.Task] = a.Offer.Place
		}
	}
	return j, nil
}

// losses are the places that took this task's machines away.
func (r *runner) losses(ctx context.Context, s situation) ([]loss, error) {
	all, err := r.attempts(ctx, s.task)
	if err != nil {
		return nil, err
	}
	var out []loss
	for _, a := range all {
		if outcome(a.Outcome) == outLost && a.Offer.Cloud != "" {
			out = append(out, loss{a.Offer.Place, a.EndedAt})
		}
	}
	return out, nil
}

// progress keeps what a launch must remember, with the attempt.
func (r *runner) progress(ctx context.Context, s situation, b []byte) error {
	for {
		a := *s.attempt
		a.Progress = b
		err := r.m.store.ManagedJobs().Save(ctx, state.ManagedChange{Job: s.job, Attempt: &a})
		if err == nil {
			s.attempt.Progress = b
			return nil
		}
		if !errors.Is(err, state.ErrConflict) {
			return err
		}
		// A cancel moved the version on. The job is about to be submitted or
		// was: that must be known whatever comes next.
		fresh, err := r.m.store.ManagedJobs().Get(ctx, r.id)
		if err != nil {
			return err
		}
		if fresh.Epoch != r.hold.Lease.Epoch {
			return lease.ErrLost
		}
		*s.job = *fresh
		s.task = fresh.Tasks[s.task.Index]
	}
}

// ran writes down that the cluster has the job.
func (r *runner) ran(ctx context.Context, s situation, at placed) error {
	now := time.Now()
	a := s.attempt
	r.mute = time.Time{}
	a.ClusterHash, a.ClusterJob, a.Offer, a.Nodes, a.NodeNames = at.Hash, at.Job, at.Offer, at.Nodes, at.NodeNames
	if at.At.IsZero() {
		at.At = now
	}
	a.Resources, a.Full, a.RanAt = at.Resources, at.Full, at.At
	r.seen = observation{}
	for {
		r.does(api.ScheduleAlive)
		t := s.job.Tasks[a.Task]
		t.Tries = 0
		var events []state.ManagedEvent
		if t.Status != api.ManagedCancelling {
			e, err := move(t, fsm.ManagedRan, fmt.Sprintf("runs on cluster %s (%v)", a.ClusterName, at.Offer.Place), at.At)
			if err != nil {
				return err
			}
			events = append(events, e)
		}
		err := r.save(ctx, s, events...)
		if !errors.Is(err, state.ErrConflict) {
			return err
		}
		fresh, err := r.m.store.ManagedJobs().Get(context.WithoutCancel(ctx), r.id)
		if err != nil {
			return err
		}
		if fresh.Epoch != r.hold.Lease.Epoch {
			return lease.ErrLost
		}
		s.job = fresh
	}
}

// notLaunched deals with a launch that failed.
func (r *runner) notLaunched(ctx context.Context, s situation, err error) error {
	r.out.Printf("The launch failed: %v", err)
	ended := func(o outcome, reason string) error {
		events, err := r.settle(s, action{outcome: o, reason: reason})
		if err != nil {
			return err
		}
		return r.write(ctx, s, events...)
	}
	ran := !s.task.StartedAt.IsZero()
	switch judge(err, ran) {
	case lostIt:
		return r.lostInLaunch(ctx, s, err)
	case badSetup:
		return ended(outSetup, err.Error())
	case never:
		return ended(outRefused, err.Error())
	}
	// If the job may have been submitted, its cluster is left alone: the next
	// try finds out.
	submitting := execution.ParseProgress(s.attempt.Progress).Submitting != ""
	if submitting && r.mute.IsZero() {
		r.mute = time.Now()
	}
	if submitting && s.patience > 0 && time.Since(r.mute) >= s.patience {
		return ended(outHung, hung(s.patience, err.Error()))
	}
	if !submitting {
		if err := r.m.env.Down(ctx, s.attempt, r.call(s)); err != nil {
			return err
		}
	}
	t := s.task
	t.Tries++
	wait := pause(t.Tries, rand.Float64())
	t.NotBefore = time.Now().Add(wait)
	r.does(api.ScheduleAliveBackoff)
	event, merr := move(t, fsm.ManagedBackoff, fmt.Sprintf("nothing to be had; trying again in %v: %s", wait.Round(time.Second), firstLine(err.Error())), time.Now())
	if merr != nil {
		return merr
	}
	t.Details = event.Reason
	return r.save(ctx, s, event)
}

// lostInLaunch deals with a cluster that was gone before a server wrote down that it
// had the job: the agent's word on the end of the job may have come nevertheless.
func (r *runner) lostInLaunch(ctx context.Context, s situation, cause error) error {
	if err := r.reconcileReport(ctx, s.attempt); err != nil {
		return err
	}
	o := r.seen
	o.reason = cause.Error()
	a := action{outcome: outLost, reason: unknownOutcome(s.attempt, o, time.Now()), ended: o.heard}
	switch {
	case o.job != nil && o.job.Status == api.JobSucceeded:
		a = ended(outSucceeded, o.job, "")
	case o.job != nil && ownFailure(s.attempt, o):
		a = failedBy(o.job)
	}
	var events []state.ManagedEvent
	if o.job != nil { // it is known by now that it ran
		s.attempt.RanAt = later(unix(o.job.StartedAt), s.attempt.StartedAt)
		if s.task.Status != api.ManagedCancelling {
			e, err := move(s.task, fsm.ManagedRan, "ran on cluster "+s.attempt.ClusterName, s.attempt.RanAt)
			if err != nil {
				return err
			}
			events = append(events, e)
		}
	}
	more, err := r.settle(s, a)
	if err != nil {
		return err
	}
	return r.write(ctx, s, append(events, more...)...)
}
