package installation

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// backedUp writes a backup of a home folder whose database is open.
func (l lives) backedUp(s *state.Store, keys bool) string {
	l.t.Helper()
	dir := l.t.TempDir()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "backup.tar.gz")
	if err := s.Snapshot(context.Background(), data); err != nil {
		l.t.Fatal(err)
	}
	names, err := Keys(l.home)
	if err != nil {
		l.t.Fatal(err)
	}
	var b bytes.Buffer
	h := Header{ID: id, Generation: 1, Schema: 1, CreatedAt: time.Now(), Keys: names, WithKeys: keys}
	if err := errors.Join(WriteBackup(&b, h, l.home, data), os.WriteFile(file, b.Bytes(), 0o600)); err != nil {
		l.t.Fatal(err)
	}
	return file
}

func TestABackupBringsBackWhatWas(t *testing.T) {
	for _, keys := range []bool{true, false} {
		l := lives{t, t.TempDir()}
		key := filepath.Join(l.home, ".sky", "clients", "u1", "ssh", "sky-key")
		if err := errors.Join(os.MkdirAll(filepath.Dir(key), 0o700), os.WriteFile(key, []byte("old key"), 0o600)); err != nil {
			t.Fatal(err)
		}
		s, err := l.open()
		if err != nil {
			t.Fatal(err)
		}
		l.write(s, 10)
		// A request that is under way must not run again when it is restored.
		if err := s.Requests().Create(t.Context(), &state.Request{ID: "r1", Name: "sky.launch", Status: api.RequestRunning, Schedule: api.ScheduleLong, CreatedAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
		if err := s.Clusters().Create(t.Context(), &state.Cluster{Name: "c", Hash: "h", NameOnCloud: "c-1", Status: api.ClusterUp, Epoch: 3}); err != nil {
			t.Fatal(err)
		}
		file := l.backedUp(s, keys)
		if err := s.Settings().Set(t.Context(), "k0", []byte("newer")); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(key, []byte("new key"), 0o600); err != nil {
			t.Fatal(err)
		}
		before, err := Of(l.home).Mark(File)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Restore(t.Context(), RestoreOptions{Home: l.home, File: file})
		if err != nil {
			t.Fatal(err)
		}
		if r.ID != id || r.Requests != 1 || r.Generation <= before.Generation || r.Aside == "" {
			t.Errorf("restored: %+v after %+v", r, before)
		}
		want := "new key"
		if keys {
			want = "old key"
			if aside, err := os.ReadFile(filepath.Join(r.Aside, "keys", ".sky", "clients", "u1", "ssh", "sky-key")); err != nil || string(aside) != "new key" {
				t.Errorf("the key that was there: %q, %v", aside, err)
			}
		}
		if got, err := os.ReadFile(key); err != nil || string(got) != want {
			t.Errorf("key is %q, want %q: %v", got, want, err)
		}
		if s, err = l.open(); err != nil {
			t.Fatal(err)
		}
		if v, err := s.Settings().Get(t.Context(), "k0"); err != nil || string(v) == "newer" {
			t.Errorf("k0 is %q, %v", v, err)
		}
		if q, err := s.Requests().Get(t.Context(), "r1"); err != nil || q.Status != api.RequestFailed {
			t.Errorf("the request that was under way: %v, %v", q, err)
		}
		// Launches after the backup have moved the epoch of its agents on.
		if c, err := s.Clusters().Get(t.Context(), "c"); err != nil || c.Epoch < state.LateEpoch(time.Now().Add(-time.Hour)) {
			t.Errorf("agents refuse what is restored: %+v, %v", c, err)
		}
		if _, err := s.Settings().Get(t.Context(), StraysHeld); err != nil {
			t.Errorf("strays are not held: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		// What lay aside can be restored as well: a plain copy of the file.
		if _, err := Restore(t.Context(), RestoreOptions{Home: l.home, File: filepath.Join(r.Aside, "sky.db")}); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(Dir(l.home), ".restore-*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if loss := l.loss(); loss != "" {
			t.Errorf("after the second restore: %s", loss)
		}
	}
}

func TestEachLossIsRestored(t *testing.T) {
	for name, damage := range map[string]func(db string) error{
		"missing": os.Remove,
		"empty":   func(db string) error { return os.Truncate(db, 0) },
		"damaged": func(db string) error { return flip(db, 0, 4096) },
	} {
		l := lives{t, t.TempDir()}
		s, err := l.open()
		if err != nil {
			t.Fatal(err)
		}
		file := l.backedUp(s, false)
		if err := errors.Join(s.Close(), damage(Database(l.home))); err != nil {
			t.Fatal(err)
		}
		if loss := l.loss(); string(loss) != name {
			t.Fatalf("%q, want %q", loss, name)
		}
		if _, err := Restore(t.Context(), RestoreOptions{Home: l.home, File: file}); err != nil {
			t.Fatal(err)
		}
		if loss := l.loss(); loss != "" {
			t.Errorf("%s: restored and %s", name, loss)
		}
	}
}

func TestWhatIsNoBackupChangesNothing(t *testing.T) {
	l := lives{t, t.TempDir()}
	s, err := l.open()
	if err != nil {
		t.Fatal(err)
	}
	good := l.backedUp(s, false)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	other := lives{t, t.TempDir()}
	if err := Of(other.home).Note(File, Mark{ID: "another", Generation: 4}); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), RestoreOptions{Home: other.home, File: good}); err == nil || !strings.Contains(err.Error(), "--other-installation") {
		t.Errorf("another installation's: %v", err)
	}
	before, _ := os.ReadFile(Database(l.home))
	bad := map[string][]byte{"nothing": nil, "text": []byte("hello"), "the first half": whole[:len(whole)/2], "without its end": whole[:len(whole)-20]}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 0xff
	bad["with a wrong byte"] = flipped
	for name, content := range bad {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Restore(t.Context(), RestoreOptions{Home: l.home, File: file}); err == nil {
			t.Errorf("%s was restored", name)
		} else if _, ok := errors.AsType[*BadBackupError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after, _ := os.ReadFile(Database(l.home)); !bytes.Equal(before, after) {
		t.Error("the database was changed")
	}
}
