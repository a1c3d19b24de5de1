package jobs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// controller takes one job to its end, or until the server goes: it has a
// runner work on each task whose time has come.
type controller struct {
	m      *Manager
	id     int
	lease  state.Lease
	cancel context.CancelCauseFunc

	shape     *shape // of the job; nil: not read yet
	out       *controlLog
	callbacks callbacks

	mu    sync.Mutex
	slot  bool                      // came with the claim: the first launch has its turn
	phase map[int]api.ScheduleState // what the runners do, by task
}

var errFinished = errors.New("nothing is left to do")

// run works on the job's tasks until all have ended.
func (c *controller) run(ctx context.Context) {
	c.out = newControlLog(c.m.kept, controlLogName(c.id), func() { c.m.logs.Ring(c.id) })
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
		todo, err := c.todo(ctx, at)
		switch {
		case err != nil:
			c.failed(ctx, err)
		case len(at) == 0 && len(todo) == 0:
			if err := c.finish(ctx); err == nil {
				c.release(ctx)
				return
			} else {
				c.failed(ctx, err)
			}
		case len(at) == 0 && len(todo) == 1: // the rule: it needs nobody else to run it
			c.runner(todo[0]).run(ctx)
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
	if ctx.Err() != nil || errors.Is(err, state.ErrConflict) {
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
	if j.Epoch != c.lease.Epoch {
		c.cancel(errLeaseLost)
		return nil, errLeaseLost
	}
	if c.shape == nil {
		if c.shape, err = shapeOf(j); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// todo is the tasks whose time has come, less those that are worked on.
func (c *controller) todo(ctx context.Context, at []int) ([]int, error) {
	j, err := c.load(ctx)
	if err != nil {
		return nil, err
	}
	attempts, err := c.m.store.ManagedJobs().Attempts(ctx, c.id)
	if err != nil {
		return nil, err
	}
	open := map[int]bool{}
	for _, a := range attempts {
		open[a.Task] = a.ClosedAt.IsZero()
	}
	return slices.DeleteFunc(c.shape.ready(j, open), func(i int) bool { return slices.Contains(at, i) }), nil
}

// release ends the lease of a job that is done.
func (c *controller) release(ctx context.Context) {
	if err := c.m.store.Leases().Forget(ctx, c.lease); err != nil {
		c.m.log.WarnContext(ctx, "lease on an ended job not removed", "job", c.id, "err", err)
	}
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
// begin any more are cancelled with it. Another task's change in between is
// merged; a cancel is [state.ErrConflict]: it changes what is to be done.
func (c *controller) save(ctx context.Context, s situation, events ...state.ManagedEvent) error {
	// What was done is written even if the server is told to go meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline)
	defer cancel()
	for {
		dropped, err := c.shape.drop(s.job, time.Now())
		if err != nil {
			return err
		}
		c.mu.Lock()
		if s.job.Schedule != api.ScheduleDone {
			s.job.Schedule = together(s.job.Schedule, c.phase)
		}
		c.mu.Unlock()
		all := append(slices.Clone(events), dropped...)
		err = c.m.store.ManagedJobs().Save(ctx, state.ManagedChange{Job: s.job, Attempt: s.attempt, Closed: s.closed, Events: all})
		if err == nil {
			c.saved(s, all)
			return nil
		}
		if !errors.Is(err, state.ErrConflict) || s.task == nil {
			return err
		}
		fresh, gerr := c.m.store.ManagedJobs().Get(ctx, c.id)
		if gerr != nil {
			return gerr
		}
		if fresh.Epoch != c.lease.Epoch || fresh.CancelAsked != s.job.CancelAsked {
			return err
		}
		fresh.Tasks[s.task.Index] = s.task // whose only writer is its runner
		*s.job = *fresh
	}
}

// saved tells what was written.
func (c *controller) saved(s situation, events []state.ManagedEvent) {
	c.m.rows.Ring(c.id)
	for _, e := range events {
		if e.Reason == "" {
			c.out.Printf("Task %d is %s", e.Task, e.Status)
		} else {
			c.out.Printf("Task %d is %s: %s", e.Task, e.Status, e.Reason)
		}
		c.callback(s, e)
	}
}

// finish ends the job.
func (c *controller) finish(ctx context.Context) error {
	j, err := c.load(ctx)
	if err != nil {
		return err
	}
	if j.Schedule != api.ScheduleDone {
		if err := schedule(j, finished); err != nil {
			return err
		}
		j.EndedAt = time.Now()
		if err := c.save(ctx, situation{job: j}); err != nil {
			return err
		}
	}
	if err := c.m.files.sweep(ctx, c.m.store); err != nil {
		c.m.log.WarnContext(ctx, "files of an ended job not removed", "job", c.id, "err", err)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
