//go:build unix

package agent

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
)

// Jobs get whole slices of a TPU pod: each of its machines runs a rank that finds the
// others of its slice, and two jobs never share a slice.
func TestJobsGetWholeSlices(t *testing.T) {
	c := newCluster(t, 4, agentapi.Capacity{CPUs: 8, Accelerators: map[string]float64{"tpu-v4-16": 1}}, true)
	c.spec.Hosts, c.spec.Epoch = 2, c.spec.Epoch+1
	c.configure()
	const show = `echo "$SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES: $TPU_WORKER_ID in $TPU_WORKER_HOSTNAMES, $TPU_NAME $TPU_ACCELERATOR_TYPE, $SKYPILOT_NUM_GPUS_PER_NODE"`
	tpu := map[string]float64{"tpu-v4-16": 1}
	held := c.submit(agentapi.JobSpec{NumNodes: 2, Accelerators: tpu, Run: `while [ ! -e "$HOME/go" ]; do sleep 0.05; done; ` + show})
	other := c.submit(agentapi.JobSpec{NumNodes: 2, Accelerators: tpu, Run: show}) // runs meanwhile, on the other slice
	want := func(id int, lines ...string) {
		t.Helper()
		log := c.follow(id)
		got := output(log)
		slices.Sort(got)
		if !slices.Equal(got, lines) || c.job(id).Status != api.JobSucceeded {
			t.Errorf("job %d is %s and says %q, want %q\n%s", id, c.job(id).Status, got, lines, log)
		}
	}
	want(other, "0 of 2: 0 in 10.0.0.2,10.0.0.3, n2 v4-16, 0", "1 of 2: 1 in 10.0.0.2,10.0.0.3, n2 v4-16, 0")
	for _, n := range c.nodes[:2] {
		if err := os.WriteFile(n.home+"/go", nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want(held, "0 of 2: 0 in 10.0.0.0,10.0.0.1, n0 v4-16, 0", "1 of 2: 1 in 10.0.0.0,10.0.0.1, n0 v4-16, 0")
	want(c.submit(agentapi.JobSpec{NumNodes: 4, Accelerators: tpu, Run: show}),
		"0 of 4: 0 in 10.0.0.0,10.0.0.1, n0 v4-16, 0", "1 of 4: 1 in 10.0.0.0,10.0.0.1, n0 v4-16, 0", "2 of 4: 0 in 10.0.0.2,10.0.0.3, n2 v4-16, 0", "3 of 4: 1 in 10.0.0.2,10.0.0.3, n2 v4-16, 0")

	_, err := c.head.Submit(t.Context(), agentapi.SubmitRequest{Key: "odd", Epoch: c.spec.Epoch, Spec: agentapi.JobSpec{NumNodes: 3, Run: "true"}})
	if err == nil || !strings.Contains(err.Error(), "whole TPU slices here, of 2 machines each") {
		t.Errorf("a part of a slice: %v", err)
	}
}

func TestVariablesOfSlices(t *testing.T) {
	c := &agentapi.ClusterSpec{Hosts: 2, Capacity: agentapi.Capacity{Accelerators: map[string]float64{"tpu-v6e-16": 1}}}
	var ips []string
	for i := range 4 {
		ips = append(ips, fmt.Sprint("ip", i))
		c.Nodes = append(c.Nodes, agentapi.Node{ID: fmt.Sprint("n", i), IP: ips[i]})
	}
	got := sliceVariables(c, ips, 3)
	if want := map[string]string{"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "ip2,ip3", "TPU_NAME": "n2", "TPU_ACCELERATOR_TYPE": "v6e-16"}; !maps.Equal(got, want) {
		t.Errorf("rank 3: %v", got)
	}
	if got := sliceVariables(c, ips[2:], 0); got["TPU_NAME"] != "n2" || got["TPU_WORKER_HOSTNAMES"] != "ip2,ip3" || got["TPU_WORKER_ID"] != "0" {
		t.Errorf("on the second slice alone: %v", got)
	}
	c.Hosts = 0
	if got := sliceVariables(c, ips, 3); got != nil {
		t.Errorf("without slices: %v", got)
	}
}
