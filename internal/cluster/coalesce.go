package cluster

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
)

// coalescer makes one call for all callers that want the same at the same time. A caller
// that comes while it is under way waits for the one after it, so that no answer is older
// than its question. The zero value is ready.
type coalescer[K comparable, V any] struct {
	mu sync.Mutex
	by map[K]*round[V]
}

// round is one call for some.
type round[V any] struct {
	call    func() // makes it
	cancel  context.CancelFunc
	waiting int           // for it
	done    chan struct{} // closed when v and err are set
	v       V
	err     error
	next    *round[V] // of those who came since it began
}

// do is f's answer, of a call that begins after do does. f's context ends when
// nobody waits for it any more.
func (g *coalescer[K, V]) do(ctx context.Context, key K, f func(context.Context) (V, error)) (V, error) {
	g.mu.Lock()
	running := g.by[key]
	r := running
	if running != nil {
		r = running.next
	}
	if r == nil || r.waiting == 0 { // there is none, or those who wanted it are gone
		r = g.round(ctx, key, f)
		if running != nil {
			running.next = r
		} else {
			if g.by == nil {
				g.by = map[K]*round[V]{}
			}
			g.by[key] = r
			go r.call()
		}
	}
	r.waiting++
	g.mu.Unlock()
	select {
	case <-r.done:
		return r.v, r.err
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.waiting--; r.waiting == 0 {
		r.cancel()
	}
	var none V
	return none, context.Cause(ctx)
}

func (g *coalescer[K, V]) round(ctx context.Context, key K, f func(context.Context) (V, error)) *round[V] {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &round[V]{cancel: cancel, done: make(chan struct{})}
	r.call = func() {
		defer cancel()
		r.err = guarded(func() (err error) { r.v, err = f(life); return err })
		close(r.done)
		g.mu.Lock()
		defer g.mu.Unlock()
		if r.next == nil {
			delete(g.by, key)
			return
		}
		g.by[key] = r.next
		go r.next.call()
	}
	return r
}

// guarded calls f on behalf of several: a panic, which would end the server,
// becomes an error for each.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("this is a bug: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}
