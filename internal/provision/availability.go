package provision

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// Availability is what our own attempts tell of one machine in one place.
type Availability struct {
	cloud.Place
	InstanceType string             `json:"instance_type"`
	Accelerators map[string]float64 `json:"accelerators,omitempty"`
	Spot         bool               `json:"use_spot"`
	Chance       float64            `json:"chance"` // of the next attempt, 0 to 1
	Tries        int                `json:"tries"`  // that told of room, in the last week
	Had          int                `json:"had"`    // of these
	Median       float64            `json:"median_seconds,omitempty"`
	LastTry      time.Time          `json:"last_try"`
	LastOutcome  string             `json:"last_outcome"`
	LastMessage  string             `json:"last_message,omitempty"` // in the cloud's own words
	// PassedOver says until when it is tried last, because it was refused; zero:
	// it is not, or until the credentials change.
	PassedOver   bool      `json:"passed_over"`
	PassedOverTo time.Time `json:"passed_over_until,omitzero"`
	// Now is what the cloud says; the zero value: it was not asked.
	Now cloud.Availability `json:"now,omitzero"`
}

// AvailabilityFilter selects places; zero fields select all.
type AvailabilityFilter struct {
	Cloud, Region, InstanceType, Accelerator string
	Quantity                                 float64 // of accelerators on a machine
}

func (f *AvailabilityFilter) wants(o *cloud.Offer) bool {
	if f.Accelerator != "" {
		has := false
		for name, n := range o.Accelerators {
			has = has || strings.EqualFold(name, f.Accelerator) && (f.Quantity == 0 || f.Quantity == n)
		}
		if !has {
			return false
		}
	}
	return (f.Cloud == "" || f.Cloud == o.Cloud) && (f.Region == "" || f.Region == o.Region) && (f.InstanceType == "" || f.InstanceType == o.InstanceType)
}

// Availability lists what attempts of the last week tell, the likeliest first. A
// halfLife of 0 is the default.
func (e *Engine) Availability(ctx context.Context, f AvailabilityFilter, halfLife time.Duration) []Availability {
	return e.history(ctx).Availability(f, halfLife, e.stamp)
}

// AskNow asks those clouds that can report whether a machine could be had now. What
// is not answered soon stays unknown.
func (e *Engine) AskNow(ctx context.Context, list []Availability) {
	offers := make([]cloud.Offer, len(list))
	for i, a := range list {
		offers[i] = cloud.Offer{Place: a.Place, InstanceType: a.InstanceType, Accelerators: a.Accelerators, Spot: a.Spot}
	}
	for i, a := range e.probe(ctx, offers, 1) {
		if _, ok := e.prober(offers[i].Cloud); ok {
			list[i].Now = a
		}
	}
}

// Availability lists every machine and place that was tried, the likeliest
// first.
func (h *History) Availability(f AvailabilityFilter, halfLife time.Duration, credentials func(cloud string) string) []Availability {
	type place struct {
		Availability
		took []time.Duration
	}
	chances := NewChances(h.Seen(), h.now, halfLife)
	lately := Planner{lately: h.Refusals(credentials)}
	byKey := map[tallyKey]*place{}
	for i := range h.attempts {
		a := &h.attempts[i]
		if a.Outcome == "" || a.Outcome == Cancelled || !f.wants(&a.Offer) {
			continue
		}
		key, _, _ := levels(&a.Offer)
		p := byKey[key]
		if p == nil {
			p = &place{Availability: Availability{Place: a.Offer.Place, InstanceType: a.Offer.InstanceType, Accelerators: a.Offer.Accelerators, Spot: a.Offer.Spot, Chance: chances.Of(&a.Offer)}}
			if r := lately.Lately(&a.Offer); r != nil {
				p.PassedOver, p.PassedOverTo = true, r.Until
			}
			byKey[key] = p
		}
		p.LastTry, p.LastOutcome, p.LastMessage = a.EndedAt, a.Outcome, a.Message
		if had, tells := tellsOfRoom(a); tells {
			p.Tries++
			if had {
				p.Had++
				p.took = append(p.took, a.EndedAt.Sub(a.StartedAt))
			}
		}
	}
	out := make([]Availability, 0, len(byKey))
	for _, p := range byKey {
		if len(p.took) > 0 {
			p.Median = quantile(p.took, 0.5).Seconds()
		}
		out = append(out, p.Availability)
	}
	slices.SortFunc(out, func(a, b Availability) int {
		return cmp.Or(cmp.Compare(b.Chance, a.Chance), cmp.Compare(a.Place.String(), b.Place.String()), cmp.Compare(a.InstanceType, b.InstanceType), compareBool(a.Spot, b.Spot))
	})
	return out
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// tellsOfRoom reports whether an attempt says anything of room, and what. A
// refused credential or a broken answer does not.
func tellsOfRoom(a *state.Attempt) (had, tells bool) {
	switch a.Outcome {
	case OK:
		return true, true
	case Capacity, Preempted, Partial, Timeout:
		return false, true
	}
	return false, false
}
