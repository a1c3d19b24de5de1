package requests

import (
	"context"
	"log/slog"
	"time"
)

const (
	sweepEvery = time.Hour
	sweepBatch = 500
)

// forgetOld removes finished requests and their logs when their time is over.
func (e *Engine) forgetOld(ctx context.Context) {
	if e.o.Retention < 0 {
		return
	}
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := e.sweep(ctx); err != nil && ctx.Err() == nil {
			e.log.Warn("old requests not removed", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweep removes what has expired: the log first, so that a crash in between
// leaves a row that the next sweep finds.
func (e *Engine) sweep(ctx context.Context) error {
	before := e.store.Now().Add(-e.o.Retention)
	for {
		ids, err := e.store.Requests().Expired(ctx, before, sweepBatch)
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
