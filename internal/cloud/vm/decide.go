package vm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
)

// step is what a launch does next.
type step struct {
	start  []Machine      // to be switched on
	create []int          // ranks that no machine has
	write  map[string]int // ranks to be written onto machines, by id
	done   bool           // every rank runs and is written
}

// next decides how to get from the cluster's machines to what spec asks for.
// Stopped ones are resumed before any is created, so that a full zone costs nothing
// that exists, and what is on its way to stop is waited for. mine are the machines
// that this launch has started or made: one of them that is gone was not to be had,
// and one that is not listed yet exists all the same.
func (o Options) next(spec cloud.LaunchSpec, list []Machine, mine map[string]bool) (step, error) {
	list = slices.Clone(list)
	settled := true
	for id := range mine {
		if !slices.ContainsFunc(list, func(m Machine) bool { return m.key() == id }) {
			settled = false
		}
	}
	var s step
	there, running := 0, 0
	leaving := map[int]bool{}
	for _, m := range list {
		switch m.State {
		case Ending, Ended:
			if mine[m.key()] {
				return step{}, &lostError{m}
			}
			leaving[m.rank] = leaving[m.rank] || m.State == Ending
			continue
		case Running:
			running++
		case Stopping:
			settled = false
		case Stopped:
			s.start = append(s.start, m)
		}
		there++
		if m.Region == "" && m.Zone == "" { // the cloud does not say yet
			continue
		}
		if m.Region != spec.Offer.Region || !m.InZone(spec.Offer.Zone) {
			return step{}, &cloud.InvalidError{Place: spec.Offer.Place, Err: fmt.Errorf("the cluster has machines in %s already; a cluster is in one zone", strings.TrimSpace(m.Region+" "+m.Zone))}
		}
	}
	if there > spec.Nodes {
		return step{}, fmt.Errorf("%d machines carry this cluster's tags, but %d were asked for; they may be leaking. To remove them all, run: sky down %s",
			there, spec.Nodes, spec.ID.Name)
	}
	byRank := map[int]string{}
	unwritten := 0
	for _, m := range list {
		switch {
		case !m.State.exists():
		case m.rank < 0:
			unwritten++
		case m.rank >= spec.Nodes || byRank[m.rank] != "":
			return step{}, fmt.Errorf("machines of this cluster hold the ranks of another: %s has rank %d of %d. To remove them all, run: sky down %s",
				m.ID, m.rank, spec.Nodes, spec.ID.Name)
		default:
			byRank[m.rank] = m.ID
		}
	}
	var missing []int
	for rank := range spec.Nodes {
		if byRank[rank] != "" {
			continue
		}
		missing = append(missing, rank)
		if o.EndingHolds && leaving[rank] {
			settled = false
		}
	}
	switch {
	case !settled || len(s.start) > 0:
	case unwritten >= len(missing):
		s.write = assignRanks(list)
	default:
		// Some of those that a call made may not be listed yet. The call for all
		// ranks that nobody is known to have, made again, tells.
		s.create = missing
	}
	slices.SortFunc(s.start, func(a, b Machine) int { return strings.Compare(a.ID, b.ID) })
	s.done = running == spec.Nodes && len(s.write) == 0
	return s, nil
}

// lostError says that a machine ended before it ran.
type lostError struct{ m Machine }

func (e *lostError) Error() string {
	why := e.m.Reason
	if why == "" {
		why = "somebody terminated it"
	}
	return fmt.Sprintf("%s was lost while it started (%s)", e.m.ID, why)
}
