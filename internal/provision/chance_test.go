package provision

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/cloud"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// anyOffer is one of a few machines in a few places.
func anyOffer(t *rapid.T, label string) cloud.Offer {
	return cloud.Offer{
		Place:        place(rapid.SampledFrom([]string{"aws/east/a", "aws/east/b", "aws/west/a", "gcp/us/a", "lambda/us", "local"}).Draw(t, label)),
		InstanceType: rapid.SampledFrom([]string{"p4", "p5"}).Draw(t, label+" machine"),
		Spot:         rapid.Bool().Draw(t, label+" spot"),
		HourlyPrice:  rapid.Float64Range(0.1, 100).Draw(t, label+" price"),
	}
}

func anySeen(t *rapid.T) []Seen {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Seen {
		return Seen{anyOffer(t, "seen"), noon.Add(-time.Duration(rapid.IntRange(0, 10_000).Draw(t, "age")) * time.Second), rapid.Bool().Draw(t, "had")}
	}), 0, 30).Draw(t, "sightings")
}

func TestChancesAreChances(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, o := NewChances(anySeen(t), noon, time.Hour), anyOffer(t, "offer")
		if p := c.Of(&o); !(p > 0 && p < 1) {
			t.Fatalf("chance %v", p)
		}
	})
}

// A success never makes the same offer, or a neighbour, less likely; a failure
// never more.
func TestSeeingMovesTheChanceTheRightWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seen, o := anySeen(t), anyOffer(t, "offer")
		other := o
		other.Zone = "z"
		before := NewChances(seen, noon, time.Hour)
		for _, had := range []bool{true, false} {
			after := NewChances(append(slices.Clone(seen), Seen{o, noon, had}), noon, time.Hour)
			for _, x := range []cloud.Offer{o, other} {
				b, a := before.Of(&x), after.Of(&x)
				if had && a < b-1e-9 || !had && a > b+1e-9 {
					t.Fatalf("%v after %t at %v: %v, before %v", x.Place, had, o.Place, a, b)
				}
			}
		}
	})
}

// What nobody has seen for long is as good as unknown.
func TestOldSightingsFade(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seen, o := anySeen(t), anyOffer(t, "offer")
		late := NewChances(seen, noon.Add(100*time.Hour), time.Hour)
		if p := late.Of(&o); math.Abs(p-guess) > 1e-6 {
			t.Fatalf("chance %v of %v after 100 half-lives, want the guess", p, o.Place)
		}
	})
}

// The order of sightings does not matter, and those of other machines, clouds
// and markets tell nothing.
func TestChancesDependOnWhatWasSeenOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seen, o := anySeen(t), anyOffer(t, "offer")
		want := NewChances(seen, noon, time.Hour).Of(&o)
		shuffled := rapid.Permutation(seen).Draw(t, "shuffled")
		same := slices.DeleteFunc(shuffled, func(s Seen) bool {
			return s.Offer.Cloud != o.Cloud || s.Offer.InstanceType != o.InstanceType || s.Offer.Spot != o.Spot
		})
		if got := NewChances(same, noon, time.Hour).Of(&o); math.Abs(got-want) > 1e-9 {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

func TestNeighboursAreSuspect(t *testing.T) {
	full := offerAt("aws/east/a")
	c := NewChances([]Seen{{full, noon, false}, {full, noon, false}}, noon, time.Hour)
	zone, neighbour, region := full, offerAt("aws/east/b"), offerAt("aws/west/a")
	if a, b, r := c.Of(&zone), c.Of(&neighbour), c.Of(&region); !(a < b && b < r && r < guess) {
		t.Errorf("zone %.2f, its neighbour %.2f, another region %.2f", a, b, r)
	}
}

func offerAt(where string) cloud.Offer {
	return cloud.Offer{Place: place(where), InstanceType: "p4", HourlyPrice: 1}
}

// TestRankCostsLeast compares the order with all others: no order of independent
// offers, each tried once, is expected to cost less. A launch that gets nothing
// costs the same in all of them.
func TestRankCostsLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(t, "offers")
		var offers []cloud.Offer
		chance := map[string]float64{}
		var seen []Seen
		for i := range n {
			// Each in a cloud of its own: their chances are independent.
			o := cloud.Offer{Place: cloud.Place{Cloud: fmt.Sprintf("c%d", i)}, InstanceType: "m", HourlyPrice: rapid.Float64Range(1, 10).Draw(t, "price")}
			for range rapid.IntRange(0, 4).Draw(t, "seen") {
				seen = append(seen, Seen{o, noon, rapid.Bool().Draw(t, "had")})
			}
			offers = append(offers, o)
		}
		c := NewChances(seen, noon, time.Hour)
		for i := range offers {
			chance[offers[i].Cloud] = c.Of(&offers[i])
		}
		failure := defaultPatience * slices.MinFunc(offers, func(a, b cloud.Offer) int { return cmp.Compare(a.HourlyPrice, b.HourlyPrice) }).HourlyPrice
		cost := func(order []cloud.Offer) float64 {
			sum, left := 0.0, 1.0
			for _, o := range order {
				p := chance[o.Cloud]
				sum += left * (p*o.HourlyPrice + (1-p)*failure)
				left *= 1 - p
			}
			return sum
		}
		ranked := Ranking{}.Rank([][]cloud.Offer{offers}, c, nil, nil)[0]
		other := rapid.Permutation(offers).Draw(t, "another order")
		if cost(ranked) > cost(other)+1e-9 {
			t.Fatalf("the ranking costs %v, another order %v", cost(ranked), cost(other))
		}
	})
}

func TestRankKeepsTiersAndOrders(t *testing.T) {
	full := offerAt("aws/east/a")
	c := NewChances([]Seen{{full, noon, false}, {full, noon, false}, {full, noon, false}}, noon, time.Hour)
	tiers := [][]cloud.Offer{{full, offerAt("gcp/us/a")}, {offerAt("lambda/us")}}
	for _, tt := range []struct {
		name string
		r    Ranking
		want string
	}{
		{"what is full comes later", Ranking{}, "gcp/us/a aws/east/a | lambda/us"},
		{"price only", Ranking{PriceOnly: true}, "aws/east/a gcp/us/a | lambda/us"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			for i, tier := range tt.r.Rank(tiers, c, nil, nil) {
				if i > 0 {
					got += " |"
				}
				for j, o := range tier {
					if i+j > 0 {
						got += " "
					}
					got += o.Place.String()
				}
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// Machines that are paid for already come first, also where others found no room.
func TestReservedMachinesComeFirst(t *testing.T) {
	at := func(place string, price, share float64) cloud.Offer {
		o := offerAt(place)
		o.HourlyPrice, o.PaidShare = price, share
		return o
	}
	full := []Seen{{offerAt("aws/east/a"), noon, false}, {offerAt("aws/east/a"), noon, false}, {offerAt("aws/east/a"), noon, false}}
	for _, tt := range []struct {
		name   string
		seen   []Seen
		offers []cloud.Offer
		want   string // that comes first
	}{
		{"all nodes", nil, []cloud.Offer{at("gcp/us/a", 1, 0), at("aws/east/a", 9, 1)}, "aws/east/a"},
		{"all nodes, where there was no room", full, []cloud.Offer{at("gcp/us/a", 1, 0), at("aws/east/a", 9, 1)}, "aws/east/a"},
		{"half of them, and cheaper", nil, []cloud.Offer{at("gcp/us/a", 1, 0), at("aws/east/a", 1.9, 0.5)}, "aws/east/a"},
		{"half of them, and dearer", nil, []cloud.Offer{at("aws/east/a", 2.1, 0.5), at("gcp/us/a", 1, 0)}, "gcp/us/a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Ranking{}.Rank([][]cloud.Offer{tt.offers}, NewChances(tt.seen, noon, time.Hour), nil, nil)[0][0]
			if got.Place != offerAt(tt.want).Place {
				t.Errorf("%v comes first", got.Place)
			}
		})
	}
}

// A refusal for want of room says nothing about a reservation that has room now; that the
// cloud was asked and has none does, and so do other refusals.
func TestRefusalsOfPlacesWithReservations(t *testing.T) {
	for _, tt := range []struct {
		name  string
		by    Refusal
		share float64
		first bool
	}{
		{"no room", Refusal{Outcome: Capacity, Since: noon}, 1, true},
		{"no quota", Refusal{Outcome: Quota, Since: noon}, 1, true},
		{"no room for some nodes", Refusal{Outcome: Capacity, Since: noon}, 0.5, false},
		{"not permitted", Refusal{Outcome: Permission, Since: noon}, 1, false},
		{"the cloud was asked", Refusal{Outcome: Capacity}, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, other := offerAt("aws/east/a"), offerAt("gcp/us/a")
			o.PaidShare, tt.by.Block = tt.share, cloud.BlockOffer(o)
			got, ok := NewPlanner([][]cloud.Offer{{o, other}}, []Refusal{tt.by}, nil).Next()
			if !ok || (got.Place == o.Place) != tt.first {
				t.Errorf("%v comes first", got.Place)
			}
		})
	}
}
