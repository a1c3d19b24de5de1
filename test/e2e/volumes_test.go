//go:build e2e && linux

package e2e

import (
	"slices"
	"strings"
	"testing"
)

// TestANetworkVolumeOfRunPod makes a volume, runs a cluster on it, and deletes it.
func TestANetworkVolumeOfRunPod(t *testing.T) {
	t.Parallel()
	of := rentables[slices.IndexFunc(rentables, func(of func(testing.TB) rentable) bool { return of(t).Name == "runpod" })]
	x := rent(t, of)
	apply := func(infra string) []string {
		return []string{"volumes", "apply", "-y", "--name", "data", "--type", "runpod-network-volume", "--size", "10", "--infra", infra}
	}
	x.fails(2, []string{"is in a data center"}, apply("runpod")...)
	if out, code := x.run(apply("runpod/US/EU-CZ-1")...); code == 0 || !strings.Contains(out, "is in CZ, not in US") {
		t.Errorf("exit %d: %s", code, out)
	}
	wants(t, x.sky(apply("runpod/CZ/EU-CZ-1")...), "Volume data")
	wants(t, x.sky(apply("runpod/CZ/EU-CZ-1")...), "there already")
	wants(t, x.sky("volumes", "ls"), "RunPod Network Volumes", "data", "runpod/CZ/EU-CZ-1", "10Gi", "READY")
	task := x.write("task.yaml", "resources: {accelerators: RTX4090}\nvolumes: {/workspace: data}\nrun: echo it runs\n")
	wants(t, x.sky("launch", "-y", "-c", "a", task), "it runs")
	wants(t, x.sky("volumes", "ls", "-r"), "IN_USE", "a")
	wants(t, x.sky("volumes", "delete", "-y", "data"), "in use")
	x.sky("down", "-y", "a")
	if left := strings.Join(x.Left(), "\n"); !strings.HasPrefix(left, "networkVolumes data-") || strings.Contains(left, "\n") {
		t.Errorf("there are: %s", left)
	}
	wants(t, x.sky("volumes", "delete", "-y", "data"), "deleted")
	x.nothingLeft()
}
