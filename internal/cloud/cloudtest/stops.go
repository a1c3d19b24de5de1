package cloudtest

import (
	"context"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

const stop = string(cloud.FeatureStop)

var stops = []Behaviour{
	{"stopped nodes are listed as stopped", []string{stop}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, s.some(2)))
		s.stop(id)
		s.allStopped(id, nodes)
	}},
	{"stopping twice is stopping once", []string{stop}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, s.some(2)))
		s.stop(id)
		s.stop(id)
		s.allStopped(id, nodes)
	}},
	{"stopping an unknown cluster is success", []string{stop}, func(s *suite) {
		s.stop(s.id("nobody"))
	}},
	{"stopping spares other clusters", []string{stop}, func(s *suite) {
		a, b := s.id("web"), s.id("web-2")
		s.launch(s.spec(a, 1))
		s.launch(s.spec(b, 1))
		s.stop(a)
		s.complete(s.alive(b), 1)
	}},
	{"starting keeps ids and ranks, the head too", []string{stop}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, s.some(3)))
		s.stop(id)
		again := s.launch(s.spec(id, s.some(3)))
		s.same("started", ids(again), ids(nodes))
		for i := range nodes {
			if !again[i].Created.Equal(nodes[i].Created) {
				s.Errorf("rank %d was created at %v, now at %v", i, nodes[i].Created, again[i].Created)
			}
		}
	}},
	{"disks survive being off", []string{stop, "Write", "Read"}, func(s *suite) {
		id := s.id("web")
		for _, n := range s.launch(s.spec(id, s.some(2))) {
			s.Write(s, n, "data", fmt.Sprintf("of rank %d", n.Rank))
		}
		s.stop(id)
		for _, n := range s.launch(s.spec(id, s.some(2))) {
			if got, want := s.Read(s, n, "data"), fmt.Sprintf("of rank %d", n.Rank); got != want {
				s.Errorf("rank %d has %q, want %q", n.Rank, got, want)
			}
		}
	}},
	{"stopped nodes are resumed before any is created", []string{stop, "multi-node"}, func(s *suite) {
		id := s.id("web")
		two := s.launch(s.spec(id, 2))
		s.stop(id)
		four := s.launch(s.spec(id, 4))
		s.same("the first two of four", ids(four[:2]), ids(two))
	}},
	{"only what is off is started", []string{stop, "Halt", "multi-node"}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, 2))
		s.Halt(s, nodes[1])
		s.eventually("the halted node is listed as stopped", func() bool { return s.nodes(id)[1].State == cloud.NodeStopped })
		if head := s.nodes(id)[0]; head.State != cloud.NodeRunning {
			s.Errorf("the head is %s", head.State)
		}
		if n := s.nodes(id)[1]; n.Reason == "" {
			s.Error("a node that nobody stopped has no reason for being off")
		}
		s.same("started", ids(s.launch(s.spec(id, 2))), ids(nodes))
	}},
	{"features tell the truth about autostop", nil, func(s *suite) {
		_, noStop := s.p.Features().Lacks[cloud.FeatureAutostop]
		_, noDown := s.p.Features().Lacks[cloud.FeatureAutodown]
		for _, n := range s.launch(s.spec(s.id("web"), 1)) {
			if can := n.Reach.Machine != "" || n.Reach.Method == "local"; can == (noStop && noDown) {
				s.Errorf("the agent's way to switch the machine off is %q; lacks autostop: %t, autodown: %t", n.Reach.Machine, noStop, noDown)
			}
			if _, ok := cloud.As[cloud.OffSwitch](s.p); n.Reach.Machine == cloud.MachinePowerOff && !noDown && !ok {
				s.Error("machines that power off do not go for good, so a provider without an OffSwitch lacks autodown")
			}
		}
	}},
	{"a launch waits for a stop that is under way", []string{stop}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, s.some(2)))
		ctx, cancel := context.WithTimeout(s.Context(), 100*time.Millisecond)
		defer cancel()
		_ = s.stopper().Stop(ctx, id) // leaves before the machines are off, or not
		s.same("started", ids(s.launch(s.spec(id, s.some(2)))), ids(nodes))
	}},
	{"a stopped cluster can be terminated", []string{stop}, func(s *suite) {
		id := s.id("web")
		s.launch(s.spec(id, s.some(2)))
		s.stop(id)
		s.terminate(id)
		s.nothingLeft(id)
	}},
	{"stopped nodes cost nothing", []string{stop, "Billed", "free when off"}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, s.some(2)))
		for _, n := range nodes {
			if !s.Billed(s, n) {
				s.Errorf("rank %d runs for free", n.Rank)
			}
		}
		s.stop(id)
		for _, n := range nodes {
			if s.Billed(s, n) {
				s.Errorf("rank %d is off and billed", n.Rank)
			}
		}
	}},
	{"resuming into a full zone keeps the nodes and creates none", []string{stop, "Fill", "Restore"}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, s.some(2)))
		s.stop(id)
		s.Fill(s, s.Spec.Offer, 0)
		_, err := s.try(s.spec(id, s.some(2)))
		want[*cloud.CapacityError](s, err)
		s.allStopped(id, nodes)
		s.Restore(s)
		s.same("started", ids(s.launch(s.spec(id, s.some(2)))), ids(nodes))
	}},
	{"answers lost while stopping do no harm", []string{stop, "LoseAnswers", "Restore"}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, s.some(2)))
		s.LoseAnswers(s, Stopping, 1)
		if err := s.stopper().Stop(s.ctx(), id); err != nil {
			want[*cloud.UnreachableError](s, err)
		}
		s.Restore(s)
		s.stop(id)
		s.allStopped(id, nodes)
	}},
	{"answers lost while starting do no harm", []string{stop, "LoseAnswers", "Restore"}, func(s *suite) {
		id := s.id("web")
		nodes := s.launch(s.spec(id, s.some(2)))
		s.stop(id)
		s.LoseAnswers(s, Starting, 1)
		if _, err := s.try(s.spec(id, s.some(2))); err != nil {
			want[*cloud.UnreachableError](s, err)
		}
		s.Restore(s)
		s.same("started", ids(s.launch(s.spec(id, s.some(2)))), ids(nodes))
	}},
}

func (s *suite) allStopped(id cloud.ClusterID, nodes []cloud.Node) {
	s.Helper()
	now := s.nodes(id)
	s.same("listed", ids(now), ids(nodes))
	for _, n := range now {
		if n.State != cloud.NodeStopped {
			s.Errorf("rank %d is %s", n.Rank, n.State)
		}
	}
}
