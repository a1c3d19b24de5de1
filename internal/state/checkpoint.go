package state

import (
	"context"
	"os"
	"strconv"
	"sync"
	"time"
)

// A file that was just made lives in its write-ahead log only, for SQLite moves
// the log into the main file when it has grown, by default. Here it is moved soon
// after the last change, so that losing the log loses seconds and not the
// installation. Waiting for the disk at each commit stays as it is.
const (
	// checkpointQuiet is how long after the last change the log is moved, and
	// checkpointMost how long after the first while changes go on.
	checkpointQuiet = 2 * time.Second
	checkpointMost  = 15 * time.Second
	// checkpointSize is by how much the log may grow before it is moved at once.
	checkpointSize = 4 << 20
	// vacuumPages is how many free pages each checkpoint gives back at most.
	vacuumPages = 2000
)

// keeper moves the write-ahead log of a batcher's file into the main file, and
// sees to it that a witness hears of each generation. Its fields are guarded by
// batcher.using.
type keeper struct {
	log     string // the write-ahead log
	limit   int64  // the log is moved when it is as large
	changed chan struct{}
	stop    chan struct{}
	ended   sync.Once
	done    sync.WaitGroup

	moved      bool // since the last change that the witness keeps
	generation int64
	witness    *Witness // nil: there is none
}

func newKeeper(path string) *keeper {
	return &keeper{log: path + "-wal", limit: checkpointSize, changed: make(chan struct{}, 1), stop: make(chan struct{})}
}

// end stops keep; a store may be closed more than once.
func (k *keeper) end() {
	k.ended.Do(func() { close(k.stop) })
	k.done.Wait()
}

// keep moves the log after changes until the batcher is closed.
func (b *batcher) keep() {
	k := b.keeper
	quiet := time.NewTimer(time.Hour)
	defer quiet.Stop()
	for {
		select {
		case <-k.changed:
		case <-k.stop:
			return
		}
		last := time.Now().Add(checkpointMost)
		for waiting := true; waiting; {
			quiet.Reset(min(checkpointQuiet, time.Until(last)))
			select {
			case <-k.changed:
			case <-quiet.C:
				waiting = false
			case <-k.stop:
				return
			}
		}
		b.using.Lock()
		b.checkpoint()
		b.using.Unlock()
	}
}

// changes is how many rows the connection has changed in its life.
func (b *batcher) changes(s *session) (n int64, err error) {
	err = s.one([]any{&n}, "SELECT total_changes()")
	return n, err
}

// stamp gives a transaction that has changed something a new generation; 0: it has
// none. b.using is held.
func (b *batcher) stamp(s *session) (int64, error) {
	if b.keeper.witness == nil {
		return 0, nil
	}
	return advance(s, b.keeper.generation)
}

// committed is called after each transaction that changed something, with the
// generation that it carries. b.using is held.
func (b *batcher) committed(generation int64) {
	k := b.keeper
	if generation > 0 {
		k.generation = generation
		k.witness.Saw(generation)
		if k.moved {
			k.moved = k.witness.Keep(generation) != nil
		}
	}
	select {
	case k.changed <- struct{}{}:
	default:
	}
	if info, err := os.Stat(k.log); err == nil && info.Size() >= k.limit {
		b.checkpoint()
	}
}

// eachRow runs a statement that works as far as its rows are read, and returns how
// many there were.
func (b *batcher) eachRow(ctx context.Context, statement string) (n int) {
	rows, err := b.conn.QueryContext(ctx, statement)
	if err != nil {
		return 0
	}
	defer rows.Close()
	for rows.Next() {
		n++
	}
	return n
}

// checkpoint moves the log into the main file as far as nobody reads it. A failure
// is no loss: the log has it all, and the next one comes. b.using is held.
func (b *batcher) checkpoint() {
	k := b.keeper
	ctx := context.Background()
	// Pages that are free go back to the file system, in a file that was made so.
	if n := b.eachRow(ctx, "PRAGMA incremental_vacuum("+strconv.Itoa(vacuumPages)+")"); n >= vacuumPages { // a page a row
		defer func() {
			select {
			case k.changed <- struct{}{}: // there may be more
			default:
			}
		}()
	}
	// Nobody is waited for: a reader may take long, and writers wait here.
	if _, err := b.conn.ExecContext(ctx, "PRAGMA busy_timeout(0)"); err == nil {
		b.eachRow(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
		_, _ = b.conn.ExecContext(ctx, "PRAGMA busy_timeout("+strconv.Itoa(busyTimeout)+")")
	}
	k.moved = true
	k.limit = checkpointSize
	if info, err := os.Stat(k.log); err == nil && info.Size() > 0 {
		// A reader holds a part of it, or it is not cut off: what was changed since
		// is seen by the next timer, or when as much again has come.
		k.limit += info.Size()
	}
}
