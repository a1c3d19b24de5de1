package sky

import (
	"fmt"
	"sync"
	"time"
)

// Wait says that calls wait because the server does not answer.
type Wait struct {
	Endpoint string
	Reason   string    // such as "connection refused"
	Since    time.Time // when the server was last known to answer
	For      time.Duration
	Over     bool // the calls go on, or have ended
}

// String is the wait in words, such as "Waiting for the API server at
// http://127.0.0.1:46580 (connection refused), 5s".
func (w Wait) String() string {
	return fmt.Sprintf("Waiting for the API server at %s (%s), %v", w.Endpoint, w.Reason, w.For.Round(time.Second))
}

// Waits are reported once they took waitSilence, then every waitEvery, and never in
// the first waitEvery after they began: a server that nobody has asked for a while is
// not silent.
const (
	waitSilence = 2 * time.Second
	waitEvery   = time.Second
)

// waits are the calls of a client that wait for the server now. They are
// reported as one.
type waits struct {
	endpoint string
	report   func(Wait) // nil: nobody listens

	mu    sync.Mutex
	open  map[*wait]bool
	timer *time.Timer // of the next report
	told  *Wait       // the last report, unless it was that the wait is over
}

// wait is one call that waits.
type wait struct {
	w      *waits
	since  time.Time
	reason string
}

// begin notes a call that waits since the given time.
func (w *waits) begin(since time.Time, reason string) *wait {
	one := &wait{w, since, reason}
	if w.report == nil {
		return one
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = map[*wait]bool{}
	}
	w.open[one] = true
	if w.timer == nil {
		w.timer = time.AfterFunc(max(waitEvery, waitSilence-time.Since(since)), w.tick)
	}
	return one
}

// because changes why the call waits. It reports whether the call still does.
func (one *wait) because(reason string) bool {
	one.w.mu.Lock()
	defer one.w.mu.Unlock()
	one.reason = reason
	return one.w.open[one]
}

// end takes the call away; with the last one the wait is over.
func (one *wait) end() {
	w := one.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.open[one] {
		return
	}
	delete(w.open, one)
	if len(w.open) > 0 {
		return
	}
	w.timer.Stop()
	w.timer = nil
	if told := w.told; told != nil {
		w.told = nil
		over := *told
		over.For, over.Over = time.Since(told.Since), true
		w.report(over)
	}
}

// tick reports the call that has waited longest.
func (w *waits) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var first *wait
	for one := range w.open {
		if first == nil || one.since.Before(first.since) {
			first = one
		}
	}
	if first == nil || w.timer == nil {
		return
	}
	waited := time.Since(first.since)
	if waited < waitSilence {
		w.timer.Reset(waitSilence - waited)
		return
	}
	w.told = &Wait{Endpoint: w.endpoint, Reason: first.reason, Since: first.since, For: waited}
	w.report(*w.told)
	w.timer.Reset(waitEvery)
}
