package replicas

import (
	"slices"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/serve/spec"
)

// mix is how many replicas of each kind there should be.
type mix struct {
	spot, onDemand int
	keep           int // on-demand replicas that are not ended yet; at least onDemand
}

// split is the Fallback autoscaler, and hedged spot. target is what the load
// asks for, final the same with what is overprovisioned.
func split(sp *spec.Spec, target, final int, rows []Replica, m *memory) mix {
	s := &sp.Scale
	if !sp.Spot {
		return mix{onDemand: final}
	}
	spot := max(final-s.BaseOnDemand, 0)
	base := min(s.BaseOnDemand, final)
	if s.Placer == hedged {
		return hedge(spot, base, target, rows, m)
	}
	out := mix{spot: spot, onDemand: min(target, s.BaseOnDemand)}
	if s.BaseOnDemand > 0 || s.DynamicFallback {
		missing := 0
		if s.DynamicFallback {
			missing = max(spot-readySpot(rows), 0)
		}
		out.onDemand = min(target, s.BaseOnDemand+missing)
	}
	return out
}

func readySpot(rows []Replica) int {
	n := 0
	for i := range rows {
		if r := &rows[i]; r.Ready() && r.Spot {
			n++
		}
	}
	return n
}

// hedge keeps a spare while a place is in trouble, and rents on-demand machines
// for spot replicas that are neither ready nor about to be. These stay until spot
// replicas in their stead have been ready for twice the time a replica takes.
func hedge(spot, base, target int, rows []Replica, m *memory) mix {
	out := mix{spot: spot}
	if spot > 0 && m.troubled {
		out.spot++
	}
	ready, coming, onDemand := 0, 0, 0
	for i := range rows {
		r := &rows[i]
		switch {
		case !r.Live():
		case !r.Spot:
			onDemand++
		case r.Ready():
			ready++
		case (r.Status == api.ReplicaProvisioning || r.Status == api.ReplicaStarting) && m.now.Sub(r.ProvisionedAt) < 2*m.changeover && r.Tries < hopefulTries:
			coming++
		case r.Status == api.ReplicaPending && r.Tries < hopefulTries:
			coming++ // nothing says that it will not be had
		}
	}
	out.onDemand = min(target, base+max(spot-ready-coming, 0))
	needed := min(target, base+max(spot-ready, 0))
	if onDemand <= needed {
		m.spotReady = time.Time{}
	} else {
		m.spotReady = or(m.spotReady, m.now)
	}
	if onDemand > needed && m.now.Sub(m.spotReady) < 2*m.changeover {
		out.keep = min(onDemand, target)
	} else {
		out.keep = needed
	}
	out.keep = max(out.keep, out.onDemand)
	return out
}

// hopefulTries is how many launches of a spot replica may find no machine before
// an on-demand machine is rented in its stead.
const hopefulTries = 2

// memory is what decisions about spot machines go by.
type memory struct {
	now        time.Time
	troubled   bool
	changeover time.Duration // from asking for a machine to a ready replica
	spotReady  time.Time     // since when there are more on-demand replicas than needed
}

// Bounds of what is assumed for the time that a replica takes to get ready.
const (
	usualChangeover = 5 * time.Minute
	leastChangeover = time.Minute
	mostChangeover  = 20 * time.Minute
)

// changeover is the median time that the replicas here took to get ready.
func changeover(rows []Replica) time.Duration {
	var took []time.Duration
	for i := range rows {
		if r := &rows[i]; !r.FirstReady.IsZero() && r.FirstReady.After(r.ProvisionedAt) && !r.ProvisionedAt.IsZero() {
			took = append(took, r.FirstReady.Sub(r.ProvisionedAt))
		}
	}
	if len(took) == 0 {
		return usualChangeover
	}
	slices.Sort(took)
	return min(max(took[len(took)/2], leastChangeover), mostChangeover)
}
