package logstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
)

// both runs a test on each way of keeping logs. The streams of a SQLite database
// behave like those of PostgreSQL, which package state tests.
func both(t *testing.T, test func(t *testing.T, logs logstore.Logs)) {
	t.Run("folder", func(t *testing.T) { test(t, logstore.Folder(t.TempDir())) })
	t.Run("stored", func(t *testing.T) { test(t, logstore.Stored{Store: open(t)}) })
}

func open(t *testing.T) *state.Store {
	t.Helper()
	s, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func ok(t failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t failer, a logstore.Appender, text string) {
	t.Helper()
	if n, err := a.Write([]byte(text)); err != nil || n != len(text) {
		t.Fatal(n, err)
	}
}

func TestALogGrows(t *testing.T) {
	both(t, func(t *testing.T, logs logstore.Logs) {
		if _, err := logs.Open("a/x.log"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("no log yet: %v", err)
		}
		a, err := logs.Append("a/x.log")
		ok(t, err)
		write(t, a, "one\n")
		l, err := logs.Open("a/x.log")
		ok(t, err)
		defer l.Close()
		buf := make([]byte, 100)
		read := func(at int64) string {
			n, err := l.ReadAt(buf, at)
			if err != io.EOF {
				t.Fatalf("%d bytes at %d: %v", n, at, err)
			}
			return string(buf[:n])
		}
		if got := read(0); got != "one\n" {
			t.Errorf("%q", got)
		}
		if got := read(4); got != "" {
			t.Errorf("%q", got)
		}
		write(t, a, "two\n")
		l.Grew()
		if got := read(4); got != "two\n" {
			t.Errorf("%q", got)
		}
		ok(t, a.Sync())
		ok(t, a.Close())
		a, err = logs.Append("a/x.log") // the next life
		ok(t, err)
		if a.Size() != 8 {
			t.Errorf("goes on at %d", a.Size())
		}
		write(t, a, "three\n")
		ok(t, a.Close())
		l.Grew()
		if got := read(2); got != "e\ntwo\nthree\n" {
			t.Errorf("%q", got)
		}
		if n, err := l.Size(); n != 14 || err != nil {
			t.Error(n, err)
		}
		b, err := logs.Append("b/x.log")
		ok(t, err)
		write(t, b, "four")
		ok(t, b.Close())
		if got, err := logs.List("*/x.log"); err != nil || !maps.Equal(got, map[string]int64{"a/x.log": 14, "b/x.log": 4}) {
			t.Error(got, err)
		}
		if got, err := logs.List("a/*"); err != nil || !maps.Equal(got, map[string]int64{"a/x.log": 14}) {
			t.Error(got, err)
		}
		ok(t, logs.Remove("a/x.log", "none"))
		if _, err := logs.Open("a/x.log"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("removed: %v", err)
		}
	})
}

func TestOfTwoWritersOneIsTold(t *testing.T) {
	logs := logstore.Stored{Store: open(t)}
	a, err := logs.Append("x")
	ok(t, err)
	b, err := logs.Append("x")
	ok(t, err)
	write(t, a, "mine\n")
	if _, err := b.Write([]byte("theirs\n")); !errors.Is(err, logstore.ErrTaken) {
		t.Errorf("%v", err)
	}
}

// Whatever is written in whatever pieces is read back by readers who ask for
// any part of it, many at once.
func TestWhatIsWrittenIsRead(t *testing.T) {
	store := open(t)
	logs := 0
	rapid.Check(t, func(t *rapid.T) {
		logs++
		kept, name := logstore.Stored{Store: store}, fmt.Sprint("log", logs)
		a, err := kept.Append(name)
		ok(t, err)
		write(t, a, "begin\n")
		whole := []byte("begin\n")
		l, err := kept.Open(name)
		ok(t, err)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "write") {
				p := bytes.Repeat([]byte{byte(len(whole))}, rapid.SampledFrom([]int{1, 7, 4096, state.MaxPiece, state.MaxPiece + 3}).Draw(t, "size"))
				write(t, a, string(p))
				whole = append(whole, p...)
				l.Grew()
				continue
			}
			from := rapid.IntRange(0, len(whole)).Draw(t, "from")
			buf := make([]byte, rapid.SampledFrom([]int{1, 100, 32 << 10, 3 << 20}).Draw(t, "len"))
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					buf := make([]byte, len(buf))
					n, err := l.ReadAt(buf, int64(from))
					want := whole[from:min(len(whole), from+len(buf))]
					if !bytes.Equal(buf[:n], want) || n < len(buf) && err != io.EOF || n == len(buf) && err != nil {
						t.Errorf("%d bytes at %d of %d: %v", n, from, len(whole), err)
					}
				})
			}
			wg.Wait()
		}
	})
}

func BenchmarkThousandReaders(b *testing.B) {
	s, err := state.Open(b.Context(), filepath.Join(b.TempDir(), "state.db"))
	ok(b, err)
	defer s.Close()
	logs := logstore.Stored{Store: s}
	a, err := logs.Append("x")
	ok(b, err)
	write(b, a, strings.Repeat("a line of a log\n", 1000))
	l, err := logs.Open("x")
	ok(b, err)
	for b.Loop() {
		write(b, a, "one more line\n")
		l.Grew()
		at := a.Size() - 14
		buf := make([]byte, 4096)
		for range 1000 {
			if _, err := l.ReadAt(buf, at); err != io.EOF {
				b.Fatal(err)
			}
			if n, _ := l.ReadAt(buf, at+14); n != 0 {
				b.Fatal(n)
			}
		}
	}
}

// failer is a test, or one run of a property.
type failer interface {
	Helper()
	Fatal(...any)
}
