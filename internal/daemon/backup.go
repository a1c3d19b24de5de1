package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/installation"
	"github.com/skypilot-go/sky/internal/server"
	"github.com/skypilot-go/sky/internal/state"
)

// backup writes a backup of the database as it is now to the writer that begin
// returns, which is called when nothing but writing is left to fail.
func (d *daemon) backup(ctx context.Context, o server.BackupOptions, begin func() io.Writer) error {
	if d.store.Shared() {
		return &api.Error{Type: api.ErrNotSupported, Message: "This server's state is in PostgreSQL.",
			Hint: "Back the database up with pg_dump, and the key file of each server: docs/administrators.md says how."}
	}
	dir, err := os.MkdirTemp(d.dir, ".backup-*")
	if err != nil {
		return fmt.Errorf("making room for the backup: %w", err)
	}
	defer os.RemoveAll(dir)
	data := filepath.Join(dir, "sky.db")
	h := installation.Header{ID: d.installation, CreatedAt: time.Now().UTC(), Version: api.ProductVersion, WithKeys: o.WithKeys}
	if h.Schema, err = d.store.Schema(ctx); err != nil {
		return err
	}
	// The generation may move on before the snapshot is taken: it is then the
	// snapshot's that counts.
	if err := d.store.Snapshot(ctx, data); err != nil {
		return err
	}
	found, err := state.Inspect(ctx, data)
	if err != nil {
		return err
	}
	if found.Damage != nil {
		return fmt.Errorf("the database is damaged, so there is nothing to back up: %w", found.Damage)
	}
	h.Generation = found.Generation
	if h.Keys, err = installation.Keys(d.o.Home); err != nil {
		return err
	}
	return installation.WriteBackup(begin(), h, d.o.Home, data)
}

// pruneBackups removes what servers that died left of backups and restores.
func (d *daemon) pruneBackups() {
	for _, pattern := range []string{".backup-*", ".restore-*"} {
		left, _ := filepath.Glob(filepath.Join(d.dir, pattern))
		for _, dir := range left {
			_ = os.RemoveAll(dir)
		}
	}
}

// Restore puts a backup in the place of the database of a home folder at which no
// server works.
func Restore(ctx context.Context, o installation.RestoreOptions) (*installation.Restored, error) {
	c, err := config.Load(config.Options{Side: config.Server, Home: o.Home})
	if err != nil {
		return nil, err
	}
	if c.DatabaseURI() != "" {
		return nil, errors.New("this server's state is in PostgreSQL (" + c.Origin("db").Source + "): restore a dump with pg_restore; docs/administrators.md says how")
	}
	dir := installation.Dir(o.Home)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	unlock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return installation.Restore(ctx, o)
}

// straysHeld reports whether strays are to be left alone until somebody has looked.
func (d *daemon) straysHeld(ctx context.Context) bool {
	_, err := d.store.Settings().Get(ctx, installation.StraysHeld)
	return !errors.Is(err, state.ErrNotFound)
}
