package execution

import (
	"context"
	"slices"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// Held is what the launch of a held cluster has beyond a user's.
type Held struct {
	Holder state.Holder
	TaskID string            // SKYPILOT_TASK_ID
	Envs   map[string]string // over the task's own
	// Order splits a tier of the plan's offers into tiers of its own: what comes
	// first is tried first. nil leaves it whole.
	Order func([]cloud.Offer) [][]cloud.Offer
	// Replaces picks, from all jobs of the cluster, those that are ended before the
	// job is submitted. It must not pick the job itself: a launch that a crash cut off
	// is repeated. nil: none.
	Replaces func([]agentapi.Job) []int
	// Job is the managed job that the task is one of, if the places of its tasks
	// matter to each other; nil: they do not.
	Job *Job
}

// Job is the tasks of a managed job, one of which is launched.
type Job struct {
	Dag    *task.Dag
	Index  int                 // of the task that is launched
	Placed map[int]cloud.Place // where others run, or ran
}

// with is the Dag with the task that is launched as it is sent, in its order.
func (j *Job) with(t *task.Task) *task.Dag {
	dag, own := *j.Dag, *t
	own.Name, own.DependsOn = j.Dag.Tasks[j.Index].Name, j.Dag.Tasks[j.Index].DependsOn
	dag.Tasks = slices.Clone(j.Dag.Tasks)
	dag.Tasks[j.Index] = &own
	return &dag
}

func (h *Held) job() *Job {
	if h == nil {
		return nil
	}
	return h.Job
}

// replica reports whether the cluster is a replica of a service.
func (h *Held) replica() bool { return h != nil && h.Holder.Kind == state.HeldByService }

func (h *Held) order(tiers [][]cloud.Offer) [][]cloud.Offer {
	if h == nil || h.Order == nil {
		return tiers
	}
	var out [][]cloud.Offer
	for _, t := range tiers {
		out = append(out, h.Order(t)...)
	}
	return out
}

// LaunchHeld is Launch for a cluster that something other than a user holds:
// users see it only by name, and do not end it.
func (x *Executor) LaunchHeld(ctx context.Context, call cluster.Call, body api.LaunchBody, h Held) (*api.LaunchResult, error) {
	return x.launch(ctx, call, body, &h)
}
