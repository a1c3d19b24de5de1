package execution

import (
	"context"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
)

// Managed is what a managed job's launch has beyond a user's.
type Managed struct {
	JobID  int
	TaskID string            // SKYPILOT_TASK_ID
	Envs   map[string]string // over the task's own
	// Order splits a tier of the plan's offers into tiers of its own: what comes
	// first is tried first. nil leaves it whole.
	Order func([]cloud.Offer) [][]cloud.Offer
	// Replaces picks, from all jobs of the cluster, those that are ended before the
	// job is submitted. It must not pick the job itself: a launch that a crash cut off
	// is repeated. nil: none.
	Replaces func([]agentapi.Job) []int
}

func (m *Managed) order(tiers [][]cloud.Offer) [][]cloud.Offer {
	if m == nil || m.Order == nil {
		return tiers
	}
	var out [][]cloud.Offer
	for _, t := range tiers {
		out = append(out, m.Order(t)...)
	}
	return out
}

// LaunchManaged is Launch for a managed job. The cluster is marked as the
// job's: users see it only by name, and do not end it.
func (x *Executor) LaunchManaged(ctx context.Context, call cluster.Call, body api.LaunchBody, m Managed) (*api.LaunchResult, error) {
	return x.launch(ctx, call, body, &m)
}
