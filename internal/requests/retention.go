package requests

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

const (
	sweepEvery = time.Hour
	sweepBatch = 500
	// readKept is how long the result of a request that only reads is kept once it
	// is there: who asked fetches it at once, and again within this time if the
	// answer was lost. Afterwards it says what was, which nobody asks for. The log
	// of such a request goes with it.
	readKept      = 5 * time.Minute
	readSweepEach = time.Minute
)

// forgetOld removes finished requests and their logs when their time is over.
func (e *Engine) forgetOld(ctx context.Context) {
	var all <-chan time.Time
	if e.o.Retention >= 0 {
		tick := time.NewTicker(sweepEvery)
		defer tick.Stop()
		all = tick.C
		e.forget(ctx, e.sweep)
	}
	reads := time.NewTicker(readSweepEach)
	defer reads.Stop()
	e.forget(ctx, e.sweepReads)
	for {
		select {
		case <-ctx.Done():
			return
		case <-all:
			e.forget(ctx, e.sweep)
		case <-reads.C:
			e.forget(ctx, e.sweepReads)
		}
	}
}

func (e *Engine) forget(ctx context.Context, sweep func(context.Context) error) {
	if err := sweep(ctx); err != nil && ctx.Err() == nil {
		e.log.Warn("old requests not removed", slog.Any("error", err))
	}
}

// sweep removes what has expired.
func (e *Engine) sweep(ctx context.Context) error {
	before := e.store.Now().Add(-e.o.Retention)
	return e.remove(ctx, func() ([]string, error) {
		return e.store.Requests().Expired(ctx, before, sweepBatch)
	})
}

// sweepReads removes requests that only read and whose results were there for
// their callers. Those that failed stay as long as others do.
func (e *Engine) sweepReads(ctx context.Context) error {
	before, names := e.store.Now().Add(-readKept), e.Reads()
	return e.remove(ctx, func() ([]string, error) {
		return e.store.Requests().Delivered(ctx, names, before, sweepBatch)
	})
}

// Reads is the names of the requests that only read, in order.
func (e *Engine) Reads() (names []string) {
	for name, h := range e.handlers {
		if h.reads {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// remove removes what next lists, until that is nothing: the log first, so that a
// crash in between leaves a row that is found again.
func (e *Engine) remove(ctx context.Context, next func() ([]string, error)) error {
	for {
		ids, err := next()
		if err != nil || len(ids) == 0 {
			return err
		}
		logs := make([]string, len(ids))
		for i, id := range ids {
			logs[i] = e.logName(id)
		}
		if err := e.logs.Remove(logs...); err != nil {
			return err
		}
		if err := e.store.Requests().Delete(ctx, ids); err != nil {
			return err
		}
	}
}
