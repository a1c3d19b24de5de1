package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// logWorld has one log, whose stream breaks now and then.
type logWorld struct {
	world
	log    []byte
	breaks func() int // after so many bytes; less than 0: not
}

func (w *logWorld) Log(_ context.Context, _ *state.ManagedAttempt, offset int64) (io.ReadCloser, error) {
	if offset > int64(len(w.log)) {
		return nil, fmt.Errorf("the log has no byte %d", offset)
	}
	rest := w.log[offset:]
	if n := w.breaks(); n >= 0 && n < len(rest) {
		return io.NopCloser(io.MultiReader(bytes.NewReader(rest[:n]), broken{})), nil
	}
	return io.NopCloser(bytes.NewReader(rest)), nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the stream broke") }

func logManager(t testing.TB, dir string, w world) *Manager {
	t.Helper()
	return newManager(newMemory(), w, slog.New(slog.DiscardHandler), "s", dir, 1)
}

// TestACopiedLogIsTheLog: however often the stream breaks and the server dies,
// the copy is the log, byte for byte.
func TestACopiedLogIsTheLog(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			r.Fatal(err)
		}
		defer os.RemoveAll(dir)
		w := &logWorld{
			log:    rapid.SliceOfN(rapid.Byte(), 0, 20000).Draw(r, "log"),
			breaks: func() int { return rapid.IntRange(-1, 9000).Draw(r, "breaks") },
		}
		a := &state.ManagedAttempt{JobID: 1, Number: 1}
		for {
			m := logManager(t, dir, w) // another life each time
			if _, err := m.copyOnce(r.Context(), a); err == nil {
				break
			}
		}
		got, err := os.ReadFile(filepath.Join(dir, "1", "task-0-attempt-1.log"))
		if err != nil || !bytes.Equal(got, w.log) {
			r.Fatalf("%d bytes of %d, %v", len(got), len(w.log), err)
		}
	})
}

// TestALogThatNeverEndsIsCut: of a program that prints for ever as much is kept
// as fits.
func TestALogThatNeverEndsIsCut(t *testing.T) {
	dir := t.TempDir()
	w := &logWorld{log: bytes.Repeat([]byte("0123456789abcde\n"), 1<<16), breaks: func() int { return 100000 }}
	a := &state.ManagedAttempt{JobID: 1, Number: 1}
	m := logManager(t, dir, w)
	m.mostLog = 300000
	for range 10 {
		if _, err := m.copyOnce(t.Context(), a); err == nil {
			break
		}
	}
	got, err := os.ReadFile(m.attemptLog(1, 0, 1))
	if err != nil || !bytes.HasPrefix(w.log, got[:m.mostLog]) || string(got[m.mostLog:]) != logCut(m.mostLog) {
		t.Errorf("%d bytes kept, %v; the end is %q", len(got), err, got[len(got)-100:])
	}
	if n, err := m.copyOnce(t.Context(), a); n != 0 || err != nil {
		t.Errorf("%d more bytes copied, %v", n, err)
	}
}

func TestLogsAreForgotten(t *testing.T) {
	dir := t.TempDir()
	m := logManager(t, dir, nil)
	db := m.store.(*memory)
	ages := map[int]time.Duration{1: time.Hour, 2: 5 * time.Hour, 3: -1}
	for id, age := range ages {
		j := &state.ManagedJob{ID: id, Schedule: api.ScheduleDone}
		if age >= 0 {
			j.EndedAt = time.Now().Add(-age)
		}
		db.jobs[id] = j
		for _, name := range []string{"task-0-attempt-1.log", "controller.log", "callback-0.log"} {
			if err := os.MkdirAll(m.jobDir(id), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(m.jobDir(id), name), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := func() string {
		var names []string
		files, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
		for _, f := range files {
			rel, _ := filepath.Rel(dir, f)
			names = append(names, rel)
		}
		return strings.Join(names, " ")
	}
	all := left()
	for _, c := range []struct {
		tasks, controllers time.Duration
		want               string
	}{
		{-1, -1, all},
		{3 * time.Hour, -1, strings.ReplaceAll(all, " 2/task-0-attempt-1.log", "")},
		{3 * time.Hour, 3 * time.Hour, "1/callback-0.log 1/controller.log 1/task-0-attempt-1.log 3/callback-0.log 3/controller.log 3/task-0-attempt-1.log"},
		{0, 3 * time.Hour, "1/callback-0.log 1/controller.log 3/callback-0.log 3/controller.log 3/task-0-attempt-1.log"},
	} {
		if err := m.Forget(t.Context(), c.tasks, c.controllers); err != nil {
			t.Fatal(err)
		}
		if got := left(); got != c.want {
			t.Errorf("kept %v and %v: %s\nwant %s", c.tasks, c.controllers, got, c.want)
		}
	}
	if _, err := os.Stat(m.jobDir(2)); !os.IsNotExist(err) {
		t.Error("an empty folder stays")
	}
}
