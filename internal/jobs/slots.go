package jobs

import (
	"context"
	"slices"
	"sync"
)

// slots bound how many launches run at once. Whoever waits is served by
// priority, then by the job's id.
type slots struct {
	changed func() // a slot became free, or somebody waits

	mu      sync.Mutex
	left    int
	waiting []*waiter // in order
}

type waiter struct {
	priority, id int
	granted      chan struct{}
}

func newSlots(n int, changed func()) *slots { return &slots{left: n, changed: changed} }

// before reports whether one job comes before another.
func before(priority, id, priority2, id2 int) bool {
	return priority > priority2 || priority == priority2 && id < id2
}

func (s *slots) free() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left > 0
}

// take takes a slot at once; only whoever hands them out may.
func (s *slots) take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left--
}

// release gives a slot back.
func (s *slots) release() {
	s.mu.Lock()
	s.left++
	s.mu.Unlock()
	s.changed()
}

// acquire waits until it is handed a slot.
func (s *slots) acquire(ctx context.Context, priority, id int) error {
	w := &waiter{priority, id, make(chan struct{})}
	s.mu.Lock()
	i, _ := slices.BinarySearchFunc(s.waiting, w, func(a, b *waiter) int {
		if before(a.priority, a.id, b.priority, b.id) {
			return -1
		}
		return 1
	})
	s.waiting = slices.Insert(s.waiting, i, w)
	s.mu.Unlock()
	s.changed()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	i = slices.Index(s.waiting, w)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 { // it was granted at the same moment
		s.release()
	}
	return context.Cause(ctx)
}

// grantFirst hands a free slot to the first who waits, if there are both.
func (s *slots) grantFirst() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grant()
}

// grantBefore does so if the first who waits comes before that job.
func (s *slots) grantBefore(priority, id int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 || !before(s.waiting[0].priority, s.waiting[0].id, priority, id) {
		return false
	}
	return s.grant()
}

func (s *slots) grant() bool {
	if s.left <= 0 || len(s.waiting) == 0 {
		return false
	}
	s.left--
	close(s.waiting[0].granted)
	s.waiting = s.waiting[1:]
	return true
}
