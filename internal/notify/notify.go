// Package notify wakes goroutines that wait for something to change. A notification
// says that one should look, not what there is to see.
package notify

import "sync"

// A Broadcast wakes everybody who waits, however many there are, without a goroutine or a
// queue for each. The zero value works.
type Broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// Next returns a channel that the next notification closes. To miss nothing, call it
// before looking.
func (b *Broadcast) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

// Notify wakes all who wait.
func (b *Broadcast) Notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// A Keyed notifier wakes those who subscribed to a key. The zero value works.
type Keyed[K comparable] struct {
	mu        sync.Mutex
	listeners map[K]map[chan struct{}]bool
}

// Subscribe returns a channel that receives when key is notified, and what ends that.
// Notifications that were not received yet are one.
func (k *Keyed[K]) Subscribe(key K) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.listeners == nil {
		k.listeners = map[K]map[chan struct{}]bool{}
	}
	if k.listeners[key] == nil {
		k.listeners[key] = map[chan struct{}]bool{}
	}
	k.listeners[key][ch] = true
	return ch, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.listeners[key], ch)
		if len(k.listeners[key]) == 0 {
			delete(k.listeners, key)
		}
	}
}

// Notify wakes all who subscribed to key.
func (k *Keyed[K]) Notify(key K) { k.NotifyOthers(key, nil) }

// NotifyOthers wakes all who subscribed to key but the one with that channel.
func (k *Keyed[K]) NotifyOthers(key K, not <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for ch := range k.listeners[key] {
		if not != nil && ch == not {
			continue
		}
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
