package jobs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/state"
)

// Logs of jobs are bounded for each user and in all, wherever they are, and leave room
// on the server's disk: what a job prints must not keep anybody from cancelling it.
// While there is no room the copy waits; the cluster has the log, and the copy goes on
// from there.

// boundLogs makes the manager bound the logs with a ledger of where they are.
func (m *Manager) boundLogs(books *diskspace.Ledger, limits diskspace.Limits) {
	m.owners = map[int]string{}
	m.books, books.Count = books, m.countLogs
	m.room = func(id int, n int64) error { return m.books.Take(m.owner(id), n, limits) }
}

// owner is whose a job is; "": nobody's.
func (m *Manager) owner(id int) string {
	m.ownersMu.Lock()
	defer m.ownersMu.Unlock()
	user, known := m.owners[id]
	if known {
		return user
	}
	j, err := m.store.ManagedJobs().Get(context.Background(), id)
	if err == nil {
		user = j.UserHash
	}
	if err == nil || errors.Is(err, state.ErrNotFound) {
		m.owners[id] = user
	}
	return user
}

// countLogs is how many bytes of logs of attempts there are, by user; nil: that cannot
// be found out now.
func (m *Manager) countLogs() map[string]int64 {
	logs, err := m.kept.List("*/task-*.log")
	if err != nil {
		m.log.Warn("logs of jobs are not counted", "err", err)
		return nil
	}
	by := map[string]int64{}
	for name, size := range logs {
		dir, _, _ := strings.Cut(name, "/")
		if id, err := strconv.Atoi(dir); err == nil {
			by[m.owner(id)] += size
		}
	}
	return by
}

// forgotLogs says that logs were removed.
func (m *Manager) forgotLogs() {
	if m.books != nil {
		m.books.Recount()
	}
}

// waits notes why the copy of an attempt's log waits, nil: it does not, and reports
// whether that is new.
func (m *Manager) waits(a *state.ManagedAttempt, why error) bool {
	key := attemptKey(a)
	m.waitingMu.Lock()
	defer m.waitingMu.Unlock()
	_, was := m.waiting[key]
	switch {
	case why == nil:
		delete(m.waiting, key)
	case m.waiting == nil:
		m.waiting = map[string]string{key: why.Error()}
	default:
		m.waiting[key] = why.Error()
	}
	return was != (why != nil)
}

// missing says that output of an attempt is not here for now; "": it is.
func (m *Manager) missing(id, task, attempt int) string {
	m.waitingMu.Lock()
	defer m.waitingMu.Unlock()
	why := m.waiting[attemptKey(&state.ManagedAttempt{JobID: id, Task: task, Number: attempt})]
	if why == "" {
		return ""
	}
	return fmt.Sprintf("Output is missing here for now; the cluster has it, and it is copied when there is room (%s)", why)
}

// restMissing is the last line of a log whose rest was not copied while its cluster
// was there.
const restMissing = "\n[The rest of the log is missing: the API server had no room for it while the cluster had it.]\n"

// giveUpRest ends a log whose rest there is no room for. The line takes from what
// stays free.
func (m *Manager) giveUpRest(a *state.ManagedAttempt) error {
	name := attemptLogName(a.JobID, a.Task, a.Number)
	if whole, err := m.givenUp(name); whole || err != nil {
		return err
	}
	kept, err := m.kept.Append(name)
	if err != nil {
		return err
	}
	_, err = kept.Write([]byte(restMissing))
	return errors.Join(err, kept.Sync(), kept.Close())
}

// givenUp reports whether a log ends with [restMissing].
func (m *Manager) givenUp(name string) (bool, error) {
	log, err := m.kept.Open(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return false, err
	}
	defer log.Close()
	size, err := log.Size()
	if err != nil || size < int64(len(restMissing)) {
		return false, err
	}
	end := make([]byte, len(restMissing))
	if _, err := log.ReadAt(end, size-int64(len(end))); err != nil {
		return false, err
	}
	return string(end) == restMissing, nil
}
