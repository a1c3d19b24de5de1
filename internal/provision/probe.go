package provision

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Asking clouds that can report whether they have room.
const (
	probeTime  = 3 * time.Second // for all answers of a batch
	probeMost  = 16              // offers in a batch, and how many are watched
	probesOnce = 8               // at once
)

// ask passes over offers whose cloud says that there is no room, until the next
// one is not among them. One offer is asked about at first, then twice as many
// each time: where there is room that is one short call, and where there is none
// many are asked about at once.
func (s *search) ask(ctx context.Context) {
	if s.o.NoProbes || s.r.Keep {
		return
	}
	for ctx.Err() == nil {
		next := s.plan.Upcoming(1)
		if len(next) == 0 || s.asked[key(&next[0])] {
			return
		}
		if _, ok := s.e.prober(next[0].Cloud); !ok {
			return
		}
		s.batch = min(max(2*s.batch, 1), probeMost)
		batch := s.plan.Upcoming(s.batch)
		for i, a := range s.e.probe(ctx, batch, s.r.Nodes) {
			if s.asked == nil {
				s.asked = map[string]bool{}
			}
			s.asked[key(&batch[i])] = true
			switch o := batch[i]; {
			case a.Verdict == cloud.AvailableNone:
				s.plan.Doubt(o, Capacity, a.Reason)
			case a.Price > o.HourlyPrice:
				s.rose(o, 0, &cloud.PriceError{Place: o.Place, Planned: o.HourlyPrice, Now: a.Price, Err: errors.New(a.Reason)})
			}
		}
	}
}

// key tells offers apart.
func key(o *cloud.Offer) string { return fmt.Sprintf("%v %s %t", o.Place, o.InstanceType, o.Spot) }

func (e *Engine) prober(name string) (cloud.AvailabilityProber, bool) {
	p, ok := e.providers.Get(name)
	if !ok {
		return nil, false
	}
	return cloud.As[cloud.AvailabilityProber](p)
}

// probe asks whether so many nodes of each offer could be had. What cannot be
// told is unknown.
func (e *Engine) probe(ctx context.Context, offers []cloud.Offer, nodes int) []cloud.Availability {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	answers := make([]cloud.Availability, len(offers))
	var g errgroup.Group
	g.SetLimit(probesOnce)
	for i, o := range offers {
		answers[i].Verdict = cloud.AvailabilityUnknown
		p, ok := e.prober(o.Cloud)
		if !ok {
			continue
		}
		g.Go(func() error {
			if a, err := p.Available(ctx, o, nodes); err == nil {
				answers[i] = a
			}
			return nil
		})
	}
	_ = g.Wait()
	return answers
}

// Freed says that machines were given back or stopped: whoever waits for room
// looks again.
func (e *Engine) Freed() { e.room.Notify() }

// How often clouds are asked whether room has appeared.
const (
	watchFirst = 5 * time.Second
	watchMost  = 30 * time.Second
	// afterNotify spreads those whom one notification has woken.
	afterNotify = time.Second
)

// AwaitRoom returns when it may be worth trying again what could not be had:
// when machines were given back here, when a cloud that had said that it has no
// room says that it has, or after most, or when ctx ends.
func (e *Engine) AwaitRoom(ctx context.Context, u *UnplacedError, most time.Duration) {
	end := time.NewTimer(most)
	defer end.Stop()
	freed := e.room.Next()
	full := map[string]bool{} // offers that were said to be so
	offers := u.full()
	pause := watchFirst
	for {
		for i, a := range e.probe(ctx, offers, u.Nodes) {
			switch k := key(&offers[i]); a.Verdict {
			case cloud.AvailableNone:
				full[k] = true
			case cloud.AvailableNow:
				if full[k] {
					return
				}
			}
		}
		again := time.NewTimer(pause/2 + rand.N(pause/2))
		if len(offers) == 0 {
			again.Stop()
		}
		select {
		case <-ctx.Done():
		case <-end.C:
		case <-freed:
			sleep(ctx, rand.N(afterNotify))
		case <-again.C:
			pause = min(2*pause, watchMost)
			continue
		}
		again.Stop()
		return
	}
}

// full are the offers that failed for want of room, at most as many as are
// watched.
func (e *UnplacedError) full() []cloud.Offer {
	var out []cloud.Offer
	for _, a := range e.Attempts {
		if ClassOf(a.Outcome) == NoCapacity && len(out) < probeMost {
			out = append(out, a.Offer)
		}
	}
	return out
}
