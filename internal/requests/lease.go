package requests

import (
	"context"
	"log/slog"
	"time"

	"github.com/skypilot-go/sky/internal/state"
)

// Start resumes what an earlier life of this server, or a server that died,
// left unfinished, and returns. From then on the engine renews its leases,
// looks for requests of dead servers and forgets old ones, until Shutdown. If
// ctx ends first everything stops at once, to be resumed by a later Start.
func (e *Engine) Start(ctx context.Context) error {
	now := e.store.Now()
	lost, err := e.store.Requests().Lost(ctx, state.Dead{
		Created:   now.AddDate(100, 0, 0), // whatever the clock said then
		Heartbeat: now.Add(-e.o.LeaseTTL),
		Owner:     e.o.ServerID,
	})
	if err != nil {
		return err
	}
	for _, row := range lost {
		e.enqueue(row)
	}
	loops, halt := context.WithCancel(context.WithoutCancel(ctx))
	e.mu.Lock()
	e.halt = halt
	e.mu.Unlock()
	e.loops.Go(func() { e.keepLeases(loops) })
	e.loops.Go(func() { e.forgetOld(loops) })
	e.loops.Go(func() {
		select {
		case <-ctx.Done():
			e.stop()
		case <-loops.Done():
		}
	})
	return nil
}

// keepLeases renews the lease on all that runs here, in one statement, and
// takes over what dead servers left.
func (e *Engine) keepLeases(ctx context.Context) {
	tick := time.NewTicker(e.o.HeartbeatEvery)
	defer tick.Stop()
	renewed := time.Now()
	// A server that cannot renew its leases stops before others may begin.
	safe := e.o.LeaseTTL - 2*e.o.HeartbeatEvery
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		if err := e.beatWithin(ctx, safe/2); err == nil {
			renewed = began
		} else if ctx.Err() == nil {
			e.log.Error("leases not renewed", slog.Any("error", err))
			if e.store.Shared() && time.Since(renewed) > safe {
				e.loseAll()
			}
			continue
		}
		if err := e.takeOver(ctx); err != nil && ctx.Err() == nil {
			e.log.Error("requests of dead servers not found", slog.Any("error", err))
		}
	}
}

// takeOver lines up what dead servers ran and, if this server has nothing
// waiting, what others have no slot for.
func (e *Engine) takeOver(ctx context.Context) error {
	now := e.store.Now()
	dead := state.Dead{Heartbeat: now.Add(-e.o.LeaseTTL), Limit: 1000}
	e.mu.Lock()
	if e.queue.len() == 0 && e.longs < e.o.LongWorkers {
		dead.Created = now.Add(-2 * e.o.HeartbeatEvery)
		dead.Limit = e.o.LongWorkers - e.longs
	}
	e.mu.Unlock()
	lost, err := e.store.Requests().Lost(ctx, dead)
	for _, row := range lost {
		e.enqueue(row)
	}
	return err
}

// beatWithin is beat, given up when the database does not answer: a connection
// that was cut without a word must not keep the server from noticing.
func (e *Engine) beatWithin(ctx context.Context, limit time.Duration) error {
	if !e.store.Shared() {
		return e.beat(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return e.beat(ctx)
}

// beat renews the leases, and acts on what that shows: a lease that was lost,
// a cancel that another server wrote, a row that is ours but not run.
func (e *Engine) beat(ctx context.Context) error {
	e.mu.Lock()
	before := map[string]int{}
	for id, r := range e.runs {
		if r.attempt > 0 {
			before[id] = r.attempt
		}
	}
	e.mu.Unlock()
	if len(before) == 0 {
		return nil
	}
	held, err := e.store.Requests().Beat(ctx, e.o.ServerID)
	if err != nil {
		return err
	}
	var stray []string
	e.mu.Lock()
	for _, h := range held {
		if before[h.ID] == h.Attempt {
			delete(before, h.ID)
		}
		switch r := e.runs[h.ID]; {
		case r != nil && h.CancelAsked && r.attempt == h.Attempt:
			r.cancel(ErrCancelled)
		case r == nil && !e.queue.has(h.ID):
			stray = append(stray, h.ID)
		}
	}
	for id, attempt := range before {
		if r := e.runs[id]; r != nil && r.attempt == attempt {
			e.lose(r)
		}
	}
	e.mu.Unlock()
	for _, id := range stray {
		if row, err := e.store.Requests().Get(ctx, id); err == nil && !row.Status.Terminal() {
			e.enqueue(row)
		}
	}
	return nil
}

// lose stops a run whose lease is gone. The caller holds e.mu.
func (e *Engine) lose(r *run) {
	e.log.WarnContext(r.ctx, "request taken over by another server")
	r.attempt = 0
	r.cancel(ErrLeaseLost)
	go r.log.abandon()
}

func (e *Engine) loseAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.runs {
		if r.attempt > 0 {
			e.lose(r)
		}
	}
}

// mine reports whether changes of a request are published here.
func (e *Engine) mine(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[id] != nil || e.queue.has(id)
}
