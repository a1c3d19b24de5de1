//go:build unix

package agent

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/skypilot-go/sky/api/agentapi"
)

// How a job ended is told at once to whoever listens. A listener may die before it
// has stored that, and the machine may be taken away any moment, so the end of a job
// that asks for a report is told again, in each Hello and Beat, until somebody says
// that it is stored. Agents that are restarted go on with that.

// reportLocked notes that the end of a job is to be told until it is stored.
func (a *Agent) reportLocked(rec *record) {
	if rec.Job.Report && rec.Job.Status.Terminal() && !rec.Reported {
		a.reports[rec.Job.ID] = rec.Job
	}
}

// unreported is the jobs whose end nobody has stored yet, by id.
func (a *Agent) unreported() []agentapi.Job {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unreportedLocked()
}

func (a *Agent) unreportedLocked() (jobs []agentapi.Job) {
	for _, id := range slices.Sorted(maps.Keys(a.reports)) {
		jobs = append(jobs, a.reports[id])
	}
	return jobs
}

// reported forgets the reports of jobs whose end is stored. A job that is unknown,
// or has not ended, is no error.
func (a *Agent) reported(_ context.Context, in *agentapi.ReportedRequest) (*struct{}, error) {
	for _, id := range in.IDs {
		_, err := a.queue.update(id, func(rec *record) error {
			if rec.Reported || !rec.Job.Status.Terminal() {
				return errEnded
			}
			rec.Reported = true
			return nil
		})
		if errors.Is(err, errEnded) || errors.Is(err, errNoJob) {
			continue
		}
		if err != nil {
			return nil, err
		}
		a.mu.Lock()
		delete(a.reports, id)
		a.mu.Unlock()
	}
	return &struct{}{}, nil
}
