package provision

import "sync"

// bell wakes all who listen at the moment it is rung. The zero value works.
type bell struct {
	mu sync.Mutex
	ch chan struct{}
}

// Ring wakes the listeners.
func (b *bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// Heard is closed at the next ring.
func (b *bell) Heard() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}
