package state

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3"
)

// A SQLite file counts the changes of what [Clusters.List] shows, by triggers, so
// that no change escapes, whichever process makes it. PostgreSQL does not: there
// every change of any cluster would wait for the row with the number.

// versionsMigration makes the count; it is for SQLite only, and the schema's
// version 9 there.
var versionsMigration = goose.NewGoMigration(9,
	&goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		return execAll(ctx, tx, append([]string{
			"CREATE TABLE versions (clusters BIGINT NOT NULL)",
			"INSERT INTO versions VALUES (1)",
		}, eachVersionTrigger(func(name, on string) string {
			return "CREATE TRIGGER " + name + " AFTER " + on + " BEGIN UPDATE versions SET clusters = clusters + 1; END"
		})...))
	}},
	&goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		return execAll(ctx, tx, append(eachVersionTrigger(func(name, _ string) string { return "DROP TRIGGER " + name }),
			"DROP TABLE versions"))
	}},
)

// eachVersionTrigger is f of the name of each trigger and what sets it off.
func eachVersionTrigger(f func(name, on string) string) (list []string) {
	for _, table := range []string{"clusters", "cluster_events"} {
		for _, verb := range []string{"insert", "update", "delete"} {
			list = append(list, f(table+"_"+verb+"_counts", verb+" ON "+table))
		}
	}
	return list
}

func execAll(ctx context.Context, tx *sql.Tx, statements []string) error {
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// Version is a number that grows with every change of what [Clusters.List] shows:
// as long as it stays, so does every list. It is 0 if this database does not
// count.
func (t *Clusters) Version(ctx context.Context) (n int64, err error) {
	if t.s.Shared() {
		return 0, nil
	}
	err = t.s.read(ctx).one([]any{&n}, "SELECT clusters FROM versions")
	return n, t.s.explain(err)
}
