package installation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/state"
)

const id = "11111111-2222-3333-4444-555555555555"

func TestJudge(t *testing.T) {
	was := &Mark{ID: id, Generation: 7}
	for _, c := range []struct {
		name  string
		was   *Mark
		found state.Found
		want  Loss
	}{
		{"a new home without a database is in order", nil, state.Found{Missing: true}, ""},
		{"a new home joins an installation", nil, state.Found{ID: id, Generation: 3}, ""},
		{"a new home does not take a damaged file", nil, state.Found{Damage: errors.New("bad page")}, Damaged},
		{"the same generation", was, state.Found{ID: id, Generation: 7}, ""},
		{"a database ahead of the file: the server died between the two", was, state.Found{ID: id, Generation: 8}, ""},
		{"a database behind", was, state.Found{ID: id, Generation: 6}, Older},
		{"no file", was, state.Found{Missing: true}, Missing},
		{"a file without content", was, state.Found{Empty: true}, Empty},
		{"another installation's", was, state.Found{ID: "x", Generation: 70}, Foreign},
		{"damage before all", was, state.Found{ID: "x", Damage: errors.New("bad page")}, Damaged},
	} {
		got := Loss("")
		if lost := Judge(File, c.was, c.found); lost != nil {
			got = lost.Loss
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestARefusalNamesCommands(t *testing.T) {
	was := &Mark{ID: id, Generation: 7, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for _, c := range []struct {
		kind  Kind
		found state.Found
		want  []string
	}{
		{File, state.Found{Where: "/h/sky.db", Missing: true}, []string{"/h/sky.db is missing", id, "2026-01-02 03:04:05 UTC", "sky api restore FILE", "sky api start --start-anew && sky sweep --adopt"}},
		{File, state.Found{ID: id, Generation: 6}, []string{"older copy, of generation 6", "write-ahead log", "sky api start --accept-database && sky sweep --adopt"}},
		{File, state.Found{ID: "other"}, []string{"another installation, other", "sky api start --accept-database\n"}},
		{File, state.Found{Damage: errors.New("bad page")}, []string{"bad page", "sky api restore FILE", "--start-anew"}},
		{PostgreSQL, state.Found{Empty: true}, []string{"is empty", "Restore a dump", "--start-anew"}},
		{PostgreSQL, state.Found{ID: "other"}, []string{"another installation", "SKYPILOT_DB_CONNECTION_URI", "--accept-database"}},
	} {
		text := Judge(c.kind, was, c.found).Error()
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in:\n%s", want, text)
			}
		}
		if c.kind == PostgreSQL && (strings.Contains(text, "write-ahead") || strings.Contains(text, "api restore")) {
			t.Errorf("speaks of files:\n%s", text)
		}
	}
}

func TestMarksOfBothKindsStay(t *testing.T) {
	home := t.TempDir()
	m := Of(home)
	if mark, err := m.Mark(File); mark != nil || err != nil {
		t.Fatal(mark, err)
	}
	for k, g := range map[Kind]int64{File: 3, PostgreSQL: 9} {
		if err := m.Note(k, Mark{ID: id, Generation: g}); err != nil {
			t.Fatal(err)
		}
	}
	for k, g := range map[Kind]int64{File: 3, PostgreSQL: 9} {
		if mark, err := Of(home).Mark(k); err != nil || mark.ID != id || mark.Generation != g {
			t.Errorf("%s: %+v, %v", k, mark, err)
		}
	}
	if info, err := os.Stat(Path(home)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for _, text := range []string{"{", "", "null", "{}", `{"file": null}`, `{"file": {"generation": 3}}`} {
		if err := os.WriteFile(Path(home), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Mark(File); err == nil || !strings.Contains(err.Error(), "rm "+Path(home)) {
			t.Errorf("the damaged file %q: %v", text, err)
		}
		if err := m.Note(File, Mark{ID: id}); err == nil {
			t.Errorf("the damaged file %q was written over", text)
		}
	}
}

// lives is a home folder whose database is opened as a server does it.
type lives struct {
	t    *testing.T
	home string
}

func (l lives) open() (*state.Store, error) {
	m := Of(l.home)
	was, err := m.Mark(File)
	if err != nil {
		return nil, err
	}
	s, err := state.OpenIf(context.Background(), Database(l.home), func(f state.Found) error {
		if lost := Judge(File, was, f); lost != nil {
			return lost
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if was == nil {
		was = &Mark{ID: id}
	}
	owner, generation, err := s.Claim(context.Background(), was.ID, was.Generation)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	note := func(g int64) error { return m.Note(File, Mark{ID: owner, Generation: g}) }
	if err := note(generation); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.Witness(generation, state.Witness{Keep: note, Saw: func(g int64) { m.Saw(owner, g) }})
	return s, nil
}

func (l lives) copyTo(home string) lives {
	l.t.Helper()
	// The database before the file, as a copy that is made while the server runs:
	// what is between the two is what a crash can leave.
	for _, f := range []string{Path(l.home), seenPath(l.home), Database(l.home), Database(l.home) + "-wal"} {
		b, err := os.ReadFile(f)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			l.t.Fatal(err)
		}
		to := filepath.Join(Dir(home), filepath.Base(f))
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, b, 0o600)); err != nil {
			l.t.Fatal(err)
		}
	}
	return lives{l.t, home}
}

func (l lives) write(s *state.Store, n int) {
	l.t.Helper()
	for i := range n {
		if err := s.Settings().Set(context.Background(), fmt.Sprint("k", i), []byte(strings.Repeat("v", 200))); err != nil {
			l.t.Fatal(err)
		}
	}
}

func (l lives) loss() Loss {
	l.t.Helper()
	s, err := l.open()
	if lost, ok := errors.AsType[*LostError](err); ok {
		return lost.Loss
	}
	if err != nil {
		l.t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		l.t.Fatal(err)
	}
	return ""
}

// What a kill leaves is the three files as they are at one moment, the database
// never behind the file.
func TestNoCrashLooksLikeDamage(t *testing.T) {
	l := lives{t, t.TempDir()}
	for life := range 12 {
		s, err := l.open()
		if err != nil {
			t.Fatal(err)
		}
		for change := range life % 5 {
			l.write(s, 1)
			if loss := l.copyTo(t.TempDir()).loss(); loss != "" {
				t.Errorf("life %d, after change %d: %s", life, change, loss)
			}
		}
		next := l.copyTo(t.TempDir()) // the next life begins where this one was killed
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if life%3 != 0 {
			l = next
		}
	}
}

func TestLosingTheLogIsNoticed(t *testing.T) {
	l := lives{t, t.TempDir()}
	s, err := l.open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l.write(s, 3)
	broken := l.copyTo(t.TempDir())
	if err := os.Remove(Database(broken.home) + "-wal"); err != nil {
		t.Fatal(err)
	}
	if loss := broken.loss(); loss != Empty && loss != Older {
		t.Errorf("young data: %q", loss)
	}
	// When it is quiet, the log is moved into the main file: then nothing is lost.
	deadline := time.Now().Add(20 * time.Second)
	for size := int64(1); size > 0; time.Sleep(50 * time.Millisecond) {
		if info, err := os.Stat(Database(l.home) + "-wal"); err == nil {
			size = info.Size()
		}
		if time.Now().After(deadline) {
			t.Fatal("the log is never moved")
		}
	}
	quiet := l.copyTo(t.TempDir())
	if err := os.Remove(Database(quiet.home) + "-wal"); err != nil {
		t.Fatal(err)
	}
	if loss := quiet.loss(); loss != "" {
		t.Errorf("a log without content: %q", loss)
	}
	// A single change after that is enough to be noticed.
	l.write(s, 1)
	broken = l.copyTo(t.TempDir())
	if err := os.Remove(Database(broken.home) + "-wal"); err != nil {
		t.Fatal(err)
	}
	if loss := broken.loss(); loss != Older {
		t.Errorf("one change: %q", loss)
	}
}

// What the server does at its first start: it encrypts what was in clear, and clears
// the file of it.
func TestLosingTheLogAfterClearingIsNoticed(t *testing.T) {
	l := lives{t, t.TempDir()}
	s, err := l.open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l.write(s, 3)
	if err := s.ClearFree(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.write(s, 1)
	for _, seen := range []bool{true, false} { // a power cut may lose what was only seen
		broken := l.copyTo(t.TempDir())
		if err := os.Remove(Database(broken.home) + "-wal"); err != nil {
			t.Fatal(err)
		}
		if !seen {
			if err := os.Remove(seenPath(broken.home)); err != nil {
				t.Fatal(err)
			}
		}
		if loss := broken.loss(); loss != Older {
			t.Errorf("seen %t: %q", seen, loss)
		}
	}
}

func TestACutLogIsNoticed(t *testing.T) {
	l := lives{t, t.TempDir()}
	s, err := l.open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.ClearFree(t.Context()); err != nil {
		t.Fatal(err)
	}
	var sizes []int64
	for range 4 {
		l.write(s, 1)
		info, err := os.Stat(Database(l.home) + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, info.Size())
	}
	for i, size := range sizes {
		want := Older
		if i == len(sizes)-1 {
			want = ""
		}
		cut := l.copyTo(t.TempDir())
		if err := os.Truncate(Database(cut.home)+"-wal", size); err != nil {
			t.Fatal(err)
		}
		if loss := cut.loss(); loss != want {
			t.Errorf("cut behind change %d of %d: %q, want %q", i+1, len(sizes), loss, want)
		}
	}
}

// What cannot be read of the generation that was seen is as if there were nothing.
func TestTheGenerationSeenIsNeverInTheWay(t *testing.T) {
	home := t.TempDir()
	m := Of(home)
	if err := m.Note(File, Mark{ID: id, Generation: 3}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		want int64
	}{{"", 3}, {id, 3}, {id + " ", 3}, {id + " x\n", 3}, {"other 00000000000000000009\n", 3}, {id + " 00000000000000000002\n", 3}, {id + " 00000000000000000009\n", 9}} {
		if err := os.WriteFile(seenPath(home), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if mark, err := m.Mark(File); err != nil || mark.Generation != c.want {
			t.Errorf("%q: %+v, %v, want %d", c.text, mark, err, c.want)
		}
		if mark, err := m.Mark(PostgreSQL); mark != nil || err != nil {
			t.Errorf("PostgreSQL: %+v, %v", mark, err)
		}
	}
	m.Saw(id, 12)
	m.Saw(id, 100)
	if mark, err := m.Mark(File); err != nil || mark.Generation != 100 {
		t.Errorf("%+v, %v", mark, err)
	}
}

func TestWithoutMemoryAKeyShowsThatThereWasAnInstallation(t *testing.T) {
	home := t.TempDir()
	key := filepath.Join(Dir(home), "encryption.key")
	if trace := Of(home).Trace(); trace != "" {
		t.Errorf("a new home has the trace %s", trace)
	}
	if err := errors.Join(os.MkdirAll(Dir(home), 0o700), os.WriteFile(key, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	trace := Of(home).Trace()
	for _, c := range []struct {
		found state.Found
		want  Loss
	}{{state.Found{Missing: true}, Missing}, {state.Found{Empty: true}, Empty}, {state.Found{ID: id, Generation: 3}, ""}} {
		lost := JudgeNew(c.found, trace)
		if (lost == nil) != (c.want == "") || lost != nil && lost.Loss != c.want {
			t.Errorf("%+v: %v", c.found, lost)
		}
		if JudgeNew(c.found, "") != nil {
			t.Errorf("%+v is refused without a trace", c.found)
		}
		for _, want := range []string{key, "installation.json, is gone", "sky api restore FILE", "sky api start --start-anew", "sky-installation"} {
			if lost != nil && !strings.Contains(lost.Error(), want) {
				t.Errorf("%v lacks %q", lost, want)
			}
		}
	}
	if err := Of(home).Note(PostgreSQL, Mark{ID: id}); err != nil { // it was a server of others
		t.Fatal(err)
	}
	if trace := Of(home).Trace(); trace != "" {
		t.Errorf("what remembers something has the trace %s", trace)
	}
}

func TestDamageIsRefusedAndSetAside(t *testing.T) {
	good := lives{t, t.TempDir()}
	s, err := good.open()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	old := good.copyTo(t.TempDir())
	if s, err = good.open(); err != nil { // the next life
		t.Fatal(err)
	}
	good.write(s, 100)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		damage func(db string) error
		want   Loss
	}{
		{"removed", os.Remove, Missing},
		{"truncated to nothing", func(db string) error { return os.Truncate(db, 0) }, Empty},
		{"truncated in the middle", func(db string) error { return os.Truncate(db, 12288) }, Damaged},
		{"its header", func(db string) error { return flip(db, 0, 100) }, Damaged},
		{"its pages", func(db string) error { return flip(db, 4096, 8192) }, Damaged},
		{"an older copy", func(db string) error {
			b, err := os.ReadFile(Database(old.home))
			return errors.Join(err, os.WriteFile(db, b, 0o600))
		}, Older},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := good.copyTo(t.TempDir())
			if err := c.damage(Database(l.home)); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(Database(l.home))
			if loss := l.loss(); loss != c.want {
				t.Errorf("%q, want %q", loss, c.want)
			}
			if after, _ := os.ReadFile(Database(l.home)); string(before) != string(after) {
				t.Error("the refused file was changed")
			}
			dir, err := SetAside(l.home, time.Now())
			if err != nil || (dir == "") != (c.want == Missing) {
				t.Fatalf("aside: %q, %v", dir, err)
			}
			if dir != "" {
				if kept, err := os.ReadFile(filepath.Join(dir, "sky.db")); err != nil || string(kept) != string(before) {
					t.Errorf("kept aside: %v", err)
				}
			}
		})
	}
}

func flip(path string, from, to int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	b := make([]byte, to-from)
	if _, err := f.ReadAt(b, from); err != nil {
		return errors.Join(err, f.Close())
	}
	for i := range b {
		b[i] ^= 0xff
	}
	_, err = f.WriteAt(b, from)
	return errors.Join(err, f.Close())
}
