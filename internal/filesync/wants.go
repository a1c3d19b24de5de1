package filesync

import (
	"context"
	"sync"
)

// A ref is a want of a known block.
type ref struct {
	block *sentBlock
	want
}

func (r *ref) file() *item { return &r.block.items[r.item] }

// A wantQueue holds what the receiver has asked for and not got yet. It is
// bounded by the manifest, since no file can be asked for twice.
type wantQueue struct {
	mu     sync.Mutex
	refs   []ref
	closed bool
	signal chan struct{} // has room for one
}

func (q *wantQueue) init() { q.signal = make(chan struct{}, 1) }

func (q *wantQueue) add(refs []ref) {
	q.mu.Lock()
	q.refs = append(q.refs, refs...)
	q.mu.Unlock()
	q.wake()
}

func (q *wantQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.wake()
}

func (q *wantQueue) wake() {
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// take returns all that is queued; none means that no more will come.
func (q *wantQueue) take(ctx context.Context) ([]ref, error) {
	for {
		q.mu.Lock()
		refs, closed := q.refs, q.closed
		q.refs = nil
		q.mu.Unlock()
		if len(refs) > 0 || closed {
			return refs, nil
		}
		select {
		case <-q.signal:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
