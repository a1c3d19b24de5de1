package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
)

// The logs of a job outlive its clusters, and in a log store that servers share also
// the server that wrote them: one for its controller, and one for each attempt
// of each task, to which the attempt's log is copied byte for byte while it
// grows. So the size of the copy is where it goes on after a crash.

// jobDir is the folder of a job on this server.
func (m *Manager) jobDir(id int) string { return filepath.Join(m.dir, strconv.Itoa(id)) }

func controlLogName(id int) string { return fmt.Sprintf("%d/controller.log", id) }

func attemptLogName(id, task, attempt int) string {
	return fmt.Sprintf("%d/task-%d-attempt-%d.log", id, task, attempt)
}

// copier copies the log of one attempt until it is complete.
type copier struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Pauses before a log whose stream broke is asked for again.
const (
	copyFirst = 200 * time.Millisecond
	copyMost  = 15 * time.Second
)

// copyLog copies the log of an attempt; say hears when the copy waits for room and when
// it goes on.
func (m *Manager) copyLog(a *state.ManagedAttempt, say func(format string, a ...any)) *copier {
	ctx, cancel := context.WithCancel(context.Background())
	c := &copier{cancel: cancel, done: make(chan struct{})}
	at := *a
	go func() {
		defer close(c.done)
		defer m.waits(&at, nil)
		wait := copyFirst
		for ctx.Err() == nil {
			n, err := m.copyOnce(ctx, &at)
			var full *diskspace.NoRoomError
			switch {
			case errors.As(err, &full), diskspace.Full(err):
				if m.waits(&at, err) {
					say("The output of attempt %d is not copied for now; the cluster has it: %v", at.Number, err)
					m.logs.Notify(at.JobID)
				}
			case err == nil || n > 0:
				if m.waits(&at, nil) {
					say("The output of attempt %d is copied again", at.Number)
				}
			}
			if err == nil {
				return
			}
			if n > 0 {
				wait = copyFirst
			}
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
			wait = min(2*wait, copyMost)
		}
	}()
	return c
}

// stop ends the copying; what was copied stays.
func (c *copier) stop() {
	c.cancel()
	<-c.done
}

// mostLog is how many bytes of an attempt's log are kept, so that a program that
// prints for ever does not fill the server's disk. On the cluster it goes on.
const mostLog = 1 << 30

// copyOnce copies from where the file ends until the log does, or the stream
// breaks, or as much is there as is kept.
func (m *Manager) copyOnce(ctx context.Context, a *state.ManagedAttempt) (int64, error) {
	name := attemptLogName(a.JobID, a.Task, a.Number)
	if whole, err := m.givenUp(name); whole || err != nil {
		return 0, err
	}
	return logstore.Copy{
		Kept: m.kept, Name: name, Most: m.mostLog, Pause: m.gather, Wrote: func() { m.logs.Notify(a.JobID) },
		Room: func(n int64) error { return m.room(a.JobID, n) },
		From: func(ctx context.Context, offset int64) (io.ReadCloser, error) { return m.env.Log(ctx, a, offset) },
	}.Once(ctx)
}

// restOfLog is how long the rest of an ended job's log is waited for.
const restOfLog = time.Minute

// moreLog reports whether an attempt that has ended may have a log that is not
// here yet.
func moreLog(s situation, now time.Time) bool {
	if s.attempt.ClusterJob == 0 {
		return false
	}
	switch o := outcome(s.attempt.Outcome); {
	case o.ordered():
		return now.Before(endBy(s))
	case o.lost():
		return false
	}
	return true
}

// keepLog gets what is left of the attempt's log, if it can be had.
func (r *runner) keepLog(ctx context.Context, s situation) error {
	a := s.attempt
	if outcome(a.Outcome).ordered() {
		if over, err := r.leave(ctx, s); err != nil || !over {
			return err
		}
	} else {
		r.follow(a)
		t := time.NewTimer(restOfLog)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.copy.done:
		case <-t.C:
			r.out.Printf("The end of the log of attempt %d could not be had from cluster %s", a.Number, a.ClusterName)
			if r.m.missing(a.JobID, a.Task, a.Number) == "" {
				break
			}
			r.copy.stop()
			if err := r.m.giveUpRest(a); err != nil {
				r.m.log.WarnContext(ctx, "a log is not marked as cut", "job", a.JobID, "err", err)
			}
		}
	}
	r.logKept(s)
	return r.write(ctx, s)
}

// logKept notes that there is no more of an attempt's log. An attempt that was
// ended from here has ended now, with its processes.
func (r *runner) logKept(s situation) {
	r.unfollow()
	a := s.attempt
	a.LogKept = true
	if !outcome(a.Outcome).ordered() {
		return
	}
	asked := a.EndedAt
	a.EndedAt = later(time.Now(), asked)
	if !a.RanAt.IsZero() && s.task.Status == api.ManagedCancelling { // else it is RUNNING until now
		s.task.RanFor += a.EndedAt.Sub(asked)
	}
}
