package requests

import (
	"context"
	"errors"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// Cancel ends the requests with these ids or prefixes: one that waits at once,
// one that runs when its function has returned. Those that have ended or do
// not exist are skipped; the result is the ids of the others.
func (e *Engine) Cancel(ctx context.Context, ids []string) ([]string, error) {
	cancelled := []string{}
	for _, prefix := range ids {
		id, err := e.resolve(ctx, prefix)
		if err == nil {
			err = e.cancel(ctx, id)
		}
		switch {
		case errors.Is(err, state.ErrNotFound), errors.Is(err, state.ErrConflict):
		case err != nil:
			return cancelled, err
		default:
			cancelled = append(cancelled, id)
		}
	}
	return cancelled, nil
}

func (e *Engine) cancel(ctx context.Context, id string) error {
	row, err := e.store.Requests().Cancel(ctx, id)
	if err != nil {
		return err
	}
	e.mu.Lock()
	r := e.runs[id]
	if row.Status.Terminal() {
		e.queue.remove(id)
	}
	e.mu.Unlock()
	e.publish(row)
	if r != nil && row.Status == api.RequestRunning {
		r.cancel(ErrCancelled)
	}
	return nil
}
