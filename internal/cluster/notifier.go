package cluster

import "sync"

// Notifier tell listeners that something happened to what they listen for. They
// say that one should look, not what there is to see. The zero value works.
type Notifier[K comparable] struct {
	mu        sync.Mutex
	listeners map[K]map[chan struct{}]bool
}

// Subscribe returns a channel that is rung for key, and what ends that. Rings that
// nobody heard yet are one.
func (b *Notifier[K]) Subscribe(key K) (<-chan struct{}, func()) {
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

// Notify wakes all who listen for key.
func (b *Notifier[K]) Notify(key K) { b.NotifyOthers(key, nil) }

// NotifyOthers wakes all who listen for key except through that channel.
func (b *Notifier[K]) NotifyOthers(key K, not <-chan struct{}) {
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
