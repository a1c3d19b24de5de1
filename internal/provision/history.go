package provision

import (
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// History is what past attempts of all launches teach. It is pure: made of
// records as of a moment.
type History struct {
	attempts []state.Attempt // the oldest first
	now      time.Time
}

// NewHistory takes attempts, the oldest first.
func NewHistory(attempts []state.Attempt, now time.Time) *History {
	return &History{attempts: attempts, now: now}
}

// Seen is what the attempts tell of room.
func (h *History) Seen() []Seen {
	var seen []Seen
	for i := range h.attempts {
		a := &h.attempts[i]
		if had, tells := tellsOfRoom(a); tells {
			seen = append(seen, Seen{a.Offer, a.EndedAt, had})
		}
	}
	return seen
}

// holds is how long a refusal is remembered, by outcome.
var holds = map[string]time.Duration{
	Capacity:    5 * time.Minute,
	Preempted:   5 * time.Minute,
	Partial:     5 * time.Minute,
	Timeout:     5 * time.Minute,
	Throttled:   time.Minute,
	Unreachable: time.Minute,
	Quota:       3 * time.Hour,
	Invalid:     time.Hour,
	Permission:  time.Hour,
	Credentials: 10 * time.Minute, // if nobody can report whether they changed
}

// Refusals are those that still hold, the latest first. An offer that was had
// since lifts every refusal that covered it. credentials tells apart the
// credentials of a cloud in use now ("": unknown); refused ones count until
// they change.
func (h *History) Refusals(credentials func(cloud string) string) []Refusal {
	var out []Refusal
	var had []*cloud.Offer
	for i := len(h.attempts) - 1; i >= 0; i-- {
		a := &h.attempts[i]
		if a.Outcome == OK {
			had = append(had, &a.Offer)
			continue
		}
		if a.RuledOut == nil || a.EndedAt.IsZero() || liftedBy(had, a.RuledOut) {
			continue
		}
		r := Refusal{Block: *a.RuledOut, Outcome: a.Outcome, Message: a.Message, Since: a.EndedAt, Until: a.EndedAt.Add(holds[a.Outcome])}
		if class := ClassOf(a.Outcome); class == BadCredentials && credentials != nil {
			now := credentials(a.Offer.Cloud)
			switch {
			case now == "" || a.Credentials == "":
			case now == a.Credentials:
				r.Until = time.Time{}
			default:
				continue
			}
		}
		if r.Until.IsZero() || h.now.Before(r.Until) {
			out = append(out, r)
		}
	}
	return out
}

func liftedBy(had []*cloud.Offer, b *cloud.Block) bool {
	for _, o := range had {
		if b.Matches(o) {
			return true
		}
	}
	return false
}

// learned is how many of the latest durations of a step are looked at.
const learned = 64

// Took lists how long a step took lately, for attempts at offers that want
// selects. Steps that were cut off count: a deadline that is too short must not
// stay so. With okOnly only those that succeeded count.
func (h *History) Took(step string, okOnly bool, want func(*state.Attempt) bool) []time.Duration {
	var out []time.Duration
	for i := len(h.attempts) - 1; i >= 0 && len(out) < learned; i-- {
		a := &h.attempts[i]
		if !want(a) {
			continue
		}
		for _, s := range a.Steps {
			if s.Name == step && (s.OK || !okOnly && a.Outcome == Timeout) {
				out = append(out, s.Took)
			}
		}
	}
	return out
}

// slowness reports how long failed attempts at an offer's cloud and machine took
// on average; a minute if none is known.
func (h *History) slowness() func(*cloud.Offer) time.Duration {
	type key struct{ cloud, machine string }
	type failures struct {
		took time.Duration
		n    int
	}
	all := map[key]failures{}
	for i := range h.attempts {
		a := &h.attempts[i]
		if a.Outcome == "" || a.Outcome == OK || a.Outcome == Cancelled {
			continue
		}
		k := key{a.Offer.Cloud, a.Offer.InstanceType}
		f := all[k]
		all[k] = failures{f.took + a.EndedAt.Sub(a.StartedAt), f.n + 1}
	}
	return func(o *cloud.Offer) time.Duration {
		f := all[key{o.Cloud, o.InstanceType}]
		if f.n == 0 {
			return time.Minute
		}
		return f.took / time.Duration(f.n)
	}
}
