package fsm

import (
	"sync"

	"github.com/skypilot-go/sky/api"
)

// ClusterEvent is something that happens to a cluster.
type ClusterEvent string

const (
	ClusterProvisioning ClusterEvent = "provisioning" // machines are about to be created or started
	ClusterHealthy      ClusterEvent = "healthy"      // every node runs and the agents answer
	ClusterAbnormal     ClusterEvent = "abnormal"     // nodes are missing, mixed, or the agents do not work
	ClusterAutostopping ClusterEvent = "autostopping" // the agent began to stop or end the nodes
	ClusterStopped      ClusterEvent = "stopped"      // every node is off, disks are kept
	ClusterGone         ClusterEvent = "gone"         // no node is left
)

// ClusterAbsent stands for "no such cluster" in [Clusters].
const ClusterAbsent api.ClusterStatus = ""

// Clusters is the life of a cluster. A stopped cluster may turn out healthy:
// somebody can start its machines in the cloud's console.
var Clusters = sync.OnceValue(func() Table[api.ClusterStatus, ClusterEvent] {
	return Table[api.ClusterStatus, ClusterEvent]{
		ClusterAbsent: {
			ClusterProvisioning: api.ClusterInit,
		},
		api.ClusterInit: {
			ClusterProvisioning: api.ClusterInit,
			ClusterHealthy:      api.ClusterUp,
			ClusterAbnormal:     api.ClusterInit,
			ClusterAutostopping: api.ClusterAutostopping,
			ClusterStopped:      api.ClusterStopped,
			ClusterGone:         ClusterAbsent,
		},
		api.ClusterUp: {
			ClusterProvisioning: api.ClusterInit,
			ClusterHealthy:      api.ClusterUp,
			ClusterAbnormal:     api.ClusterInit,
			ClusterAutostopping: api.ClusterAutostopping,
			ClusterStopped:      api.ClusterStopped,
			ClusterGone:         ClusterAbsent,
		},
		api.ClusterAutostopping: {
			ClusterProvisioning: api.ClusterInit,
			ClusterHealthy:      api.ClusterUp,
			ClusterAbnormal:     api.ClusterInit,
			ClusterAutostopping: api.ClusterAutostopping,
			ClusterStopped:      api.ClusterStopped,
			ClusterGone:         ClusterAbsent,
		},
		api.ClusterStopped: {
			ClusterProvisioning: api.ClusterInit,
			ClusterHealthy:      api.ClusterUp,
			ClusterAbnormal:     api.ClusterInit,
			ClusterStopped:      api.ClusterStopped,
			ClusterGone:         ClusterAbsent,
		},
	}
})
