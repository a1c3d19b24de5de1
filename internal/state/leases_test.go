package state

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestLeases(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		ls := s.Leases()
		a, got, err := ls.Acquire(ctx, "c1", "s1", time.Hour)
		ok(t, err)
		if !got || a.Epoch != 1 || a.Owner != "s1" {
			t.Fatalf("first: %+v %v", a, got)
		}
		other, got, err := ls.Acquire(ctx, "c1", "s2", time.Hour)
		ok(t, err)
		if got || other.Owner != "s1" || other.Epoch != 1 {
			t.Errorf("held by another: %+v %v", other, got)
		}
		again, got, err := ls.Acquire(ctx, "c1", "s1", time.Hour)
		ok(t, err)
		if !got || again.Epoch != 1 {
			t.Errorf("the holder again: %+v %v", again, got)
		}
		ok(t, ls.Release(ctx, a))
		b, got, err := ls.Acquire(ctx, "c1", "s2", time.Nanosecond)
		ok(t, err)
		if !got || b.Epoch != 2 {
			t.Errorf("after release: %+v %v", b, got)
		}
		_, err = ls.Renew(ctx, a, time.Hour)
		is(t, err, ErrConflict)
		ok(t, ls.Release(ctx, a)) // lost already
		time.Sleep(time.Millisecond)
		b = must(ls.Renew(ctx, b, time.Nanosecond))(t) // expired, but nobody took it
		time.Sleep(time.Millisecond)
		c, got, err := ls.Acquire(ctx, "c1", "s3", time.Hour)
		ok(t, err)
		if !got || c.Epoch != 3 {
			t.Errorf("after expiry: %+v %v", c, got)
		}
		_, err = ls.Renew(ctx, b, time.Hour)
		is(t, err, ErrConflict)
	})
}

func TestLeaseHasOneOwner(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		epochs := make(chan int64, 100)
		var wg sync.WaitGroup
		for w := range 5 {
			wg.Go(func() {
				for range 10 {
					l, got, err := s.Leases().Acquire(ctx, "x", fmt.Sprint("s", w), time.Hour)
					if err != nil {
						t.Error(err)
					}
					if got {
						epochs <- l.Epoch
						if err := s.Leases().Release(ctx, l); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Wait()
		close(epochs)
		seen := map[int64]bool{}
		for e := range epochs {
			if seen[e] {
				t.Errorf("two owners in epoch %d", e)
			}
			seen[e] = true
		}
		if len(seen) == 0 {
			t.Error("nobody got the lease")
		}
	})
}

func TestAttempts(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		as := s.Attempts()
		c := fullCluster("c1")
		a := Attempt{Token: "t1", ClusterHash: "h", ClusterName: "c1", NameOnCloud: "n", Offer: c.Offer, Nodes: 2, StartedAt: day}
		b := a
		b.Token, b.StartedAt = "t2", day.Add(time.Second)
		ok(t, as.Begin(ctx, b))
		ok(t, as.Begin(ctx, a))
		is(t, as.Begin(ctx, a), ErrConflict)
		same(t, "open", must(as.Open(ctx))(t), []Attempt{a, b})
		spot := true
		full := AttemptEnd{Outcome: "capacity", Message: "full", Steps: []Step{{"launch", time.Second, false}},
			RuledOut: &cloud.Block{Cloud: "aws", Spot: &spot}, Credentials: "c0ffee"}
		ok(t, as.End(ctx, "t1", full))
		ok(t, as.End(ctx, "t1", full))
		is(t, as.End(ctx, "t1", AttemptEnd{Outcome: "ok"}), ErrConflict)
		is(t, as.End(ctx, "t9", AttemptEnd{Outcome: "ok"}), ErrNotFound)
		ok(t, as.Abandon(ctx, "t1", "an ended one stays"))
		ok(t, as.Abandon(ctx, "t2", "refused"))
		b.Message = "refused"
		same(t, "still open", must(as.Open(ctx))(t), []Attempt{b})
		all := must(as.OfCluster(ctx, "h"))(t)
		if len(all) != 2 || all[0].EndedAt.IsZero() {
			t.Errorf("of the cluster: %+v", all)
		}
		same(t, "how it ended", all[0].AttemptEnd, full)
		since := must(as.Since(ctx, day, 10))(t)
		same(t, "since the first", []string{since[0].Token, since[1].Token}, []string{"t1", "t2"})
		same(t, "the latest only", must(as.Since(ctx, day, 1))(t)[0].Token, "t2")
		same(t, "since the second", must(as.Since(ctx, b.StartedAt, 10))(t)[0].Token, "t2")
		same(t, "deleted", must(as.Delete(ctx, day.Add(time.Hour)))(t), int64(1)) // the open one stays
	})
}

func TestAnAttemptAndThePlaceOfItsClusterAreWrittenTogether(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		c := fullCluster("c1")
		ok(t, s.Clusters().Create(ctx, c))
		old := *c
		offer := cloud.Offer{Place: cloud.Place{Cloud: "gcp", Region: "west", Zone: "b"}, InstanceType: "a2", HourlyPrice: 29.39}
		a := Attempt{Token: "t1", ClusterHash: c.Hash, ClusterName: c.Name, NameOnCloud: "c1-2", Offer: offer, Nodes: 2, StartedAt: day}
		ok(t, s.Attempts().BeginPlacing(ctx, a))
		want := old
		want.Offer, want.NameOnCloud, want.Version = offer, "c1-2", old.Version+1
		same(t, "the cluster", must(s.Clusters().Get(ctx, "c1"))(t), &want)
		is(t, s.Clusters().Save(ctx, &old), ErrConflict) // who read it before
		is(t, s.Attempts().BeginPlacing(ctx, a), ErrConflict)

		gone := a
		gone.Token, gone.ClusterHash = "t2", "an earlier incarnation"
		is(t, s.Attempts().BeginPlacing(ctx, gone), ErrNotFound)
		same(t, "attempts", must(s.Attempts().Open(ctx))(t), []Attempt{a})
		same(t, "the cluster after that", must(s.Clusters().Get(ctx, "c1"))(t), &want)
	})
}

func TestUsers(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		us := s.Users()
		first := must(us.Touch(ctx, User{ID: "u1", Name: "ann", Type: "basic", Role: "admin", PreferredWorkspace: "w", CreatedAt: day}))(t)
		same(t, "first sight", first, User{ID: "u1", Name: "ann", Type: "basic", Role: "admin", PreferredWorkspace: "w", CreatedAt: day})
		same(t, "role stays", must(us.Touch(ctx, User{ID: "u1", Name: "ann", Role: "user"}))(t), first)
		same(t, "name stays if none is given", must(us.Touch(ctx, User{ID: "u1"}))(t), first)
		first.Name = "anna"
		same(t, "new name", must(us.Touch(ctx, User{ID: "u1", Name: "anna", Role: "viewer"}))(t), first)
		same(t, "stored", must(us.Get(ctx, "u1"))(t), first)
		_, err := us.Get(ctx, "u2")
		is(t, err, ErrNotFound)
		second := must(us.Touch(ctx, User{ID: "u2", Name: "bob"}))(t)
		same(t, "list", must(us.List(ctx))(t), []User{first, second})
	})
}

func TestSettings(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		_, err := s.Settings().Get(ctx, "k")
		is(t, err, ErrNotFound)
		same(t, "first", must(s.Settings().SetIfAbsent(ctx, "k", []byte("a\x00\xff")))(t), []byte("a\x00\xff"))
		same(t, "second", must(s.Settings().SetIfAbsent(ctx, "k", []byte("b")))(t), []byte("a\x00\xff"))
		ok(t, s.Settings().Set(ctx, "k", []byte("c")))
		same(t, "set", must(s.Settings().Get(ctx, "k"))(t), []byte("c"))
		ok(t, s.Settings().Set(ctx, "k", nil))
		same(t, "none", must(s.Settings().Get(ctx, "k"))(t), []byte(nil))
	})
}
