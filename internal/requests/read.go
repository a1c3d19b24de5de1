package requests

import (
	"context"
	"errors"
	"time"

	"github.com/skypilot-go/sky/internal/state"
)

// readPatience is how long the answer to a call may wait for the end of a
// request that only reads. What takes longer is recorded as running.
const readPatience = 500 * time.Millisecond

// submitRead runs a request that only reads, and records it: once, with its
// result, if that is there soon. Until it is recorded nobody knows its id, so a
// server that dies before then owes nobody anything.
func (e *Engine) submitRead(ctx context.Context, sub Submission, r *run, row *state.Request) (*state.Request, error) {
	done := make(chan outcome, 1)
	go func() { done <- e.outcome(r, row) }()
	patience := time.NewTimer(readPatience)
	defer patience.Stop()
	told, ended := row, false
	select {
	case o := <-done:
		done <- o // for whoever finishes it
		if ended = o.status != ""; ended {
			r.log.close() // the row reports that nothing more comes
			told = e.ended(row, o)
		}
	case <-patience.C:
	}
	err := e.create(ctx, told)
	known := *told
	switch {
	case state.Full(err): // the caller gets its answer from memory
		if ended {
			e.told(r, told)
			e.end(r)
			break
		}
		e.confirm(r, row)
		go func() {
			defer e.end(r)
			o := <-done
			r.log.close()
			if o.status != "" {
				e.told(r, e.ended(row, o))
			}
		}()
	case err != nil:
		r.cancel(err)
		go func() {
			<-done // the function may still be at work
			e.end(r)
		}()
		if errors.Is(err, state.ErrConflict) {
			return e.again(ctx, sub)
		}
		return nil, err
	case ended:
		e.told(r, told)
		e.end(r)
	default:
		e.confirm(r, row)
		go func() {
			defer e.end(r)
			e.finish(r, row, <-done)
		}()
	}
	return &known, nil
}
