package state

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOpenMakesAPrivateFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no permission bits")
	}
	path := filepath.Join(t.TempDir(), "a", "b", "state.db")
	s, err := Open(t.Context(), path)
	ok(t, err)
	ok(t, s.Settings().Set(t.Context(), "k", []byte("v")))
	for _, f := range []string{path, path + "-wal", path + "-shm"} {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f, info, err)
		}
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v %v", info, err)
	}
	ok(t, s.Close())
	ok(t, os.Chmod(path, 0o644))
	s, err = Open(t.Context(), path)
	ok(t, err)
	defer s.Close()
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("a file that others could read stays %v", info.Mode())
	}
	same(t, "what was written", string(must(s.Settings().Get(t.Context(), "k"))(t)), "v")
}

func TestPathsAreTakenLiterally(t *testing.T) {
	for _, name := range []string{"with space", "per%20cent", "q?mark", "ha#sh", "ünï"} {
		path := filepath.Join(t.TempDir(), name, "state.db")
		s, err := Open(t.Context(), path)
		ok(t, err)
		ok(t, s.Close())
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestConnectionsAreSetUp(t *testing.T) {
	s := openTest(t)
	pragma := func(q *session, name string) (v string) {
		ok(t, q.one([]any{&v}, "PRAGMA "+name))
		return v
	}
	ok(t, s.write(t.Context(), func(q *session) error {
		same(t, "writer", []string{pragma(q, "journal_mode"), pragma(q, "synchronous"), pragma(q, "foreign_keys"), pragma(q, "busy_timeout")}, []string{"wal", "2", "1", "10000"})
		return nil
	}))
	q := s.read(t.Context())
	same(t, "reader", []string{pragma(q, "journal_mode"), pragma(q, "query_only"), pragma(q, "foreign_keys"), pragma(q, "busy_timeout")}, []string{"wal", "1", "1", "10000"})
	if _, err := q.exec("DELETE FROM users"); err == nil {
		t.Error("a reader wrote")
	}
}

// What is wrong with a file must be said so that a user can mend it.
func TestOpenRefuses(t *testing.T) {
	healthy := func(t *testing.T, path string) {
		s, err := Open(t.Context(), path)
		ok(t, err)
		ok(t, s.Settings().Set(t.Context(), "k", bytes.Repeat([]byte("v"), 100_000)))
		ok(t, s.Close())
	}
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, path string)
		want    string
	}{
		{"no database", func(t *testing.T, path string) {
			ok(t, os.WriteFile(path, []byte(strings.Repeat("hello, this is text\n", 100)), 0o600))
		}, "damaged or no database: restore a copy"},
		{"damaged", func(t *testing.T, path string) {
			healthy(t, path)
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			ok(t, err)
			_, err = f.WriteAt(bytes.Repeat([]byte{0xff}, 3000), 100)
			ok(t, err)
			ok(t, f.Close())
		}, "damaged or no database: restore a copy"},
		{"a folder", func(t *testing.T, path string) { ok(t, os.Mkdir(path, 0o700)) }, "is not a file: move it away"},
		{"under a file", func(t *testing.T, path string) { ok(t, os.WriteFile(filepath.Dir(path), nil, 0o600)) }, "making the folder"},
		{"newer", func(t *testing.T, path string) {
			healthy(t, path)
			db, err := sql.Open("sqlite", path)
			ok(t, err)
			_, err = db.Exec("INSERT INTO schema_version (version_id, is_applied) VALUES (99, 1)")
			ok(t, err)
			ok(t, db.Close())
		}, "written by a newer sky (schema 99, this one knows up to "},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "x")
			path := filepath.Join(dir, "state.db")
			if c.name != "under a file" {
				ok(t, os.Mkdir(dir, 0o700))
			}
			c.prepare(t, path)
			s, err := Open(t.Context(), path)
			if err == nil {
				s.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("error %q does not say %q and where", err, c.want)
			}
		})
	}
}

func TestNewerSchemaIsAType(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := Open(t.Context(), path)
	ok(t, err)
	ok(t, s.write(t.Context(), func(q *session) error {
		_, err := q.exec("INSERT INTO schema_version (version_id, is_applied) VALUES (9999, 1)")
		return err
	}))
	ok(t, s.Close())
	before, err := os.ReadFile(path)
	ok(t, err)
	_, err = Open(t.Context(), path)
	if e, is := errors.AsType[*NewerSchemaError](err); !is || e.Found != 9999 {
		t.Errorf("%v", err)
	}
	after, err := os.ReadFile(path)
	ok(t, err)
	if !bytes.Equal(before, after) {
		t.Error("a newer file was changed")
	}
}

// A disk that is full or a page that went bad shows while running, too.
func TestWriteErrorsAreExplained(t *testing.T) {
	s := openTest(t)
	ctx := t.Context()
	ok(t, s.write(ctx, func(q *session) error {
		return q.one([]any{new(int64)}, "PRAGMA max_page_count = 60")
	}))
	err := s.Settings().Set(ctx, "big", bytes.Repeat([]byte("x"), 1<<20))
	if err == nil || !strings.Contains(err.Error(), "no space left for the state file") {
		t.Errorf("full: %v", err)
	}
	ok(t, s.Settings().Set(ctx, "small", []byte("x"))) // goes on when there is room
}

func TestLockedFileIsExplained(t *testing.T) {
	err := explainSQLite("/x/state.db", lockedError(t))
	if !strings.Contains(err.Error(), "/x/state.db is locked by another process") {
		t.Error(err)
	}
}

// lockedError is what SQLite says when another connection writes.
func lockedError(t *testing.T) error {
	path := filepath.Join(t.TempDir(), "l.db")
	one, err := sql.Open("sqlite", path)
	ok(t, err)
	defer one.Close()
	one.SetMaxOpenConns(1)
	_, err = one.Exec("CREATE TABLE t (x)")
	ok(t, err)
	_, err = one.Exec("BEGIN EXCLUSIVE")
	ok(t, err)
	two, err := sql.Open("sqlite", path)
	ok(t, err)
	defer two.Close()
	_, err = two.Exec("INSERT INTO t VALUES (1)")
	if err == nil {
		t.Fatal("not locked")
	}
	_, rollback := one.Exec("ROLLBACK")
	ok(t, rollback)
	return err
}

func TestReadOnlyFolderIsExplained(t *testing.T) {
	if os.Geteuid() == 0 || runtime.GOOS == "windows" {
		t.Skip("this user may write everywhere")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	ok(t, os.WriteFile(path, nil, 0o400))
	_, err := Open(t.Context(), path)
	if err == nil || !strings.Contains(err.Error(), "cannot be written") {
		t.Error(err)
	}
}

func TestOpenTwiceAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := Open(context.Background(), path)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if _, err := s.Settings().SetIfAbsent(context.Background(), "k", []byte("v")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// One change that fails must not take the others of its batch along, nor
// leave half of itself.
func TestBatchKeepsChangesApart(t *testing.T) {
	s := openTest(t)
	ctx := t.Context()
	boom := errors.New("boom")
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			key := fmt.Sprint("k", i)
			err := s.write(ctx, func(q *session) error {
				if _, err := q.exec("INSERT INTO settings (name, value) VALUES (?, ?)", key, []byte("x")); err != nil {
					return err
				}
				if i%3 == 0 {
					return boom
				}
				return nil
			})
			if want := map[bool]error{true: boom}[i%3 == 0]; err != want {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for i := range 200 {
		_, err := s.Settings().Get(ctx, fmt.Sprint("k", i))
		if (err == ErrNotFound) != (i%3 == 0) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestWriteGivesUpItsTurn(t *testing.T) {
	s := openTest(t)
	block, blocked := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		s.write(context.Background(), func(*session) error { close(blocked); <-block; return nil })
	})
	<-blocked
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	is(t, s.Settings().Set(ctx, "k", []byte("v")), context.Canceled)
	close(block)
	wg.Wait()
	_, err := s.Settings().Get(t.Context(), "k")
	is(t, err, ErrNotFound)
}

func TestClosedStore(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "s.db"))
	ok(t, err)
	ok(t, s.Close())
	if err := s.Settings().Set(t.Context(), "k", nil); err == nil {
		t.Error("written after Close")
	}
	if _, err := s.Settings().Get(t.Context(), "k"); err == nil {
		t.Error("read after Close")
	}
}

func TestSecretsAreNotLogged(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&b, nil))
	r := &Request{ID: "r1", Body: []byte("hunter2"), ReturnValue: []byte("hunter2"), State: []byte("hunter2")}
	c := &Cluster{Name: "c1", Certs: Seal([]byte("hunter2")), CreationYAML: "hunter2"}
	log.Info("x", "r", r, "c", c, "rv", *r, "cv", *c)
	fmt.Fprintf(&b, "%v %+v %s %v %+v %v", r, r, r, c, c, []any{r, c, *r, *c})
	if strings.Contains(b.String(), "hunter2") || !strings.Contains(b.String(), "r1") {
		t.Error(b.String())
	}
}

func BenchmarkWrite(b *testing.B) {
	s := openTest(b)
	ctx := context.Background()
	for _, callers := range []int{1, 32} {
		b.Run(fmt.Sprint(callers, "_callers"), func(b *testing.B) {
			var wg sync.WaitGroup
			for w := range callers {
				wg.Go(func() {
					for i := w; i < b.N; i += callers {
						if err := s.Settings().Set(ctx, "k", fmt.Append(nil, i)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
