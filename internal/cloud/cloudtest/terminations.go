package cloudtest

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/skypilot-go/sky/internal/cloud"
)

var terminations = []Behaviour{
	{"terminating leaves nothing", nil, func(s *suite) {
		before := s.inventory()
		id := s.id("web")
		s.launch(s.spec(id, s.some(3)))
		s.terminate(id)
		s.nothingLeft(id)
		s.same("the cloud has", s.inventory(), before)
	}},
	{"terminating twice is terminating once", nil, func(s *suite) {
		id := s.id("web")
		s.launch(s.spec(id, 1))
		s.terminate(id)
		s.terminate(id)
		s.nothingLeft(id)
	}},
	{"terminating an unknown cluster is success", nil, func(s *suite) {
		s.terminate(s.id("nobody"))
	}},
	{"terminating no name removes nothing", nil, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, 1))
		if err := s.p.Terminate(s.ctx(), cloud.ClusterID{Installation: s.installation}); err != nil {
			s.Logf("refused: %v", err)
		}
		s.same("there is", ids(s.alive(id)), ids(nodes))
	}},
	{"terminating at once from two sides is success", nil, func(s *suite) {
		id := s.id("web")
		s.launch(s.spec(id, s.some(2)))
		errs := make([]error, 3)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = s.p.Terminate(s.ctx(), id) })
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				s.Error(err)
			}
		}
		s.nothingLeft(id)
	}},
	// Another server made them, and died: only what protects them reports that they exist.
	{"machines that lists show late are ended, too", []string{"HideNew", "Another", "open_ports", "protection"}, func(s *suite) {
		spec := s.spec(s.id("web"), 1)
		spec.Ports = []string{"8080"}
		id := spec.ID
		s.HideNew(s, 12)
		ctx, die := context.WithCancel(s.ctx())
		defer die()
		launched := make(chan struct{})
		go func() {
			defer close(launched)
			_, _ = tryWith(ctx, s.p, spec)
		}()
		s.eventually("there are a machine and what protects it", func() bool {
			made := slices.DeleteFunc(s.inventory(), func(thing string) bool { return !strings.Contains(thing, id.Name) })
			return len(made) > 1
		})
		die()
		<-launched
		s.p = s.Another(s)
		s.terminate(id)
		s.nothingLeft(id)
	}},
	{"terminating spares other clusters", nil, func(s *suite) {
		a, b := s.id("web"), s.id("web-2")
		s.launch(s.spec(a, 1))
		nodes := s.launch(s.spec(b, 1))
		s.terminate(a)
		s.same("the other one", ids(s.alive(b)), ids(nodes))
	}},
	{"terminated nodes cost nothing when Terminate returns", []string{"Billed"}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, s.some(2)))
		s.terminate(id)
		for _, n := range nodes {
			if s.Billed(s, n) {
				s.Errorf("rank %d is still billed", n.Rank)
			}
		}
	}},
	{"an old incarnation can be terminated beside the new one", nil, func(s *suite) {
		before, now := s.in(s.installation, "web", "h1"), s.in(s.installation, "web", "h2")
		s.launch(s.spec(before, 1))
		nodes := s.launch(s.spec(now, 1))
		s.terminate(before)
		s.nothing(before)
		s.same("the new one", ids(s.alive(now)), ids(nodes))
	}},
	{"answers lost while terminating do no harm", []string{"LoseAnswers", "Restore"}, func(s *suite) {
		id := s.id("web")
		s.launch(s.spec(id, s.some(2)))
		s.LoseAnswers(s, Terminating, 1)
		if err := s.p.Terminate(s.ctx(), id); err != nil {
			want[*cloud.UnreachableError](s, err)
		}
		s.Restore(s)
		s.terminate(id)
		s.nothingLeft(id)
	}},
}

func (s *suite) nothing(id cloud.ClusterID) {
	s.Helper()
	if left := s.alive(id); len(left) > 0 {
		s.Errorf("left: %v", brief(left))
	}
}

var listings = []Behaviour{
	{"an unknown cluster has no nodes", nil, func(s *suite) {
		s.nothing(s.id("nobody"))
	}},
	{"no name lists everything of the installation", nil, func(s *suite) {
		a := s.launch(s.spec(s.id("alpha"), s.some(2)))
		b := s.launch(s.spec(s.id("beta"), 1))
		all := s.alive(cloud.ClusterID{Installation: s.installation})
		s.same("listed", ids(all), append(ids(a), ids(b)...))
		for _, n := range all {
			if n.Cluster == "" || n.Hash == "" {
				s.Errorf("%s is of no cluster", n.ID)
			}
		}
	}},
	{"another installation is not listed", nil, func(s *suite) {
		mine := s.launch(s.spec(s.id("alpha"), 1))
		s.launch(s.spec(s.in(s.installation+"-other", "beta", "h1"), 1))
		s.same("listed", ids(s.alive(cloud.ClusterID{Installation: s.installation})), ids(mine))
	}},
	{"another installation's cluster of the same name stays apart", []string{"installations"}, func(s *suite) {
		mine, theirs := s.id("web"), s.in(s.installation+"-other", "web", "h1")
		a := s.launch(s.spec(mine, s.some(2)))
		b := s.launch(s.spec(theirs, 1))
		s.same("mine", ids(s.alive(mine)), ids(a))
		s.terminate(mine)
		s.nothing(mine)
		s.same("theirs", ids(s.alive(theirs)), ids(b))
	}},
	{"the hash tells incarnations apart", nil, func(s *suite) {
		s.launch(s.spec(s.in(s.installation, "web", "h1"), 1))
		now := s.in(s.installation, "web", "h2")
		nodes := s.launch(s.spec(now, 1))
		s.same("listed", ids(s.alive(now)), ids(nodes))
		s.nothing(s.in(s.installation, "web", "h3"))
	}},
	{"hundreds of clusters are listed", []string{"Seed"}, func(s *suite) {
		many := s.Many
		if many == 0 {
			many = 300
		}
		want := map[string]bool{}
		for i := range many {
			id := cloud.ClusterID{Installation: s.installation, Name: numbered("c", i), Hash: numbered("h", i)}
			want[id.Name] = true
			s.Seed(s, id)
		}
		for _, n := range s.alive(cloud.ClusterID{Installation: s.installation}) {
			if !want[n.Cluster] {
				s.Errorf("%s is listed twice or was never made", n.Cluster)
			}
			delete(want, n.Cluster)
		}
		if len(want) > 0 {
			s.Errorf("%d of %d clusters are missing", len(want), many)
		}
		last := s.alive(cloud.ClusterID{Installation: s.installation, Name: numbered("c", many-1)})
		if len(last) != 1 {
			s.Errorf("the last one alone: %v", brief(last))
		}
	}},
	{"an unreachable cloud is not an empty one", []string{"Cut", "Restore"}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, 1))
		s.Cut(s)
		got, err := s.p.Nodes(s.ctx(), id)
		if err == nil {
			s.Errorf("it lists %v", brief(got))
		}
		want[*cloud.UnreachableError](s, err)
		s.Restore(s)
		s.same("listed afterwards", ids(s.alive(id)), ids(nodes))
	}},
	{"a state nobody knows is an error", []string{"Lie", "Restore"}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, 1))
		s.Lie(s, nodes[0], "quantum")
		if got, err := s.p.Nodes(s.ctx(), id); err == nil {
			s.Errorf("it is listed as %v", brief(got))
		}
		if _, err := s.try(s.spec(id, 1)); err == nil {
			s.Error("launching it succeeded")
		}
		s.Restore(s)
		s.complete(s.alive(id), 1)
	}},
	{"a clock that goes wrong changes nothing", []string{"Skew", "Restore"}, func(s *suite) {
		for i, by := range []string{"-720h", "720h"} {
			s.Skew(s, duration(by))
			id := s.id(numbered("web", i))
			first := s.launch(s.spec(id, s.some(2)))
			s.same("again", ids(s.launch(s.spec(id, s.some(2)))), ids(first))
			s.terminate(id)
			s.nothingLeft(id)
		}
		s.Restore(s)
	}},
}
