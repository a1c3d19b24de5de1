package jobs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/state"
)

// clusterName is what the cluster of a task is called unless the name is taken.
func clusterName(taskName string, job int) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, taskName)
	clean = strings.TrimLeft(clean, "-_.0123456789")
	clean = strings.TrimRight(clean[:min(len(clean), 25)], "-_.")
	if clean == "" {
		clean = "job"
	}
	return clean + "-" + strconv.Itoa(job)
}

// runID is a task's SKYPILOT_TASK_ID, the same in every attempt.
func runID(j *state.ManagedJob, t *state.ManagedTask) string {
	at := strings.ReplaceAll(j.SubmittedAt.UTC().Format("2006-01-02-15-04-05.000000"), ".", "-")
	name := j.Name
	if len(j.Tasks) > 1 {
		name += "_" + t.Name
	}
	return fmt.Sprintf("sky-managed-%s_%s_%d-%d", at, name, j.ID, t.Index)
}

// variables are what every task of a job finds in its environment besides what
// all jobs do.
func variables(j *state.ManagedJob) map[string]string {
	ids := make([]string, len(j.Tasks))
	for i, t := range j.Tasks {
		ids[i] = runID(j, t)
	}
	vars := map[string]string{
		"SKYPILOT_TASK_IDS":       strings.Join(ids, "\n"),
		"SKYPILOT_MANAGED_JOB_ID": strconv.Itoa(j.ID),
		"SKYPILOT_JOB_RANK":       strconv.Itoa(j.Rank),
	}
	if j.Size > 0 {
		vars["SKYPILOT_NUM_JOBS"] = strconv.Itoa(j.Size)
	}
	return vars
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSuffix(line, ":")
}
