package provision

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Ranking is how offers are put in order.
type Ranking struct {
	// PriceOnly keeps the order given, which is by price.
	PriceOnly bool
	// Patience is what a failed attempt of a minute is worth avoiding, as a
	// share of an hour on the cheapest offer; 0: 0.2.
	Patience float64
}

const defaultPatience = 0.2

// Failures that take longer than a minute cost more, within bounds.
const (
	leastFailure = 30 * time.Second
	mostFailure  = 15 * time.Minute
)

// Rank orders the offers of each tier by what it is expected to cost to get a
// machine there, attempts that fail included; tiers stay apart. Nodes that fit into
// reservations cost nothing. Equal ones, and free ones, keep their order. slow reports
// how long a failed attempt takes; nil: a minute. extra is as in [Request].
func (r Ranking) Rank(tiers [][]cloud.Offer, c *Chances, slow func(*cloud.Offer) time.Duration, extra func(cloud.Offer) float64) [][]cloud.Offer {
	if r.PriceOnly {
		return tiers
	}
	out := make([][]cloud.Offer, len(tiers))
	for i, t := range tiers {
		out[i] = r.rank(t, c, slow, extra)
	}
	return out
}

func (r Ranking) rank(offers []cloud.Offer, c *Chances, slow func(*cloud.Offer) time.Duration, extra func(cloud.Offer) float64) []cloud.Offer {
	if len(offers) < 2 {
		return offers
	}
	type ranked struct {
		offer cloud.Offer
		cost  float64
	}
	all := make([]ranked, len(offers))
	least := math.Inf(1)
	for i, o := range offers {
		all[i] = ranked{o, costOf(o, extra)}
		least = min(least, all[i].cost)
	}
	minute := cmp.Or(r.Patience, defaultPatience) * max(least, 0)
	for i := range all {
		o := all[i].offer
		took := time.Minute
		if slow != nil {
			took = min(max(slow(&o), leastFailure), mostFailure)
		}
		chance := c.Of(&o)
		if o.PaidShare == 1 { // the cloud says that they are free
			chance = 1
		}
		all[i].cost = expected(all[i].cost, chance, minute*took.Minutes())
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(a.cost, b.cost) })
	out := make([]cloud.Offer, len(all))
	for i := range all {
		out[i] = all[i].offer
	}
	return out
}

// costOf is what a node of an offer costs an hour, on average: those that fit into
// reservations cost nothing. extra is as in [Request].
func costOf(o cloud.Offer, extra func(cloud.Offer) float64) float64 {
	cost := o.HourlyPrice * (1 - o.PaidShare)
	if extra != nil {
		cost += extra(o)
	}
	return cost
}

// expected is the cost of an offer that is tried until it is had: its price, and
// the failures on the way. Of all orders in which to try independent offers once
// each, the one by this number costs the least.
func expected(price, chance, failure float64) float64 {
	return price + failure*(1-chance)/chance
}
