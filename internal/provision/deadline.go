package provision

import (
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// Steps of an attempt.
const (
	stepPrepare   = "prepare"
	stepLaunch    = "launch"
	stepList      = "list"
	stepTerminate = "terminate"
	stepStop      = "stop"
)

// pace is what a step may take: where nothing has been learned, and the bounds
// of what is.
type pace struct{ unknown, least, most, usual time.Duration }

var paces = map[string]pace{
	stepPrepare: {5 * time.Minute, 30 * time.Second, 15 * time.Minute, 10 * time.Second},
	stepLaunch:  {15 * time.Minute, 2 * time.Minute, time.Hour, 2 * time.Minute},
	stepList:    {time.Minute, 20 * time.Second, 5 * time.Minute, 2 * time.Second},
	// Giving back is tried again and again; see cleanupTimeout.
	stepTerminate: {4 * time.Minute, time.Minute, 6 * time.Minute, time.Minute},
	stepStop:      {10 * time.Minute, 2 * time.Minute, 30 * time.Minute, time.Minute},
}

const (
	// slack is how many times the usual time a step may take.
	slack = 3
	// enough durations make a lesson.
	enough = 5
)

// Deadline is how long a step at an offer may take: three times what nine in
// ten have taken lately, within bounds.
func (h *History) Deadline(step string, o cloud.Offer) time.Duration {
	p := paces[step]
	d, ok := h.p90(step, false, o)
	if !ok {
		return p.unknown
	}
	return min(max(slack*d, p.least), p.most)
}

// Usual is how long nine in ten steps that succeeded have taken.
func (h *History) Usual(step string, o cloud.Offer) time.Duration {
	if d, ok := h.p90(step, true, o); ok {
		return d
	}
	return paces[step].usual
}

// p90 looks at the same machine on the same cloud, or if that is too little, at
// the cloud.
func (h *History) p90(step string, okOnly bool, o cloud.Offer) (time.Duration, bool) {
	took := h.Took(step, okOnly, func(a *state.Attempt) bool {
		return a.Offer.Cloud == o.Cloud && a.Offer.InstanceType == o.InstanceType
	})
	if len(took) < enough {
		took = h.Took(step, okOnly, func(a *state.Attempt) bool { return a.Offer.Cloud == o.Cloud })
	}
	if len(took) < enough {
		return 0, false
	}
	return quantile(took, 0.9), true
}

// quantile is the smallest duration that at least the share q does not exceed.
func quantile(took []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	i := int(q*float64(len(sorted)) + 0.999999)
	return sorted[min(max(i, 1), len(sorted))-1]
}
