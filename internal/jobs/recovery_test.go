package jobs

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/cloud"
)

// TestWhereAJobComesBack is the table of strategies, losses and what is asked
// first afterwards. The plan prefers east, then west, then north.
func TestWhereAJobComesBack(t *testing.T) {
	in := func(region string, ago time.Duration) loss {
		return loss{cloud.Place{Cloud: "c", Region: region}, noon.Add(-ago)}
	}
	for _, tt := range []struct {
		name     string
		strategy string
		losses   []loss
		want     []string // regions in order
	}{
		{"nothing was lost", eagerNextRegion, nil, []string{"east", "west", "north"}},
		{"the region that took the machines comes last", eagerNextRegion, []loss{in("east", 0)}, []string{"west", "north", "east"}},
		{"whatever strategy is not FAILOVER is eager", "", []loss{in("west", time.Minute)}, []string{"east", "north", "west"}},
		{"an older loss comes before a fresh one", eagerNextRegion, []loss{in("east", 20*time.Minute), in("west", 0)}, []string{"north", "east", "west"}},
		{"two losses elsewhere do not bring the latest region to the front", eagerNextRegion,
			[]loss{in("west", 25*time.Minute), in("north", 20*time.Minute), in("west", 10*time.Minute), in("north", 5*time.Minute), in("east", 0)},
			[]string{"west", "north", "east"}},
		{"just before it is forgotten", eagerNextRegion, []loss{in("east", remembered-time.Second)}, []string{"west", "north", "east"}},
		{"forgotten", eagerNextRegion, []loss{in("east", remembered)}, []string{"east", "west", "north"}},
		{"the same region first", failover, []loss{in("east", time.Hour), in("north", 0)}, []string{"north", "east", "west"}},
		{"the same region first, however long ago", failover, []loss{in("north", 100*time.Hour)}, []string{"north", "east", "west"}},
	} {
		var offers []cloud.Offer
		for _, r := range []string{"east", "west", "north"} {
			offers = append(offers, cloud.Offer{Place: cloud.Place{Cloud: "c", Region: r}})
		}
		var got []string
		for _, tier := range order(tt.strategy, offers, tt.losses, noon) {
			for _, o := range tier {
				got = append(got, o.Region)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestTheEagerStrategyAlwaysLeaves: whatever was lost before, the region that
// took the machines last is asked last while that is remembered, and nothing is
// left out.
func TestTheEagerStrategyAlwaysLeaves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		regions := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-e]`), 2, 5, rapid.ID[string]).Draw(t, "regions")
		var offers []cloud.Offer
		for _, r := range regions {
			offers = append(offers, cloud.Offer{Place: cloud.Place{Cloud: "c", Region: r}})
		}
		var losses []loss
		ago := time.Duration(0)
		for range rapid.IntRange(1, 12).Draw(t, "losses") { // the latest first
			ago += time.Duration(rapid.Int64Range(0, int64(remembered-1)).Draw(t, "before"))
			if len(losses) == 0 {
				ago = min(ago, remembered-1)
			}
			losses = append(losses, loss{cloud.Place{Cloud: "c", Region: rapid.SampledFrom(regions).Draw(t, "region")}, noon.Add(-ago)})
		}
		latest := losses[0].place.Region
		slices.Reverse(losses)
		tiers := order(eagerNextRegion, offers, losses, noon)
		n := 0
		for _, tier := range tiers {
			n += len(tier)
		}
		if n != len(offers) {
			t.Fatalf("%d of %d offers", n, len(offers))
		}
		if last := tiers[len(tiers)-1]; len(last) != 1 || last[0].Region != latest {
			t.Fatalf("asked last: %+v, not %s", last, latest)
		}
	})
}

// Pauses between launches that found nothing grow, and never so far that a job misses
// the machines that come free.
func TestPausesGrowToAFewMinutes(t *testing.T) {
	for _, random := range []float64{0, 0.5, 0.999} {
		before := time.Duration(0)
		for tries := range 200 {
			p := pause(tries, random)
			if p < before || p < pauseFirst/2 || p > pauseMost*3/2 {
				t.Fatalf("after %d tries: %v, before it %v", tries, p, before)
			}
			before = p
		}
		if before < pauseMost/2 {
			t.Errorf("pauses end at %v", before)
		}
	}
}
