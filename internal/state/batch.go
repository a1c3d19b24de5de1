package state

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// batcher is the only writer of a SQLite file. Changes that arrive while a
// commit waits for the disk share the next one, so that many callers cost one
// wait and a single caller waits for nobody.
type batcher struct {
	d     *dialect
	conn  *sql.Conn
	cache *statements

	mu      sync.Mutex
	waiting []*change
	busy    bool // a goroutine is draining waiting
	closed  bool
	idle    *sync.Cond
}

// change is one caller's transaction.
type change struct {
	do   func(*session) error
	done chan error
}

// maxBatch bounds how long the first of a batch waits for the last.
const maxBatch = 256

var errClosed = errors.New("state: the store is closed")

func newBatcher(conn *sql.Conn, d *dialect) *batcher {
	b := &batcher{d: d, conn: conn, cache: newStatements()}
	b.idle = sync.NewCond(&b.mu)
	return b
}

// write runs f in a transaction and returns when it is on disk. f may be run
// more than once. One that returns [ErrNotFound] or [ErrConflict] must have
// changed nothing; after any other error all it did is undone. ctx only bounds
// the wait for the turn: what has begun is finished.
func (b *batcher) write(ctx context.Context, f func(*session) error) error {
	c := &change{do: f, done: make(chan error, 1)}
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
	results := make([]error, len(batch))
	err := b.transaction(func(s *session) error {
		for i, c := range batch {
			results[i] = c.do(s)
			if results[i] != nil && !nothingChanged(results[i]) {
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

func nothingChanged(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict)
}

func (b *batcher) transaction(f func(*session) error) (err error) {
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
	if err := f(s); err != nil {
		return err
	}
	_, err = s.exec("COMMIT")
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
	b.cache.close()
	b.conn.Close()
}
