package cloudtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

var names = []Behaviour{
	{"the longest names work and stay apart", nil, func(s *suite) {
		length := s.p.Features().MaxNameLength
		if length == 0 {
			length = 100
		}
		stem := strings.Repeat("n", length-1)
		a, b := s.id(stem+"a"), s.id(stem+"b")
		na := s.launch(s.spec(a, s.some(2)))
		nb := s.launch(s.spec(b, 1))
		s.same("the first", ids(s.alive(a)), ids(na))
		s.same("the second", ids(s.alive(b)), ids(nb))
		if got := s.alive(a)[0].Cluster; got != a.Name {
			s.Errorf("listed as %q", got)
		}
		s.terminate(a)
		s.nothingLeft(a)
		s.same("the second", ids(s.alive(b)), ids(nb))
	}},
	{"a name that begins another stays apart from it", nil, func(s *suite) {
		all := []string{"a", "a-1", "a-1-0", "a-h1"}
		var nodes [][]cloud.Node
		for _, name := range all {
			nodes = append(nodes, s.launch(s.spec(s.id(name), 1)))
		}
		for i, name := range all {
			s.same(name, ids(s.alive(s.id(name))), ids(nodes[i]))
		}
	}},
	{"hostile names are refused or harmless", nil, func(s *suite) {
		mine := s.id("web")
		nodes := s.launch(s.spec(mine, 1))
		for _, name := range []string{"../x", "a/b", "a\nb", "-rf", "a b", "*", "a=b&c", "Ü", strings.Repeat("x", 1000)} {
			id := s.id(name)
			_, err := s.try(s.spec(id, 1))
			var invalid *cloud.InvalidError
			if err != nil && !errors.As(err, &invalid) {
				s.Errorf("%.20q: error %T (%v), want an InvalidError", name, err, err)
			}
			if err == nil {
				s.complete(s.alive(id), 1)
			}
			s.terminate(id)
			s.nothing(id)
		}
		s.same("the other cluster", ids(s.alive(mine)), ids(nodes))
	}},
}

// offSwitch skips the behaviour if the provider has none.
func (s *suite) offSwitch() cloud.OffSwitch {
	off, ok := cloud.As[cloud.OffSwitch](s.p)
	if !ok {
		s.Skip("not applicable: the provider is no OffSwitch")
	}
	return off
}

var powers = []Behaviour{
	{"ports are opened besides those that are open", []string{"OpenPorts", "open_ports"}, func(s *suite) {
		opener, ok := cloud.As[cloud.PortOpener](s.p)
		if !ok {
			s.Fatal("the provider says that it can open ports, but is no PortOpener")
		}
		spec := s.spec(s.id("web"), 1)
		spec.Ports = []string{"8080"}
		n := s.launch(spec)[0]
		for range 2 {
			if err := opener.OpenPorts(s.ctx(), spec.ID, []string{"9000-9010"}); err != nil {
				s.Fatal(err)
			}
		}
		s.same("open", s.OpenPorts(s, n), []string{"8080", "9000-9010"})
		s.launch(spec) // must not close what was opened since
		s.same("open after launching again", s.OpenPorts(s, n), []string{"8080", "9000-9010"})
		s.terminate(spec.ID)
		s.nothingLeft(spec.ID)
	}},
	{"opening ports of an unknown cluster makes nothing", []string{"OpenPorts", "open_ports"}, func(s *suite) {
		opener, ok := cloud.As[cloud.PortOpener](s.p)
		if !ok {
			s.Fatal("the provider says that it can open ports, but is no PortOpener")
		}
		before := s.inventory()
		if err := opener.OpenPorts(s.ctx(), s.id("nobody"), []string{"80"}); err == nil {
			s.Error("it succeeded")
		}
		s.same("the cloud has", s.inventory(), before)
	}},
	{"machines that switch themselves off end if that was said", []string{"Halt"}, func(s *suite) {
		off := s.offSwitch()
		id := s.id("web")
		nodes := s.launch(s.spec(id, s.some(2)))
		for range 2 {
			if err := off.WhenOff(s.ctx(), id, true); err != nil {
				s.Fatal(err)
			}
		}
		for _, n := range nodes {
			s.Halt(s, n)
		}
		s.eventually("all machines are gone", func() bool {
			return !slices.ContainsFunc(s.nodes(id), func(n cloud.Node) bool { return n.State != cloud.NodeGone })
		})
		s.terminate(id)
		s.nothingLeft(id)
	}},
	{"machines that switch themselves off are kept if nothing else was said last", []string{stop, "Halt"}, func(s *suite) {
		off := s.offSwitch()
		id := s.id("web")
		nodes := s.launch(s.spec(id, s.some(2)))
		for _, ends := range []bool{true, false} {
			if err := off.WhenOff(s.ctx(), id, ends); err != nil {
				s.Fatal(err)
			}
		}
		for _, n := range nodes {
			s.Halt(s, n)
		}
		s.eventually("all machines are stopped", func() bool {
			return !slices.ContainsFunc(s.nodes(id), func(n cloud.Node) bool { return n.State != cloud.NodeStopped })
		})
		s.same("started", ids(s.launch(s.spec(id, s.some(2)))), ids(nodes))
	}},
	{"it does not matter what machines of an unknown cluster do", nil, func(s *suite) {
		if err := s.offSwitch().WhenOff(s.ctx(), s.id("nobody"), true); err != nil {
			s.Error(err)
		}
	}},
	{"availability is told without renting", []string{"Fill", "Restore"}, func(s *suite) {
		prober, ok := cloud.As[cloud.AvailabilityProber](s.p)
		if !ok {
			s.Skip("not applicable: the provider is no AvailabilityProber")
		}
		before := s.inventory()
		for _, tt := range []struct {
			left, nodes int
			want        cloud.AvailabilityVerdict
		}{{0, 1, cloud.AvailableNone}, {1, 1, cloud.AvailableNow}, {1, 2, cloud.AvailableNone}, {2, 2, cloud.AvailableNow}} {
			s.Fill(s, s.Spec.Offer, tt.left)
			got, err := prober.Available(s.ctx(), s.Spec.Offer, tt.nodes)
			if err != nil || got.Verdict != tt.want && got.Verdict != cloud.AvailabilityUnknown {
				s.Errorf("%d nodes where %d fit: %v, %v", tt.nodes, tt.left, got, err)
			}
			if got.At.IsZero() {
				s.Error("nobody knows when that was")
			}
		}
		s.Restore(s)
		s.same("the cloud has", s.inventory(), before)
	}},
	{"a machine that there is no room for is not asked for", []string{"Fill", "Forbid", "Restore"}, func(s *suite) {
		if s.Unasked != "" {
			s.Skip("not applicable: " + s.Unasked)
		}
		prober, ok := cloud.As[cloud.AvailabilityProber](s.p)
		if !ok {
			s.Skip("not applicable: the provider is no AvailabilityProber")
		}
		spec := s.spec(s.id("web"), 1)
		if err := s.p.Prepare(s.ctx(), spec); err != nil {
			s.Fatal(err)
		}
		s.Fill(s, spec.Offer, 0)
		if a, err := prober.Available(s.ctx(), spec.Offer, 1); err != nil {
			s.Fatal(err)
		} else if a.Verdict == cloud.AvailabilityUnknown {
			s.Skip("not applicable: the cloud does not say it of such machines")
		}
		s.Forbid(s) // who asks for one is told that they may not
		_, err := s.p.Launch(s.ctx(), spec)
		want[*cloud.CapacityError](s, err)
		s.Restore(s)
		s.nothing(spec.ID)
	}},
	{"quotas are told", []string{"Quota"}, func(s *suite) {
		reader, ok := cloud.As[cloud.QuotaReader](s.p)
		if !ok {
			s.Skip("not applicable: the provider is no QuotaReader")
		}
		s.launch(s.spec(s.id("web"), 1))
		s.Quota(s, s.Spec.Offer, 0)
		quotas, err := reader.Quotas(s.ctx(), s.Spec.Offer.Region)
		if err != nil {
			s.Fatal(err)
		}
		if !slices.ContainsFunc(quotas, func(q cloud.Quota) bool { return q.Limit > 0 && q.Used == q.Limit }) {
			s.Errorf("none is used up: %+v", quotas)
		}
	}},
	{"a notice comes before a node is taken back", []string{"Preempt", "Spot"}, func(s *suite) {
		reader, ok := cloud.As[cloud.SpotNotices](s.p)
		if !ok {
			s.Skip("not applicable: the provider is no SpotNotices")
		}
		spec := s.spec(s.id("web"), s.some(2))
		spec.Offer = *s.Spot
		nodes := s.launch(spec)
		read := func() []cloud.SpotNotice {
			got, err := reader.SpotNotices(context.WithoutCancel(s.ctx()), spec.ID)
			if err != nil {
				s.Fatal(err)
			}
			return got
		}
		if got := read(); len(got) > 0 {
			s.Errorf("notices for no reason: %+v", got)
		}
		last := nodes[len(nodes)-1]
		s.Preempt(s, last, 2*time.Second)
		if got := read(); len(got) != 1 || got[0].NodeID != last.ID || got[0].Rank != last.Rank || got[0].At.IsZero() {
			s.Errorf("notices %+v, want one for %s", got, last.ID)
		}
		all, err := reader.SpotNotices(context.WithoutCancel(s.ctx()), cloud.ClusterID{Installation: spec.ID.Installation})
		if err != nil || len(all) != 1 || all[0].NodeID != last.ID {
			s.Errorf("notices of all clusters: %+v, %v", all, err)
		}
		s.eventually("the node is gone", func() bool { return len(s.alive(spec.ID)) == len(nodes)-1 })
		if got := read(); len(got) > 0 {
			s.Errorf("a node that is gone has a notice: %+v", got)
		}
	}},
}
