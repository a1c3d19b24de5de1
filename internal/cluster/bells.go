package cluster

import "sync"

// Bells tell listeners that something happened to what they listen for. They
// say that one should look, not what there is to see. The zero value works.
type Bells[K comparable] struct {
	mu        sync.Mutex
	listeners map[K]map[chan struct{}]bool
}

// Listen returns a channel that is rung for key, and what ends that. Rings that
// nobody heard yet are one.
func (b *Bells[K]) Listen(key K) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listeners == nil {
		b.listeners = map[K]map[chan struct{}]bool{}
	}
	if b.listeners[key] == nil {
		b.listeners[key] = map[chan struct{}]bool{}
	}
	b.listeners[key][ch] = true
	return ch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.listeners[key], ch)
		if len(b.listeners[key]) == 0 {
			delete(b.listeners, key)
		}
	}
}

// Ring wakes all who listen for key.
func (b *Bells[K]) Ring(key K) { b.RingOthers(key, nil) }

// RingOthers wakes all who listen for key except through that channel.
func (b *Bells[K]) RingOthers(key K, not <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ch := range b.listeners[key] {
		if not != nil && ch == not {
			continue
		}
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
