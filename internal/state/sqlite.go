package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

var sqliteDialect = &dialect{
	name:   "sqlite",
	goose:  goose.DialectSQLite3,
	rebind: func(q string) string { return q },
	glob: func(column, pattern string) (string, any) {
		return column + " GLOB ?", strings.ReplaceAll(pattern, "[!", "[^")
	},
	prefixed: func(column, prefix string) (string, []any) {
		return column + " >= ? AND " + column + " < ?", []any{prefix, prefix + "\U0010FFFF"}
	},
	explain: explainSQLite,
}

// busyTimeout is for how many milliseconds a lock of another process is waited for.
const busyTimeout = 10_000

// Every connection gets these. The log is moved into the main file by the batcher. The writer waits for the disk at each commit:
// what a store has returned survives a power cut.
var (
	everyConnection = []string{"busy_timeout(" + strconv.Itoa(busyTimeout) + ")", "foreign_keys(1)", "temp_store(2)"}
	writerOnly      = []string{"journal_mode(WAL)", "synchronous(FULL)", "journal_size_limit(67108864)", "wal_autocheckpoint(0)", "secure_delete(fast)"}
	readerOnly      = []string{"query_only(1)"}
	// newFile is for a file without content. On any other it would be written at each
	// start, also on one of a newer sky, which is left alone.
	newFile = []string{"auto_vacuum(INCREMENTAL)"}
)

// openSQLite opens the file at path, making it (0600) and its folder (0700)
// if needed.
func openSQLite(ctx context.Context, path string) (*database, error) {
	if err := prepareFile(path); err != nil {
		return nil, err
	}
	pragmas := writerOnly
	if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		pragmas = slices.Concat(newFile, writerOnly)
	}
	w, err := sql.Open("sqlite", dsn(path, "_txlock=immediate", everyConnection, pragmas))
	if err != nil {
		return nil, err
	}
	w.SetMaxOpenConns(2) // one for the writer, one for the schema, which is ready before
	conn, err := w.Conn(ctx)
	if err != nil {
		w.Close()
		return nil, err
	}
	r, err := sql.Open("sqlite", dsn(path, "", everyConnection, readerOnly))
	if err != nil {
		w.Close()
		return nil, err
	}
	readers := max(4, 2*runtime.GOMAXPROCS(0))
	r.SetMaxOpenConns(readers)
	r.SetMaxIdleConns(readers)

	batch := newBatcher(conn, sqliteDialect, path)
	kept := newStatements()
	return &database{
		d:       sqliteDialect,
		where:   path,
		migrate: w,
		options: []goose.ProviderOption{goose.WithGoMigrations(versionsMigration)},
		turn:    func(ctx context.Context) (func() error, error) { return migrationTurn(ctx, path) },
		write:   batch.write,
		reserve: batch.keepReserve,
		read: func(ctx context.Context) *session {
			return &session{ctx: ctx, d: sqliteDialect, db: r, cache: kept}
		},
		witnessed: batch.witnessed,
		tidy:      func(ctx context.Context) { makeIncremental(ctx, w, path, incrementalUpTo) },
		clear: func(ctx context.Context) error {
			return batch.alone(ctx, func(s *session) error {
				batch.using.Lock()
				defer batch.using.Unlock()
				if _, err := s.exec("VACUUM"); err != nil {
					return err
				}
				// What was written before it stands in the log until that is cut.
				_, err := s.exec("PRAGMA wal_checkpoint(TRUNCATE)")
				batch.keeper.moved = true
				return err
			})
		},
		close: func() error {
			kept.close()
			err := r.Close()
			batch.close()
			return errors.Join(err, w.Close())
		},
	}, nil
}

// migrationTurn waits for the lock of a file beside the database. The file
// stays: one that is removed could be locked twice.
func migrationTurn(ctx context.Context, path string) (func() error, error) {
	l := flock.New(path + ".migration.lock")
	if _, err := l.TryLockContext(ctx, 10*time.Millisecond); err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for another process that brings %s up to date: %w", path, err), l.Close())
	}
	return l.Close, nil
}

func dsn(path, extra string, pragmas ...[]string) string {
	u := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(path)}
	if !strings.HasPrefix(u.Path, "/") { // C:/… on Windows
		u.Path = "/" + u.Path
	}
	var q []string
	if extra != "" {
		q = append(q, extra)
	}
	for _, list := range pragmas {
		for _, p := range list {
			q = append(q, "_pragma="+p)
		}
	}
	u.RawQuery = strings.Join(q, "&")
	return u.String()
}

// prepareFile makes the database file readable for its owner only, before
// SQLite makes the files beside it with the same permissions.
func prepareFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making the folder for the state: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		return f.Close()
	}
	if !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("making the state file: %w", err)
	}
	// One that exists is not opened here: closing it again would drop the locks
	// of another store in this process.
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("looking at the state file: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("the state file %s is not a file: move it away, or choose another path", path)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		if err := os.Chmod(path, info.Mode().Perm()&0o700); err != nil {
			return fmt.Errorf("others can read the state file: %w", err)
		}
	}
	return nil
}

func sqliteCode(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()
	}
	return 0
}

// explainSQLite says in a user's words what is wrong with the file.
func explainSQLite(path string, err error) error {
	if errors.Is(err, errDiskFull) {
		return fmt.Errorf("no space left for the state file %s; free space on that disk: %w", path, err)
	}
	var what string
	switch code := sqliteCode(err); code & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		what = fmt.Sprintf("the state file %s is damaged or no database: restore a copy of it, or move it (and the -wal and -shm files beside it) away to begin anew", path)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		what = fmt.Sprintf("the state file %s is locked by another process: stop the other API server, or whatever has the file open", path)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		what = fmt.Sprintf("the state file %s cannot be written: check the permissions of the file and its folder, and that the file system is not read-only", path)
	case sqlite3.SQLITE_FULL:
		what = fmt.Sprintf("disk full: no space left for the state file %s; free space on that disk", path)
	case sqlite3.SQLITE_IOERR:
		what = fmt.Sprintf("the disk failed under the state file %s: check its free space, quota and health", path)
	case sqlite3.SQLITE_CANTOPEN:
		what = fmt.Sprintf("the state file %s cannot be opened: check that it is a file and that its folder can be written", path)
	default:
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}
