package cloudtest

import (
	"fmt"
	"slices"
	"sync"

	"github.com/skypilot-go/sky/internal/cloud"
)

var launches = []Behaviour{
	{"a launch makes the nodes asked for", nil, func(s *suite) {
		spec := s.spec(s.id("web"), s.some(3))
		nodes := s.launch(spec)
		seen := map[string]bool{}
		for _, n := range nodes {
			switch {
			case n.ID == "" || seen[n.ID]:
				s.Errorf("the id %q is empty or taken", n.ID)
			case n.InternalIP == "" || seen[n.InternalIP]:
				s.Errorf("the address %q is empty or taken", n.InternalIP)
			case n.Cluster != spec.ID.Name || n.Hash != spec.ID.Hash:
				s.Errorf("it belongs to %s/%s", n.Cluster, n.Hash)
			case n.Created.IsZero():
				s.Errorf("%s was never created", n.ID)
			case n.Place.Cloud != s.p.Name() || spec.Offer.Region != "" && n.Place.Region != spec.Offer.Region ||
				spec.Offer.Zone != "" && n.Place.Zone != spec.Offer.Zone:
				s.Errorf("%s is in %v, want %v", n.ID, n.Place, spec.Offer.Place)
			case n.Reach.Method == "":
				s.Errorf("nobody knows how to reach %s", n.ID)
			case n.Reach.Method == "ssh" && (n.Reach.Host == "" || n.Reach.Port == 0 || n.Reach.User == ""):
				s.Errorf("ssh needs a host, a port and a user: %+v", n.Reach)
			}
			seen[n.ID], seen[n.InternalIP] = true, true
		}
	}},
	{"a launch returns what is listed", nil, func(s *suite) {
		spec := s.spec(s.id("web"), s.some(2))
		nodes := s.launch(spec)
		listed := s.nodes(spec.ID)
		s.complete(listed, spec.Nodes)
		for i := range nodes {
			a, b := nodes[i], listed[i]
			if a.ID != b.ID || a.InternalIP != b.InternalIP || a.ExternalIP != b.ExternalIP || a.Reach != b.Reach || a.Place != b.Place {
				s.Errorf("launched %+v, listed %+v", a, b)
			}
		}
	}},
	{"launching twice makes one cluster", nil, func(s *suite) {
		spec := s.spec(s.id("web"), s.some(2))
		first := s.launch(spec)
		things := s.inventory()
		second := s.launch(spec)
		s.same("ids the second time", ids(second), ids(first))
		s.same("there is", s.inventory(), things)
	}},
	{"launching what runs under a new token creates nothing", nil, func(s *suite) {
		id := s.id("web")
		first := s.launch(s.spec(id, s.some(2)))
		things := s.inventory()
		second := s.launch(s.spec(id, s.some(2)))
		s.same("ids the second time", ids(second), ids(first))
		s.same("there is", s.inventory(), things)
	}},
	{"another provider finds the cluster of the first", []string{"Another"}, func(s *suite) {
		spec := s.spec(s.id("web"), s.some(2))
		first := s.launch(spec)
		s.p = s.Another(s)
		s.same("listed", ids(s.nodes(spec.ID)), ids(first))
		second := s.launch(s.spec(spec.ID, spec.Nodes))
		s.same("launched", ids(second), ids(first))
		s.terminate(spec.ID)
		s.nothingLeft(spec.ID)
	}},
	{"concurrent launches of a cluster make one", nil, func(s *suite) {
		spec := s.spec(s.id("web"), s.some(2))
		got := s.together(4, func(int) ([]cloud.Node, error) { return tryWith(s.ctx(), s.p, spec) })
		for _, nodes := range got {
			s.same("ids", ids(nodes), ids(got[0]))
		}
		s.complete(s.alive(spec.ID), spec.Nodes)
	}},
	{"concurrent launches by different attempts make one", nil, func(s *suite) {
		id := s.id("web")
		got := s.together(3, func(int) ([]cloud.Node, error) { return tryWith(s.ctx(), s.p, s.spec(id, s.some(2))) })
		for _, nodes := range got {
			s.same("ids", ids(nodes), ids(got[0]))
		}
		s.complete(s.alive(id), s.some(2))
	}},
	{"concurrent launches of clusters stay apart", nil, func(s *suite) {
		var all []cloud.ClusterID
		for i := range 5 {
			all = append(all, s.id(fmt.Sprintf("web%d", i)))
		}
		got := s.together(5, func(i int) ([]cloud.Node, error) { return tryWith(s.ctx(), s.p, s.spec(all[i], s.some(2))) })
		for i, id := range all {
			s.complete(s.alive(id), s.some(2))
			s.same("the nodes of "+id.Name, ids(s.alive(id)), ids(got[i]))
		}
	}},
	{"missing ranks are added and the others stay", []string{"multi-node"}, func(s *suite) {
		id := s.id("web")
		one := s.launch(s.spec(id, 1))
		three := s.launch(s.spec(id, 3))
		if three[0].ID != one[0].ID {
			s.Errorf("the head was %s and is %s", one[0].ID, three[0].ID)
		}
	}},
	{"asking for fewer deletes nothing and does not look like success", []string{"multi-node"}, func(s *suite) {
		id := s.id("web")
		three := s.launch(s.spec(id, 3))
		nodes, err := s.try(s.spec(id, 2))
		if err == nil && len(nodes) != 3 {
			s.Errorf("it succeeded with %v while three exist", brief(nodes))
		}
		s.same("there are", ids(s.alive(id)), ids(three))
	}},
	{"many ranks are in order", []string{"multi-node"}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, 12)) // by the alphabet, 10 comes before 2
		s.same("listed", ids(s.nodes(id)), ids(nodes))
	}},
	{"a name can be used again", nil, func(s *suite) {
		first := s.launch(s.spec(s.id("web"), 1))
		s.terminate(s.id("web"))
		again := s.spec(s.in(s.installation, "web", "h2"), 1)
		nodes := s.launch(again)
		if nodes[0].Hash != "h2" || nodes[0].ID == first[0].ID {
			s.Errorf("%v after %v", brief(nodes), brief(first))
		}
	}},
	{"the same incarnation can be launched again after it was terminated", nil, func(s *suite) {
		spec := s.spec(s.id("web"), s.some(2))
		s.launch(spec)
		s.terminate(spec.ID)
		s.launch(spec) // even by the same attempt
	}},
	{"labels do not hide a cluster", nil, func(s *suite) {
		spec := s.spec(s.id("web"), 1)
		spec.Labels = map[string]string{"team": "ml", "owner": "ann", cloud.TagRank: "7", cloud.TagHash: "x", cloud.TagInstallation: "y", cloud.TagCluster: "z"}
		s.launch(spec)
		s.complete(s.alive(spec.ID), 1)
	}},
	{"an unknown machine is invalid", nil, func(s *suite) {
		spec := s.spec(s.id("web"), 1)
		spec.Offer.InstanceType = "no-such-machine"
		_, err := s.try(spec)
		if e := want[*cloud.InvalidError](s, err); e.Place.Cloud != s.p.Name() {
			s.Errorf("the place is %v", e.Place)
		}
		s.terminate(spec.ID)
		s.nothingLeft(spec.ID)
	}},
	{"an unknown place is invalid", nil, func(s *suite) {
		spec := s.spec(s.id("web"), 1)
		spec.Offer.Region, spec.Offer.Zone = "atlantis", "atlantis-a"
		_, err := s.try(spec)
		want[*cloud.InvalidError](s, err)
		s.terminate(spec.ID)
		s.nothingLeft(spec.ID)
	}},
	{"a command runs on every node", []string{"Login"}, func(s *suite) {
		for _, n := range s.launch(s.spec(s.id("web"), s.some(2))) {
			if err := s.Login(s, n); err != nil {
				s.Errorf("rank %d: %v", n.Rank, err)
			}
		}
	}},
}

// some is n, or one where clusters have one node.
func (s *suite) some(n int) int {
	if _, lacks := s.p.Features().Lacks[cloud.FeatureMultiNode]; lacks {
		return 1
	}
	return n
}

// together launches n times at once; all must succeed.
func (s *suite) together(n int, f func(i int) ([]cloud.Node, error)) [][]cloud.Node {
	s.Helper()
	got, errs := make([][]cloud.Node, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { got[i], errs[i] = f(i) })
	}
	wg.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		s.Fatalf("launch %d of %d at once: %v", i, n, errs[i])
	}
	return got
}
