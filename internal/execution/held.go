package execution

import (
	"context"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
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
