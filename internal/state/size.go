package state

import (
	"context"
	"os"
)

// Size is how many bytes the database takes, and how many more its write-ahead
// log; that of PostgreSQL is not told.
func (s *Store) Size(ctx context.Context) (database, log int64, err error) {
	if s.db.d == postgresDialect {
		err = s.db.read(ctx).one([]any{&database}, "SELECT pg_database_size(current_database())")
		return database, 0, s.explain(err)
	}
	info, err := os.Stat(s.db.where)
	if err != nil {
		return 0, 0, err
	}
	if wal, err := os.Stat(s.db.where + "-wal"); err == nil {
		log = wal.Size()
	}
	return info.Size(), log, nil
}
