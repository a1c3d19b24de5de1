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
}
