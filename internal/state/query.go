package state

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"
)

// session runs queries, inside a transaction or outside of any. Queries are
// written with "?" for each argument; both databases understand them.
type session struct {
	ctx   context.Context // of this one use: a session is never kept
	d     *dialect
	db    querier
	cache *statements   // nil: db keeps statements prepared by itself
	limit time.Duration // how long one query may take; 0: as long as ctx lets it
	// patient: a question to a database that is away is asked again.
	patient bool
}

// within is the context of one query.
func (s *session) within() (context.Context, context.CancelFunc) {
	if s.limit == 0 {
		return s.ctx, func() {}
	}
	return context.WithTimeoutCause(s.ctx, s.limit, errSlow)
}

var errSlow = errors.New("the database does not answer in time")

// querier is a *sql.DB, *sql.Conn or *sql.Tx.
type querier interface {
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}

// once is the session for a query whose text depends on a filter: it is not
// kept prepared.
func (s *session) once() *session {
	q := *s
	q.cache = nil
	return &q
}

// exec runs a statement and tells how many rows it changed.
func (s *session) exec(query string, args ...any) (int64, error) {
	ctx, cancel := s.within()
	defer cancel()
	query = s.d.rebind(query)
	st, err := s.cache.get(ctx, s.db, query)
	if err != nil {
		return 0, err
	}
	var res sql.Result
	if st != nil {
		res, err = st.ExecContext(ctx, args...)
	} else {
		res, err = s.db.ExecContext(ctx, query, args...)
	}
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (s *session) query(ctx context.Context, query string, args []any) (*sql.Rows, error) {
	query = s.d.rebind(query)
	st, err := s.cache.get(ctx, s.db, query)
	if err != nil {
		return nil, err
	}
	if st != nil {
		return st.QueryContext(ctx, args...)
	}
	return s.db.QueryContext(ctx, query, args...)
}

// ask runs f, which only reads, until it gets through.
func (s *session) ask(f func() error) error {
	if !s.patient {
		return f()
	}
	return patient(s.ctx, f)
}

// one scans a single row; [ErrNotFound] if there is none.
func (s *session) one(dest []any, query string, args ...any) error {
	return s.ask(func() error { return s.oneOnce(dest, query, args) })
}

func (s *session) oneOnce(dest []any, query string, args []any) error {
	ctx, cancel := s.within()
	defer cancel()
	rows, err := s.query(ctx, query, args)
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return err
		}
		return ErrNotFound
	}
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	return rows.Close()
}

// all scans every row into a new T through its field list.
func all[T any](s *session, fields func(*T) []any, query string, args ...any) (list []*T, err error) {
	err = s.ask(func() error {
		list, err = allOnce(s, fields, query, args)
		return err
	})
	return list, err
}

func allOnce[T any](s *session, fields func(*T) []any, query string, args []any) ([]*T, error) {
	ctx, cancel := s.within()
	defer cancel()
	rows, err := s.query(ctx, query, args)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []*T
	for rows.Next() {
		v := new(T)
		if err := rows.Scan(fields(v)...); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// statements keeps the prepared form of queries. A nil one keeps none.
type statements struct {
	mu   sync.Mutex
	kept map[string]*sql.Stmt
}

func newStatements() *statements { return &statements{kept: map[string]*sql.Stmt{}} }

// get is the prepared form of a query; nil means: run the text.
func (c *statements) get(ctx context.Context, db querier, query string) (*sql.Stmt, error) {
	if c == nil {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.kept[query]; st != nil {
		return st, nil
	}
	st, err := db.PrepareContext(context.WithoutCancel(ctx), query)
	if err != nil {
		return nil, err
	}
	c.kept[query] = st
	return st, nil
}

func (c *statements) close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.kept {
		st.Close()
	}
	clear(c.kept)
}

// values turns a list of pointers into a list of what they point to.
func values[T any](in []*T) []T {
	out := make([]T, len(in))
	for i, v := range in {
		out[i] = *v
	}
	return out
}

// anys widens a list for use as arguments.
func anys[T any](in []T) []any {
	out := make([]any, len(in))
	for i, v := range in {
		out[i] = v
	}
	return out
}
