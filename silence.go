package sky

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A call may rightly take long: the server answers when a request has ended, or
// sends a log in which nothing happens. So a server that is silent is asked for
// its health on another connection: after askFirst, and while it answers again
// after pauses that grow up to askMax.
const (
	askFirst   = time.Second
	askMax     = 20 * time.Second
	askTimeout = 5 * time.Second // of one try
	askPause   = 500 * time.Millisecond
)

// silentError means that a server that takes connections does not answer.
type silentError struct{ quiet time.Duration }

func (e *silentError) Error() string {
	return fmt.Sprintf("no answer for %v", e.quiet.Truncate(time.Second))
}

// Timeout and Temporary make it a [net.Error].
func (e *silentError) Timeout() bool   { return true }
func (e *silentError) Temporary() bool { return true }

// silence watches one call for a server that does not answer any more, and ends
// the call then.
type silence struct {
	c      *Client
	giveUp context.CancelCauseFunc // ends the call
	since  time.Time               // when the server was last known to answer; zero: when the watch began
	ctx    context.Context         // ends with the watch
	end    context.CancelFunc

	mu    sync.Mutex
	heard time.Time
	pause time.Duration // until the server is asked
	timer *time.Timer
	wait  *wait // the report of the silence
}

// watch begins to watch a call, whose context giveUp ends.
func (c *Client) watch(ctx context.Context, since time.Time, giveUp context.CancelCauseFunc) *silence {
	if since.IsZero() {
		since = time.Now()
	}
	s := &silence{c: c, giveUp: giveUp, since: since, heard: time.Now(), pause: askFirst}
	s.ctx, s.end = context.WithCancel(ctx)
	s.mu.Lock()
	s.timer = time.AfterFunc(s.pause, s.check)
	s.mu.Unlock()
	return s
}

// hear notes that something came from the server.
func (s *silence) hear() {
	s.mu.Lock()
	s.heard, s.since = time.Now(), time.Time{}
	s.mu.Unlock()
}

// stop ends the watch.
func (s *silence) stop() {
	s.end()
	s.mu.Lock()
	s.timer.Stop()
	if s.wait != nil {
		s.wait.end()
	}
	s.mu.Unlock()
}

// quiet is since when nothing was heard.
func (s *silence) quiet() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.since.IsZero() {
		return s.since
	}
	return s.heard
}

func (s *silence) check() {
	s.mu.Lock()
	due := s.pause - time.Since(s.heard)
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return
	}
	if due > 0 {
		s.timer.Reset(due)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	if !s.ask() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard, s.since = time.Now(), time.Time{}
	s.pause = min(2*s.pause, askMax)
	if s.ctx.Err() == nil {
		s.timer.Reset(s.pause)
	}
}

// ask asks the server for its health until it answers; false means that the call
// has ended.
func (s *silence) ask() bool {
	quiet := s.quiet()
	w := s.c.waits.begin(quiet, "no answer")
	defer w.end()
	s.mu.Lock()
	s.wait = w // for stop, which may be faster
	s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	patience := max(s.c.patience, askTimeout)
	for {
		left := patience - time.Since(quiet)
		if left <= 0 {
			s.giveUp(&ConnectError{s.c.Endpoint(), &silentError{time.Since(quiet)}})
			return false
		}
		_, err := s.c.Ping(s.ctx, min(left, askTimeout))
		if s.ctx.Err() != nil {
			return false
		}
		if _, lost := errors.AsType[*ConnectError](err); !lost || s.quiet().After(quiet) {
			return true
		}
		w.because(reason(err))
		if sleep(s.ctx, min(askPause, max(0, patience-time.Since(quiet)))) != nil {
			return false
		}
	}
}
