package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/installation"
	"github.com/skypilot-go/sky/internal/server"
)

// A backup that is taken while the server works is put back where none works.
func TestABackupOfAServerIsPutBack(t *testing.T) {
	w := newTeam(t, teamConfig)
	w.cluster("box", "uma", "default")
	file := filepath.Join(t.TempDir(), "backup.tar.gz")
	take := func(who string, keys bool) error {
		var out bytes.Buffer
		if err := w.as(who).Backup(t.Context(), api.BackupBody{WithKeys: keys}, &out); err != nil {
			return err
		}
		return os.WriteFile(file, out.Bytes(), 0o600)
	}
	wants(t, "a user takes one", take("uma", false), "orbidden")
	wants(t, "an administrator takes one", take("ada", true), "")
	if left, _ := filepath.Glob(filepath.Join(w.d.dir, ".backup-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	_, err := Restore(t.Context(), installation.RestoreOptions{Home: w.home, File: file})
	wants(t, "restoring beside a server", err, "works on")

	home := t.TempDir()
	r, err := Restore(t.Context(), installation.RestoreOptions{Home: home, File: file})
	if err != nil || r.ID != w.d.installation || !r.WithKeys || r.KeysAbsent {
		t.Fatalf("restored: %+v, %v", r, err)
	}
	t.Setenv("HOME", home)
	next := &daemon{o: Options{Home: home}, dir: installation.Dir(home), log: slog.New(slog.DiscardHandler)}
	if next.settings, err = loadSettings(home, next.log); err != nil {
		t.Fatal(err)
	}
	if err := next.openStore(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer next.store.Close()
	if c, err := next.store.Clusters().Get(t.Context(), "box"); err != nil || c.Hash != "box-hash" || next.installation != w.d.installation {
		t.Errorf("in the restored database: %+v, %v", c, err)
	}
	if !next.straysHeld(t.Context()) {
		t.Error("strays of a restored database are ended before anybody has looked")
	}
}

// A database that servers share is backed up with its own tools.
func TestADatabaseOfPostgresIsBackedUpByItsOwnTools(t *testing.T) {
	w := newTeam(t, teamConfig)
	err := sharing(w.d).backup(t.Context(), server.BackupOptions{}, func() io.Writer { t.Error("a backup is begun"); return io.Discard })
	wants(t, "a backup", err, "in PostgreSQL")
	t.Setenv(config.EnvDatabase, "postgres://nobody@127.0.0.1:1/none")
	_, err = Restore(context.Background(), installation.RestoreOptions{Home: t.TempDir(), File: "x"})
	wants(t, "a restore", err, "pg_restore")
}

// Without a way out a server that finds another database than it knows does not
// start, and each way out is for its own case.
func TestADatabaseThatIsNotWhatItWasIsTakenOnlyOnRequest(t *testing.T) {
	anew, accept := Options{StartAnew: true}, Options{AcceptDatabase: true}
	for _, tt := range []struct {
		name string
		o    Options
		loss string // what is done to the database
		want string
	}{
		{"in order", Options{}, "", ""},
		{"in order, and to be begun anew", anew, "", "leave --start-anew out"},
		{"in order, and accepted", accept, "", ""},
		{"missing", Options{}, "missing", "Nothing was changed"},
		{"missing, and accepted", accept, "missing", "Nothing was changed"},
		{"missing, and begun anew", anew, "missing", ""},
		{"older", Options{}, "older", "Nothing was changed"},
		{"older, and accepted", accept, "older", ""},
		{"older, and begun anew", anew, "older", ""},
		{"damaged, and accepted", accept, "damaged", "Nothing was changed"},
		{"damaged, and begun anew", anew, "damaged", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("HOME", home)
			data := installation.Database(home)
			if err := os.MkdirAll(filepath.Dir(data), 0o700); err != nil {
				t.Fatal(err)
			}
			open := func(o Options) (*daemon, error) {
				o.Home = home
				d := &daemon{o: o, dir: filepath.Dir(data), log: slog.New(slog.DiscardHandler)}
				var err error
				if d.settings, err = loadSettings(home, d.log); err != nil {
					t.Fatal(err)
				}
				return d, d.openStore(t.Context())
			}
			first, err := open(Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := first.store.Close(); err != nil {
				t.Fatal(err)
			}
			switch tt.loss {
			case "missing":
				err = os.Remove(data)
			case "damaged":
				err = os.WriteFile(data, []byte(strings.Repeat("no database", 1000)), 0o600)
			case "older":
				err = installation.Of(home).Note(installation.File, installation.Mark{ID: first.installation, Generation: 1000})
			}
			if err != nil {
				t.Fatal(err)
			}
			d, err := open(tt.o)
			wants(t, "the second start", err, tt.want)
			if lost, ok := errors.AsType[*installation.LostError](err); tt.loss != "" && err != nil && (!ok || string(lost.Loss) != tt.loss) {
				t.Errorf("it is said to be %+v", lost)
			}
			if err != nil {
				return
			}
			defer d.store.Close()
			if held := d.straysHeld(t.Context()); held != (tt.loss != "" || tt.o.AcceptDatabase) {
				t.Errorf("strays are held: %t", held)
			}
			if kept, _ := filepath.Glob(filepath.Join(filepath.Dir(data), "*", "sky.db")); (len(kept) > 0) != (tt.o.StartAnew && tt.loss != "missing") {
				t.Errorf("what was there before is kept as %v", kept)
			}
		})
	}
}
