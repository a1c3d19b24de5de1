package execution

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// Keys in a record's metadata for what its machines have besides their size:
// those that are made later must be like the first ones.
const (
	ephemeralKey   = "ephemeral_gb"
	priorityKey    = "priority_class"
	diskTierKey    = "disk_tier"
	networkTierKey = "network_tier"
	localDiskKey   = "local_disk"
)

// remember notes what a request says of its machines besides their size.
func remember(r task.Resources, metadata map[string]any) {
	for key, value := range map[string]string{diskTierKey: r.DiskTier, networkTierKey: r.NetworkTier, localDiskKey: r.LocalDisk} {
		if value != "" {
			metadata[key] = value
		}
	}
	if r.EphemeralStorage > 0 {
		metadata[ephemeralKey] = r.EphemeralStorage
	}
	if r.PriorityClass != "" {
		metadata[priorityKey] = r.PriorityClass
	}
}

func ephemeralOf(c *state.Cluster) int {
	switch gb := c.Metadata[ephemeralKey].(type) {
	case int:
		return gb
	case float64: // as JSON has it
		return int(gb)
	}
	return 0
}

// textOf is what a record's metadata says under a key; "" if nothing.
func textOf(c *state.Cluster, key string) string {
	text, _ := c.Metadata[key].(string)
	return text
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
	if !ok || cloudName != "ssh" {
		return offers, ""
	}
	allowed = slices.DeleteFunc(slices.Clone(offers), func(o cloud.Offer) bool {
		return !slices.Contains(list, any(strings.TrimPrefix(o.Region, "ssh-")))
	})
	if len(allowed) == 0 && len(offers) > 0 {
		return nil, fmt.Sprintf("ssh.allowed_node_pools lists none of the pools that there are (%v)", list)
	}
	return allowed, ""
}
