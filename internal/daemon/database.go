package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/internal/installation"
	"github.com/skypilot-go/sky/internal/state"
)

// openStore opens the database that the configuration names, or else the file
// of this server, if it is the one that this home folder knows.
func (d *daemon) openStore(ctx context.Context) error {
	c := d.settings.current()
	address := c.DatabaseURI()
	kind := installation.File
	if address != "" {
		kind = installation.PostgreSQL
		if err := c.CheckControllersBesideDatabase(); err != nil {
			return err
		}
	}
	memory := installation.Of(d.o.Home)
	was, err := memory.Mark(kind)
	if err != nil {
		return err
	}
	trace := ""
	if kind == installation.File && was == nil {
		trace = memory.Trace()
	}
	accept := func(found state.Found) error { return d.accept(kind, was, found, trace) }
	if kind == installation.PostgreSQL {
		if d.store, err = state.OpenPostgresIf(ctx, address, accept); err != nil {
			return fmt.Errorf("opening the database (from %s): %w", c.Origin("db"), err)
		}
	} else if d.store, err = state.OpenIf(ctx, installation.Database(d.o.Home), accept); err != nil {
		return err
	}
	if err := d.claim(ctx, memory, kind, was); err != nil {
		return errors.Join(err, d.store.Close())
	}
	return nil
}

// accept refuses a database that is not what this home folder knows, unless it was
// said to go on with it or to begin anew.
func (d *daemon) accept(kind installation.Kind, was *installation.Mark, found state.Found, trace string) error {
	d.unchecked = !found.Checked
	lost := installation.Judge(kind, was, found)
	if lost == nil {
		lost = installation.JudgeNew(found, trace)
	}
	switch {
	case lost == nil && d.o.StartAnew:
		return fmt.Errorf("the database %s is in order, so nothing is started anew: leave --start-anew out", found.Where)
	case lost == nil:
		return nil
	case d.o.AcceptDatabase && lost.Loss.Acceptable():
		d.log.Warn("the database is taken as it is", "database", found.Where, "loss", lost.Loss, "generation", found.Generation, "last_seen", lost.Was.Generation)
		return nil
	case d.o.StartAnew && lost.Renewable():
		if kind == installation.File {
			dir, err := installation.SetAside(d.o.Home, time.Now())
			if err != nil {
				return err
			}
			d.log.Warn("a new database is begun", "database", found.Where, "loss", lost.Loss, "kept", dir)
		}
		return nil
	}
	return lost
}

// claim makes the database this installation's if it is new, and remembers whose
// it is.
func (d *daemon) claim(ctx context.Context, memory *installation.Memory, kind installation.Kind, was *installation.Mark) error {
	if was == nil {
		was = &installation.Mark{ID: uuid.NewString()}
	}
	id, generation, err := d.store.Claim(ctx, was.ID, was.Generation)
	if err != nil {
		return err
	}
	d.installation = id
	d.note = func(generation int64) error {
		err := memory.Note(kind, installation.Mark{ID: id, Generation: generation, At: time.Now()})
		if err != nil {
			d.log.Error("the database's generation is not noted beside it", "err", err)
		}
		return err
	}
	if err := d.note(generation); err != nil {
		return err
	}
	d.store.Witness(generation, state.Witness{Keep: d.note, Saw: func(generation int64) { memory.Saw(id, generation) }})
	if d.o.AcceptDatabase {
		if err := d.store.Recovered(ctx); err != nil {
			return err
		}
	}
	if d.o.StartAnew || d.o.AcceptDatabase { // what runs may be known to nobody but its tags
		return d.store.Settings().Set(ctx, installation.StraysHeld, []byte("recovered"))
	}
	return nil
}

// advance moves the generation of a database that does not do so by itself.
func (d *daemon) advance(ctx context.Context) {
	if !d.store.Shared() {
		return
	}
	generation, err := d.store.Advance(ctx)
	if err != nil {
		if ctx.Err() == nil {
			d.log.WarnContext(ctx, "the database's generation was not moved on", "err", err)
		}
		return
	}
	_ = d.note(generation) // which says so itself
}

// checkDatabase looks through a database that was too large to do so before the
// start.
func (d *daemon) checkDatabase(ctx context.Context) {
	if !d.unchecked {
		return
	}
	if err := d.store.Check(ctx); err != nil && ctx.Err() == nil {
		d.log.ErrorContext(ctx, "the database is damaged: stop the server (sky api stop) and restore a backup (sky api restore FILE)", "err", err)
	}
}
