package jobs

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// Strategies of coming back after a loss.
const (
	eagerNextRegion = "EAGER_NEXT_REGION" // elsewhere first
	failover        = "FAILOVER"          // where it was first
)

// A loss is machines that a place took away.
type loss struct {
	place cloud.Place
	at    time.Time
}

// halfLife is how long it takes until a loss counts half; one that is remembered
// no longer counts for nothing.
const (
	halfLife   = 30 * time.Minute
	remembered = 3 * halfLife
)

// order says which offers come first after losses, the latest last, as tiers:
// within one the order of the plan is kept. Nothing is left out: what comes
// last is still better than nothing.
func order(strategy string, offers []cloud.Offer, losses []loss, now time.Time) [][]cloud.Offer {
	rank := func(cloud.Place) int { return 0 }
	switch {
	case len(losses) == 0:
	case strategy == failover:
		last := losses[len(losses)-1].place
		rank = func(p cloud.Place) int {
			if sameRegion(p, last) {
				return 0
			}
			return 1
		}
	default: // regions that lost machines lately at the end, the worst of them later, and the latest of all last
		latest := losses[len(losses)-1]
		rank = func(p cloud.Place) int {
			if sameRegion(p, latest.place) && now.Sub(latest.at) < remembered {
				return math.MaxInt
			}
			return penalty(p, losses, now)
		}
	}
	tiers := map[int][]cloud.Offer{}
	for _, o := range offers {
		r := rank(o.Place)
		tiers[r] = append(tiers[r], o)
	}
	var out [][]cloud.Offer
	for _, r := range slices.Sorted(maps.Keys(tiers)) {
		out = append(out, tiers[r])
	}
	return out
}

// penalty grows with the losses of a place's region that are remembered, and
// shrinks with time.
func penalty(p cloud.Place, losses []loss, now time.Time) int {
	sum := 0.0
	for _, l := range losses {
		if sameRegion(p, l.place) && now.Sub(l.at) < remembered {
			sum += math.Exp2(-now.Sub(l.at).Hours() / halfLife.Hours())
		}
	}
	return int(min(sum*8, 1e6))
}

func sameRegion(a, b cloud.Place) bool { return a.Cloud == b.Cloud && a.Region == b.Region }

// tooQuick is how long an attempt must run, lest too many like it be followed
// by a pause.
const tooQuick = time.Minute

// rushing is how many of the latest attempts in a row ended too quickly, less
// the two that anybody may have.
func rushing(attempts []*state.ManagedAttempt) int {
	n := 0
	for _, a := range slices.Backward(attempts) {
		if a.RanAt.IsZero() || a.EndedAt.Sub(a.RanAt) >= tooQuick {
			break
		}
		n++
	}
	return max(n-2, 0)
}

// Pauses between launches that found nothing: growing, with jitter so that many
// jobs do not ask at once.
const (
	pauseFirst = 10 * time.Second
	pauseMost  = 5 * time.Minute
)

// pause is how long to wait after so many launches that found nothing. random
// is in [0, 1).
func pause(tries int, random float64) time.Duration {
	d := min(float64(pauseFirst)*math.Pow(1.6, float64(max(tries-1, 0))), float64(pauseMost))
	return time.Duration(d * (0.6 + 0.8*random))
}
