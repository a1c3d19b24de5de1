package provision

import (
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// OpensPorts reports whether the ports of a cluster are opened. Those of a service's
// replica are not where that is impossible, or makes something for each replica: load
// balancers reach it in its own network, or through its agent.
func OpensPorts(p cloud.Provider, c *state.Cluster) bool {
	if c.Holder.Kind != state.HeldByService {
		return true
	}
	f := p.Features()
	_, lacks := f.Lacks[cloud.FeaturePorts]
	return !lacks && !f.PortsMade
}
