package optimizer

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/task"
)

// Reserved is how many of the nodes fit into reservations: they cost nothing more.
func (c *Candidate) Reserved() int {
	return int(math.Round(c.Offer.PaidShare * float64(c.NumNodes)))
}

// reserved is how many nodes of a candidate the reservations have room for.
func (p *Problem) reserved(c *Candidate) int {
	free, whole := 0, 0 // what takes any part of a cluster, and what takes all of it or nothing
	near := c.NumNodes > 1 && c.Resources.NetworkTier == "best"
	for i := range p.Reservations {
		r := &p.Reservations[i]
		switch {
		case !r.Covers(&c.Offer):
		case !near || r.Near == cloud.NearFree:
			free += r.Free
		case r.Near == cloud.NearWhole:
			whole += r.Free
		}
	}
	if whole < c.NumNodes {
		whole = 0
	}
	return min(free+whole, c.NumNodes)
}

// covered reports whether any reservation is of the offer's machines.
func (p *Problem) covered(o *cloud.Offer) bool {
	return slices.ContainsFunc(p.Reservations, func(r cloud.Reservation) bool { return r.Covers(o) })
}

// sideBySide reports whether any tasks of a Dag may run at the same time.
func sideBySide(dag *task.Dag) bool {
	for i, after := range dag.After() {
		if i > 0 && !slices.Contains(after, i-1) {
			return true
		}
	}
	return false
}

// left are the reservations without what a task uses of them, in each region where it may
// go: there it takes its best candidate.
func left(all []cloud.Reservation, candidates []Candidate) []cloud.Reservation {
	if len(all) == 0 {
		return nil
	}
	all = slices.Clone(all)
	seen := map[cloud.Place]bool{}
	for i := range candidates {
		c := &candidates[i]
		region := cloud.Place{Cloud: c.Offer.Cloud, Region: c.Offer.Region}
		if seen[region] {
			continue
		}
		seen[region] = true
		nodes := c.Reserved()
		for j := range all {
			if r := &all[j]; r.Covers(&c.Offer) {
				n := min(nodes, r.Free)
				r.Free, nodes = r.Free-n, nodes-n
			}
		}
	}
	return all
}

// byReservedZone asks a source that rents in regions for the zones in which a reservation
// is, beside the regions; ok is false if there is none.
func (f *finder) byReservedZone(s Source, q catalog.Query) (_ catalog.Query, ok bool) {
	if len(f.problem.Reservations) == 0 {
		return q, false
	}
	prices := facts.Of(s.Name()).Prices
	if q.Spot || q.EachZone || len(q.Zones) > 0 || prices == nil || prices.EachZone {
		return q, false
	}
	q.EachZone = true
	for _, r := range f.problem.Reservations {
		if r.Place.Cloud == s.Name() && r.Place.Zone != "" && r.Free > 0 {
			q.Zones = append(q.Zones, r.Place.Zone)
		}
	}
	return q, len(q.Zones) > 0
}

// reservedNote says which nodes of the candidates that a table shows run on reserved
// machines.
func (t *TaskPlan) reservedNote(w io.Writer) {
	for _, c := range t.Best() {
		if n := c.Reserved(); n > 0 {
			fmt.Fprintf(w, "%s, %s: %d of %s on reserved machines, which are paid for already and not in the cost.\n", t.infra(c), c.Offer.InstanceType, n, countNodes(c.NumNodes))
		}
	}
}
