package balancer

import (
	"net/http"
	"strings"
	"sync"
	"time"
)

// A phase of an exchange with a replica.
type phase int

const (
	waiting   phase = iota // for the answer to begin
	uploading              // the body of the request is on its way
	answering              // the answer has begun
	streaming              // the same, and it may be silent for as long as it likes
)

// timeouts end an exchange with a replica whose answer does not begin in time, or in
// which nothing moves for too long.
type timeouts struct {
	on     deadliner // which ends the exchange
	client deadliner // the same, of writing to a client; nil: it is not being answered

	mu       sync.Mutex
	phase    phase
	answerBy time.Time     // the zero time: whenever it likes
	idle     time.Duration // without a byte; 0: any
	due      time.Time     // as it was set
}

// A deadliner ends an exchange at a time; the zero time: never.
type deadliner interface{ SetDeadline(due time.Time) error }

// begin starts an attempt.
func (t *timeouts) begin(on deadliner, answerBy time.Time, idle time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.on, t.answerBy, t.idle, t.phase, t.due = on, answerBy, idle, waiting, time.Time{}
	if !answerBy.IsZero() {
		t.arm(time.Now())
	}
}

// at is when the exchange ends if nothing moves after now; the zero time: never.
func (t *timeouts) at(now time.Time) time.Time {
	silent := time.Time{}
	if t.idle > 0 {
		silent = now.Add(t.idle)
	}
	switch t.phase {
	case waiting:
		return t.answerBy
	case uploading:
		if silent.IsZero() || !t.answerBy.IsZero() && t.answerBy.Before(silent) {
			return t.answerBy
		}
		return silent
	case answering:
		return silent
	}
	return time.Time{}
}

func (t *timeouts) arm(now time.Time) {
	if due := t.at(now); !due.Equal(t.due) {
		t.due = due
		t.on.SetDeadline(due)
		if t.client != nil {
			t.client.SetDeadline(due)
		}
	}
}

// enter begins a phase.
func (t *timeouts) enter(p phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = p
	t.arm(time.Now())
}

// answer begins the phase of an answer, which the client has to take.
func (t *timeouts) answer(h http.Header, client deadliner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase = streaming; !mayBeSilent(h) {
		t.phase, t.client = answering, client
	}
	t.arm(time.Now())
}

// answered notes that the client has all of the answer.
func (t *timeouts) answered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.client != nil {
		t.client.SetDeadline(time.Time{}) // its connection may be used again
		t.client = nil
	}
}

// writing has the deadline of writing to a client.
type writing struct{ http.ResponseWriter }

func (w writing) SetDeadline(due time.Time) error {
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(due)
}

// uploaded notes that all of the body was sent.
func (t *timeouts) uploaded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase == uploading {
		t.phase = waiting
		t.arm(time.Now())
	}
}

// moved notes that there were bytes.
func (t *timeouts) moved() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle == 0 || t.phase != uploading && t.phase != answering {
		return
	}
	// Setting a deadline costs more than moving a few bytes.
	if now := time.Now(); t.due.Sub(now) < t.idle-t.idle/16 {
		t.arm(now)
	}
}

// end takes back what was set.
func (t *timeouts) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = streaming
	if !t.due.IsZero() {
		t.due = time.Time{}
		t.on.SetDeadline(t.due)
	}
}

// late reports whether the answer has not begun in time, rather than that nothing moved.
func (t *timeouts) late() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.answerBy.IsZero() && !time.Now().Before(t.answerBy)
}

// mayBeSilent reports whether an answer is a stream of events or messages, which come
// when there are any.
func mayBeSilent(h http.Header) bool {
	t := h.Get("Content-Type")
	return strings.HasPrefix(t, "text/event-stream") || strings.HasPrefix(t, "application/grpc")
}

// A watchdog calls a function at a time that can be put off.
type watchdog struct {
	timer *time.Timer

	mu    sync.Mutex
	due   time.Time // the zero time: never
	fired bool
}

func newWatchdog(f func()) *watchdog {
	w := &watchdog{}
	w.timer = time.AfterFunc(time.Hour, func() {
		w.mu.Lock()
		w.fired = !w.due.IsZero() && !time.Now().Before(w.due)
		fired := w.fired
		w.mu.Unlock()
		if fired {
			f()
		}
	})
	w.timer.Stop()
	return w
}

// SetDeadline makes it call at a time; the zero time: never.
func (w *watchdog) SetDeadline(due time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.due = due; due.IsZero() {
		w.timer.Stop()
	} else {
		w.timer.Reset(time.Until(due))
	}
	return nil
}

// hasFired reports whether it has called.
func (w *watchdog) hasFired() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fired
}
