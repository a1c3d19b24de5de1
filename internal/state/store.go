package state

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/envelope"
)

// Store is an open database. Its methods, and those of the stores it hands
// out, may be called concurrently.
type Store struct {
	db *database
	// The database's clock when the store was opened, and ours.
	theirs, ours time.Time
	ring         *atomic.Pointer[envelope.Ring] // of nil: locked
	shared       bool                           // see AsShared
}

// Open opens the SQLite file at path and brings its schema up to date. The
// file is made if it does not exist, readable for its owner only. A file that
// is damaged, locked, read-only or of a newer sky is an error that says what
// to do.
func Open(ctx context.Context, path string) (*Store, error) { return OpenIf(ctx, path, nil) }

// OpenIf is Open unless accept, which hears what the file is before anything in
// it is changed, returns an error: that is returned then.
func OpenIf(ctx context.Context, path string, accept func(Found) error) (*Store, error) {
	if accept != nil {
		found, err := Inspect(ctx, path)
		if err != nil {
			return nil, sqliteDialect.explain(path, err)
		}
		if err := accept(found); err != nil {
			return nil, err
		}
	}
	db, err := openSQLite(ctx, path)
	if err != nil {
		return nil, sqliteDialect.explain(path, err)
	}
	return open(ctx, db)
}

func open(ctx context.Context, db *database) (*Store, error) {
	s := &Store{db: db, ring: new(atomic.Pointer[envelope.Ring])}
	if err := migrate(ctx, db); err != nil {
		return nil, errors.Join(db.d.explain(db.where, err), db.close())
	}
	if db.tidy != nil {
		db.tidy(ctx)
	}
	if err := s.setClock(ctx); err != nil {
		return nil, errors.Join(db.d.explain(db.where, err), db.close())
	}
	return s, nil
}

// Close waits for changes under way and closes the database.
func (s *Store) Close() error { return s.db.close() }

// Shared reports whether servers on several machines can have this database
// open.
func (s *Store) Shared() bool { return s.shared || s.db.d == postgresDialect }

// Now is the time by the database's clock: leases of servers whose own clocks
// differ are compared by it.
func (s *Store) Now() time.Time {
	if s.theirs.IsZero() {
		return time.Now()
	}
	return s.theirs.Add(time.Since(s.ours))
}

func (s *Store) setClock(ctx context.Context) error {
	if !s.Shared() {
		return nil
	}
	var us int64
	before := time.Now()
	err := s.db.read(ctx).one([]any{&us}, "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)")
	s.ours = time.Now()
	s.theirs = time.UnixMicro(us).Add(s.ours.Sub(before) / 2)
	return err
}

// write runs f in a transaction and returns when it is on disk; see
// [batcher.write] for what f must keep to.
func (s *Store) write(ctx context.Context, f func(*session) error) error {
	return s.explain(s.db.write(ctx, f))
}

// writeAgain is write for a change that does no harm when it is made twice: one
// whose commit was not answered is made again.
func (s *Store) writeAgain(ctx context.Context, f func(*session) error) error {
	for {
		err := s.db.write(ctx, f)
		if !errors.Is(err, errUnsure) || ctx.Err() != nil {
			return s.explain(err)
		}
	}
}

// createOnce is write for a row with a key of its own, whose f is [ErrConflict]
// if it is there: after a commit that was not answered that means success.
func (s *Store) createOnce(ctx context.Context, f func(*session) error) error {
	unsure := false
	for {
		err := s.db.write(ctx, f)
		switch {
		case errors.Is(err, errUnsure) && ctx.Err() == nil:
			unsure = true
		case unsure && errors.Is(err, ErrConflict):
			return nil
		default:
			return s.explain(err)
		}
	}
}

// read is a session for queries that change nothing.
func (s *Store) read(ctx context.Context) *session { return s.db.read(ctx) }

func (s *Store) explain(err error) error {
	if err == nil || isAnswer(err) || errors.Is(err, context.Canceled) {
		return err
	}
	return s.db.d.explain(s.db.where, err)
}

// The stores, one for each noun.

func (s *Store) Clusters() *Clusters { return &Clusters{s} }
func (s *Store) Requests() *Requests { return &Requests{s} }
func (s *Store) Users() *Users       { return &Users{s} }
func (s *Store) Leases() *Leases     { return &Leases{s} }
func (s *Store) Attempts() *Attempts { return &Attempts{s} }
func (s *Store) Settings() *Settings { return &Settings{s} }
func (s *Store) Tokens() *Tokens     { return &Tokens{s} }
func (s *Store) Logins() *Logins     { return &Logins{s} }
func (s *Store) Audit() *Audit       { return &Audit{s} }

// LogValue keeps bodies and results, which may hold secrets, out of logs.
func (r Request) LogValue() slog.Value {
	return slog.GroupValue(slog.String("id", r.ID), slog.String("name", r.Name), slog.String("status", string(r.Status)))
}

// String is the request without its contents.
func (r Request) String() string { return r.Name + " " + r.ID + " " + string(r.Status) }

// LogValue keeps certificates and task files out of logs.
func (c Cluster) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", c.Name), slog.String("hash", c.Hash), slog.String("status", string(c.Status)))
}

// String is the cluster without its contents.
func (c Cluster) String() string { return c.Name + " " + c.Hash + " " + string(c.Status) }

// update reads a row, lets f change it and saves it, again and again until nobody
// interfered. An error of read or f ends it and is returned.
func update[T any](read func() (*T, error), f, save func(*T) error) (*T, error) {
	for {
		row, err := read()
		if err != nil {
			return nil, err
		}
		if err := f(row); err != nil {
			return nil, err
		}
		if err = save(row); err == nil {
			return row, nil
		}
		if !errors.Is(err, ErrConflict) && !errors.Is(err, errUnsure) {
			return nil, err
		}
	}
}
