package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/skypilot-go/sky/api"
)

// ErrShared means that something is for a database in a file only.
var ErrShared = errors.New("the state is in PostgreSQL, which has its own tools for that: pg_dump and pg_restore")

// Snapshot writes the database as it is at one moment into a new file (0600) at
// path. Others go on to read and write meanwhile.
func (s *Store) Snapshot(ctx context.Context, path string) error {
	if s.Shared() {
		return ErrShared
	}
	return s.explain(snapshot(ctx, s.db.where, path))
}

// SnapshotFile is [Store.Snapshot] of a file that no server has open, with what a
// write-ahead log beside it holds. It changes nothing of them.
func SnapshotFile(ctx context.Context, from, path string) error {
	return sqliteDialect.explain(from, snapshot(ctx, from, path))
}

func snapshot(ctx context.Context, from, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("making room for a copy of the database: %w", err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", dsn(from, "mode=ro", everyConnection))
	if err != nil {
		return err
	}
	defer db.Close()
	c, err := db.Conn(ctx)
	if err == nil {
		defer c.Close()
		var mode int
		if err = c.QueryRowContext(ctx, "PRAGMA auto_vacuum").Scan(&mode); err == nil && mode != incremental {
			_, err = c.ExecContext(ctx, "PRAGMA auto_vacuum = INCREMENTAL") // of the copy, which is all that this changes
		}
	}
	if err == nil {
		_, err = c.ExecContext(ctx, "VACUUM INTO ?", path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// Schema is the version of the database's tables.
func (s *Store) Schema(ctx context.Context) (version int64, err error) {
	p, err := provider(s.db)
	if err != nil {
		return 0, err
	}
	version, err = p.GetDBVersion(ctx)
	return version, s.explain(err)
}

// EndAll ends every request that has not ended as failed for that reason, and
// reports how many there were. No server may be at work.
func (t *Requests) EndAll(ctx context.Context, reason []byte) (int, error) {
	now := t.s.Now()
	var n int64
	err := t.s.writeAgain(ctx, func(s *session) (err error) {
		n, err = s.exec("UPDATE requests SET status = ?, error = ?, finished_at = ?, status_msg = '' WHERE "+active,
			string(api.RequestFailed), binary(&reason), instant(&now))
		return err
	})
	return int(n), err
}

// Live is the numbers of the managed jobs that have not ended.
func (t *ManagedJobs) Live(ctx context.Context) ([]int, error) {
	ids, err := all(t.s.read(ctx), func(id *int) []any { return []any{number(id)} }, "SELECT id FROM managed_jobs WHERE schedule <> 'DONE' ORDER BY id")
	return values(ids), t.s.explain(err)
}
