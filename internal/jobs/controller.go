package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// controller takes one job to its end, or until the server goes.
type controller struct {
	m      *Manager
	id     int
	lease  state.Lease
	cancel context.CancelCauseFunc

	slot bool // holds one of the launches that may run at once
	out  *controlLog
	bell <-chan struct{} // the job's rows changed
	seen observation     // since the last wait

	// Of the running attempt.
	followed    string          // its key; "": none
	changed     <-chan struct{} // its cluster or job changed
	stopChanged func()
	copy        *copier // of its log

	callbacks callbacks
}

// How long a controller waits before it looks again by itself; what happens is
// told to it long before.
const (
	lookAgain  = time.Minute
	proveAgain = 5 * time.Second // while the provider cannot tell
	failAgain  = 3 * time.Second // after an error of our own
)

var errFinished = errors.New("nothing is left to do")

// run observes, decides, acts and records, again and again.
func (c *controller) run(ctx context.Context) {
	c.out = newControlLog(c.m.controlLog(c.id), func() { c.m.logs.Ring(c.id) })
	bell, stop := c.m.rows.Listen(c.id)
	c.bell = bell
	defer func() {
		stop()
		c.unfollow()
		c.callbacks.end(errors.Is(context.Cause(ctx), state.ErrHandover))
		if c.slot {
			c.m.slots.release()
		}
	}()
	for ctx.Err() == nil {
		err := c.step(ctx)
		switch {
		case errors.Is(err, errFinished):
			c.release(ctx)
			return
		case err == nil, ctx.Err() != nil:
		case errors.Is(err, state.ErrConflict): // a cancel came, or the lease is lost: look again
			c.seen = observation{}
		default:
			c.m.log.ErrorContext(ctx, "managed job's step failed", "job", c.id, "err", err)
			c.out.Printf("An error, to be tried again: %v", err)
			c.seen = observation{}
			c.sleep(ctx, failAgain)
		}
	}
}

// release ends the lease of a job that is done.
func (c *controller) release(ctx context.Context) {
	if err := c.m.store.Leases().Forget(ctx, c.lease); err != nil {
		c.m.log.WarnContext(ctx, "lease on an ended job not removed", "job", c.id, "err", err)
	}
}

// load reads what is known of the job.
func (c *controller) load(ctx context.Context) (situation, error) {
	j, err := c.m.store.ManagedJobs().Get(ctx, c.id)
	if err != nil {
		return situation{}, err
	}
	if j.Epoch != c.lease.Epoch {
		c.cancel(errLeaseLost)
		return situation{}, errLeaseLost
	}
	s := situation{job: j, task: j.Current(), seen: c.seen}
	// The newest attempt may still be open although its task has ended.
	for i := len(j.Tasks) - 1; i >= 0; i-- {
		if t := j.Tasks[i]; t.Attempt > 0 {
			a, err := c.m.store.ManagedJobs().Attempt(ctx, j.ID, t.Index, t.Attempt)
			if err != nil {
				return s, err
			}
			if a.ClosedAt.IsZero() {
				s.task = t
			}
			if t == s.task {
				s.attempt = a
			}
			break
		}
	}
	t, err := taskOf(j, s.task.Index)
	if err != nil {
		return s, err
	}
	s.policy, s.empty = policyOf(t), t.Run == ""
	return s, nil
}

// taskOf is one task of a job as it was submitted.
func taskOf(j *state.ManagedJob, index int) (*task.Task, error) {
	dag, err := task.Parse("task", j.Dag)
	if err != nil {
		return nil, fmt.Errorf("the stored tasks of managed job %d: %w", j.ID, err)
	}
	if index >= len(dag.Tasks) {
		return nil, fmt.Errorf("managed job %d has no task %d", j.ID, index)
	}
	return dag.Tasks[index], nil
}

func (c *controller) step(ctx context.Context) error {
	s, err := c.load(ctx)
	if err != nil {
		return err
	}
	a := decide(s, time.Now())
	if a.do != doLaunch && a.do != doBegin && c.slot {
		c.freeSlot()
	}
	switch a.do {
	case doBegin:
		return c.begin(ctx, s)
	case doLaunch:
		return c.launch(ctx, s)
	case doPause:
		return c.pause(ctx, s, a.until)
	case doLook:
		c.follow(s.attempt)
		c.seen = c.look(ctx, s.attempt)
		return nil
	case doProve:
		return c.prove(ctx, s.attempt)
	case doWait:
		return c.wait(ctx)
	case doSettle:
		return c.settle(ctx, s, a)
	case doKeep:
		return c.keepLog(ctx, s)
	case doMove:
		return c.move(ctx, s, a)
	case doClose:
		return c.close(ctx, s)
	case doFinish:
		return c.finish(ctx, s)
	}
	return fmt.Errorf("nobody knows how to %q", a.do)
}

func (c *controller) freeSlot() {
	c.slot = false
	c.m.slots.release()
}

// save writes what changed and tells whoever follows the job.
func (c *controller) save(ctx context.Context, s situation, events ...state.ManagedEvent) error {
	// What was done is written even if the server is told to go meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline)
	defer cancel()
	err := c.m.store.ManagedJobs().Save(ctx, state.ManagedChange{Job: s.job, Attempt: s.attempt, Events: events})
	if err != nil {
		return err
	}
	c.m.rows.Ring(c.id)
	for _, e := range events {
		if e.Reason == "" {
			c.out.Printf("Task %d is %s", e.Task, e.Status)
		} else {
			c.out.Printf("Task %d is %s: %s", e.Task, e.Status, e.Reason)
		}
		c.callback(s, e)
	}
	return nil
}

// begin writes down the next attempt, before anything is asked of a cloud.
func (c *controller) begin(ctx context.Context, s situation) error {
	now := time.Now()
	name, err := c.clusterName(ctx, s)
	if err != nil {
		return err
	}
	t := s.task
	t.Attempt++
	t.Tries, t.NotBefore = 0, time.Time{}
	if t.SubmittedAt.IsZero() {
		t.SubmittedAt = now
	}
	s.attempt = &state.ManagedAttempt{JobID: c.id, Task: t.Index, Number: t.Attempt, ClusterName: name, StartedAt: now}
	return c.save(ctx, s)
}

// clusterName is the name of the attempt's cluster: that of the task and the
// job, unless somebody has taken it.
func (c *controller) clusterName(ctx context.Context, s situation) (string, error) {
	base := clusterName(s.task.Name, c.id)
	for n := 1; ; n++ {
		name := base
		if n > 1 {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		if taken, err := c.m.world.Taken(ctx, name, c.id); err != nil || !taken {
			return name, err
		}
	}
}

// pause waits for the time of the next launch.
func (c *controller) pause(ctx context.Context, s situation, until time.Time) error {
	if s.job.Schedule != api.ScheduleAliveBackoff {
		scheduled(s.job, paused)
		return c.save(ctx, s)
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-c.bell:
	case <-t.C:
	}
	return nil
}

func (c *controller) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// look asks the agent.
func (c *controller) look(ctx context.Context, a *state.ManagedAttempt) observation {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return c.m.world.Look(ctx, a)
}

// prove asks the provider.
func (c *controller) prove(ctx context.Context, a *state.ManagedAttempt) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	got, reason, err := c.m.world.Prove(ctx, a)
	if err != nil {
		c.seen.failed = true
		c.out.Printf("The state of cluster %s could not be found out: %v", a.ClusterName, err)
		return nil
	}
	c.seen.cluster, c.seen.proven = got, true
	if reason != "" {
		c.seen.reason = reason
	}
	return nil
}

// wait waits until something happens to the cluster or the job. What happened
// since the controller looked has rung already.
func (c *controller) wait(ctx context.Context) error {
	after := lookAgain + rand.N(lookAgain/4)
	if c.seen.failed {
		after = proveAgain
	}
	t := time.NewTimer(after)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-c.changed:
	case <-c.bell:
	case <-t.C:
	}
	c.seen = observation{}
	return nil
}

// follow makes the controller hear of the attempt's cluster and copies the log
// of its job, if it does not yet.
func (c *controller) follow(a *state.ManagedAttempt) {
	if c.followed == attemptKey(a) {
		return
	}
	c.unfollow()
	c.followed = attemptKey(a)
	c.changed, c.stopChanged = c.m.world.Changed(a)
	c.copy = c.m.copyLog(a)
}

func (c *controller) unfollow() {
	if c.followed == "" {
		return
	}
	c.stopChanged()
	c.copy.stop()
	c.followed, c.changed, c.copy = "", nil, nil
}

// settle writes down how the attempt ended.
func (c *controller) settle(ctx context.Context, s situation, a action) error {
	at := a.ended
	if at.IsZero() {
		at = time.Now()
	}
	t := s.task
	s.attempt.Outcome, s.attempt.Reason, s.attempt.ExitCodes, s.attempt.EndedAt = string(a.outcome), a.reason, a.codes, at
	c.seen = observation{}
	scheduled(s.job, launched)
	var events []state.ManagedEvent
	if e := follows(s); e == lost && t.Status != api.ManagedCancelling {
		if a.outcome == outFailed || a.outcome == outSetup {
			if counts, _ := s.policy.again(a.codes, t.Restarts); counts {
				t.Restarts++
			}
		}
		event, err := move(t, e, a.reason, at)
		if err != nil {
			return err
		}
		events = append(events, event)
	}
	return c.save(ctx, s, events...)
}

// move writes down the task's new state.
func (c *controller) move(ctx context.Context, s situation, a action) error {
	at := time.Now()
	if s.attempt != nil && !s.attempt.EndedAt.IsZero() && s.attempt.ClosedAt.IsZero() {
		at = s.attempt.EndedAt
	}
	event, err := move(s.task, a.event, a.reason, at)
	if err != nil {
		return err
	}
	return c.save(ctx, s, event)
}

// closePause is how long to wait before a cluster that could not be given back
// is tried again; it doubles.
const (
	closePause     = 5 * time.Second
	closePauseMost = 2 * time.Minute
)

// close gives the cluster back, for as long as it takes.
func (c *controller) close(ctx context.Context, s situation) error {
	c.unfollow()
	if err := c.down(ctx, s); err != nil {
		return err
	}
	s.attempt.ClosedAt = time.Now()
	return c.save(ctx, s)
}

func (c *controller) down(ctx context.Context, s situation) error {
	for wait := closePause; ; wait = min(2*wait, closePauseMost) {
		err := c.m.world.Down(ctx, s.attempt, c.call(s))
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.m.log.WarnContext(ctx, "cluster of a managed job not given back", "job", c.id, "cluster", s.attempt.ClusterName, "err", err)
		c.out.Printf("Cluster %s could not be given back; trying again in %v: %v", s.attempt.ClusterName, wait, err)
		c.sleep(ctx, wait)
	}
}

// finish ends the job: tasks that never ran are cancelled.
func (c *controller) finish(ctx context.Context, s situation) error {
	now := time.Now()
	var events []state.ManagedEvent
	for _, t := range s.job.Tasks {
		if !t.Status.Terminal() {
			e, err := move(t, cancelled, fmt.Sprintf("task %d before it is %s", s.task.Index, s.task.Status), now)
			if err != nil {
				return err
			}
			events = append(events, e)
		}
	}
	if s.job.Schedule != api.ScheduleDone {
		if err := schedule(s.job, finished); err != nil {
			return err
		}
		s.job.EndedAt = now
		s.attempt = nil
		if err := c.save(ctx, s, events...); err != nil {
			return err
		}
	}
	if err := c.m.files.sweep(ctx, c.m.store); err != nil {
		c.m.log.WarnContext(ctx, "files of an ended job not removed", "job", c.id, "err", err)
	}
	return errFinished
}

// call is who asks, for what is done to the cluster.
func (c *controller) call(s situation) cluster.Call {
	return cluster.Call{
		RequestID: attemptKey(s.attempt), User: state.User{ID: s.job.UserHash, Name: s.job.UserName},
		Attempt: 2, Command: s.job.Entrypoint, Out: c.out,
	}
}

// attemptKey is the name under which an attempt's job is submitted. Nobody
// else's is like it.
func attemptKey(a *state.ManagedAttempt) string {
	return fmt.Sprintf("managed-%d-%d-%d", a.JobID, a.Task, a.Number)
}

// keep is what a launch remembers, in the attempt's row.
func (c *controller) keep(s situation) func(context.Context, []byte) error {
	return func(ctx context.Context, b []byte) error {
		if !json.Valid(b) {
			return errors.New("a launch keeps something that is no JSON")
		}
		return c.progress(ctx, s, b)
	}
}
