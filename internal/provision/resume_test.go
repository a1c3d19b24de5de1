package provision

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// A start of a cluster that has been up takes its own machines up: open attempts at
// them have an end then. Attempts elsewhere or under another name stay open until
// they are settled, and those that had an end keep it.
func TestAStartEndsTheOpenAttemptsAtItsOwnMachinesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(context.Context, cloud.LaunchSpec) error { return nil })
		s.c.EverUp = true
		elsewhere := zone("a")
		elsewhere.Cloud = "gcp"
		attempts := map[string]struct {
			a    state.Attempt
			want string
		}{
			"its own":        {state.Attempt{NameOnCloud: "c-u", Offer: zone("a")}, Cancelled},
			"another zone":   {state.Attempt{NameOnCloud: "c-u", Offer: zone("b")}, Cancelled},
			"another name":   {state.Attempt{NameOnCloud: "c-u-2", Offer: zone("a")}, ""},
			"another cloud":  {state.Attempt{NameOnCloud: "c-u", Offer: elsewhere}, ""},
			"ended before":   {state.Attempt{NameOnCloud: "c-u", Offer: zone("a"), AttemptEnd: state.AttemptEnd{Outcome: Capacity}}, Capacity},
			"both different": {state.Attempt{NameOnCloud: "c-u-3", Offer: elsewhere}, ""},
		}
		for token, c := range attempts {
			c.a.Token, c.a.ClusterName, c.a.ClusterHash, c.a.Nodes, c.a.StartedAt = token, "c", "h", 2, time.Now()
			if err := s.mem.Begin(t.Context(), c.a); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := s.Provision(t.Context(), Request{Cluster: s.c, Nodes: 2, Tiers: Exactly(zone("a")), Keep: true, Out: &s.out}); err != nil {
			t.Fatal(err)
		}
		all, err := s.mem.OfCluster(t.Context(), "h")
		if err != nil || len(all) != len(attempts)+1 {
			t.Errorf("%d attempts, %v", len(all), err)
		}
		for _, a := range all {
			if c, ok := attempts[a.Token]; ok && a.Outcome != c.want {
				t.Errorf("%s: %q, want %q", a.Token, a.Outcome, c.want)
			}
		}
	})
}

// unreadable are records whose disk fails.
type unreadable struct{ *memory }

var errDisk = errors.New("the disk fails")

func (unreadable) Open(context.Context) ([]state.Attempt, error)       { return nil, errDisk }
func (unreadable) End(context.Context, string, state.AttemptEnd) error { return errDisk }

func TestSettlingSaysThatRecordsCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.Engine.records = unreadable{s.mem}
		if err := s.Settle(t.Context()); !errors.Is(err, errDisk) {
			t.Errorf("the attempts: %v", err)
		}
	})
}

// A start whose attempt before it cannot be ended makes nothing.
func TestAStartThatCannotEndAnEarlierAttemptFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(context.Context, cloud.LaunchSpec) error { return nil })
		s.Engine.records = unreadable{s.mem}
		if err := s.mem.Begin(t.Context(), state.Attempt{Token: "t", ClusterName: "c", ClusterHash: "h", NameOnCloud: "c-u", Offer: zone("a"), Nodes: 2, StartedAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
		_, _, err := s.Provision(t.Context(), Request{Cluster: s.c, Nodes: 2, Tiers: Exactly(zone("a")), Keep: true, Out: &s.out})
		if !errors.Is(err, errDisk) || len(s.p.running) != 0 {
			t.Errorf("%v; %d clusters run", err, len(s.p.running))
		}
	})
}
