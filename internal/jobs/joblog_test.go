package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
)

// logWorld has one log, whose stream breaks now and then.
type logWorld struct {
	environment
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

func logManager(t testing.TB, dir string, w environment) *Manager {
	t.Helper()
	return newManager(newMemory(), w, slog.New(slog.DiscardHandler), "s", dir, 1)
}

// TestACopiedLogIsTheLog: however often the stream breaks and the server dies,
// the copy is the log, byte for byte.
func TestACopiedLogIsTheLog(t *testing.T) {
	t.Run("folder", func(t *testing.T) {
		copiedIsLog(t, func(id int) logstore.Logs { return logstore.Folder(t.TempDir()) }, 0)
	})
	t.Run("stored", func(t *testing.T) {
		logs := sharedLogs(t)
		copiedIsLog(t, func(int) logstore.Logs { return logs }, time.Millisecond)
	})
}

// sharedLogs is where servers that share a database keep logs.
func sharedLogs(t *testing.T) logstore.Logs {
	t.Helper()
	db, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return logstore.Stored{Store: db, Prefix: "jobs/"}
}

func copiedIsLog(t *testing.T, storeOf func(id int) logstore.Logs, gather time.Duration) {
	id := 0
	rapid.Check(t, func(r *rapid.T) {
		id++
		kept := storeOf(id)
		w := &logWorld{
			log:    rapid.SliceOfN(rapid.Byte(), 0, 20000).Draw(r, "log"),
			breaks: func() int { return rapid.IntRange(-1, 9000).Draw(r, "breaks") },
		}
		a := &state.ManagedAttempt{JobID: id, Number: 1}
		for {
			m := logManager(t, "", w) // another life each time, perhaps on another server
			m.kept, m.gather = kept, gather
			if _, err := m.copyOnce(r.Context(), a); err == nil {
				break
			}
		}
		l, err := kept.Open(attemptLogName(id, 0, 1))
		if len(w.log) == 0 && errors.Is(err, fs.ErrNotExist) {
			return // made by the first byte
		}
		if err != nil {
			r.Fatal(err)
		}
		defer l.Close()
		got, err := io.ReadAll(io.NewSectionReader(l, 0, 1<<20))
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
	got, err := os.ReadFile(filepath.Join(dir, attemptLogName(1, 0, 1)))
	if err != nil || !bytes.HasPrefix(w.log, got[:m.mostLog]) || string(got[m.mostLog:]) != logstore.LogCut(m.mostLog) {
		t.Errorf("%d bytes kept, %v; the end is %q", len(got), err, got[len(got)-100:])
	}
	if n, err := m.copyOnce(t.Context(), a); n != 0 || err != nil {
		t.Errorf("%d more bytes copied, %v", n, err)
	}
}

// TestTwoCopyOneLog: a server that lost its lease and the one that has it copy the
// same log for a moment; nothing is in it twice.
func TestTwoCopyOneLog(t *testing.T) {
	kept := sharedLogs(t)
	w := &logWorld{log: bytes.Repeat([]byte("0123456789abcde\n"), 5000), breaks: func() int { return 9000 }}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			m := logManager(t, "", w)
			m.kept, m.gather = kept, time.Microsecond
			for {
				if _, err := m.copyOnce(t.Context(), &state.ManagedAttempt{JobID: 1, Number: 1}); err == nil {
					return
				}
			}
		})
	}
	wg.Wait()
	l, err := kept.Open(attemptLogName(1, 0, 1))
	must(t, err)
	if got, err := io.ReadAll(io.NewSectionReader(l, 0, 1<<20)); err != nil || !bytes.Equal(got, w.log) {
		t.Errorf("%d bytes of %d, %v", len(got), len(w.log), err)
	}
}

// TestLogsAreReadThroughEveryServer: what the controller of a job and its tasks
// printed is had through a server that never worked on it, and forgotten by any.
func TestLogsAreReadThroughEveryServer(t *testing.T) {
	kept, db := sharedLogs(t), newMemory()
	server := func() *Manager {
		m := newManager(db, &logWorld{}, slog.New(slog.DiscardHandler), "s", t.TempDir(), 1)
		m.kept = kept
		return m
	}
	a, b := server(), server()
	job := &state.ManagedJob{ID: 7, Schedule: api.ScheduleDone, EndedAt: time.Now().Add(-time.Hour), Dag: []byte("run: x\n"),
		UserHash: "u", Workspace: "default", Tasks: []*state.ManagedTask{{JobID: 7, Status: api.ManagedSucceeded, Attempt: 1}}}
	db.jobs[7] = job
	db.attempts[attemptID{7, 0, 1}] = &state.ManagedAttempt{JobID: 7, Number: 1, LogKept: true}
	logstore.NewJournal(a.kept, controlLogName(7), func() {}).Printf("Launching cluster %s", "c-7")
	log, err := a.kept.Append(attemptLogName(7, 0, 1))
	must(t, err)
	fmt.Fprint(log, "one\ntwo\n")
	read := func(body api.JobsLogsBody) string {
		t.Helper()
		id := 7
		body.JobID = &id
		var out strings.Builder
		_, err := b.Logs(t.Context(), cluster.Call{User: state.User{ID: "u"}}, body, nil, func(Position) error { return nil }, &out)
		must(t, err)
		return out.String()
	}
	one := 1
	if got := read(api.JobsLogsBody{}); !strings.HasPrefix(got, "one\ntwo\n") {
		t.Errorf("%q", got)
	}
	if got := read(api.JobsLogsBody{Tail: &one}); !strings.HasPrefix(got, "two\n") {
		t.Errorf("%q", got)
	}
	if got := read(api.JobsLogsBody{Controller: true}); !strings.Contains(got, "Launching cluster c-7") {
		t.Errorf("%q", got)
	}
	id := 7
	dirs, err := b.DownloadLogs(t.Context(), cluster.Call{User: state.User{ID: "u"}}, api.JobsDownloadLogsBody{JobID: &id}, t.TempDir(), nil)
	must(t, err)
	if text, err := os.ReadFile(filepath.Join(dirs["7"], "task-0-attempt-1.log")); string(text) != "one\ntwo\n" {
		t.Errorf("%q %v", text, err)
	}
	must(t, b.Forget(t.Context(), 0, 0))
	if left, err := kept.List("*/*"); len(left) > 0 || err != nil {
		t.Errorf("left: %v %v", left, err)
	}
	if got := read(api.JobsLogsBody{}); !strings.Contains(got, "were removed") {
		t.Errorf("%q", got)
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
