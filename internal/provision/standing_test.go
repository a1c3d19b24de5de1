package provision

import (
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestMachinesThatStandAndThatDoNot(t *testing.T) {
	of := []cloud.Node{{ID: "a"}, {ID: "b", Rank: 1}}
	in := func(a, b cloud.NodeState) []cloud.Node {
		return []cloud.Node{{ID: "a", State: a}, {ID: "b", Rank: 1, State: b, Reason: "spot"}, {ID: "other", State: cloud.NodeGone}}
	}
	all, one := in(cloud.NodeRunning, cloud.NodeRunning), []cloud.Node{{ID: "a", State: cloud.NodeRunning}}
	for name, c := range map[string]struct {
		looks [][]cloud.Node
		gone  int
	}{
		"all run":                        {[][]cloud.Node{all, all, all}, 0},
		"one begins":                     {[][]cloud.Node{in(cloud.NodeRunning, cloud.NodePending)}, 0},
		"one is gone":                    {[][]cloud.Node{all, in(cloud.NodeRunning, cloud.NodeGone)}, 1},
		"one is off":                     {[][]cloud.Node{in(cloud.NodeRunning, cloud.NodeStopped)}, 1},
		"one goes off":                   {[][]cloud.Node{in(cloud.NodeRunning, cloud.NodeStopping)}, 1},
		"a list may be late":             {[][]cloud.Node{one, one}, 0},
		"lists are late twice":           {[][]cloud.Node{one, one, all, one, one}, 0},
		"no list has it":                 {[][]cloud.Node{one, one, one}, 1},
		"no list has any":                {[][]cloud.Node{nil, nil, nil}, 2},
		"one is gone, the other missing": {[][]cloud.Node{{{ID: "b", State: cloud.NodeGone}}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := standing{of: of}
			for i, nodes := range c.looks {
				g := s.look(nodes)
				if last := i == len(c.looks)-1; g != nil && (!last || g.Gone != c.gone || Outcome(g) != Preempted) || g == nil && last && c.gone > 0 {
					t.Errorf("look %d: %+v, want %d gone at the last", i, g, c.gone)
				}
			}
		})
	}
}
