package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// checkLimit bounds how long the check of a file may hold up the start of a
// server; what is not through by then is looked at later, by [Store.Check].
const checkLimit = 5 * time.Second

// Inspect says what the SQLite file at path is. It changes nothing: the content
// of a write-ahead log is read and stays where it is.
func Inspect(ctx context.Context, path string) (Found, error) {
	f := Found{Where: path}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Missing, f.Checked = true, true
		return f, nil
	case err != nil:
		return f, fmt.Errorf("looking at the state file: %w", err)
	case !info.Mode().IsRegular():
		return f, nil // opening it says so
	case info.Size() == 0:
		f.Empty, f.Checked = true, true
		return f, nil
	}
	db, err := sql.Open("sqlite", dsn(path, "mode=ro", everyConnection))
	if err != nil {
		return f, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	q := &session{ctx: ctx, d: sqliteDialect, db: db}
	err = inspect(ctx, q, &f)
	if isDamage(err) {
		f.Damage, err = err, nil
	}
	return f, err
}

func inspect(ctx context.Context, q *session, f *Found) error {
	var tables int64
	if err := q.one([]any{&tables}, "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = 'settings'"); err != nil {
		return err
	}
	if tables == 0 {
		f.Empty = true
	} else if err := foundIn(q, f); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	err := check(ctx, q.db)
	if ctx.Err() != nil && !isDamage(err) {
		return nil
	}
	f.Checked = true
	return err
}

// damageError is what a check of the content found.
type damageError struct{ what string }

func (e *damageError) Error() string { return e.what }

func isDamage(err error) bool {
	if _, ok := errors.AsType[*damageError](err); ok {
		return true
	}
	code := sqliteCode(err) & 0xff
	return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
}

// check looks through the whole file for damage.
func check(ctx context.Context, db querier) error {
	rows, err := db.QueryContext(ctx, "PRAGMA quick_check(1)")
	if err != nil {
		return err
	}
	defer rows.Close()
	var what string
	for rows.Next() {
		if err := rows.Scan(&what); err != nil {
			return err
		}
		if what != "ok" {
			return &damageError{what}
		}
	}
	return rows.Err()
}

// Check looks through a whole SQLite file for damage, which takes seconds for
// gigabytes and holds nobody up. A database that looks after itself is in order.
func (s *Store) Check(ctx context.Context) error {
	if s.Shared() {
		return nil
	}
	return s.explain(check(ctx, s.read(ctx).db))
}
