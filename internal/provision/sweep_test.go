package provision

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// listing is a cloud where something happens while it is asked what there is.
type listing struct {
	*scripted
	meanwhile func()
}

func (l listing) Nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	l.meanwhile()
	return l.scripted.Nodes(ctx, id)
}

// everything sweeps at once, and ends all that it finds.
func everything(claimed func()) SweepOptions {
	return SweepOptions{Grace: -1, End: func(Stray) bool { claimed(); return true }}
}

// A launch writes down what it is about to make. What is listed is compared with
// what is written after that, so machines that come up during the list are not taken
// for strays.
func TestASweepSparesALaunchThatBeginsWhileMachinesAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.Engine.providers = cloud.NewRegistry(listing{s.p, func() {
			c := &state.Cluster{Name: "fresh", Hash: "f", NameOnCloud: "fresh-u", NumNodes: 1, Offer: zone("a")}
			if err := s.mem.Create(t.Context(), c); err != nil && !errors.Is(err, state.ErrConflict) {
				t.Error(err)
			}
			s.p.up(cloud.LaunchSpec{ID: s.ClusterID(c), Offer: zone("a")}, 1)
		}})
		r, err := s.Sweep(t.Context(), everything(func() {}))
		if err != nil || len(r.Strays) != 0 || len(s.p.running) != 1 {
			t.Errorf("%+v, %v; %d clusters run", r.Strays, err, len(s.p.running))
		}
	})
}

// stray makes machines of the stage's cluster under a name that its record does not
// say, and returns an attempt that would claim them.
func (s *stage) stray() state.Attempt {
	late := s.ClusterID(s.c)
	late.Name = "c-u-9"
	s.p.up(cloud.LaunchSpec{ID: late, Offer: zone("b")}, 2)
	return state.Attempt{Token: "t", ClusterName: s.c.Name, ClusterHash: s.c.Hash, NameOnCloud: late.Name, Offer: zone("b"), Nodes: 2, StartedAt: time.Now()}
}

func TestMachinesOfAnAttemptUnderWayAreNoStrays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		if err := s.mem.Begin(t.Context(), s.stray()); err != nil {
			t.Fatal(err)
		}
		r, err := s.Sweep(t.Context(), everything(func() {}))
		if err != nil || len(r.Strays) != 0 || len(s.p.running) != 1 {
			t.Errorf("%+v, %v; %d clusters run", r.Strays, err, len(s.p.running))
		}
	})
}

// Between the list and the end of a stray somebody may be asked, and a launch may
// claim it meanwhile.
func TestASweepSparesWhatALaunchClaimsBeforeItIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		claim := s.stray()
		_, err := s.Sweep(t.Context(), everything(func() {
			if err := s.mem.Begin(t.Context(), claim); err != nil {
				t.Error(err)
			}
		}))
		if err != nil || len(s.p.running) != 1 {
			t.Errorf("%v; %d clusters run", err, len(s.p.running))
		}
	})
}

// The holder of a cluster's lease may be about to claim machines of it.
func TestASweepLeavesAClusterAloneThatSomebodyWorksOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.stray()
		held, _, err := s.mem.Acquire(t.Context(), clusterLease("c"), "a launch", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Sweep(t.Context(), everything(func() {}))
		if err != nil || len(r.Strays) != 1 || r.Strays[0].Ended || !strings.Contains(r.Strays[0].Error, "is being worked on") || len(s.p.running) != 1 {
			t.Fatalf("%+v, %v; %d clusters run", r.Strays, err, len(s.p.running))
		}
		if err := s.mem.Release(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		r, err = s.Sweep(t.Context(), everything(func() {}))
		if err != nil || len(r.Strays) != 1 || !r.Strays[0].Ended || len(s.p.running) != 0 {
			t.Errorf("%+v, %v; %d clusters run", r.Strays, err, len(s.p.running))
		}
	})
}

// What one server does alone ends when another has taken its lease.
func TestWorkThatIsDoneAloneEndsWithItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		ran, err := s.alone(t.Context(), "work", func(ctx context.Context) error {
			time.Sleep(time.Minute) // the lease is renewed meanwhile
			if ctx.Err() != nil {
				t.Error("it lost a lease that nobody wanted")
			}
			if _, got, _ := s.mem.Acquire(t.Context(), "work", "another server", time.Minute); got {
				t.Error("two have the lease")
			}
			s.mem.mu.Lock()
			l := s.mem.leases["work"]
			l.Owner, l.Epoch = "another server", l.Epoch+1
			s.mem.leases["work"] = l
			s.mem.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(leaseTTL):
				t.Error("two do it")
			}
			return nil
		})
		if !ran || err != nil {
			t.Error(ran, err)
		}
		if l := s.mem.leases["work"]; l.Owner != "another server" {
			t.Errorf("the lease is now %q's", l.Owner)
		}
	})
}

// A cloud without tags tells only a digest of the hash. What a record claims is no
// stray, and what a launch of ours gave up is known as that.
func TestASweepKnowsClustersByTheirShortHash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		short := s.ClusterID(s.c)
		short.Hash = cloud.ShortHash(short.Hash)
		s.p.up(cloud.LaunchSpec{ID: short, Offer: zone("a")}, 2)
		late := short
		late.Name = "c-u-9"
		s.p.up(cloud.LaunchSpec{ID: late, Offer: zone("b")}, 1)
		foreign := cloud.ClusterID{Installation: "i", Name: "c-u-9", Hash: cloud.ShortHash("another")}
		s.p.up(cloud.LaunchSpec{ID: foreign, Offer: zone("b")}, 1)
		gone := state.Attempt{Token: "t", ClusterName: "c", ClusterHash: s.c.Hash, NameOnCloud: late.Name, Offer: zone("b"), Nodes: 1, StartedAt: time.Now()}
		if err := s.mem.Begin(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		if err := s.mem.End(t.Context(), "t", state.AttemptEnd{Outcome: Unreachable}); err != nil {
			t.Fatal(err)
		}
		r, err := s.Sweep(t.Context(), SweepOptions{Grace: -1, End: func(x Stray) bool { return s.GivenUp(t.Context(), x) }})
		if err != nil || len(r.Strays) != 2 {
			t.Fatalf("%+v, %v", r.Strays, err)
		}
		for _, x := range r.Strays {
			if x.Ended != (x.Hash == late.Hash) || x.Cluster != "c-u-9" {
				t.Errorf("%+v", x)
			}
		}
		if len(s.p.running) != 2 {
			t.Errorf("%d clusters run", len(s.p.running))
		}
	})
}

// accounts is a cloud whose credentials reach several accounts.
type accounts struct {
	*scripted
	unread []cloud.UnreadAccount
}

func (a accounts) ListAccounts(ctx context.Context, installation string) ([]cloud.Node, []cloud.UnreadAccount, error) {
	nodes, err := a.scripted.Nodes(ctx, cloud.ClusterID{Installation: installation})
	return nodes, a.unread, err
}

// An account that cannot be read is named and keeps nothing else from being swept. One that
// nobody named, and that the credentials may not read, is named when its cloud is asked for.
func TestASweepNamesAccountsThatItCannotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.stray()
		name := s.p.Name()
		forbidden := &cloud.PermissionError{Err: errors.New("no")}
		s.Engine.providers = cloud.NewRegistry(accounts{s.p, []cloud.UnreadAccount{
			{Name: "configured", Err: forbidden}, {Name: "seen", Found: true, Err: forbidden}, {Name: "silent", Found: true, Err: errors.New("no answer")},
		}})
		r, err := s.Sweep(t.Context(), SweepOptions{Grace: -1, Clouds: []string{name}})
		if err != nil || len(r.Strays) != 1 || len(r.Unlisted) != 3 || r.Unlisted[name+" (seen)"] != forbidden.Error() {
			t.Errorf("named: %+v, %v", r, err)
		}
		if err := s.mem.Begin(t.Context(), s.stray()); err != nil { // the cloud is one that was used
			t.Fatal(err)
		}
		r, err = s.Sweep(t.Context(), SweepOptions{Grace: -1})
		if _, ok := r.Unlisted[name+" (seen)"]; err != nil || ok || len(r.Unlisted) != 2 {
			t.Errorf("not named: %+v, %v", r, err)
		}
	})
}
