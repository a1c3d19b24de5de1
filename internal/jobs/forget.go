package jobs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/internal/state"
)

// Forget removes the logs of jobs that ended longer ago than they are kept:
// those of tasks, and those of controllers and callbacks; less than 0 keeps
// them. Files that no job and no schedule needs go, too.
func (m *Manager) Forget(ctx context.Context, tasks, controllers time.Duration) error {
	dirs, err := os.ReadDir(m.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range dirs {
		id, err := strconv.Atoi(d.Name())
		if err != nil {
			continue // not a job's
		}
		j, err := m.store.ManagedJobs().Get(ctx, id)
		switch {
		case errors.Is(err, state.ErrNotFound):
			j = &state.ManagedJob{EndedAt: time.Unix(0, 0)}
		case err != nil:
			return errors.Join(append(errs, err)...)
		case j.EndedAt.IsZero():
			continue
		}
		age := m.store.Now().Sub(j.EndedAt)
		for pattern, kept := range map[string]time.Duration{"task-*.log": tasks, "controller.log": controllers, "callback-*": controllers} {
			if kept < 0 || age < kept {
				continue
			}
			files, _ := filepath.Glob(filepath.Join(m.dir, d.Name(), pattern))
			for _, f := range files {
				errs = append(errs, os.Remove(f))
			}
		}
		_ = os.Remove(filepath.Join(m.dir, d.Name())) // if nothing is left in it
	}
	return errors.Join(append(errs, m.files.sweep(ctx, m.store))...)
}
