package provision

import "sync"

// broadcast wakes all who listen at the moment it is rung. The zero value works.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// Notify wakes the listeners.
func (b *broadcast) Notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// Next is closed at the next ring.
func (b *broadcast) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}
