package jobs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/state"
)

// A job whose agent does not answer is UNREACHABLE: its details say so and since
// when, and it stays what it was. The job may be fine; only the provider's word
// about its machines, or the agent's about the job, changes more.
//
// A machine that hangs says nothing for ever, and its provider calls it running.
// An installation may therefore have a limit to its patience. What follows is no
// relaunch beside a job that may be fine: the machines are ended first, and only
// the provider's word that they are gone lets the next attempt begin. What counts
// is the silence that one server heard in one life: what was before, it does not
// know.

const unreachable = "UNREACHABLE since "

// silence is what the details of a job say whose agent fell silent.
func silence(why string, since time.Time) string {
	return unreachable + since.UTC().Format("2006-01-02 15:04:05 MST") + ": " + firstLine(why)
}

// hung is why an attempt is given up whose agent has been silent for too long.
func hung(patience time.Duration, why string) string {
	return fmt.Sprintf("its agent did not answer for %v (%s); its machines are ended before it runs elsewhere", patience, firstLine(why))
}

// isSilent reports whether it is written down that the task's agent is silent.
func isSilent(t *state.ManagedTask) bool { return strings.HasPrefix(t.Details, unreachable) }

// note writes down that the agent fell silent, or that it answers again.
func (r *runner) note(ctx context.Context, s situation, a action) error {
	was := s.task.Details
	s.task.Details = a.reason
	if err := r.save(ctx, s); err != nil {
		return err
	}
	if a.reason != "" {
		r.out.Printf("Task %d is %s", s.task.Index, a.reason)
	} else {
		r.out.Printf("Task %d is heard of again (it was %s)", s.task.Index, was)
	}
	return nil
}
