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

// migrate brings the schema up to date; one that is newer than this program
// is left alone and refused.
func migrate(ctx context.Context, db *database) error {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	options := append([]goose.ProviderOption{
		goose.WithDisableGlobalRegistry(true),
		goose.WithTableName("schema_version"),
	}, db.options...)
	p, err := goose.NewProvider(db.d.goose, db.migrate, dir, options...)
	if err != nil {
		return err
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
	if _, err := p.Up(ctx); err != nil {
		// Another process may have done the same at the same moment.
		if _, again := p.Up(ctx); again != nil {
			return errors.Join(err, again)
		}
	}
	return nil
}
