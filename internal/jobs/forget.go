package jobs

import (
	"context"
	"errors"
	"os"
	"path"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
)

// Forget removes the logs of jobs that ended longer ago than they are kept:
// those of tasks, and those of controllers and callbacks; less than 0 keeps
// them. Files that no job and no schedule needs go, too.
func (m *Manager) Forget(ctx context.Context, tasks, controllers time.Duration) error {
	here := logstore.Folder(m.dir)
	ended := map[int]time.Time{}
	var errs []error
	for _, of := range []struct {
		logs    logstore.Logs
		pattern string
		kept    time.Duration
	}{{m.kept, "task-*.log", tasks}, {m.kept, "controller.log", controllers}, {here, "callback-*", controllers}} {
		if of.kept < 0 {
			continue
		}
		names, err := of.logs.List("*/" + of.pattern)
		errs = append(errs, err)
		for name := range names {
			id, err := strconv.Atoi(path.Dir(name))
			if err != nil {
				continue // not a job's
			}
			if _, ok := ended[id]; !ok {
				if ended[id], err = m.endOf(ctx, id); err != nil {
					return errors.Join(append(errs, err)...)
				}
			}
			if at := ended[id]; !at.IsZero() && m.store.Now().Sub(at) >= of.kept {
				errs = append(errs, of.logs.Remove(name))
			}
		}
	}
	m.forgotLogs()
	for id := range ended {
		_ = os.Remove(m.jobDir(id)) // if nothing is left in it
	}
	return errors.Join(append(errs, m.files.Sweep(ctx), m.files.SweepShared(ctx))...)
}

// endOf is when a job ended; zero: it has not.
func (m *Manager) endOf(ctx context.Context, id int) (time.Time, error) {
	j, err := m.store.ManagedJobs().Get(ctx, id)
	if errors.Is(err, state.ErrNotFound) {
		return time.Unix(0, 0), nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return j.EndedAt, nil
}
