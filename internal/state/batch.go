package state

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/skypilot-go/sky/internal/diskspace"
)

// batcher is the only writer of a SQLite file. Changes that arrive while a
// commit waits for the disk share the next one, so that many callers cost one
// wait and a single caller waits for nobody.
type batcher struct {
	d     *dialect
	conn  *sql.Conn
	cache *statements
	// reserve, if there is one, has room for changes that find the disk full.
	reserve atomic.Pointer[diskspace.Reserve]

	using  sync.Mutex // held by whoever uses conn
	keeper *keeper

	mu      sync.Mutex
	waiting []*change
	busy    bool // a goroutine is draining waiting
	closed  bool
	idle    *sync.Cond
}

// change is one caller's transaction.
type change struct {
	do    func(*session) error
	done  chan error
	alone bool // it is no transaction, and nothing else is written meanwhile
}

// maxBatch bounds how long the first of a batch waits for the last.
const maxBatch = 256

var errClosed = errors.New("state: the store is closed")

// newBatcher is the writer of the file at path through a connection that checkpoints
// nothing by itself.
func newBatcher(conn *sql.Conn, d *dialect, path string) *batcher {
	b := &batcher{d: d, conn: conn, cache: newStatements(), keeper: newKeeper(path)}
	b.idle = sync.NewCond(&b.mu)
	b.keeper.changed <- struct{}{} // the schema may be new
	b.keeper.done.Go(b.keep)
	return b
}

// write runs f in a transaction and returns when it is on disk. f may be run
// more than once. After an error all it did is undone. ctx only bounds the wait
// for the turn: what has begun is finished.
func (b *batcher) write(ctx context.Context, f func(*session) error) error {
	return b.wait(ctx, &change{do: f, done: make(chan error, 1)})
}

// alone runs f, which is no transaction, while nothing else is written.
func (b *batcher) alone(ctx context.Context, f func(*session) error) error {
	return b.wait(ctx, &change{do: f, done: make(chan error, 1), alone: true})
}

// wait waits until a change had its turn.
func (b *batcher) wait(ctx context.Context, c *change) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return errClosed
	}
	b.waiting = append(b.waiting, c)
	if !b.busy {
		b.busy = true
		go b.drain()
	}
	b.mu.Unlock()
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
	}
	if b.withdraw(c) {
		return context.Cause(ctx)
	}
	return <-c.done
}

// withdraw takes a change back unless it has begun.
func (b *batcher) withdraw(c *change) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, w := range b.waiting {
		if w == c {
			b.waiting = append(b.waiting[:i:i], b.waiting[i+1:]...)
			return true
		}
	}
	return false
}

func (b *batcher) drain() {
	for {
		b.mu.Lock()
		n := min(len(b.waiting), maxBatch)
		if i := slices.IndexFunc(b.waiting[:n], func(c *change) bool { return c.alone }); i >= 0 {
			n = max(i, 1)
		}
		batch := b.waiting[:n:n]
		b.waiting = b.waiting[n:]
		if n == 0 {
			b.waiting, b.busy = nil, false
			b.idle.Broadcast()
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		b.commit(batch)
	}
}

// commit runs the changes in one transaction. If one of them breaks it, each
// gets its own.
func (b *batcher) commit(batch []*change) {
	if batch[0].alone {
		batch[0].done <- batch[0].do(&session{ctx: context.Background(), d: b.d, db: b.conn})
		return
	}
	results := make([]error, len(batch))
	err := b.insist(func(s *session) error {
		for i, c := range batch {
			before, err := b.changes(s)
			if err != nil {
				return err
			}
			if results[i] = c.do(s); results[i] == nil {
				continue
			}
			after, err := b.changes(s)
			if err != nil {
				return err
			}
			if after != before || !isAnswer(results[i]) {
				return results[i]
			}
		}
		return nil
	})
	if err != nil && len(batch) > 1 {
		for _, c := range batch {
			b.commit([]*change{c})
		}
		return
	}
	for i, c := range batch {
		if err != nil {
			results[i] = err
		}
		c.done <- results[i]
	}
}

// isAnswer reports whether err is an answer rather than a failure: a
// transaction goes on after a change that gave it and wrote nothing.
func isAnswer(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict)
}

func (b *batcher) transaction(f func(*session) error) (err error) {
	b.using.Lock()
	defer b.using.Unlock()
	s := &session{ctx: context.Background(), d: b.d, db: b.conn, cache: b.cache}
	if _, err := s.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			// SQLite may have rolled back by itself, as on a full disk.
			b.conn.ExecContext(s.ctx, "ROLLBACK")
		}
	}()
	before, err := b.changes(s)
	if err != nil {
		return err
	}
	if err := f(s); err != nil {
		return err
	}
	after, err := b.changes(s)
	if err != nil {
		return err
	}
	var generation int64
	if after != before {
		if generation, err = b.stamp(s); err != nil {
			return err
		}
	}
	if _, err = s.exec("COMMIT"); err == nil && after != before {
		b.committed(generation)
	}
	return err
}

// close waits for the changes that were asked for and refuses later ones.
func (b *batcher) close() {
	b.mu.Lock()
	b.closed = true
	for b.busy {
		b.idle.Wait()
	}
	b.mu.Unlock()
	b.keeper.end()
	b.cache.close()
	b.conn.Close()
}

// witnessed makes a witness hear of each generation after the one that it knows.
func (b *batcher) witnessed(generation int64, w Witness) {
	b.using.Lock()
	defer b.using.Unlock()
	b.keeper.generation, b.keeper.witness, b.keeper.moved = generation, &w, false
}
