package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/lease"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
)

// controller takes one job to its end, or until the server goes: it has a
// runner work on each task whose time has come.
type controller struct {
	m    *Manager
	id   int
	hold *lease.Hold

	adopted   *state.ManagedAdopted // as the job was when this began; nil: it has been looked at
	graph     *graph                // of the job; nil: not read yet
	files     bool                  // the job has files that go with it
	out       *logstore.Journal
	callbacks callbacks // of its tasks

	over atomic.Bool // see Over: the job's end is written, or just being: its lease is gone or going

	mu    sync.Mutex
	asked *time.Time                // the job is to be ended, and by when; nil: nobody has said so
	slot  bool                      // came with the claim: the first launch has its turn
	phase map[int]api.ScheduleState // what the runners do, by task
}

// Over reports that the end of the job is written, or just being written.
func (c *controller) Over() bool { return c.over.Load() }

var errFinished = errors.New("nothing is left to do")

// Run works on the job's tasks until all have ended.
func (c *controller) Run(ctx context.Context) {
	c.out = logstore.NewJournal(c.m.kept, controlLogName(c.id), func() { c.m.logs.Notify(c.id) })
	c.phase = map[int]api.ScheduleState{}
	var at []int // tasks that runners work on
	ended := make(chan int)
	defer func() {
		for range at {
			<-ended
		}
		c.callbacks.end(errors.Is(context.Cause(ctx), state.ErrHandover))
		if c.takeSlot() {
			c.m.slots.release()
		}
	}()
	for ctx.Err() == nil {
		if c.over.Load() {
			if c.files {
				c.m.untidy.Store(true)
			}
			return
		}
		now, todo, err := c.todo(ctx, at)
		if err == nil {
			err = c.callbacks.begin(ctx, c, now)
		}
		switch {
		case err != nil:
			c.failed(ctx, err)
		case len(at) == 0 && len(todo) == 0:
			if err := c.finish(ctx); err != nil {
				c.failed(ctx, err)
			}
		case len(at) == 0 && len(todo) == 1: // the rule: it needs nobody else to run it
			r := c.runner(todo[0])
			r.keep(situation{job: now.Job, attempt: latest(now, todo[0])})
			r.run(ctx)
		default:
			for _, task := range todo {
				at = append(at, task)
				go func() {
					c.runner(task).run(ctx)
					ended <- task
				}()
			}
			task := <-ended
			at = slices.DeleteFunc(at, func(i int) bool { return i == task })
		}
	}
}

// failed notes an error of a step and waits a little, unless it only means that
// the job must be looked at again.
func (c *controller) failed(ctx context.Context, err error) {
	if ctx.Err() != nil || errors.Is(err, state.ErrConflict) || errors.Is(err, state.ErrReported) {
		return
	}
	c.m.log.ErrorContext(ctx, "managed job's step failed", "job", c.id, "err", err)
	c.out.Printf("An error, to be tried again: %v", err)
	sleep(ctx, failAgain)
}

// load reads the job, if it is still this server's.
func (c *controller) load(ctx context.Context) (*state.ManagedJob, error) {
	j, err := c.m.store.ManagedJobs().Get(ctx, c.id)
	if err != nil {
		return nil, err
	}
	return j, c.learn(j)
}

// learn notes what a job says about itself, if it is still this server's.
func (c *controller) learn(j *state.ManagedJob) (err error) {
	if j.Epoch != c.hold.Lease.Epoch {
		c.hold.Lost()
		return lease.ErrLost
	}
	if c.graph == nil {
		if c.graph, err = graphOf(j); err != nil {
			return err
		}
		c.files = len(j.Files) > 0
	}
	if j.CancelAsked {
		c.mu.Lock()
		c.asked = &j.CancelBy
		c.mu.Unlock()
	}
	return nil
}

// reload is the job with its attempts as they are stored: what came with the lease,
// the first time.
func (c *controller) reload(ctx context.Context) (state.ManagedAdopted, error) {
	if now := c.adopted; now != nil {
		if c.adopted = nil; c.m.held.Held() {
			return *now, c.learn(now.Job)
		}
	}
	j, err := c.load(ctx)
	if err != nil {
		return state.ManagedAdopted{}, err
	}
	attempts, err := c.m.store.ManagedJobs().Attempts(ctx, c.id)
	return state.ManagedAdopted{Job: j, Attempts: attempts}, err
}

// latest is a task's attempt under way, or its last one; nil: it has made none.
func latest(now state.ManagedAdopted, task int) *state.ManagedAttempt {
	for _, a := range now.Attempts {
		if a.Task == task && a.Number == now.Job.Tasks[task].Attempt {
			return a
		}
	}
	return nil
}

// knows reports whether the controller has read that its job is to be ended by then.
func (c *controller) knows(by time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked != nil && c.asked.Equal(by)
}

// todo is the tasks whose time has come, less those that are worked on, and the
// job that says so.
func (c *controller) todo(ctx context.Context, at []int) (now state.ManagedAdopted, todo []int, err error) {
	if now, err = c.reload(ctx); err != nil {
		return now, nil, err
	}
	open := map[int]bool{}
	for _, a := range now.Attempts {
		open[a.Task] = a.ClosedAt.IsZero()
	}
	return now, slices.DeleteFunc(c.graph.ready(now.Job, open), func(i int) bool { return slices.Contains(at, i) }), nil
}

// takeSlot takes the slot that came with the claim, if nobody has yet.
func (c *controller) takeSlot() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	had := c.slot
	c.slot = false
	return had
}

// does notes what the runner of a task does now; "" is nothing any more.
func (c *controller) does(task int, s api.ScheduleState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s == "" {
		delete(c.phase, task)
	} else {
		c.phase[task] = s
	}
}

// save writes what changed and tells whoever follows the job. Tasks that cannot
// begin any more are cancelled with it, and a job ends whose only task is done.
// Another task's change in between is merged; a cancel is [state.ErrConflict]: it
// changes what is to be done. own is the channel of the goroutine that saves.
func (c *controller) save(ctx context.Context, s situation, own <-chan struct{}, events ...state.ManagedEvent) error {
	// What was done is written even if the server is asked to go meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline)
	defer cancel()
	for {
		dropped, err := c.graph.drop(s.job, time.Now())
		if err != nil {
			return err
		}
		if err := c.scheduled(s); err != nil {
			return err
		}
		all := append(slices.Clone(events), dropped...)
		err = c.m.store.ManagedJobs().Save(ctx, state.ManagedChange{
			Job: s.job, Attempt: s.attempt, Closed: s.closed, Events: all,
			Unreported: s.attempt != nil && s.attempt.ClosedAt.IsZero() && s.attempt.Report == nil && outcome(s.attempt.Outcome).lost() && !s.task.Status.Terminal(),
		})
		if err == nil {
			c.m.rows.NotifyOthers(c.id, own)
			c.saved(s, all)
			return nil
		}
		c.over.Store(false)
		if !errors.Is(err, state.ErrConflict) || s.task == nil {
			return err
		}
		fresh, gerr := c.m.store.ManagedJobs().Get(ctx, c.id)
		if gerr != nil {
			return gerr
		}
		if fresh.Epoch != c.hold.Lease.Epoch || fresh.CancelAsked != s.job.CancelAsked {
			return err
		}
		fresh.Tasks[s.task.Index] = s.task // whose only writer is its runner
		*s.job = *fresh
	}
}

// scheduled notes the job's place in the schedule.
func (c *controller) scheduled(s situation) error {
	only := s.task != nil && len(s.job.Tasks) == 1 && s.task.Status.Terminal() && (s.attempt == nil || !s.attempt.ClosedAt.IsZero())
	switch {
	case s.job.Schedule == api.ScheduleDone:
	case only:
		if err := schedule(s.job, finished); err != nil {
			return err
		}
		s.job.EndedAt = time.Now()
	default:
		c.mu.Lock()
		s.job.Schedule = combinedState(s.job.Schedule, c.phase)
		c.mu.Unlock()
	}
	c.over.Store(s.job.Schedule == api.ScheduleDone)
	return nil
}

// saved says what was written.
func (c *controller) saved(s situation, events []state.ManagedEvent) {
	var lines []string
	for _, e := range events {
		line := fmt.Sprintf("Task %d is %s", e.Task, e.Status)
		if e.Reason != "" {
			line += ": " + e.Reason
		}
		lines = append(lines, line)
		c.callbacks.add(s.job, s.attempt, e)
	}
	c.out.Print(lines...)
}

// finish ends the job.
func (c *controller) finish(ctx context.Context) error {
	j, err := c.load(ctx)
	if err != nil {
		return err
	}
	if j.Schedule == api.ScheduleDone { // written, and the answer was lost
		c.over.Store(true)
		return nil
	}
	if err := schedule(j, finished); err != nil {
		return err
	}
	j.EndedAt = time.Now()
	return c.save(ctx, situation{job: j}, nil)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
