package provision

import (
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Planner decides which offer to try next. It is pure: offers and refusals go
// in, the next offer comes out.
//
// Offers come in tiers. Nothing of a tier is tried before everything in the
// tiers above it has been ruled out; in a tier the order given is kept. What was
// refused lately, by attempts of other launches, is passed over in all tiers
// and only tried when nothing else is left: a memory may be wrong, and must not
// be why a launch fails.
type Planner struct {
	offers []cloud.Offer // tiers one after the other
	closed []cloud.Block
	lately []Refusal
	later  []cloud.Offer // passed over
	passed bool          // offers are used up; later is what is left
	unseen int           // offers that were never tried, because they were closed
}

// A Refusal is a block that is remembered for a while.
type Refusal struct {
	cloud.Block
	Outcome string
	Message string    // in the cloud's own words
	Since   time.Time // zero: nothing was tried, the cloud was asked
	Until   time.Time // zero: until the credentials change
}

// NewPlanner ranks nothing: offers are tried tier by tier in the order given,
// those that lately's refusals cover at the end.
func NewPlanner(tiers [][]cloud.Offer, lately []Refusal) *Planner {
	p := &Planner{lately: lately}
	for _, t := range tiers {
		p.offers = append(p.offers, t...)
	}
	return p
}

// Exactly is the tiers of somebody who wants one offer and no other.
func Exactly(o cloud.Offer) [][]cloud.Offer { return [][]cloud.Offer{{o}} }

// Next is the best offer that no refusal has ruled out. It is not offered
// again.
func (p *Planner) Next() (cloud.Offer, bool) {
	for {
		for len(p.offers) > 0 {
			o := p.offers[0]
			p.offers = p.offers[1:]
			switch {
			case p.isClosed(&o):
				p.unseen++
			case !p.passed && p.Lately(&o) != nil:
				p.later = append(p.later, o)
			default:
				return o, true
			}
		}
		if p.passed {
			return cloud.Offer{}, false
		}
		p.passed, p.offers, p.later = true, p.later, nil
	}
}

// Upcoming is what Next would return, the best n offers, without those that are
// passed over.
func (p *Planner) Upcoming(n int) []cloud.Offer {
	var out []cloud.Offer
	if p.passed {
		return nil
	}
	for i := range p.offers {
		if o := &p.offers[i]; !p.isClosed(o) && p.Lately(o) == nil {
			if out = append(out, *o); len(out) == n {
				break
			}
		}
	}
	return out
}

// Doubt passes an offer over: its cloud says that it cannot be had now.
func (p *Planner) Doubt(o cloud.Offer, outcome, reason string) {
	p.lately = append(p.lately, Refusal{Block: cloud.BlockOffer(o), Outcome: outcome, Message: reason})
}

// Exhausted reports whether nothing is left to try.
func (p *Planner) Exhausted() bool {
	for _, left := range [][]cloud.Offer{p.offers, p.later} {
		for i := range left {
			if !p.isClosed(&left[i]) {
				return false
			}
		}
	}
	return true
}

// Closed is how many offers were passed over for good.
func (p *Planner) Closed() int { return p.unseen + len(p.offers) + len(p.later) }

// Close rules a part of the map out.
func (p *Planner) Close(b cloud.Block) { p.closed = append(p.closed, b) }

// Lately is the refusal because of which an offer is passed over, or nil.
func (p *Planner) Lately(o *cloud.Offer) *Refusal {
	for i := range p.lately {
		if p.lately[i].Matches(o) {
			return &p.lately[i]
		}
	}
	return nil
}

func (p *Planner) isClosed(o *cloud.Offer) bool {
	for i := range p.closed {
		if p.closed[i].Matches(o) {
			return true
		}
	}
	return false
}

// Refused notes that an offer could not be had, and returns what that rules out.
func (p *Planner) Refused(o cloud.Offer, err error) cloud.Block {
	b := ruledOut(o, err)
	p.closed = append(p.closed, b, cloud.BlockOffer(o))
	return b
}
