package replicas

import (
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/serve/spec"
)

// offer is "region/zone" at a price.
func offer(region, zone string, price, chance float64) Offer {
	return Offer{Chance: chance, Offer: cloud.Offer{Place: cloud.Place{Cloud: "x", Region: region, Zone: zone}, InstanceType: "m", Spot: true, HourlyPrice: price}}
}

func at(id int, status api.ReplicaStatus, o Offer) Replica {
	return Replica{ID: id, Version: 1, Status: status, Spot: true, Place: o.Place, InstanceType: o.InstanceType, ProvisionedAt: noon}
}

func TestDynamicFallbackPicks(t *testing.T) {
	a, b, c := offer("r", "a", 3, 0), offer("r", "b", 1, 0), offer("r", "c", 2, 0)
	onDemand := offer("r", "d", 0.1, 0)
	onDemand.Spot = false
	offers := []Offer{a, onDemand, b, c}
	avoided := PlaceState{Avoided: true}
	for _, x := range []struct {
		name   string
		places map[string]PlaceState
		rows   []Replica
		want   int
	}{
		{"the cheapest", nil, nil, 2},
		{"the cheapest without a replica", nil, []Replica{at(1, api.ReplicaReady, b)}, 3},
		{"what has ended does not count", nil, []Replica{at(1, api.ReplicaFailed, b)}, 2},
		{"all in use", nil, []Replica{at(1, api.ReplicaReady, b), at(2, api.ReplicaStarting, c), at(3, api.ReplicaProvisioning, a)}, 2},
		{"not where one was lost", map[string]PlaceState{b.key(): avoided}, nil, 3},
		{"fewer than two left: all again", map[string]PlaceState{b.key(): avoided, c.key(): avoided}, nil, 2},
	} {
		places := x.places
		if places == nil {
			places = map[string]PlaceState{}
		}
		if got := pick(dynamicFallback, offers, places, x.rows, noon); got != x.want {
			t.Errorf("%s: %d, want %d", x.name, got, x.want)
		}
	}
	if got := pick(dynamicFallback, []Offer{onDemand}, map[string]PlaceState{}, nil, noon); got != -1 {
		t.Errorf("no spot: %d", got)
	}
}

func TestHedgedPicks(t *testing.T) {
	a, b := offer("r1", "a", 1, 0.9), offer("r1", "b", 1.05, 0.9)
	c, d := offer("r2", "c", 1.2, 0.9), offer("r2", "d", 1.1, 0.3)
	offers := []Offer{a, b, c, d}
	ago := func(span time.Duration, n int) PlaceState { return PlaceState{Last: noon.Add(-span), Failures: n} }
	for _, x := range []struct {
		name   string
		places map[string]PlaceState
		rows   []Replica
		want   int
	}{
		{"the cheapest first", nil, nil, 0},
		{"then another region", nil, []Replica{at(1, api.ReplicaReady, a)}, 2},
		{"then the other zone", nil, []Replica{at(1, api.ReplicaReady, a), at(2, api.ReplicaReady, c)}, 1},
		{"half of them in one region", nil, []Replica{at(1, api.ReplicaReady, a), at(2, api.ReplicaReady, b), at(3, api.ReplicaReady, c)}, 2},
		{"not where it failed a moment ago", map[string]PlaceState{a.key(): ago(time.Minute, 1)}, nil, 1},
		{"there again after a rest", map[string]PlaceState{a.key(): ago(3*time.Hour, 1)}, nil, 0},
		{"a longer rest after more failures", map[string]PlaceState{a.key(): ago(5*time.Minute, 3), b.key(): ago(5*time.Minute, 3), c.key(): ago(5*time.Minute, 1), d.key(): ago(5*time.Minute, 3)}, nil, 2},
		{"elsewhere while it is troubled", map[string]PlaceState{a.key(): ago(time.Hour, 0)}, nil, 1},
		{"nowhere", map[string]PlaceState{a.key(): ago(0, 1), b.key(): ago(0, 1), c.key(): ago(0, 1), d.key(): ago(0, 1)}, nil, -1},
		{"one region only, if the others have none", map[string]PlaceState{c.key(): ago(0, 1), d.key(): ago(0, 1)}, []Replica{at(1, api.ReplicaReady, a), at(2, api.ReplicaReady, b)}, 0},
	} {
		if got := pick(hedged, offers, x.places, x.rows, noon); got != x.want {
			t.Errorf("%s: %d, want %d", x.name, got, x.want)
		}
	}
}

func TestTroubleIsNotedOnceAndForgottenWithSuccess(t *testing.T) {
	a := offer("r", "a", 1, 0)
	lost := at(1, api.ReplicaPreempted, a)
	lost.Trouble = []Trouble{{Key: a.key(), At: noon.Add(-time.Minute), Preempted: true}, {Key: a.key(), At: noon}}
	rows := []Replica{lost}
	places := noteTrouble(nil, rows)
	if p := places[a.key()]; !p.Avoided || p.Failures != 2 || !p.Last.Equal(noon) || rows[0].Trouble != nil {
		t.Errorf("%+v %+v", p, rows)
	}
	if again := noteTrouble(places, rows)[a.key()]; again.Failures != 2 {
		t.Errorf("%+v", again)
	}
	old := at(2, api.ReplicaReady, a) // was there before the trouble
	if p := noteTrouble(places, []Replica{old})[a.key()]; p.Failures != 2 {
		t.Errorf("%+v", p)
	}
	fresh := at(3, api.ReplicaStarting, a)
	fresh.ProvisionedAt = noon.Add(time.Second)
	if p := noteTrouble(places, []Replica{fresh})[a.key()]; p.Failures != 0 || p.Avoided || !p.Last.Equal(noon) {
		t.Errorf("%+v", p)
	}
	if !anyTrouble([]Offer{a}, places, noon.Add(time.Hour)) || anyTrouble([]Offer{a}, places, noon.Add(3*time.Hour)) || anyTrouble(nil, places, noon) {
		t.Error("a place is troubled for two hours")
	}
}

func TestSplit(t *testing.T) {
	spot := func(s spec.Scale) *spec.Spec { sp := service(s); sp.Spot = true; return sp }
	rows := func(ready, pending, failedTwice, onDemand int) []Replica {
		var out []Replica
		for range ready {
			out = append(out, Replica{Status: api.ReplicaReady, Spot: true})
		}
		for range pending {
			out = append(out, Replica{Status: api.ReplicaPending, Spot: true})
		}
		for range failedTwice {
			out = append(out, Replica{Status: api.ReplicaPending, Spot: true, Tries: 2})
		}
		for range onDemand {
			out = append(out, Replica{Status: api.ReplicaReady})
		}
		return out
	}
	ago := func(span time.Duration) time.Time { return noon.Add(-span) }
	for _, c := range []struct {
		name          string
		sp            *spec.Spec
		target, final int
		rows          []Replica
		troubled      bool
		since         time.Time
		want          mix
	}{
		{"on demand", service(spec.Scale{}), 3, 4, nil, false, time.Time{}, mix{onDemand: 4}},
		{"spot", spot(spec.Scale{}), 3, 4, nil, false, time.Time{}, mix{spot: 4}},
		{"a base", spot(spec.Scale{BaseOnDemand: 1}), 3, 4, nil, false, time.Time{}, mix{spot: 3, onDemand: 1}},
		{"a base above the target", spot(spec.Scale{BaseOnDemand: 5}), 3, 3, nil, false, time.Time{}, mix{onDemand: 3}},
		{"dynamic, nothing ready", spot(spec.Scale{DynamicFallback: true}), 3, 4, nil, false, time.Time{}, mix{spot: 4, onDemand: 3}},
		{"dynamic, some ready", spot(spec.Scale{DynamicFallback: true, BaseOnDemand: 1}), 4, 4, rows(2, 1, 0, 0), false, time.Time{}, mix{spot: 3, onDemand: 2}},
		{"dynamic, all ready", spot(spec.Scale{DynamicFallback: true}), 3, 3, rows(3, 0, 0, 0), false, time.Time{}, mix{spot: 3}},

		{"hedged, without failures", spot(spec.Scale{Placer: hedged}), 3, 3, rows(3, 0, 0, 0), false, time.Time{}, mix{spot: 3}},
		{"hedged, a spare", spot(spec.Scale{Placer: hedged}), 3, 3, rows(3, 0, 0, 0), true, time.Time{}, mix{spot: 4}},
		{"hedged, nothing needed", spot(spec.Scale{Placer: hedged}), 0, 0, nil, true, time.Time{}, mix{}},
		{"hedged, on their way", spot(spec.Scale{Placer: hedged}), 3, 3, rows(1, 2, 0, 0), false, time.Time{}, mix{spot: 3, keep: 2}},
		{"hedged, not to be had", spot(spec.Scale{Placer: hedged}), 3, 3, rows(1, 0, 2, 0), false, time.Time{}, mix{spot: 3, onDemand: 2, keep: 2}},
		{"hedged, never more than the target", spot(spec.Scale{Placer: hedged, BaseOnDemand: 1}), 3, 5, rows(0, 0, 4, 0), false, time.Time{}, mix{spot: 4, onDemand: 3, keep: 3}},
		{"hedged, back for a moment", spot(spec.Scale{Placer: hedged}), 3, 3, rows(3, 0, 0, 2), false, ago(time.Minute), mix{spot: 3, keep: 2}},
		{"hedged, back for long enough", spot(spec.Scale{Placer: hedged}), 3, 3, rows(3, 0, 0, 2), false, ago(10 * time.Minute), mix{spot: 3}},
		{"hedged, one is back for long enough", spot(spec.Scale{Placer: hedged}), 3, 3, rows(2, 0, 1, 2), false, ago(10 * time.Minute), mix{spot: 3, onDemand: 1, keep: 1}},
		{"hedged, the target fell", spot(spec.Scale{Placer: hedged}), 1, 1, rows(0, 0, 1, 3), false, time.Time{}, mix{spot: 1, onDemand: 1, keep: 1}},
	} {
		m := &memory{now: noon, troubled: c.troubled, changeover: 5 * time.Minute, spotReady: c.since}
		if got := split(c.sp, c.target, c.final, c.rows, m); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestChangeover(t *testing.T) {
	row := func(took time.Duration) Replica { return Replica{ProvisionedAt: noon, FirstReady: noon.Add(took)} }
	for _, c := range []struct {
		rows []Replica
		want time.Duration
	}{
		{nil, 5 * time.Minute}, {[]Replica{{ProvisionedAt: noon}}, 5 * time.Minute}, {[]Replica{row(time.Second)}, time.Minute}, {[]Replica{row(time.Hour)}, 20 * time.Minute},
		{[]Replica{row(2 * time.Minute), row(9 * time.Minute), row(3 * time.Minute)}, 3 * time.Minute},
	} {
		if got := changeover(c.rows); got != c.want {
			t.Errorf("%v: %v, want %v", c.rows, got, c.want)
		}
	}
}
