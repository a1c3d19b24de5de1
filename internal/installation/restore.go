package installation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/wholefile"
)

// RestoreOptions say what is restored.
type RestoreOptions struct {
	Home string
	File string // a backup, or a copy of the database file
	// Other allows a backup of another installation than this home folder's.
	Other bool
}

// Restored is what was restored and what became of it.
type Restored struct {
	Header
	File       string `json:"file"`
	Aside      string `json:"aside,omitempty"` // the folder with what was there before
	Requests   int    `json:"requests_ended"`  // that had not ended when the backup was made
	Jobs       []int  `json:"live_jobs"`       // managed jobs that had not
	KeysPut    int    `json:"keys_restored"`
	KeysAbsent bool   `json:"keys_absent"` // the content needs keys that are neither here nor in the backup
}

// StraysHeld is the setting of a database that may know less than what runs: no
// stray is ended before somebody has looked, with sky sweep.
const StraysHeld = "sweep/held"

// Restore puts a backup in the place of the database of a home folder. No server
// may be at work there. What was there is kept aside; until then nothing of it is
// changed, and what a crash leaves half done is done by restoring again.
//
// The database gets a generation of its own. Requests that had not ended when the
// backup was made are ended: they have done their work since, or nobody waits for
// them any more, and they must not do it twice.
func Restore(ctx context.Context, o RestoreOptions) (_ *Restored, err error) {
	memory := Of(o.Home)
	was, err := memory.Mark(File)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(Dir(o.Home), 0o700); err != nil {
		return nil, err
	}
	stage, err := os.MkdirTemp(Dir(o.Home), ".restore-*")
	if err != nil {
		return nil, fmt.Errorf("making room for the backup: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(stage)) }()
	data := filepath.Join(stage, entryData)
	r := &Restored{File: o.File}
	plain, err := isDatabase(o.File)
	switch {
	case err != nil:
		return nil, err
	case plain:
		err = state.SnapshotFile(ctx, o.File, data)
	default:
		r.Header, err = ReadBackup(o.File, stage)
	}
	if err != nil {
		return nil, err
	}
	found, err := state.Inspect(ctx, data)
	switch {
	case err != nil:
		return nil, err
	case found.Damage != nil:
		return nil, &BadBackupError{o.File, fmt.Errorf("the database in it is damaged: %w", found.Damage)}
	case found.ID == "":
		return nil, &BadBackupError{o.File, errors.New("it holds no installation")}
	case was != nil && found.ID != was.ID && !o.Other:
		return nil, fmt.Errorf("%s is of installation %s, and this home folder serves %s, whose machines would not be found any more: "+
			"restore it into another home folder, or add --other-installation", o.File, found.ID, was.ID)
	}
	past := int64(0)
	if was != nil && was.ID == found.ID {
		past = was.Generation
	}
	if err := r.prepare(ctx, data, found.ID, past); err != nil {
		return nil, err
	}
	if r.Aside, err = SetAside(o.Home, time.Now()); err != nil {
		return nil, err
	}
	if err := r.putKeys(o.Home, stage); err != nil {
		return nil, err
	}
	if err := os.Rename(data, Database(o.Home)); err != nil {
		return nil, err
	}
	return r, memory.Note(File, Mark{ID: r.ID, Generation: r.Generation, At: time.Now()})
}

// prepare makes the staged database ready to be worked with.
func (r *Restored) prepare(ctx context.Context, data, id string, past int64) (err error) {
	store, err := state.Open(ctx, data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Check(ctx); err != nil {
		return &BadBackupError{r.File, fmt.Errorf("the database in it is damaged: %w", err)}
	}
	if r.ID, r.Generation, err = store.Claim(ctx, id, past); err != nil {
		return err
	}
	if r.Schema, err = store.Schema(ctx); err != nil {
		return err
	}
	why, err := json.Marshal(&api.ErrorRecord{Type: api.ErrRuntime, Message: "It had not ended when the backup was made that was restored since. Look what became of it, and repeat it if it is still wanted."})
	if err != nil {
		return err
	}
	if r.Requests, err = store.Requests().EndAll(ctx, why); err != nil {
		return err
	}
	if err := store.Recovered(ctx); err != nil {
		return err
	}
	if r.Jobs, err = store.ManagedJobs().Live(ctx); err != nil {
		return err
	}
	return store.Settings().Set(ctx, StraysHeld, []byte("restored"))
}

// putKeys puts the keys of a backup in their places. One that is there and differs
// goes aside.
func (r *Restored) putKeys(home, stage string) error {
	for _, name := range r.Keys {
		at := filepath.Join(home, filepath.FromSlash(name))
		had, herr := os.ReadFile(at)
		key, err := os.ReadFile(filepath.Join(stage, filepath.FromSlash(entryKeys+name)))
		if errors.Is(err, os.ErrNotExist) {
			r.KeysAbsent = r.KeysAbsent || herr != nil
			continue
		}
		if err != nil {
			return err
		}
		if herr == nil && bytes.Equal(had, key) {
			continue
		}
		if herr == nil {
			if r.Aside == "" {
				if r.Aside, err = asideFolder(home, time.Now()); err != nil {
					return err
				}
			}
			if err := wholefile.WriteSynced(filepath.Join(r.Aside, "keys", filepath.FromSlash(name)), had, 0o600); err != nil {
				return err
			}
		}
		if err := wholefile.WriteSynced(at, key, 0o600); err != nil {
			return err
		}
		r.KeysPut++
	}
	return nil
}

// isDatabase reports whether a file is a SQLite database.
func isDatabase(file string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	const magic = "SQLite format 3\x00"
	b := make([]byte, len(magic))
	n, err := io.ReadFull(f, b)
	if err != nil && n == 0 {
		return false, &BadBackupError{file, err}
	}
	return string(b) == magic, nil
}
