package optimizer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Why says why an alternative was not taken.
type Why string

const (
	Chosen      Why = "chosen"
	Dearer      Why = "dearer"
	Slower      Why = "slower"
	SameValue   Why = "same"        // as good; a source or place that comes earlier was taken
	LaterChoice Why = "later entry" // of resources that the task put in order
	WholePlan   Why = "whole plan"  // cheaper by itself, not with the rest of the Dag
	OwnPrice    Why = "no price"    // its price is not known
	Excluded    Why = "excluded"    // cannot run the task; see Constraint
	Blocked     Why = "ruled out"
)

// Alternative is something that could have been rented for a task, or why not.
type Alternative struct {
	Cloud, DisplayName string
	Offer              *cloud.Offer // nil if the cloud has none that fits
	Request            string
	Why                Why
	Constraint         Constraint // for Excluded
	Reason             string     // for people
}

// Explain accounts for every offer that a task could have had, best first, and
// for every cloud that had none. It repeats the search without blocked resources, so
// that what they exclude is named too. task is an index into the Dag.
func Explain(p Problem, plan *Plan, at int) []Alternative {
	t := &plan.Tasks[at]
	open := p
	open.Reservations = t.reservations
	f := finder{problem: &open, task: t.Task, nodes: max(t.Task.NumNodes, 1), unfiltered: true}
	cands, err := f.candidates()
	if err != nil {
		return nil
	}
	rank(cands, p.Minimize, t.ordered)
	var out []Alternative
	for i := range cands {
		out = append(out, p.account(t, &cands[i]))
	}
	for i := range f.reqs {
		req := &f.reqs[i]
		for si, s := range p.Sources {
			if !f.eligible(s, req.res) || slices.ContainsFunc(cands, func(c Candidate) bool { return c.entry == int32(i) && c.source == int32(si) }) {
				continue
			}
			x := f.exclude(s, req)
			out = append(out, Alternative{Cloud: s.Name(), DisplayName: s.DisplayName(), Request: Describe(req.res), Why: Excluded, Constraint: x.Constraint, Reason: x.Reason, Offer: x.Nearest})
		}
	}
	return out
}

// account says why one candidate was or was not taken.
func (p *Problem) account(t *TaskPlan, c *Candidate) Alternative {
	chosen := &t.Chosen
	s := p.Sources[c.source]
	a := Alternative{Cloud: s.Name(), DisplayName: s.DisplayName(), Offer: &c.Offer, Request: Describe(c.Resources)}
	if at := BlockedBy(t.Task.BlockedResources, &c.Offer); at >= 0 {
		a.Why, a.Reason = Blocked, "blocked_resources of the task: "+t.Task.BlockedResources[at].String()
		return a
	}
	first, second := compareCost(c, chosen), compareTime(c, chosen)
	if t.target == Time {
		first, second = second, first
	}
	switch {
	case c.source == chosen.source && c.entry == chosen.entry && sameOffer(&c.Offer, &chosen.Offer):
		a.Why, a.Reason = Chosen, "taken"
	case t.ordered && c.entry > chosen.entry:
		a.Why, a.Reason = LaterChoice, "an earlier entry of ordered: could be had"
	case c.Unpriced && !chosen.Unpriced:
		a.Why, a.Reason = OwnPrice, "its price is not known"
	case first == 0 && second == 0:
		a.Why, a.Reason = SameValue, "as good; what was taken comes first in the list of clouds or places"
	case cmp.Or(first, second) < 0:
		a.Why, a.Reason = WholePlan, "better by itself, but not with the data that moves to and from the other tasks"
	case compareCost(c, chosen) > 0:
		a.Why, a.Reason = Dearer, fmt.Sprintf("$%.2f more", c.Cost-chosen.Cost)
	default:
		a.Why, a.Reason = Slower, fmt.Sprintf("%.0f s longer", c.Time-chosen.Time)
	}
	return a
}

func compareCost(a, b *Candidate) int { return cmp.Compare(nano(a.Cost), nano(b.Cost)) }
func compareTime(a, b *Candidate) int { return cmp.Compare(nano(a.Time), nano(b.Time)) }

func sameOffer(a, b *cloud.Offer) bool {
	return a.Place == b.Place && a.InstanceType == b.InstanceType && a.Spot == b.Spot && acceleratorText(a.Accelerators) == acceleratorText(b.Accelerators)
}
