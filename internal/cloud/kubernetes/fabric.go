package kubernetes

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// fabric is a network between machines that is faster than the one that all
// pods have. Labels of machines tell of it; what a pod needs to use it differs.
type fabric struct {
	name   string
	labels []string // what a label's key begins with
	// device is the resource by which a pod gets a share of it; "": every pod has
	// it. one: each pod takes one, whatever it has else; if not, a share like its
	// share of the machine's accelerators.
	device string
	one    bool
	// host means that it is reached in the machine's own network only.
	host bool
	env  map[string]string
}

const (
	efaKey  = "vpc.amazonaws.com/efa"
	mellanx = "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_7:1"
)

// fabrics are tried in this order. GKE's are not among them: they take networks
// and daemons in each pod that differ from one kind of machine to the next.
var fabrics = []fabric{
	{name: "Nebius InfiniBand", labels: []string{"nebius.com/"}, env: map[string]string{"NCCL_IB_HCA": "mlx5", "UCX_NET_DEVICES": mellanx}},
	{name: "CoreWeave InfiniBand", labels: []string{"ib.coreweave.cloud/"}, device: "rdma/ib", one: true,
		env: map[string]string{"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_HCA": "ibp", "UCX_TLS": "tcp", "UCX_NET_DEVICES": "eth0"}},
	{name: "Together InfiniBand", labels: []string{"node-role.together.ai/"}, device: "nvidia.com/rdma_ib", one: true,
		env: map[string]string{"NCCL_IB_HCA": "mlx5", "UCX_NET_DEVICES": mellanx}},
	{name: "OCI RDMA", labels: []string{"oci.oraclecloud.com/rdma."}, host: true,
		env: map[string]string{"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_HCA": "mlx5", "UCX_TLS": "tcp", "UCX_NET_DEVICES": "eth0",
			"NCCL_IB_GID_INDEX": "3", "NCCL_IB_TC": "41"}},
	{name: "Elastic Fabric Adapter", labels: []string{"k8s.io/cloud-provider-aws", "topology.k8s.aws", "topology.ebs.csi.aws.com"}, device: efaKey,
		env: map[string]string{"FI_PROVIDER": "efa"}},
}

// fabric is the fast network that a machine has; nil: none that is known.
func (m *machine) fabric() *fabric {
	for i := range fabrics {
		f := &fabrics[i]
		if f.device != "" && m.adapters(f) < 1 {
			continue
		}
		for key := range m.Metadata.Labels {
			for _, prefix := range f.labels {
				if strings.HasPrefix(key, prefix) {
					return f
				}
			}
		}
	}
	return nil
}

// adapters is how many of a network's devices pods may have on a machine.
func (m *machine) adapters(f *fabric) float64 { return amount(m.Status.Allocatable[f.device]) }

// share is how many of a network's devices a pod takes on a machine.
func (f *fabric) share(m *machine, want podSize) float64 {
	if f.one || want.accelerators == 0 || m.has.accelerators == 0 {
		return 1
	}
	return max(1, math.Floor(want.accelerators/m.has.accelerators*m.adapters(f)))
}

// join is what pods of the wanted size need to use the network of these
// machines, all of which have one: the first in the order of the table, and of
// its devices as many as every one of its machines can give.
func join(machines []*machine, want podSize) (f *fabric, devices float64) {
	rank := func(f *fabric) int {
		for i := range fabrics {
			if f == &fabrics[i] {
				return i
			}
		}
		return len(fabrics)
	}
	for _, m := range machines {
		if !m.has.holds(want) {
			continue
		}
		of := m.fabric()
		switch n := of.share(m, want); {
		case f == nil || rank(of) < rank(f):
			f, devices = of, n
		case of == f:
			devices = min(devices, n)
		}
	}
	return f, devices
}

// hostLabel is on pods that are in their machine's own network: two of them
// would want the same port.
const hostLabel = "sky-host-network"

// connect lets a described pod use the network.
func (f *fabric) connect(labels map[string]string, spec, main obj, devices float64) {
	security := obj{"capabilities": obj{"add": []any{"IPC_LOCK"}}}
	if f.host {
		labels[hostLabel] = "true"
		security["privileged"] = true
		spec["hostNetwork"], spec["dnsPolicy"] = true, "ClusterFirstWithHostNet"
		spec["volumes"] = append(asList(spec["volumes"]), obj{"name": "infiniband", "hostPath": obj{"path": "/dev/infiniband"}})
		main["volumeMounts"] = append(asList(main["volumeMounts"]), obj{"name": "infiniband", "mountPath": "/dev/infiniband"})
		affinity := asObj(spec["affinity"])
		apart := merge(asObj(affinity["podAntiAffinity"]), obj{"requiredDuringSchedulingIgnoredDuringExecution": []any{obj{
			"labelSelector": obj{"matchLabels": obj{hostLabel: "true"}}, "namespaceSelector": obj{}, "topologyKey": "kubernetes.io/hostname"}}})
		spec["affinity"] = merge(affinity, obj{"podAntiAffinity": apart})
	}
	main["securityContext"] = security
	if f.device != "" {
		n := strconv.Itoa(int(devices))
		resources := asObj(main["resources"])
		for _, kind := range []string{"requests", "limits"} {
			resources[kind] = merge(asObj(resources[kind]), obj{f.device: n})
		}
		main["resources"] = resources
	}
	env := asList(main["env"])
	for _, name := range slices.Sorted(maps.Keys(f.env)) {
		env = append(env, obj{"name": name, "value": f.env[name]})
	}
	main["env"] = env
}
