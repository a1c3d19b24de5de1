package vm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/cloud"
)

var zoneA = cloud.Place{Cloud: "test", Region: "us-east-1", Zone: "us-east-1a"}

var words = map[string]State{"pending": Pending, "running": Running, "stopping": Stopping, "stopped": Stopped, "ending": Ending, "ended": Ended}

// some makes machines: "a running 0" is in zoneA with rank 0; a rank of - is none
// yet.
func some(texts ...string) []Machine {
	var out []Machine
	for n, text := range texts {
		m := Machine{Region: zoneA.Region, Zone: zoneA.Zone, ZoneID: "use1-az1", Created: time.Unix(int64(n), 0), rank: -1}
		var rank string
		fmt.Sscan(text, &m.ID, &m.RawState, &rank)
		m.State = words[m.RawState]
		if r, err := strconv.Atoi(rank); err == nil {
			m.rank = r
		}
		out = append(out, m)
	}
	return out
}

func TestNext(t *testing.T) {
	type starts []string
	for _, tt := range []struct {
		name   string
		nodes  int
		have   []Machine
		mine   []string
		start  starts
		create []int
		write  map[string]int
		done   bool
		fails  bool
	}{
		{name: "nothing yet", nodes: 2, create: []int{0, 1}},
		{name: "made and not listed yet", nodes: 2, mine: []string{"a", "b"}},
		{name: "made and half listed", nodes: 2, have: some("a pending -"), mine: []string{"a", "b"}},
		{name: "all listed, none with a rank", nodes: 2, have: some("b pending -", "a pending -"), mine: []string{"a", "b"}, write: map[string]int{"b": 0, "a": 1}},
		{name: "ranks half written before a crash", nodes: 3, have: some("a running 0", "b running -", "c running -"), write: map[string]int{"b": 1, "c": 2}},
		{name: "all run, and one has no rank yet", nodes: 2, have: some("a running 0", "b running -"), write: map[string]int{"b": 1}},
		{name: "half listed after a crash: the call is made again", nodes: 3, have: some("a running -"), create: []int{0, 1, 2}},
		{name: "all run", nodes: 2, have: some("b running 1", "a running 0"), done: true},
		{name: "one boots", nodes: 2, have: some("a running 0", "b pending 1"), done: false},
		{name: "one is missing", nodes: 2, have: some("a running 0"), create: []int{1}},
		{name: "one was lost", nodes: 2, have: some("a ended 0", "b running 1"), create: []int{0}},
		{name: "one is being lost", nodes: 2, have: some("a ending 0", "b running 1"), create: []int{0}},
		{name: "one of ours was lost", nodes: 2, have: some("a ended 0", "b running 1"), mine: []string{"a"}, fails: true},
		{name: "off", nodes: 2, have: some("b stopped 1", "a stopped 0"), start: starts{"a", "b"}},
		{name: "one is off", nodes: 2, have: some("a stopped 0", "b running 1"), start: starts{"a"}},
		{name: "off and one missing: resume first", nodes: 3, have: some("a stopped 0", "b stopped 1"), start: starts{"a", "b"}},
		{name: "going off", nodes: 1, have: some("a stopping 0")},
		{name: "going off and one missing", nodes: 2, have: some("a stopping 0")},
		{name: "too many", nodes: 1, have: some("a running 0", "b stopped 1"), fails: true},
		{name: "ranks of a larger cluster", nodes: 2, have: some("a running 0", "b running 2"), fails: true},
		{name: "a rank beyond those asked for", nodes: 2, have: some("a running 5"), fails: true},
		{name: "two of a rank", nodes: 3, have: some("a running 0", "b running 0"), fails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mine := map[string]bool{}
			for _, id := range tt.mine {
				mine[id] = true
			}
			got, err := Options{}.next(cloud.LaunchSpec{Nodes: tt.nodes, Offer: cloud.Offer{Place: zoneA}}, tt.have, mine)
			if (err != nil) != tt.fails {
				t.Fatalf("%+v, %v", got, err)
			}
			if tt.fails {
				return
			}
			var start starts
			for _, m := range got.start {
				start = append(start, m.ID)
			}
			if !slices.Equal(start, tt.start) || !slices.Equal(got.create, tt.create) || !maps.Equal(got.write, tt.write) || got.done != tt.done {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestAClusterIsInOneZone(t *testing.T) {
	spec := cloud.LaunchSpec{Nodes: 2, Offer: cloud.Offer{Place: zoneA}}
	for zone, fits := range map[string]bool{"us-east-1a": true, "US-EAST-1A": true, "use1-az1": true, "": true, "us-east-1b": false} {
		spec.Offer.Zone = zone
		_, err := Options{}.next(spec, some("a running 0"), nil)
		var invalid *cloud.InvalidError
		if (err == nil) != fits || !fits && !errors.As(err, &invalid) {
			t.Errorf("zone %q: %v", zone, err)
		}
	}
	spec.Offer.Place = cloud.Place{Cloud: "test", Region: "us-west-1"}
	if _, err := (Options{}).next(spec, some("a running 0"), nil); err == nil {
		t.Error("a cluster in two regions")
	}
}

// Where an ending machine holds the name of its rank, the next one has to wait;
// one that has ended holds nothing.
func TestNamesAreFreeWhenMachinesHaveEnded(t *testing.T) {
	spec := cloud.LaunchSpec{Nodes: 2, Offer: cloud.Offer{Place: zoneA}}
	for text, want := range map[string]int{"a ending 0": 0, "a ended 0": 1, "a ending 7": 1} {
		s, err := Options{EndingHolds: true}.next(spec, some(text, "b running 1"), nil)
		if err != nil || len(s.create) != want {
			t.Errorf("%s: %+v, %v", text, s, err)
		}
	}
}

// Whatever order a list has, and however many ranks were written before a crash,
// the same machines get the same ranks.
func TestRanksComeOutTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "machines")
		var list []Machine
		for i := range n {
			list = append(list, Machine{ID: fmt.Sprint("i", i), Order: i, rank: -1, State: Running})
		}
		whole := assignRanks(slices.Clone(list))
		written := rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 0, n, rapid.ID[int]).Draw(t, "written")
		for _, w := range written {
			list[w].rank = whole[list[w].ID]
		}
		list = rapid.Permutation(list).Draw(t, "order")
		given := assignRanks(list)
		for _, m := range list {
			if want := whole[m.ID]; m.rank != want || given[m.ID] != want && given[m.ID] != 0 {
				t.Fatalf("%s has rank %d, want %d", m.ID, m.rank, want)
			}
		}
	})
}
