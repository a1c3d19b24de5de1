package execution

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// machineSpec is what a task's requests say of its machines besides their size. All
// but the images is the first one's: the requests of a task may differ in size and
// place only.
func machineSpec(requests []task.Resources) cloud.MachineSpec {
	first := requests[0]
	m := cloud.MachineSpec{
		DiskGB: first.DiskSize, DiskTier: first.DiskTier, NetworkTier: first.NetworkTier, LocalDisk: first.LocalDisk,
		EphemeralGB: first.EphemeralStorage, PriorityClass: first.PriorityClass,
	}
	m.TPURuntime, _ = first.AcceleratorArgs["runtime_version"].(string)
	m.TPUQueued = first.AcceleratorArgs["gcp_queued_resource"] == true
	for _, v := range first.Volumes {
		m.Disks = append(m.Disks, diskOf(v))
	}
	named := false
	for _, r := range requests {
		m.Images = append(m.Images, cloud.ImageChoice{Cloud: r.Cloud, Region: r.Region, By: r.ImageID})
		named = named || len(r.ImageID) > 0
	}
	if !named {
		m.Images = nil
	}
	return m
}

// diskOf is an entry of resources.volumes, which was checked when the task was read.
func diskOf(volume map[string]any) cloud.Disk {
	text := func(key string) string { v, _ := volume[key].(string); return v }
	d := cloud.Disk{Path: text("path"), Name: text("name"), Tier: cmp.Or(strings.ToLower(text("disk_tier")), "best"), ReadOnly: text("attach_mode") == "read_only", Goes: volume["auto_delete"] == true}
	switch n := volume["size"].(type) {
	case int:
		d.GB = n
	case float64:
		d.GB = int(n)
	}
	return d
}

// placed tells the settings of each place's cloud for a cluster.
func placed(all *config.Config, c *state.Cluster) func(cloud.Place) map[string]any {
	return func(p cloud.Place) map[string]any {
		return all.For(config.Scope{Cloud: p.Cloud, Workspace: c.Workspace, Region: p.Region, Cluster: c.Name}).Section()
	}
}

// inAllowedPools leaves out the machines of pools that ssh.allowed_node_pools does
// not list, where it is set; why says that none is left.
func inAllowedPools(offers []cloud.Offer, cloudName string, section map[string]any) (allowed []cloud.Offer, why string) {
	list, ok := section["allowed_node_pools"].([]any)
	if !ok || cloudName != facts.SSH {
		return offers, ""
	}
	allowed = slices.DeleteFunc(slices.Clone(offers), func(o cloud.Offer) bool {
		return !slices.Contains(list, any(task.PoolOf(o.Cloud, o.Region)))
	})
	if len(allowed) == 0 && len(offers) > 0 {
		return nil, fmt.Sprintf("ssh.allowed_node_pools lists none of the pools that there are (%v)", list)
	}
	return allowed, ""
}
