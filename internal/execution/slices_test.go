package execution

import (
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// A job runs on every machine of as many slices as the task asks for nodes.
func TestAJobRunsOnAllMachinesOfItsSlices(t *testing.T) {
	for hosts, want := range map[int]int{0: 2, 1: 2, 4: 8} {
		offer := cloud.Offer{Hosts: hosts, Accelerators: map[string]float64{"tpu-v4-32": 1}}
		s := &submission{call: cluster.Call{}, cluster: &state.Cluster{Offer: offer, NumNodes: 2}, task: &task.Task{NumNodes: 2, Run: "true", Resources: []task.Resources{{}}}}
		if got := s.spec(); got.NumNodes != want || got.Resources != "2x[CPU:1+]" {
			t.Errorf("nodes of %d machines: %d ranks, %s", hosts, got.NumNodes, got.Resources)
		}
	}
}
