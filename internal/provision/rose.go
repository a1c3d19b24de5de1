package provision

import (
	"context"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// A RoseError means that the price of the best offer left rose above what was agreed to:
// whoever launches has to be asked before it is tried. Nothing is left.
type RoseError struct {
	Offer   cloud.Offer // at its price now
	Planned float64
	Nodes   int
}

func (e *RoseError) Error() string {
	s := fmt.Sprintf("%s in %v costs $%.4g an hour now", machine(e.Offer), e.Offer.Place, e.Offer.HourlyPrice)
	if e.Nodes > 1 {
		s += " each"
	}
	return s + fmt.Sprintf("; the plan said $%.4g", e.Planned)
}

// rise is how often the price of an offer rose in a search.
type rise struct {
	offer cloud.Block
	from  float64 // what it was planned with
	times int
}

// mostRises is how often a price may rise in a search before the offer is given up.
const mostRises = 3

// overpriced is why an offer is not tried at its new price; nil: it is an offer like
// another. most is what the task allows, 0 for anything.
func overpriced(r rise, dearer *cloud.PriceError, most float64) error {
	why := ""
	switch {
	case most > 0 && dearer.Now > most:
		why = fmt.Sprintf("max_hourly_cost is $%.4g", most)
	case r.times > mostRises:
		why = fmt.Sprintf("it rose %d times during this launch, from $%.4g", r.times, r.from)
	default:
		return nil
	}
	return &cloud.PriceError{Place: dearer.Place, Planned: r.from, Now: dearer.Now, Err: fmt.Errorf("%w; %s", dearer.Err, why)}
}

// rose deals with an offer that costs more than it was planned with. It is an offer at its
// new price then, in its place among those that are left, unless the task allows no such
// price.
func (s *search) rose(o cloud.Offer, took time.Duration, dearer *cloud.PriceError) {
	r := s.risen(o)
	if r == nil {
		s.rises = append(s.rises, rise{offer: cloud.BlockOffer(o), from: o.HourlyPrice})
		r = &s.rises[len(s.rises)-1]
	}
	r.times++
	if err := overpriced(*r, dearer, s.most(o)); err != nil {
		s.refused(o, took, err)
		return
	}
	s.out.say("⚠ %v: %v", o.Place, dearer.Err)
	s.plan.Reprice(o, dearer.Now)
}

// most is what a node of an offer may cost an hour; 0: anything.
func (s *search) most(o cloud.Offer) float64 {
	if s.r.Most == nil {
		return o.MaxHourlyCost
	}
	return s.r.Most(o)
}

// roseWhileOff is a PriceError if a cluster that was up before, of whose machines so many
// run, costs more now than it did. What is not known stops nobody.
func (s *search) roseWhileOff(ctx context.Context, f *flight, running int) error {
	o := f.spec.Offer
	if running >= o.Machines(s.r.Nodes) {
		return nil
	}
	limit := o // dearer than this is too dear, or at least to be said
	if most := o.MaxHourlyCost; most > 0 && (o.HourlyPrice == 0 || most < o.HourlyPrice) {
		limit.HourlyPrice = most
	}
	now := o.HourlyPrice
	if !f.p.Features().PriceStays {
		now = s.e.probe(ctx, []cloud.Offer{limit}, s.r.Nodes)[0].Price
	}
	if !cloud.Dearer(limit.HourlyPrice, now) {
		return nil
	}
	was := "its price was not known when it was rented"
	if o.HourlyPrice > 0 {
		was = fmt.Sprintf("it cost $%.4g so far", o.HourlyPrice)
	}
	return &cloud.PriceError{Place: o.Place, Planned: o.HourlyPrice, Now: now, Err: fmt.Errorf("%s costs $%.4g an hour now; %s", machine(o), now, was)}
}

// risen is what is known of an offer whose price rose; nil: it did not.
func (s *search) risen(o cloud.Offer) *rise {
	for i := range s.rises {
		if s.rises[i].offer.Matches(&o) {
			return &s.rises[i]
		}
	}
	return nil
}

// unagreed reports whether an offer's price rose above what was agreed to, and what it was
// planned with.
func (s *search) unagreed(o *cloud.Offer) (planned float64, is bool) {
	r := s.risen(*o)
	if r == nil || s.r.Agreed == nil {
		return 0, false
	}
	return r.from, cloud.Dearer(*s.r.Agreed, o.HourlyPrice)
}
