package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/state"
)

// The agent of a cluster's head reports how a job ended as soon as it knows, and again
// until that is stored: its machine may be taken away a second later. Every server
// that hears it stores it with the attempt, whoever has the lease on the job, and
// before an attempt is given up the report is weighed: a program that is known to
// have ended does not run again because its machine went afterwards.

// Ended stores how a job on an incarnation of a cluster ended. A job that belongs to
// no managed job is none of ours, and no error.
func (m *Manager) Ended(ctx context.Context, hash string, j agentapi.Job) error {
	job, task, number, ok := parseAttemptKey(j.Key)
	if !ok || !j.Status.Terminal() {
		return nil
	}
	err := m.store.ManagedJobs().Report(ctx, job, task, number, state.ManagedReport{
		ClusterHash: hash, ClusterJob: j.ID, Status: j.Status, StartedAt: j.StartedAt, EndedAt: j.EndedAt, ExitCodes: j.ExitCodes, Reason: j.Reason, Noticed: j.Noticed,
	})
	if err != nil {
		return fmt.Errorf("the end of attempt %d of managed job %d is not stored: %w", number, job, err)
	}
	return nil
}

// reconcileReport reads what the agent said last, after all that servers heard is stored.
func (r *runner) reconcileReport(ctx context.Context, a *state.ManagedAttempt) error {
	heard := r.m.env.Heard(ctx, a)
	fresh, err := r.m.store.ManagedJobs().Attempt(ctx, a.JobID, a.Task, a.Number)
	if err != nil {
		return err
	}
	r.seen.weighed, r.seen.heard = true, heard
	if j := reported(fresh); j != nil {
		r.seen.job, r.seen.reported, r.seen.noJob, r.seen.silent = j, true, false, ""
	}
	return nil
}

// reported is the job of an attempt as its agent told of its end; nil: it did not, or
// it spoke of another incarnation of the cluster.
func reported(a *state.ManagedAttempt) *agentapi.Job {
	w := a.Report
	if w == nil || a.ClusterHash != "" && w.ClusterHash != a.ClusterHash {
		return nil
	}
	return &agentapi.Job{
		ID: w.ClusterJob, Key: attemptKey(a), Status: w.Status, StartedAt: w.StartedAt, EndedAt: w.EndedAt, ExitCodes: w.ExitCodes, Reason: w.Reason, Noticed: w.Noticed,
	}
}

// ownFailure reports whether a program whose failure was reported failed by itself
// although its machine is gone by now: nothing speaks for the machine's end as the
// cause, or the agent was heard of for long enough afterwards.
func ownFailure(a *state.ManagedAttempt, o observation) bool {
	if !o.reported || a.Machines() > 1 || o.job.Status != api.JobFailed && o.job.Status != api.JobFailedSetup {
		return false
	}
	until := doubt(a, o.job)
	return until.IsZero() || o.heard.After(until)
}

// unknownOutcome is why a job runs again of which nobody knows how far it came.
func unknownOutcome(a *state.ManagedAttempt, o observation, now time.Time) string {
	last := "no word of it was heard"
	if !o.heard.IsZero() {
		last = fmt.Sprintf("machine lost %.1fs after the last word", max(now.Sub(o.heard), 0).Seconds())
	}
	text := fmt.Sprintf("outcome of attempt %d unknown: %s; running again", a.Number, last)
	if o.reported {
		text = fmt.Sprintf("attempt %d ended %s as its machine went; running again", a.Number, o.job.Status)
	}
	if o.reason == "" {
		return text
	}
	return o.reason + "; " + text
}
