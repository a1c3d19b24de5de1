package provision

import (
	"slices"
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
	offers []tiered // tiers one after the other
	closed []cloud.Block
	lately []Refusal
	later  []tiered // passed over
	passed bool     // offers are used up; later is what is left
	taken  []tiered // what Next has returned
	unseen int      // offers that were never tried, because they were closed
	rank   func([]cloud.Offer) []cloud.Offer
}

// tiered is an offer and the number of its tier.
type tiered struct {
	cloud.Offer
	tier int
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
// those that lately's refusals cover at the end. rank orders what is left of a tier after a
// price in it has changed; nil: by price.
func NewPlanner(tiers [][]cloud.Offer, lately []Refusal, rank func([]cloud.Offer) []cloud.Offer) *Planner {
	p := &Planner{lately: lately, rank: rank}
	for n, t := range tiers {
		for _, o := range t {
			p.offers = append(p.offers, tiered{o, n})
		}
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
			case p.isClosed(&o.Offer):
				p.unseen++
			case !p.passed && p.Lately(&o.Offer) != nil:
				p.later = append(p.later, o)
			default:
				p.taken = append(p.taken, o)
				return o.Offer, true
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
		if o := &p.offers[i].Offer; !p.isClosed(o) && p.Lately(o) == nil {
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
	for _, left := range [][]tiered{p.offers, p.later} {
		for i := range left {
			if !p.isClosed(&left[i].Offer) {
				return false
			}
		}
	}
	return true
}

// Closed is how many offers were passed over for good.
func (p *Planner) Closed() int { return p.unseen + len(p.offers) + len(p.later) }

// Take is Next for an offer that the caller knows, if it is among those left.
func (p *Planner) Take(o cloud.Offer) {
	exactly := cloud.BlockOffer(o)
	for _, left := range []*[]tiered{&p.offers, &p.later} {
		*left = slices.DeleteFunc(*left, func(x tiered) bool {
			same := exactly.Matches(&x.Offer)
			if same {
				p.taken = append(p.taken, x)
			}
			return same
		})
	}
}

// Reprice puts an offer back among what is left of its tier, at another price.
func (p *Planner) Reprice(o cloud.Offer, price float64) {
	p.Take(o)
	exactly, tier := cloud.BlockOffer(o), 0
	for _, x := range p.taken {
		if exactly.Matches(&x.Offer) {
			tier = x.tier
		}
	}
	o.HourlyPrice = price
	begin, _ := slices.BinarySearchFunc(p.offers, tier, func(x tiered, t int) int { return x.tier - t })
	end, _ := slices.BinarySearchFunc(p.offers, tier+1, func(x tiered, t int) int { return x.tier - t })
	rest := []cloud.Offer{}
	for _, x := range p.offers[begin:end] {
		rest = append(rest, x.Offer)
	}
	at := slices.IndexFunc(rest, func(x cloud.Offer) bool { return x.HourlyPrice > price })
	if at < 0 {
		at = len(rest)
	}
	rest = slices.Insert(rest, at, o)
	if p.rank != nil {
		rest = p.rank(rest)
	}
	again := make([]tiered, len(rest))
	for i, x := range rest {
		again[i] = tiered{x, tier}
	}
	p.offers = slices.Replace(p.offers, begin, end, again...)
}

// Lately is the refusal because of which an offer is passed over, or nil.
func (p *Planner) Lately(o *cloud.Offer) *Refusal {
	for i := range p.lately {
		if r := &p.lately[i]; r.Matches(o) && !r.refutedBy(o) {
			return r
		}
	}
	return nil
}

// refutedBy reports whether there is room for an offer that was refused when there was none:
// its cloud has said since that reservations hold all nodes.
func (r *Refusal) refutedBy(o *cloud.Offer) bool {
	return o.PaidShare == 1 && !r.Since.IsZero() && (r.Outcome == Capacity || r.Outcome == Quota)
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
