package jobs

import (
	"fmt"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/state"
)

// Names for what the scheduler does.
const (
	claimed  = fsm.ScheduleClaimed
	finished = fsm.ScheduleEnded
)

// schedule moves the job's place in the schedule on.
func schedule(j *state.ManagedJob, e fsm.ScheduleEvent) error {
	next, ok := fsm.Schedules().Next(j.Schedule, e)
	if !ok {
		return fmt.Errorf("managed job %d is %s: %q cannot happen", j.ID, j.Schedule, e)
	}
	j.Schedule = next
	return nil
}

// move changes the task's state and keeps its clocks; the event goes into the
// job's history.
func move(t *state.ManagedTask, e fsm.ManagedEvent, reason string, at time.Time) (state.ManagedEvent, error) {
	from := t.Status
	next, ok := fsm.ManagedJobs().Next(from, e)
	if !ok {
		return state.ManagedEvent{}, fmt.Errorf("task %d of managed job %d is %s: %q cannot happen", t.Index, t.JobID, from, e)
	}
	if from == api.ManagedRunning && next != api.ManagedRunning {
		t.RanFor += max(at.Sub(t.LastRecoveredAt), 0)
	}
	t.Status = next
	switch {
	case next == api.ManagedRunning:
		t.LastRecoveredAt = at
		if t.StartedAt.IsZero() {
			t.StartedAt = at
		} else {
			t.Recoveries++
		}
		t.Details = ""
	case next.Terminal():
		t.EndedAt, t.Details = at, ""
		if next.Failed() {
			t.Failure = reason
		}
	case next == api.ManagedRecovering || next == api.ManagedCancelling:
		t.Details = reason
	}
	return state.ManagedEvent{JobID: t.JobID, Task: t.Index, Status: next, Code: code(e), Reason: reason, At: at}, nil
}

// code is the event's name in the job's history.
func code(e fsm.ManagedEvent) string {
	switch e {
	case fsm.ManagedLaunch:
		return "STARTING"
	case fsm.ManagedBackoff:
		return "BACKOFF"
	case fsm.ManagedRelaunch, fsm.ManagedLost:
		return "RECOVERING"
	case fsm.ManagedRan:
		return "STARTED"
	case fsm.ManagedCancel:
		return "CANCELLING"
	case fsm.ManagedCancelled:
		return "CANCELLED"
	case fsm.ManagedSucceeded:
		return "SUCCEEDED"
	}
	return "FAILED"
}
