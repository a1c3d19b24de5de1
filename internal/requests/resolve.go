package requests

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/state"
)

// AmbiguousError means that several requests begin with the same letters.
type AmbiguousError struct {
	Prefix string
	IDs    []string // some of them
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q stands for several requests (%s): give more letters of the id", e.Prefix, strings.Join(e.IDs, ", "))
}

// Resolve is the request whose id is, or begins with, prefix. Without one it
// is [state.ErrNotFound], with several an [*AmbiguousError].
func (e *Engine) Resolve(ctx context.Context, prefix string) (*state.Request, error) {
	id, err := e.resolve(ctx, prefix)
	if err != nil {
		return nil, err
	}
	if row := e.known(id); row != nil {
		return row, nil
	}
	return e.store.Requests().Get(ctx, id)
}

// known is a request that this server has in memory because it runs here or did a
// moment ago, nil for any other: clients ask for the result of a short request at
// once.
func (e *Engine) known(id string) *state.Request {
	e.mu.Lock()
	r, ended := e.runs[id], e.recent.get(id, time.Now())
	e.mu.Unlock()
	if ended != nil {
		row := *ended
		return &row
	}
	if r == nil {
		return nil
	}
	if v := r.feed.look(); v.row != nil {
		row := *v.row // others have it too
		return &row
	}
	return nil
}

func (e *Engine) resolve(ctx context.Context, prefix string) (string, error) {
	if len(prefix) == 36 { // a whole id
		return prefix, nil
	}
	if prefix == "" {
		return "", state.ErrNotFound
	}
	ids, err := e.store.Requests().IDs(ctx, prefix, 5)
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0:
		return "", state.ErrNotFound
	case len(ids) > 1 && ids[0] != prefix:
		return "", &AmbiguousError{prefix, ids}
	}
	return ids[0], nil
}

// List is the requests that the filter selects, the newest first.
func (e *Engine) List(ctx context.Context, f state.RequestFilter) ([]*state.Request, error) {
	return e.store.Requests().List(ctx, f)
}
