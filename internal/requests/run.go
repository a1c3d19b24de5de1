package requests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/trace"
)

// maxAttempts ends a request that takes the server down each time it is run.
const maxAttempts = 50

// run is a request that this server runs, or is about to.
type run struct {
	id     string
	kind   runKind
	ctx    context.Context
	cancel context.CancelCauseFunc
	feed   *feed
	log    *Log

	// Guarded by Engine.mu.
	attempt int // of the row, once it is known to be ours; 0 before and after
}

// runKind says what a run holds and what a shutdown does to it.
type runKind int

const (
	short  runKind = iota // may finish
	long                  // holds a slot; is left for the next life
	inline                // a log request; its client asks again
)

// begin enters a request among those that this server runs, so that a cancel
// finds it from here on.
func (e *Engine) begin(ctx context.Context, row *state.Request, kind runKind) (*run, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.beginLocked(ctx, row, kind)
}

func (e *Engine) beginLocked(ctx context.Context, row *state.Request, kind runKind) (*run, error) {
	if e.closed {
		return nil, ErrShutdown
	}
	if e.runs[row.ID] != nil {
		return nil, fmt.Errorf("request %s is run here already: %w", row.ID, state.ErrConflict)
	}
	r := &run{id: row.ID, kind: kind}
	r.ctx, r.cancel = context.WithCancelCause(trace.WithRequest(ctx, row.ID))
	r.feed = e.acquireLocked(row.ID)
	r.log = keptLog(e.logs, r.feed.name, e.room(row.UserID), r.feed.grew)
	e.runs[row.ID] = r
	e.running.Add(1)
	if kind == long {
		e.longs++
	}
	return r, nil
}

// end undoes begin and gives the slot to the next.
func (e *Engine) end(r *run) {
	r.cancel(nil)
	e.mu.Lock()
	delete(e.runs, r.id)
	if r.kind == long {
		e.longs--
		e.dispatch()
	}
	e.mu.Unlock()
	r.feed.touch() // whoever follows must now look at the row
	e.release(r.feed)
	e.running.Done()
}

// enqueue lines a request up, unless this server has it already.
func (e *Engine) enqueue(row *state.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.runs[row.ID] != nil || e.queue.has(row.ID) {
		return
	}
	if row.Schedule == api.ScheduleShort {
		if r, err := e.beginLocked(context.Background(), row, short); err == nil {
			go e.claim(r, row)
		}
		return
	}
	light := *row
	light.Body = nil // the claim reads it again
	e.queue.push(&light)
	e.dispatch()
}

// dispatch starts what has a slot. The caller holds e.mu.
func (e *Engine) dispatch() {
	for !e.closed && e.longs < e.o.LongWorkers {
		row := e.queue.pop()
		if row == nil {
			return
		}
		if r, err := e.beginLocked(context.Background(), row, long); err == nil {
			go e.claim(r, row)
		}
	}
}

// claim takes a request from the queue and runs it, unless it was cancelled
// or another server was faster.
func (e *Engine) claim(r *run, was *state.Request) {
	row, err := e.store.Requests().Claim(context.Background(), was, e.o.ServerID)
	if err != nil {
		if !errors.Is(err, state.ErrConflict) { // the row is found again by the next look for lost ones
			e.log.ErrorContext(r.ctx, "request not started", slog.Any("error", err))
		}
		e.end(r)
		return
	}
	e.execute(r, row)
}

// execute runs the function of a request that is ours and writes how it ended.
func (e *Engine) execute(r *run, row *state.Request) {
	defer e.end(r)
	e.confirm(r, row)
	e.finish(r, row, e.outcome(r, row))
}

// outcome runs the function of a request and reports how it ended.
func (e *Engine) outcome(r *run, row *state.Request) (o outcome) {
	c := e.call(row, r.log)
	h := e.handlers[row.Name]
	switch {
	case h.f == nil && h.l == nil:
		o = failed(&UnknownError{row.Name})
	case row.CancelAsked, h.l != nil: // the client of a log request is gone
		o = outcome{status: api.RequestCancelled}
	case row.Attempt > maxAttempts:
		o = failed(fmt.Errorf("given up after %d attempts: the API server stopped during each of them", maxAttempts))
	default:
		ctx, span := e.span(r.ctx, row, r.log)
		value, err := e.protect(ctx, c, func() (_ any, err error) {
			if e.o.Files != nil {
				if c.Files, err = e.o.Files(ctx, row.UserID, row.Files); err != nil {
					return nil, err
				}
			}
			return h.f(ctx, c)
		})
		span.End(err)
		o = decide(value, err, context.Cause(r.ctx))
	}
	return o
}

// confirm makes known that the row is ours.
func (e *Engine) confirm(r *run, row *state.Request) {
	e.mu.Lock()
	r.attempt = row.Attempt
	e.mu.Unlock()
	r.feed.publish(row)
}

// protect calls f; a panic in it becomes an error.
func (e *Engine) protect(ctx context.Context, c *Call, f func() (any, error)) (value any, err error) {
	defer func() {
		if p := recover(); p != nil {
			e.log.ErrorContext(ctx, "request crashed", "name", c.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("%s crashed (%v): this is a bug; the API server's log says where, under request %s", c.Name, p, c.ID)
		}
	}()
	return f()
}

// ended is a row with how its run ended.
func (e *Engine) ended(row *state.Request, o outcome) *state.Request {
	ended := *row
	ended.Status = o.status
	ended.ReturnValue = o.value
	ended.StatusMsg = ""
	ended.FinishedAt = e.store.Now()
	if o.err != nil {
		ended.Error, _ = json.Marshal(o.err) // attributes that do not encode are a bug: the type and message go without
		if ended.Error == nil {
			ended.Error, _ = json.Marshal(&api.ErrorRecord{Type: o.err.Type, Message: o.err.Message, Hint: o.err.Hint})
		}
	}
	return &ended
}

// told makes known that a request has ended and that this is on disk.
func (e *Engine) told(r *run, ended *state.Request) {
	r.feed.publish(ended)
	e.mu.Lock()
	e.recent.add(ended, time.Now())
	e.mu.Unlock()
	if e.o.Ended != nil {
		e.o.Ended(ended)
	}
}

// finish writes how a run ended, again and again if the disk or the database
// fails: the work is done, and must not be done twice for want of a row.
func (e *Engine) finish(r *run, row *state.Request, o outcome) {
	e.mu.Lock()
	owned := r.attempt == row.Attempt
	r.attempt = 0
	e.mu.Unlock()
	if !owned { // the lease was lost
		return
	}
	r.log.close()
	if o.status == "" {
		return
	}
	ended := e.ended(row, o)
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := e.store.Requests().Finish(context.Background(), ended)
		if err == nil {
			e.told(r, ended)
			return
		}
		if errors.Is(err, state.ErrConflict) {
			e.reread(r.feed)
			return
		}
		e.log.ErrorContext(r.ctx, "result not written", "again_in", wait, slog.Any("error", err))
		select {
		case <-e.closing:
			return
		case <-time.After(wait):
		}
	}
}

// reread publishes what is stored: another server, or a commit whose answer
// was lost, changed it.
func (e *Engine) reread(f *feed) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if row, err := e.store.Requests().Get(ctx, f.id); err == nil {
		f.publish(row)
	}
}
