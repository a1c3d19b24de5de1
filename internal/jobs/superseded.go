package jobs

import (
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/state"
)

// superseded returns the ids of the jobs on a cluster that a launch of the attempt
// ends: those of earlier attempts of the same task that have not ended. The
// attempt's own job is never among them: a launch that a crash cut off after it had
// submitted finds it running and takes it over. Nor is a job of anybody else.
func superseded(jobs []agentapi.Job, a *state.ManagedAttempt) (ids []int) {
	for _, j := range jobs {
		job, task, n, ok := parseAttemptKey(j.Key)
		if ok && job == a.JobID && task == a.Task && n < a.Number && !j.Status.Terminal() {
			ids = append(ids, j.ID)
		}
	}
	return ids
}
