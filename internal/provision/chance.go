package provision

import (
	"math"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Seen is one attempt as far as it tells of room: it was had or it was not.
type Seen struct {
	Offer cloud.Offer
	At    time.Time
	Had   bool
}

// Chances estimates how likely an offer can be had, from what attempts have
// seen. It is pure: the same sightings at the same time give the same numbers.
//
// A sighting counts the less the older it is, half as much after each half-life.
// What is known of a machine in a zone is mixed with what is known of it in the
// region, that with what is known of it in the cloud, and that with a hopeful
// guess: a full zone makes its neighbours suspect, and where nobody has looked
// for long the guess comes back.
type Chances struct {
	tallies map[tallyKey]tally
	now     time.Time
}

// tally is discounted successes and tries.
type tally struct{ had, tried float64 }

type tallyKey struct {
	place        cloud.Place
	instanceType string
	spot         bool
}

const (
	// guess is the chance of an offer that nothing is known of.
	guess = 0.8
	// How many sightings the wider view is worth next to those of the narrower.
	zoneTrust, regionTrust, typeTrust = 0.5, 1.0, 2.0
	// DefaultHalfLife is how soon a sighting counts half.
	DefaultHalfLife = 90 * time.Minute
)

// NewChances tallies sightings as of now. A halfLife of 0 is the default.
// Sightings from the future count like those of now.
func NewChances(seen []Seen, now time.Time, halfLife time.Duration) *Chances {
	if halfLife <= 0 {
		halfLife = DefaultHalfLife
	}
	c := &Chances{tallies: map[tallyKey]tally{}, now: now}
	for i := range seen {
		s := &seen[i]
		weight := math.Exp2(-max(0, now.Sub(s.At).Seconds()) / halfLife.Seconds())
		had := 0.0
		if s.Had {
			had = weight
		}
		zone, region, machine := levels(&s.Offer)
		c.add(machine, had, weight)
		if region != machine {
			c.add(region, had, weight)
		}
		if zone != region {
			c.add(zone, had, weight)
		}
	}
	return c
}

func (c *Chances) add(k tallyKey, had, tried float64) {
	t := c.tallies[k]
	t.had += had
	t.tried += tried
	c.tallies[k] = t
}

// levels are the views of an offer, from near to far. Offers without zone or
// region have fewer.
func levels(o *cloud.Offer) (zone, region, machine tallyKey) {
	machine = tallyKey{cloud.Place{Cloud: o.Cloud}, o.InstanceType, o.Spot}
	region, zone = machine, machine
	region.place.Region = o.Region
	zone.place = o.Place
	return zone, region, machine
}

// Of is the chance that an attempt at the offer succeeds, strictly between 0
// and 1.
func (c *Chances) Of(o *cloud.Offer) float64 {
	zone, region, machine := levels(o)
	p := c.mix(machine, typeTrust, guess)
	if region != machine {
		p = c.mix(region, regionTrust, p)
	}
	if zone != region {
		p = c.mix(zone, zoneTrust, p)
	}
	return min(max(p, 0.001), 0.999)
}

// mix is the mean of a Beta distribution whose prior is worth trust sightings
// with mean p.
func (c *Chances) mix(k tallyKey, trust, p float64) float64 {
	t := c.tallies[k]
	return (t.had + trust*p) / (t.tried + trust)
}

// Weight is how much is known of exactly this offer, in sightings of now.
func (c *Chances) Weight(o *cloud.Offer) float64 {
	zone, _, _ := levels(o)
	return c.tallies[zone].tried
}
