package requests

import (
	"context"
	"errors"
	"io"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// RunLog runs a log request: its function writes the response w itself. The
// request is recorded first and onID called with its id, before the first
// byte; then the function runs until it returns, ctx ends (the client is gone:
// the request ends CANCELLED), somebody cancels it, or the server stops (the
// client is told to ask again). An error means that nothing was written; how
// the function ended is in the request.
func (e *Engine) RunLog(ctx context.Context, sub Submission, w io.Writer, onID func(id string)) error {
	h := e.handlers[sub.Name]
	if h.l == nil {
		return &UnknownError{sub.Name}
	}
	row := e.newRow(sub, h.schedule)
	e.own(row)
	r, err := e.begin(ctx, row, inline)
	if err == nil {
		defer e.end(r)
		err = e.create(ctx, row)
	}
	if errors.Is(err, state.ErrConflict) {
		// The log of the call that has the id is read with /api/stream.
		return IDTaken(row.ID)
	}
	unrecorded := state.Full(err) // the caller gets the log all the same
	if err != nil && !unrecorded {
		return err
	}
	onID(row.ID)
	live := newLiveWriter(w)
	stopBeats := live.keepAlive()
	r.log = streamLog(live)
	e.confirm(r, row)
	c := e.call(row, r.log)
	value, err := e.protect(r.ctx, c, func() (any, error) { return h.l(r.ctx, c, live) })
	r.log.close()
	stopBeats()

	cause := context.Cause(r.ctx)
	o := decide(value, err, cause)
	if o.status == api.RequestFailed && err != nil && (live.broken() || ctx.Err() != nil) { // the client is gone
		o = outcome{status: api.RequestCancelled}
	}
	switch {
	case errors.Is(cause, ErrShutdown) && o.status != api.RequestSucceeded, cause == nil && o.status == "":
		live.control(retry)
		o = outcome{status: api.RequestCancelled}
	case errors.Is(cause, ErrCancelled) && o.status == api.RequestCancelled:
		live.Write([]byte(cancelledLine(row.ID)))
	}
	if unrecorded {
		if o.status != "" {
			e.told(r, e.ended(row, o))
		}
		return nil
	}
	e.finish(r, row, o)
	return nil
}
