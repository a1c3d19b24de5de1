package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/internal/state"
)

// The logs of a job are in a folder of its own and outlive its clusters: one
// file for its controller, and one for each attempt of each task, to which the
// attempt's log is copied byte for byte while it grows. So the size of the file
// is where the copy goes on after a crash.

func (m *Manager) jobDir(id int) string { return filepath.Join(m.dir, strconv.Itoa(id)) }

func (m *Manager) controlLog(id int) string { return filepath.Join(m.jobDir(id), "controller.log") }

func (m *Manager) attemptLog(id, task, attempt int) string {
	return filepath.Join(m.jobDir(id), fmt.Sprintf("task-%d-attempt-%d.log", task, attempt))
}

// copier copies the log of one attempt until it is complete.
type copier struct {
	cancel context.CancelFunc
	done   chan struct{}
	whole  bool // all of it was copied; read after done
}

// Pauses before a log whose stream broke is asked for again.
const (
	copyFirst = 200 * time.Millisecond
	copyMost  = 15 * time.Second
)

func (m *Manager) copyLog(a *state.ManagedAttempt) *copier {
	ctx, cancel := context.WithCancel(context.Background())
	c := &copier{cancel: cancel, done: make(chan struct{})}
	at := *a
	go func() {
		defer close(c.done)
		wait := copyFirst
		for ctx.Err() == nil {
			n, err := m.copyOnce(ctx, &at)
			if err == nil {
				c.whole = true
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

// logCut is the last line of a log that was longer.
func logCut(most int64) string {
	return fmt.Sprintf("\n[The log is longer than %d MiB; the rest is only on the cluster.]\n", most>>20)
}

// copyOnce copies from where the file ends until the log does, or the stream
// breaks, or as much is there as is kept.
func (m *Manager) copyOnce(ctx context.Context, a *state.ManagedAttempt) (n int64, err error) {
	path := m.attemptLog(a.JobID, a.Task, a.Number)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	if size >= m.mostLog {
		return 0, nil
	}
	rc, err := m.world.Log(ctx, a, size)
	if err != nil {
		return 0, err
	}
	defer rc.Close()
	buf := make([]byte, 4<<10) // most logs drip, and there are many
	for {
		got, rerr := rc.Read(buf)
		if got > 0 {
			b := buf[:got]
			cut := size+n+int64(got) >= m.mostLog
			if cut {
				b = append(b[:m.mostLog-size-n:m.mostLog-size-n], logCut(m.mostLog)...)
			}
			if _, err := f.Write(b); err != nil {
				return n, err
			}
			n += int64(got)
			m.logs.Ring(a.JobID)
			if cut {
				return n, f.Sync()
			}
			if got == len(buf) && len(buf) < 256<<10 {
				buf = make([]byte, 4*len(buf))
			}
		}
		if errors.Is(rerr, io.EOF) {
			return n, f.Sync()
		}
		if rerr != nil {
			return n, rerr
		}
	}
}

// How long the rest of an ended job's log is waited for.
const (
	restOfLog = time.Minute
)

// keepLog gets what is left of the attempt's log, if it can be had.
func (r *runner) keepLog(ctx context.Context, s situation) error {
	a := s.attempt
	switch {
	case a.ClusterJob == 0:
	case outcome(a.Outcome) == outAborted:
		if over, err := r.leave(ctx, s); err != nil || !over {
			return err
		}
	case outcome(a.Outcome) == outLost, outcome(a.Outcome) == outNode, outcome(a.Outcome) == outHung, outcome(a.Outcome) == outOvertime:
	default:
		r.follow(a)
		t := time.NewTimer(restOfLog)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.copy.done:
		case <-t.C:
			r.out.Printf("The end of the log of attempt %d could not be had from cluster %s", a.Number, a.ClusterName)
		}
	}
	r.unfollow()
	a.LogKept = true
	return r.save(ctx, s)
}
