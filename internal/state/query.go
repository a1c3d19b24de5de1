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

// once is the session for a query whose text depends on a filter that seldom
// comes again: it is not kept prepared.
func (s *session) once() *session {
	q := *s
	q.cache = nil
	return &q
}

// varying is the session for a query whose text depends on a filter of which
// there are a few: the latest of them are kept prepared.
func (s *session) varying() *session {
	q := *s
	q.cache = s.cache.varying()
	return &q
}

// exec runs a statement and reports how many rows it changed.
func (s *session) exec(query string, args ...any) (int64, error) {
	ctx, cancel := s.within()
	defer cancel()
	query = s.d.rebind(query)
	st, err := s.cache.get(ctx, s.db, query)
	if err != nil {
		return 0, err
	}
	defer s.cache.done(st)
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
	defer s.cache.done(st) // its rows keep it open
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
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.limit == 0 {
		// To be able to end a query costs goroutines, and one row of a file is
		// there sooner than they are.
		ctx = context.WithoutCancel(ctx)
	}
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
	mu    sync.Mutex
	kept  map[string]*statement
	most  int         // how many are kept; 0: all
	other *statements // those whose text varies
}

// statement is a prepared query; what is kept of it is guarded by statements.mu.
type statement struct {
	*sql.Stmt
	users   int  // who are about to run it
	dropped bool // the last of them closes it
}

// mostVarying is how many queries whose text varies are kept prepared: on each
// connection each takes some 10 KB.
const mostVarying = 32

func newStatements() *statements {
	return &statements{kept: map[string]*statement{}, other: &statements{kept: map[string]*statement{}, most: mostVarying}}
}

func (c *statements) varying() *statements {
	if c == nil {
		return nil
	}
	return c.other
}

// get is the prepared form of a query, to be given back with done once it has
// been started; nil means: run the text.
func (c *statements) get(ctx context.Context, db querier, query string) (*statement, error) {
	if c == nil {
		return nil, nil
	}
	if st := c.take(query); st != nil {
		return st, nil
	}
	// To prepare may take waiting for a connection, and whoever has one may be about
	// to ask for c: it must be free meanwhile.
	prepared, err := db.PrepareContext(context.WithoutCancel(ctx), query)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.kept[query]
	if st == nil {
		if st = (&statement{Stmt: prepared}); c.most > 0 && len(c.kept) >= c.most {
			c.drop()
		}
		c.kept[query] = st
	} else { // somebody else was faster
		prepared.Close()
	}
	st.users++
	return st, nil
}

// take is the prepared form of a query, if it is kept.
func (c *statements) take(query string) *statement {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.kept[query]
	if st != nil {
		st.users++
	}
	return st
}

// drop makes room: it takes any, for what is in use comes back at once.
func (c *statements) drop() {
	for query, st := range c.kept {
		delete(c.kept, query)
		if st.dropped = true; st.users == 0 {
			st.Close()
		}
		return
	}
}

func (c *statements) done(st *statement) {
	if st == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.users--; st.users == 0 && st.dropped {
		st.Close()
	}
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
	c.other.close()
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
