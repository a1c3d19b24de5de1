package replicas

import (
	"maps"
	"slices"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
)

// Offer is a machine in a place on which a replica can run.
type Offer struct {
	cloud.Offer
	Chance float64 // that it can be had now, from what launches have learned; 0: not known
}

// PlaceState is what a service remembers of a spot offer. It is stored.
type PlaceState struct {
	Avoided  bool      `json:"avoided,omitempty"`  // dynamic_fallback: failed or preempted since it was last had
	Failures int       `json:"failures,omitempty"` // hedged: in a row
	Last     time.Time `json:"last,omitzero"`      // trouble
}

// Words of spot_placer.
const (
	dynamicFallback = "dynamic_fallback"
	hedged          = "hedged"
)

// Hedged spot: how long a place is left alone after a failure, doubled with each
// one, and for how long a place counts as troubled.
const (
	firstRest = 2 * time.Minute
	mostRest  = 30 * time.Minute
	troubled  = 2 * time.Hour
)

// noteTrouble moves what rows have met into the memory, and forgets it there.
func noteTrouble(places map[string]PlaceState, rows []Replica) map[string]PlaceState {
	places = maps.Clone(places)
	if places == nil {
		places = map[string]PlaceState{}
	}
	for i := range rows {
		r := &rows[i]
		for _, t := range r.Trouble {
			if !r.Spot {
				continue
			}
			p := places[t.Key]
			p.Avoided = true
			p.Failures++
			if t.At.After(p.Last) {
				p.Last = t.At
			}
			places[t.Key] = p
		}
		r.Trouble = nil
		if len(places) == 0 {
			continue
		}
		if p, ok := places[r.key()]; ok && (r.Status == api.ReplicaStarting || r.Ready()) && r.ProvisionedAt.After(p.Last) {
			p.Avoided, p.Failures = false, 0 // it was had since
			places[r.key()] = p
		}
	}
	return places
}

func (o *Offer) key() string { return placeKey(o.Place, o.InstanceType, o.Spot) }

// pick chooses where a spot replica is launched; -1: nowhere at the moment. It may
// change what is remembered of places.
func pick(placer string, offers []Offer, places map[string]PlaceState, rows []Replica, now time.Time) int {
	if placer == hedged {
		return pickHedged(offers, places, rows, now)
	}
	return pickDynamic(offers, places, rows)
}

// pickDynamic is dynamic_fallback: the cheapest place that was not lost and has
// no replica yet, else the cheapest that was not lost. When fewer than two are
// left, all are tried again.
func pickDynamic(offers []Offer, places map[string]PlaceState, rows []Replica) int {
	active := 0
	for i := range offers {
		if offers[i].Spot && !places[offers[i].key()].Avoided {
			active++
		}
	}
	if active < 2 {
		for k, p := range places {
			p.Avoided = false
			places[k] = p
		}
	}
	used := map[string]bool{}
	for i := range rows {
		if r := &rows[i]; r.Live() && r.Place != (cloud.Place{}) {
			used[r.key()] = true
		}
	}
	best := -1
	for i := range offers {
		o := &offers[i]
		if !o.Spot || places[o.key()].Avoided {
			continue
		}
		if best < 0 {
			best = i
			continue
		}
		b := &offers[best]
		if used[o.key()] != used[b.key()] {
			if used[b.key()] {
				best = i
			}
		} else if o.HourlyPrice < b.HourlyPrice {
			best = i
		}
	}
	return best
}

// What it is worth, as a share of the cheapest price, not to have another replica
// in the same zone or region, where one preemption takes both.
const (
	sameZone   = 0.5
	sameRegion = 0.1
)

// pickHedged spreads replicas: of the places that may be tried now, the one whose
// price, divided by the chance to get and keep a machine, is lowest, with a
// surcharge for each replica that is there already. A region gets at most half of
// the replicas while another has room.
func pickHedged(offers []Offer, places map[string]PlaceState, rows []Replica, now time.Time) int {
	type count struct{ zone, region map[cloud.Place]int }
	c := count{map[cloud.Place]int{}, map[cloud.Place]int{}}
	total := 1
	for i := range rows {
		if r := &rows[i]; r.Live() && r.Spot && r.Place != (cloud.Place{}) {
			c.zone[r.Place]++
			c.region[cloud.Place{Cloud: r.Place.Cloud, Region: r.Place.Region}]++
			total++
		}
	}
	cheapest := 0.0
	for i := range offers {
		if o := &offers[i]; o.Spot && (cheapest == 0 || o.HourlyPrice < cheapest) {
			cheapest = o.HourlyPrice
		}
	}
	best, bestCost, bestFull := -1, 0.0, false
	for i := range offers {
		o := &offers[i]
		p := places[o.key()]
		if !o.Spot || p.Failures > 0 && now.Before(p.Last.Add(min(firstRest<<min(p.Failures-1, 10), mostRest))) {
			continue
		}
		chance := o.Chance
		if chance <= 0 {
			chance = 0.8
		}
		if !p.Last.IsZero() && now.Sub(p.Last) < troubled {
			chance /= 2
		}
		region := cloud.Place{Cloud: o.Cloud, Region: o.Region}
		full := 2*(c.region[region]+1) > total+1
		cost := o.HourlyPrice/chance + cheapest*(sameZone*float64(c.zone[o.Place])+sameRegion*float64(c.region[region]))
		if best < 0 || bestFull && !full || bestFull == full && cost < bestCost {
			best, bestCost, bestFull = i, cost, full
		}
	}
	return best
}

// anyTrouble reports that a place of the offers failed, or lost a machine, lately.
func anyTrouble(offers []Offer, places map[string]PlaceState, now time.Time) bool {
	return len(places) > 0 && slices.ContainsFunc(offers, func(o Offer) bool {
		p := places[o.key()]
		return o.Spot && !p.Last.IsZero() && now.Sub(p.Last) < troubled
	})
}
