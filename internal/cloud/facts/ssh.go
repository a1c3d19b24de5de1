package facts

import (
	"time"

	"github.com/skypilot-go/sky/internal/config/keys"
)

var ssh = Cloud{
	Name: SSH, Display: "SSH", Proven: "on real machines", Hardware: Own, Pods: true,
	Prices: &Prices{Refresh: 7 * time.Hour, CPUs: 2, MemoryPerCPU: 1},
	Label:  podLabel,
	Settings: func() *keys.Spec {
		pod := []keys.Key{
			keys.New("pod_config", podConfig()),
			keys.New("provision_timeout", keys.Whole("Seconds to wait for nodes; -1: for ever.").Defaults(10).ForTasks()),
			keys.New("custom_metadata", customMetadata()),
		}
		for i := range pod { // layers of ssh merge plainly
			pod[i].Patch = false
		}
		return keys.Section("Own machines, in pools.",
			append([]keys.Key{
				keys.New("allowed_node_pools", keys.List("Pools to use; absent: all.", keys.Text("A pool.")).ByAdmins(keys.Confines)),
				keys.New("context_configs", keys.Dict("Settings of single pools.", keys.Section("A pool.", pod...))),
				identity(serviceAccount),
			}, pod...)...)
	},
	Workspace: func() *keys.Spec {
		return keys.Section("Own machines in this workspace.",
			keys.New("allowed_node_pools", keys.List("Pools to use.", keys.Text("A pool."))))
	},
	Narrower:    contextConfigs,
	TaskExample: "{provision_timeout: 60}",
}
