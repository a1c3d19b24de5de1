package fluffycloud

import (
	"context"
	"fmt"
	"sync"
)

// turns lets one call at a time change a cluster, within this process. Between
// processes the unique names of instances keep ranks apart.
type turns struct {
	mu    sync.Mutex
	taken map[string]chan struct{} // closed when the turn ends
}

// take waits for the cluster's turn; the caller ends it with leave.
func (t *turns) take(ctx context.Context, key string) (leave func(), err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("waiting for another call about the same cluster: %w", err)
		}
		t.mu.Lock()
		busy, ok := t.taken[key]
		if !ok {
			turn := make(chan struct{})
			if t.taken == nil {
				t.taken = map[string]chan struct{}{}
			}
			t.taken[key] = turn
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				delete(t.taken, key)
				t.mu.Unlock()
				close(turn)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-busy:
		}
	}
}
