package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
)

// find is the job that somebody means: by id, the latest of a name, or their
// latest. nil: there is none.
func (m *Manager) find(ctx context.Context, call cluster.Call, id *int, name *string) (*state.ManagedJob, error) {
	if id != nil && name != nil && *name != "" {
		return nil, &api.Error{Type: api.ErrValue, Message: "Give a managed job's id or its name, not both."}
	}
	if id != nil {
		j, err := m.store.ManagedJobs().Get(ctx, *id)
		if errors.Is(err, state.ErrNotFound) {
			return nil, nil
		}
		if err == nil && !call.Scope.Sees(j.Workspace) {
			return nil, elsewhere(j)
		}
		return j, err
	}
	f := state.ManagedFilter{Limit: 1, Scope: call.Scope}
	if name != nil && *name != "" {
		f.Name = *name
	} else {
		f.UserHash = call.User.ID
	}
	page, err := m.store.ManagedJobs().List(ctx, f)
	if err != nil || len(page.Rows) == 0 {
		return nil, err
	}
	return m.store.ManagedJobs().Get(ctx, page.Rows[0].Job.ID)
}

// elsewhere refuses a job in a workspace that the caller may not use.
func elsewhere(j *state.ManagedJob) error {
	return &api.Error{Type: api.ErrPermissionDenied, Message: fmt.Sprintf("Managed job %d is in a workspace that you may not use.", j.ID)}
}

// notFound says which job there is not.
func notFound(id *int, name *string) string {
	switch {
	case id != nil:
		return fmt.Sprintf("There is no managed job %d (see: sky jobs queue).", *id)
	case name != nil && *name != "":
		return fmt.Sprintf("There is no managed job named %q (see: sky jobs queue).", *name)
	}
	return "You have no managed job yet. Submit one with: sky jobs launch"
}

// findTask is the index of a task by number or name; -1 means all.
func findTask(j *state.ManagedJob, which *api.IntOrString) (int, error) {
	if which == nil {
		return -1, nil
	}
	text := which.String()
	for _, t := range j.Tasks {
		if t.Name == text || fmt.Sprint(t.Index) == text {
			return t.Index, nil
		}
	}
	return 0, &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("Managed job %d has no task %q; its tasks are 0 to %d.", j.ID, text, len(j.Tasks)-1)}
}

// status is what a job, or one task of it, is.
func status(j *state.ManagedJob, taskIndex int) api.ManagedStatus {
	if taskIndex >= 0 {
		return j.Tasks[taskIndex].Status
	}
	return j.Current().Status
}
