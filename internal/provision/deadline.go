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

// Deadline is how long a step for so many machines of an offer may take: three
// times what nine in ten have taken lately, within bounds. Only the same machine,
// and as many of them, teach that it may be short: what else there is on the
// cloud may be quicker by nature.
func (h *History) Deadline(step string, o cloud.Offer, nodes int) time.Duration {
	p := paces[step]
	if d, ok := h.p90(step, false, func(a *state.Attempt) bool { return sameMachine(a, o) && a.Nodes >= nodes }); ok {
		return min(max(slack*d, p.least), p.most)
	}
	if d, ok := h.p90(step, false, func(a *state.Attempt) bool { return a.Offer.Cloud == o.Cloud }); ok {
		return min(max(slack*d, p.unknown), p.most)
	}
	return p.unknown
}

// Usual is how long nine in ten steps that succeeded have taken: with the same
// machine, or if that is too little, on the same cloud.
func (h *History) Usual(step string, o cloud.Offer) time.Duration {
	if d, ok := h.p90(step, true, func(a *state.Attempt) bool { return sameMachine(a, o) }); ok {
		return d
	}
	if d, ok := h.p90(step, true, func(a *state.Attempt) bool { return a.Offer.Cloud == o.Cloud }); ok {
		return d
	}
	return paces[step].usual
}

func sameMachine(a *state.Attempt, o cloud.Offer) bool {
	return a.Offer.Cloud == o.Cloud && a.Offer.InstanceType == o.InstanceType
}

// p90 is of the attempts that want selects; false: they are too few.
func (h *History) p90(step string, okOnly bool, want func(*state.Attempt) bool) (time.Duration, bool) {
	took := h.Took(step, okOnly, want)
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
