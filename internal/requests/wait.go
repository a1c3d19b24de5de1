package requests

import (
	"context"
	"time"

	"github.com/skypilot-go/sky/internal/state"
)

// Wait returns the request once it has ended.
func (e *Engine) Wait(ctx context.Context, id string) (*state.Request, error) {
	f := e.acquire(id)
	defer e.release(f)
	for {
		v, err := e.look(ctx, f)
		if err != nil {
			return nil, err
		}
		if v.row.Status.Terminal() {
			row := *v.row // others have it too
			return &row, nil
		}
		if err := e.pause(ctx, f, v.moved, time.Hour); err != nil {
			return nil, err
		}
	}
}

// look is what the request is now. What another server runs is read each time.
func (e *Engine) look(ctx context.Context, f *feed) (view, error) {
	v := f.look()
	if v.row != nil && (v.row.Status.Terminal() || e.mine(f.id)) {
		return v, nil
	}
	row, err := f.fetch(ctx, e.store.Requests().Get)
	if err != nil {
		return v, err
	}
	v.row = row
	return v, nil
}

// pause waits for a change, or d, or less for a request of another server.
func (e *Engine) pause(ctx context.Context, f *feed, changed <-chan struct{}, d time.Duration) error {
	if !e.mine(f.id) {
		d = min(d, f.poll())
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.closing:
		return ErrShutdown
	}
	return nil
}
