package cloud

import (
	"context"
	"sync"
)

// KeyedLock let one call at a time change a cluster, for providers whose cloud does
// not see to that. The zero value is ready.
type KeyedLock struct {
	mu   sync.Mutex
	held map[ClusterID]*lockEntry
}

type lockEntry struct {
	token chan struct{}
	users int
}

// Lock waits until it is the caller's turn and returns how to end it.
func (t *KeyedLock) Lock(ctx context.Context, id ClusterID) (done func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	t.mu.Lock()
	if t.held == nil {
		t.held = map[ClusterID]*lockEntry{}
	}
	c := t.held[id]
	if c == nil {
		c = &lockEntry{token: make(chan struct{}, 1)}
		t.held[id] = c
	}
	c.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if c.users--; c.users == 0 {
			delete(t.held, id)
		}
	}
	select {
	case c.token <- struct{}{}:
		return func() { <-c.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
