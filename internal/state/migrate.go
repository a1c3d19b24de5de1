package state

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// NewerSchemaError means that a newer sky has changed the database since.
type NewerSchemaError struct {
	Where       string // path or address
	Found, Know int64  // schema versions
}

func (e *NewerSchemaError) Error() string {
	return fmt.Sprintf("the state in %s was written by a newer sky (schema %d, this one knows up to %d): use that version, or a copy of the state from before the upgrade",
		e.Where, e.Found, e.Know)
}

// provider knows the migrations and how to run them on db.
func provider(db *database) (*goose.Provider, error) {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	options := append([]goose.ProviderOption{
		goose.WithDisableGlobalRegistry(true),
		goose.WithTableName("schema_version"),
	}, db.options...)
	return goose.NewProvider(db.d.goose, db.migrate, dir, options...)
}

// migrate brings the schema up to date; one that is newer than this program
// is left alone and refused. Servers that start together take turns: on
// PostgreSQL by a lock of the database, on SQLite by that of a file beside it,
// because what is missing is looked up before anything in the database is
// locked.
func migrate(ctx context.Context, db *database) (err error) {
	p, err := provider(db)
	if err != nil {
		return err
	}
	// Looking makes the table of versions, so that needs the turn as well.
	if db.turn != nil {
		done, err := db.turn(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, done()) }()
	}
	found, know, err := p.GetVersions(ctx)
	if err != nil {
		return err
	}
	if found > know {
		return &NewerSchemaError{Where: db.where, Found: found, Know: know}
	}
	if found == know {
		return nil
	}
	_, err = p.Up(ctx)
	return err
}

// Downgrade takes the schema back to a version, for an older sky to use. What
// only the newer schema has room for is lost. No server may be using the
// database, and the store must be closed afterwards.
func (s *Store) Downgrade(ctx context.Context, version int64) error {
	p, err := provider(s.db)
	if err != nil {
		return err
	}
	_, err = p.DownTo(ctx, version)
	return s.explain(err)
}
