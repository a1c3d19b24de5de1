package provision

import (
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// Whoever waits for a cheap machine does not hedge with a dear one because another
// dear one is under way already.
func TestAHedgeIsComparedWithTheCheapestAttemptUnderWay(t *testing.T) {
	s := &search{flights: map[string]*flight{}}
	for token, price := range map[string]float64{"a": 3, "b": 1, "c": 2} {
		s.flights[token] = &flight{attempt: state.Attempt{Offer: cloud.Offer{HourlyPrice: price}}}
	}
	for _, c := range []struct {
		price, factor float64
		want          bool
	}{{1.9, 0, false}, {2, 0, false}, {2.1, 0, true}, {5, 0, true}, {4, 5, false}, {5.1, 5, true}} {
		s.o.HedgePrice = c.factor
		if got := s.tooDear(&cloud.Offer{HourlyPrice: c.price}); got != c.want {
			t.Errorf("%v at a factor of %v: too dear %v, want %v", c.price, c.factor, got, c.want)
		}
	}
	// Data that moves counts, and so does what is paid for already.
	s.o.HedgePrice, s.r.Extra = 0, func(o cloud.Offer) float64 { return map[string]float64{"far": 3}[o.Region] }
	if !s.tooDear(&cloud.Offer{Place: cloud.Place{Region: "far"}, HourlyPrice: 1}) || s.tooDear(&cloud.Offer{HourlyPrice: 8, PaidShare: 0.75}) {
		t.Error("compared by the price alone")
	}
}
