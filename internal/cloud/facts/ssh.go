package facts

import (
	"time"

	"github.com/skypilot-go/sky/internal/schema"
)

var ssh = Cloud{
	Name: SSH, Display: "SSH", Regions: "pools of hosts", Proven: "on real machines", Hardware: Own, Pods: true,
	Prices: &Prices{Refresh: 7 * time.Hour, CPUs: 2, MemoryPerCPU: 1},
	Label:  podLabel,
	Settings: func() *schema.Spec {
		pod := []schema.Key{
			schema.New("pod_config", podConfig()),
			schema.New("provision_timeout", schema.Whole("Seconds to wait for nodes; -1: for ever.").Defaults(10).ForTasks()),
			schema.New("custom_metadata", customMetadata()),
		}
		for i := range pod { // layers of ssh merge plainly
			pod[i].Patch = false
			pod[i].Inert = "tasks run on the machines of a pool themselves, without Kubernetes"
		}
		return schema.Section("Own machines, in pools.",
			append([]schema.Key{
				schema.New("allowed_node_pools", schema.List("Pools to use; absent: all.", schema.Text("A pool.")).ByAdmins(schema.Confines)),
				schema.New("context_configs", schema.Dict("Settings of single pools.", schema.Section("A pool.", pod...))),
				identity(serviceAccount),
			}, pod...)...)
	},
	Workspace: func() *schema.Spec {
		return schema.Section("Own machines in this workspace.",
			schema.New("allowed_node_pools", schema.List("Pools to use.", schema.Text("A pool."))))
	},
	Narrower:    contextConfigs,
	TaskExample: "{provision_timeout: 60}",
}
