package transfer

import (
	"context"
	"sync"
	"time"
)

// A tuner finds out how many requests at once a store answers well. It tries more
// for as long as that moves more, and halves when the store asks for fewer.
type tuner struct {
	limit, most int
	before      float64 // what was moved in a second with the limit before this one
	tried       bool    // the limit was raised in the window that ends
	rest        int     // windows to go before it is raised again
}

const (
	firstLimit = 16
	leastLimit = 2
	// A raise must move so much more to be kept.
	worthIt = 1.05
	restFor = 12
)

// window is what took place since the last decision.
type window struct {
	rate      float64 // moved in a second, by whatever measure
	throttled bool
	full      bool // there was work for more requests at some time
}

// next is the limit for the next window.
func (t *tuner) next(w window) int {
	switch {
	case w.throttled:
		t.limit, t.tried, t.rest = max(leastLimit, t.limit/2), false, restFor
		t.before = 0
		return t.limit
	case !w.full:
		t.tried = false // it says nothing about the limit
		return t.limit
	case t.tried && w.rate < t.before*worthIt:
		t.limit, t.tried, t.rest = max(leastLimit, t.limit*4/5), false, restFor
		return t.limit
	case t.rest > 0:
		t.rest--
		t.tried = false
		return t.limit
	}
	if t.limit < t.most {
		t.before, t.tried = w.rate, true
		t.limit = min(t.most, t.limit+max(1, t.limit/4))
	} else {
		t.tried = false
	}
	return t.limit
}

// slots hand out as many requests as the tuner says.
type slots struct {
	mu      sync.Mutex
	tuner   tuner
	used    int
	wake    chan struct{} // closed when there may be a free one
	waiting bool          // somebody has waited in this window
	slow    bool          // the store asked for fewer in this window
	units   float64       // moved in this window
	since   time.Time
	samples int
}

func newSlots(most int) *slots {
	return &slots{tuner: tuner{limit: min(firstLimit, most), most: most}, wake: make(chan struct{}), since: time.Now()}
}

// most is how many requests there may be at once for now.
func (s *slots) most() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tuner.limit
}

// take waits for a slot.
func (s *slots) take(ctx context.Context) error {
	for {
		s.mu.Lock()
		if ctx.Err() != nil {
			s.mu.Unlock()
			return context.Cause(ctx)
		}
		if s.used < s.tuner.limit {
			s.used++
			s.mu.Unlock()
			return nil
		}
		s.waiting = true
		wake := s.wake
		s.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
		}
	}
}

// A window is long enough to say something.
const (
	leastWindow  = 500 * time.Millisecond
	leastSamples = 8
)

// give returns a slot after a request that moved so many bytes.
func (s *slots) give(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.samples++
	// A request itself counts as much as 64 KiB: with small files it is what takes time.
	s.units += float64(bytes) + 64<<10
	if took := time.Since(s.since); took >= leastWindow && s.samples >= max(leastSamples, s.tuner.limit) || s.slow {
		s.tuner.next(window{rate: s.units / max(took.Seconds(), 1e-3), throttled: s.slow, full: s.waiting})
		s.since, s.samples, s.units, s.waiting, s.slow = time.Now(), 0, 0, false, false
	}
	close(s.wake)
	s.wake = make(chan struct{})
}

// throttled notes that the store asks for fewer requests.
func (s *slots) throttled() {
	s.mu.Lock()
	s.slow = true
	s.mu.Unlock()
}
