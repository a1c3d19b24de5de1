package provision

import (
	"cmp"
	"context"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// wantsMore reports whether another attempt should start now.
func (s *search) wantsMore(ctx context.Context) bool {
	if len(s.flights) > 0 {
		return s.hedges(ctx) && !time.Now().Before(s.due())
	}
	return s.goesOn(ctx) && (!s.plan.Exhausted() || s.held != nil || s.first != nil)
}

// goesOn reports whether anything more is tried at all.
func (s *search) goesOn(ctx context.Context) bool {
	return s.winner == nil && s.stop == nil && ctx.Err() == nil
}

// hedges reports whether another attempt may start beside those under way.
func (s *search) hedges(ctx context.Context) bool {
	return s.goesOn(ctx) && !s.r.Keep && len(s.flights) < s.o.Hedge && s.held == nil && !s.plan.Exhausted()
}

// due is when all attempts under way take longer than most.
func (s *search) due() time.Time {
	var last time.Time
	for _, f := range s.flights {
		if f.due.After(last) {
			last = f.due
		}
	}
	return last
}

// nextDue fires when another attempt should start beside those under way.
func (s *search) nextDue(ctx context.Context) (<-chan time.Time, func()) {
	if !s.hedges(ctx) {
		return nil, func() {}
	}
	t := time.NewTimer(time.Until(s.due()))
	return t.C, func() { t.Stop() }
}

// tooDear reports whether an offer costs too much to be tried beside another.
func (s *search) tooDear(o *cloud.Offer) bool {
	var least float64
	for _, f := range s.flights {
		if p := costOf(f.attempt.Offer, s.r.Extra); least == 0 || p < least {
			least = p
		}
	}
	return costOf(*o, s.r.Extra) > least*cmp.Or(s.o.HedgePrice, 2)
}
