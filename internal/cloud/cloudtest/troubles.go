package cloudtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

func numbered(word string, i int) string { return fmt.Sprintf("%s-%d", word, i) }

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

var losses = []Behaviour{
	{"a destroyed node does not run", []string{"Kill"}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, s.some(2)))
		lost := nodes[len(nodes)-1]
		s.Kill(s, lost)
		s.eventually("the destroyed node is gone", func() bool { return !slices.Contains(ids(s.alive(id)), lost.ID) })
	}},
	{"a destroyed worker is replaced and the others stay", []string{"Kill", "multi-node"}, func(s *suite) {
		s.replaced(2)
	}},
	{"a destroyed head is replaced and the workers keep their ranks", []string{"Kill", "multi-node"}, func(s *suite) {
		s.replaced(0)
	}},
	{"a node that was taken back says so", []string{"Preempt", "Spot"}, func(s *suite) {
		spec := s.spec(s.id("web"), s.some(2))
		spec.Offer = *s.Spot
		nodes := s.launch(spec)
		s.Preempt(s, nodes[0], 0)
		s.eventually("the node is gone", func() bool { return !slices.Contains(ids(s.alive(spec.ID)), nodes[0].ID) })
		for _, n := range s.nodes(spec.ID) {
			if n.State == cloud.NodeGone && n.Reason == "" {
				s.Errorf("%s is gone for no reason", n.ID)
			}
		}
		again := s.launch(spec)
		if again[0].ID == nodes[0].ID && again[0].Created.Equal(nodes[0].Created) {
			s.Error("the node came back from the dead")
		}
		s.same("the others", ids(again[1:]), ids(nodes[1:]))
	}},
	{"a cluster that lost all its nodes can be terminated", []string{"Kill"}, func(s *suite) {
		id := s.id("web")
		for _, n := range s.launch(s.spec(id, s.some(2))) {
			s.Kill(s, n)
		}
		s.eventually("all are gone", func() bool { return len(s.alive(id)) == 0 })
		s.terminate(id)
		s.nothingLeft(id)
	}},
}

func (s *suite) replaced(rank int) {
	s.Helper()
	id := s.id("web")
	nodes := s.launch(s.spec(id, 3))
	hosts := max(s.Spec.Offer.Hosts, 1)
	s.Kill(s, nodes[rank*hosts]) // and with it those of the same slice
	s.eventually("the node is gone", func() bool { return len(s.alive(id)) == 2*hosts })
	again := s.launch(s.spec(id, 3))
	for i := range again {
		if same := again[i].ID == nodes[i].ID && again[i].Created.Equal(nodes[i].Created); same == (i/hosts == rank) {
			s.Errorf("rank %d was %s of %v and is %s of %v", i, nodes[i].ID, nodes[i].Created, again[i].ID, again[i].Created)
		}
	}
	s.complete(s.nodes(id), 3)
}

var refusals = []Behaviour{
	{"a full zone is a capacity error that names it", []string{"Fill"}, func(s *suite) {
		spec := s.spec(s.id("web"), 1)
		s.Fill(s, spec.Offer, 0)
		_, err := s.try(spec)
		if e := want[*cloud.CapacityError](s, err); e.Place != spec.Offer.Place {
			s.Errorf("it names %v, want %v", e.Place, spec.Offer.Place)
		}
		s.terminate(spec.ID)
		s.nothingLeft(spec.ID)
	}},
	{"a price that rose is a price error that names the new one", []string{"Raise"}, func(s *suite) {
		s.Raise(s, 2)
		offers := []cloud.Offer{s.Spec.Offer}
		if s.Spot != nil {
			offers = append(offers, *s.Spot)
		}
		for i, o := range offers {
			spec := s.spec(s.id(numbered("web", i)), 1)
			spec.Offer = o
			_, err := s.try(spec)
			e := want[*cloud.PriceError](s, err)
			if e.Place != o.Place || e.Planned != o.HourlyPrice || cloud.Dearer(e.Now, 2*o.HourlyPrice) || cloud.Dearer(2*o.HourlyPrice, e.Now) {
				s.Errorf("it says %+v of %v, which cost $%v", e, o.Place, o.HourlyPrice)
			}
			if asked, ok := cloud.As[cloud.AvailabilityProber](s.p); ok {
				if a, err := asked.Available(s.ctx(), o, 1); err != nil || a.Verdict == cloud.AvailableNone || a.Price != e.Now || a.Reason == "" {
					s.Errorf("asked before, it says %+v, %v", a, err)
				}
			}
			s.terminate(spec.ID)
			s.nothingLeft(spec.ID)
		}
		spec := s.spec(s.id("paid"), 1)
		spec.Offer.HourlyPrice *= 2
		nodes := s.launch(spec)
		spec.Offer.HourlyPrice /= 2
		s.same("launched again at the old price", ids(s.launch(spec)), ids(nodes))
	}},
	{"a price above what the task allows is a price error, also where none was planned with", []string{"Raise"}, func(s *suite) {
		s.Raise(s, 2)
		spec := s.spec(s.id("web"), 1)
		spec.Offer.MaxHourlyCost, spec.Offer.HourlyPrice = spec.Offer.HourlyPrice, 0
		_, err := s.try(spec)
		if e := want[*cloud.PriceError](s, err); e.Place != spec.Offer.Place || cloud.Dearer(e.Now, 2*spec.Offer.MaxHourlyCost) || cloud.Dearer(2*spec.Offer.MaxHourlyCost, e.Now) {
			s.Errorf("it says %+v of %v", e, spec.Offer.Place)
		}
		s.terminate(spec.ID)
		s.nothingLeft(spec.ID)
		spec.Offer.MaxHourlyCost *= 2
		s.launch(spec)
	}},
	{"a price that fell is no error", []string{"Raise"}, func(s *suite) {
		s.Raise(s, 0.5)
		s.launch(s.spec(s.id("web"), 1))
	}},
	{"a cluster that fits only half can be seen and removed", []string{"Fill", "multi-node"}, func(s *suite) {
		spec := s.spec(s.id("web"), 3)
		s.Fill(s, spec.Offer, 1)
		_, err := s.try(spec)
		want[*cloud.CapacityError](s, err)
		if n := len(s.alive(spec.ID)); n > spec.Offer.Machines(1) {
			s.Errorf("%d nodes exist where one fitted", n)
		}
		s.terminate(spec.ID)
		s.nothingLeft(spec.ID)
	}},
	{"a cluster that fitted only half is completed later", []string{"Fill", "Restore", "multi-node"}, func(s *suite) {
		spec := s.spec(s.id("web"), 3)
		s.Fill(s, spec.Offer, 1)
		_, err := s.try(spec)
		want[*cloud.CapacityError](s, err)
		half := ids(s.alive(spec.ID))
		s.Restore(s)
		whole := ids(s.launch(spec))
		for _, id := range half {
			if !slices.Contains(whole, id) {
				s.Errorf("%s was made again", id)
			}
		}
		s.complete(s.alive(spec.ID), 3)
	}},
	{"a full zone closes no other", []string{"Fill", "Elsewhere"}, func(s *suite) {
		spec := s.spec(s.id("web"), 1)
		s.Fill(s, spec.Offer, 0)
		_, err := s.try(spec)
		want[*cloud.CapacityError](s, err)
		s.terminate(spec.ID)
		there := s.spec(spec.ID, 1)
		there.Offer = *s.Elsewhere
		if n := s.launch(there)[0]; n.Place != s.Elsewhere.Place {
			s.Errorf("it is in %v, want %v", n.Place, s.Elsewhere.Place)
		}
	}},
	{"a full zone closes no other of its region", []string{"Fill", "Beside"}, func(s *suite) {
		spec, beside := s.spec(s.id("web"), 1), *s.Beside
		if beside.Region != spec.Offer.Region || beside.Zone == spec.Offer.Zone {
			s.Fatalf("%v is not beside %v", beside.Place, spec.Offer.Place)
		}
		s.Fill(s, spec.Offer, 0)
		if asked, ok := cloud.As[cloud.AvailabilityProber](s.p); ok {
			if a, err := asked.Available(s.ctx(), beside, 1); err != nil || a.Verdict == cloud.AvailableNone {
				s.Errorf("%v has room, and the provider says %+v, %v", beside.Place, a, err)
			}
		}
		_, err := s.try(spec)
		closed := cloud.BlockPlace(want[*cloud.CapacityError](s, err).Place)
		if closed.Matches(&beside) {
			s.Errorf("the refusal of %v closes %v, too: %v", spec.Offer.Place, beside.Place, closed.Place())
		}
		s.terminate(spec.ID)
		there := s.spec(spec.ID, 1)
		there.Offer = beside
		if n := s.launch(there)[0]; n.Place != beside.Place {
			s.Errorf("it is in %v, want %v", n.Place, beside.Place)
		}
	}},
	{"a cluster is in one place", []string{"Elsewhere", "multi-node"}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, 1))
		there := s.spec(id, 2)
		there.Offer = *s.Elsewhere
		if got, err := s.try(there); err == nil {
			s.Errorf("it succeeded across places: %v", brief(got))
		}
		if now := s.alive(id); len(now) < 1 || now[0].ID != nodes[0].ID {
			s.Errorf("there is %v", brief(now))
		}
	}},
	{"a quota is a quota error that names the region", []string{"Quota"}, func(s *suite) {
		spec := s.spec(s.id("web"), 1)
		s.Quota(s, spec.Offer, 0)
		_, err := s.try(spec)
		if e := want[*cloud.QuotaError](s, err); e.Place.Cloud != s.p.Name() || e.Place.Region != "" && e.Place.Region != spec.Offer.Region {
			s.Errorf("it names %v", e.Place)
		}
		s.terminate(spec.ID)
		s.nothingLeft(spec.ID)
	}},
	{"refused credentials are an auth error everywhere", []string{"Refuse", "Restore"}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, 1))
		s.Refuse(s)
		_, err := s.try(s.spec(id, s.some(2)))
		want[*cloud.AuthError](s, err)
		_, err = s.p.Nodes(s.ctx(), id)
		want[*cloud.AuthError](s, err)
		want[*cloud.AuthError](s, s.p.Terminate(s.ctx(), id))
		s.Restore(s)
		s.same("there is", ids(s.alive(id)), ids(nodes))
	}},
	{"what is not permitted is a permission error", []string{"Forbid", "Restore"}, func(s *suite) {
		spec := s.spec(s.id("web"), 1)
		s.Forbid(s)
		_, err := s.try(spec)
		if e := want[*cloud.PermissionError](s, err); e.Place.Cloud != s.p.Name() {
			s.Errorf("it names %v", e.Place)
		}
		s.Restore(s)
		s.nothing(spec.ID)
	}},
	{"throttling is a throttled error and no more", []string{"Throttle", "Restore"}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, 1))
		s.Throttle(s)
		_, err := s.p.Nodes(s.ctx(), id)
		want[*cloud.ThrottledError](s, err)
		_, err = s.try(s.spec(id, s.some(2)))
		want[*cloud.ThrottledError](s, err)
		s.Restore(s)
		s.same("there is", ids(s.alive(id)), ids(nodes))
	}},
	{"an unreachable cloud is an unreachable error everywhere", []string{"Cut", "Restore"}, func(s *suite) {
		spec := s.spec(s.id("web"), 1)
		s.Cut(s)
		_, err := s.try(spec)
		want[*cloud.UnreachableError](s, err)
		want[*cloud.UnreachableError](s, s.p.Terminate(s.ctx(), spec.ID))
		s.Restore(s)
		s.launch(spec)
	}},
}

var troubles = []Behaviour{
	{"a lost answer and the same launch again make no second machine", []string{"LoseAnswers", "Restore"}, func(s *suite) {
		spec := s.spec(s.id("web"), s.some(2))
		s.LoseAnswers(s, Creating, 1)
		if _, err := s.try(spec); err != nil {
			want[*cloud.UnreachableError](s, err)
		}
		s.Restore(s)
		nodes := s.launch(spec)
		s.same("there are", ids(s.alive(spec.ID)), ids(nodes))
	}},
	{"a lost answer and another attempt make no second machine", []string{"LoseAnswers", "Restore", "Another"}, func(s *suite) {
		spec := s.spec(s.id("web"), s.some(2))
		s.LoseAnswers(s, Creating, 1)
		if _, err := s.try(spec); err != nil {
			want[*cloud.UnreachableError](s, err)
		}
		s.Restore(s)
		s.p = s.Another(s) // the server died meanwhile
		again := s.spec(spec.ID, spec.Nodes)
		again.Resumed = true
		nodes := s.launch(again)
		s.same("there are", ids(s.alive(spec.ID)), ids(nodes))
	}},
	{"what a lost answer left can be seen and removed", []string{"LoseAnswers", "Restore"}, func(s *suite) {
		spec := s.spec(s.id("web"), 1)
		s.LoseAnswers(s, Creating, 1)
		if _, err := s.try(spec); err == nil {
			s.Skip("not applicable: the provider asks again by itself")
		}
		s.Restore(s)
		s.eventually("it is listed", func() bool { return len(s.alive(spec.ID)) == spec.Offer.Machines(1) })
		s.terminate(spec.ID)
		s.nothingLeft(spec.ID)
	}},
	{"every answer lost for a while makes no second machine", []string{"LoseAnswers", "Restore"}, func(s *suite) {
		spec := s.spec(s.id("web"), s.some(3))
		s.LoseAnswers(s, Creating, 5)
		for range 8 {
			if _, err := s.try(spec); err == nil {
				break
			}
		}
		s.Restore(s)
		nodes := s.launch(spec)
		s.same("there are", ids(s.alive(spec.ID)), ids(nodes))
	}},
	{"a list that lags makes no second machine", []string{"HideNew", "Restore"}, func(s *suite) {
		spec := s.spec(s.id("web"), s.some(2))
		s.HideNew(s, 3)
		nodes := s.launch(spec)
		s.Restore(s)
		again := s.launch(spec)
		s.same("launched again", ids(again), ids(nodes))
		s.complete(s.alive(spec.ID), spec.Nodes)
	}},
	{"a lost answer, a list that lags and a restart make no second machine", []string{"HideNew", "LoseAnswers", "Another", "Restore"}, func(s *suite) {
		spec := s.spec(s.id("web"), 1)
		s.HideNew(s, 3)
		s.LoseAnswers(s, Creating, 1)
		if _, err := s.try(spec); err != nil {
			want[*cloud.UnreachableError](s, err)
		}
		spec.Resumed = true
		nodes, err := tryWith(s.ctx(), s.Another(s), spec)
		if err != nil {
			s.Fatalf("launching again: %v", err)
		}
		s.Restore(s)
		s.complete(nodes, 1)
		s.same("there is", ids(s.alive(spec.ID)), ids(nodes))
	}},
	{"a slow boot is waited for", []string{"Slow"}, func(s *suite) {
		s.Slow(s, 700*time.Millisecond)
		spec := s.spec(s.id("web"), s.some(2))
		s.launch(spec)
		s.complete(s.alive(spec.ID), spec.Nodes)
	}},
}

var cancellations = []Behaviour{
	{"a launch that is cancelled before it begins makes nothing", nil, func(s *suite) {
		spec := s.spec(s.id("web"), 1)
		if err := s.promptly("Launch", 0, func(ctx context.Context) error { _, err := tryWith(ctx, s.p, spec); return err }); err == nil {
			s.Error("it succeeded")
		}
		s.nothing(spec.ID)
	}},
	{"every method returns promptly when it is cancelled", []string{"Hang", "Restore"}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, 1))
		calls := map[string]func(context.Context) error{
			"Nodes":     func(ctx context.Context) error { _, err := s.p.Nodes(ctx, id); return err },
			"Launch":    func(ctx context.Context) error { _, err := s.p.Launch(ctx, s.spec(id, 2)); return err },
			"Terminate": func(ctx context.Context) error { return s.p.Terminate(ctx, id) },
		}
		// A provider whose offers are in a price list asks nobody for them.
		if offers, _ := s.p.Offers(s.ctx()); offers != nil {
			calls["Offers"] = func(ctx context.Context) error { _, err := s.p.Offers(ctx); return err }
		}
		if st, ok := cloud.As[cloud.Stopper](s.p); ok {
			calls["Stop"] = func(ctx context.Context) error { return st.Stop(ctx, id) }
		}
		for name, call := range calls {
			s.Hang(s)
			if err := s.promptly(name, 50*time.Millisecond, call); err == nil {
				s.Errorf("%s succeeded without an answer", name)
			}
			s.Restore(s)
		}
		s.same("there is", ids(s.alive(id)), ids(nodes))
	}},
	{"a launch that waits for a boot returns promptly when it is cancelled", []string{"Slow"}, func(s *suite) {
		s.Slow(s, time.Minute)
		spec := s.spec(s.id("web"), s.some(2))
		if err := s.promptly("Launch", 200*time.Millisecond, func(ctx context.Context) error { _, err := tryWith(ctx, s.p, spec); return err }); err == nil {
			s.Error("it succeeded")
		}
		s.Slow(s, 0)
		s.terminate(spec.ID)
		s.nothingLeft(spec.ID)
	}},
	{"what a cancelled launch left can be removed", nil, func(s *suite) {
		for i, after := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond} {
			spec := s.spec(s.id(numbered("web", i)), s.some(3))
			_ = s.promptly("Launch", after, func(ctx context.Context) error { _, err := tryWith(ctx, s.p, spec); return err })
			s.terminate(spec.ID)
			s.nothingLeft(spec.ID)
		}
	}},
	{"a cancelled launch can be repeated", nil, func(s *suite) {
		spec := s.spec(s.id("web"), s.some(3))
		for _, after := range []time.Duration{time.Millisecond, 3 * time.Millisecond, 9 * time.Millisecond} {
			_ = s.promptly("Launch", after, func(ctx context.Context) error { _, err := tryWith(ctx, s.p, spec); return err })
		}
		nodes := s.launch(spec)
		s.same("there are", ids(s.alive(spec.ID)), ids(nodes))
	}},
}
