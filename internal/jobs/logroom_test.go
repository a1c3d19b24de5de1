package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/state"
)

// room is a disk that has so many bytes for logs.
type room struct {
	mu   sync.Mutex
	left int64
}

func (r *room) take(_ int, n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > r.left || r.left == 0 {
		return &diskspace.NoRoomError{By: diskspace.ByDisk, Has: r.left}
	}
	r.left -= n
	return nil
}

func (r *room) set(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = n
}

// A copy waits while there is no room, says so, and goes on later; nothing is lost.
func TestACopyWaitsForRoom(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &logWorld{log: bytes.Repeat([]byte("0123456789abcde\n"), 5000), breaks: func() int { return -1 }}
		m := logManager(t, dir, w)
		disk := &room{left: 20000}
		m.room = disk.take
		a := &state.ManagedAttempt{JobID: 1, Number: 1}
		var said []string
		c := m.copyLog(a, func(format string, a ...any) { said = append(said, fmt.Sprintf(format, a...)) })
		size := func() int64 {
			info, err := os.Stat(filepath.Join(dir, attemptLogName(1, 0, 1)))
			must(t, err)
			return info.Size()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if size() > 20000 || size() == 0 || len(said) != 1 || !strings.Contains(said[0], "not copied for now") || !strings.Contains(m.missing(1, 0, 1), "missing here for now") {
			t.Errorf("%d bytes are there; it says %q and %q", size(), said, m.missing(1, 0, 1))
		}
		disk.set(1 << 20)
		time.Sleep(copyMost)
		<-c.done
		if got, err := os.ReadFile(filepath.Join(dir, attemptLogName(1, 0, 1))); err != nil || !bytes.Equal(got, w.log) {
			t.Errorf("%d bytes of %d, %v", len(got), len(w.log), err)
		}
		if len(said) != 2 || !strings.Contains(said[1], "copied again") || m.missing(1, 0, 1) != "" {
			t.Errorf("it says %q and %q", said, m.missing(1, 0, 1))
		}
	})
}

// The rest of a log that there was never room for is said to be missing, once, and a
// server that comes later does not go on behind that line.
func TestALogWhoseRestIsMissingSaysSo(t *testing.T) {
	dir := t.TempDir()
	w := &logWorld{log: bytes.Repeat([]byte("0123456789abcde\n"), 5000), breaks: func() int { return -1 }}
	m := logManager(t, dir, w)
	m.room = (&room{left: 20000}).take
	a := &state.ManagedAttempt{JobID: 1, Number: 1}
	if _, err := m.copyOnce(t.Context(), a); err == nil {
		t.Fatal("all of it fits")
	}
	must(t, m.giveUpRest(a))
	must(t, m.giveUpRest(a))
	m = logManager(t, dir, w)
	if n, err := m.copyOnce(t.Context(), a); n != 0 || err != nil {
		t.Errorf("%d more bytes, %v", n, err)
	}
	got, err := os.ReadFile(filepath.Join(dir, attemptLogName(1, 0, 1)))
	if before, after, ok := bytes.Cut(got, []byte(restMissing)); err != nil || !ok || len(after) > 0 || !bytes.HasPrefix(w.log, before) {
		t.Errorf("%v; it ends %q", err, got[max(0, len(got)-200):])
	}
}

// Logs count for the users whose jobs they are of.
func TestLogsAreBoundedForEachUser(t *testing.T) {
	dir := t.TempDir()
	w := &logWorld{log: bytes.Repeat([]byte("x"), 1000), breaks: func() int { return -1 }}
	m := logManager(t, dir, w)
	for i, user := range []string{"ann", "ann", "bob"} {
		j, err := m.store.ManagedJobs().Submit(t.Context(), &state.ManagedJob{Name: "j", UserHash: user, RequestID: fmt.Sprint(i), Tasks: []*state.ManagedTask{{}}})
		must(t, err)
		if j.ID != i+1 {
			t.Fatal(j.ID)
		}
	}
	m.boundLogs(&diskspace.Ledger{Dir: dir}, diskspace.Limits{User: 1500, All: 1 << 40, KeepFree: 1})
	for id, fits := range map[int]bool{1: true, 3: true} {
		if _, err := m.copyOnce(t.Context(), &state.ManagedAttempt{JobID: id, Number: 1}); (err == nil) != fits {
			t.Errorf("job %d: %v", id, err)
		}
	}
	_, err := m.copyOnce(t.Context(), &state.ManagedAttempt{JobID: 2, Number: 1})
	if full, ok := errors.AsType[*diskspace.NoRoomError](err); !ok || full.By != diskspace.ByUser {
		t.Errorf("ann's second job: %v", err)
	}
	if by := m.countLogs(); by["ann"] != 1000 || by["bob"] != 1000 {
		t.Errorf("counted %v", by)
	}
}

// A download that does not fit leaves nothing behind.
func TestADownloadThatDoesNotFitLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	m := logManager(t, filepath.Join(dir, "jobs"), &logWorld{log: bytes.Repeat([]byte("x"), 1000), breaks: func() int { return -1 }})
	j, err := m.store.ManagedJobs().Submit(t.Context(), &state.ManagedJob{Name: "j", UserHash: "ann", RequestID: "r", Tasks: []*state.ManagedTask{{}}})
	must(t, err)
	if _, err := m.copyOnce(t.Context(), &state.ManagedAttempt{JobID: j.ID, Number: 1}); err != nil {
		t.Fatal(err)
	}
	books := &diskspace.Ledger{Dir: dir, Count: func() map[string]int64 { return nil }}
	share := &diskspace.Share{Ledger: books, User: "ann", Limits: diskspace.Limits{User: 999, All: 1 << 40, KeepFree: 1}}
	to := filepath.Join(dir, "out")
	call := cluster.Call{User: state.User{ID: "ann"}}
	if _, err := m.DownloadLogs(t.Context(), call, api.JobsDownloadLogsBody{JobID: &j.ID}, to, share); err == nil {
		t.Error("1000 bytes fit into 999")
	}
	if left, _ := filepath.Glob(to + "/*/*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
