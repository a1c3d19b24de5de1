package provision

import (
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

// A cluster is whole if each of its nodes is, with all machines of a TPU slice.
func TestWhole(t *testing.T) {
	here := cloud.Place{Cloud: "gcp", Region: "r", Zone: "z"}
	running := func(n int) (out []cloud.Node) {
		for rank := range n {
			out = append(out, cloud.Node{Rank: rank, State: cloud.NodeRunning, Place: here})
		}
		return out
	}
	with := func(n int, last cloud.NodeState) []cloud.Node {
		out := running(n)
		out[n-1].State = last
		return out
	}
	const none = 99
	for _, tt := range []struct {
		name    string
		hosts   int
		nodes   []cloud.Node
		missing int
	}{
		{"two machines", 0, running(2), none},
		{"one of two", 0, running(1), 1},
		{"one of two is gone", 0, with(2, cloud.NodeGone), 1},
		{"more than were asked for", 0, running(3), -1},
		{"two slices", 4, running(8), none},
		{"as many machines as nodes", 4, running(2), 6},
		{"one slice of two", 4, running(4), 4},
		{"a machine of a slice is gone", 4, with(8, cloud.NodeGone), 1},
		{"a machine of a slice still starts", 4, with(8, cloud.NodePending), 1},
	} {
		err := whole(tt.nodes, &cloud.LaunchSpec{Nodes: 2, Offer: cloud.Offer{Place: here, Hosts: tt.hosts}})
		if g, ok := err.(*GangError); ok != (tt.missing != none) || ok && (g.Missing != tt.missing || g.Want != 2*max(tt.hosts, 1)) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
