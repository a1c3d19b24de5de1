package kubernetes

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
)

func fabricOf(t *testing.T, of string) *fabric {
	t.Helper()
	for i := range fabrics {
		if strings.HasPrefix(fabrics[i].name, of) {
			return &fabrics[i]
		}
	}
	t.Fatalf("no network is called %s", of)
	return nil
}

func TestFastNetworksAreFound(t *testing.T) {
	for _, tt := range []struct {
		label, device string
		want          string // "": none
	}{
		{"nebius.com/node-group-id", "", "Nebius"},
		{"ib.coreweave.cloud/speed", "rdma/ib", "CoreWeave"},
		{"ib.coreweave.cloud/speed", "", ""}, // the machine gives no pod a share
		{"node-role.together.ai/gpu", "nvidia.com/rdma_ib", "Together"},
		{"oci.oraclecloud.com/rdma.cluster_id", "", "OCI"},
		{"oci.oraclecloud.com/fault-domain", "", ""},
		{"k8s.io/cloud-provider-aws", efaKey, "Elastic"},
		{"topology.k8s.aws/network-node-layer-1", efaKey, "Elastic"},
		{"topology.k8s.aws/network-node-layer-1", "", ""},
		{"cloud.google.com/gke-nodepool", "", ""},
	} {
		has := map[string]string{"cpu": "8", "memory": "32Gi"}
		if tt.device != "" {
			has[tt.device] = "4"
		}
		inv := &inventory{context: "here"}
		inv.take([]node{nodeOf("n", map[string]string{tt.label: "x"}, has)}, nil)
		got := inv.nodes[0].fabric()
		if (got == nil) != (tt.want == "") || got != nil && !strings.HasPrefix(got.name, tt.want) {
			t.Errorf("%s with %q: %+v, want %q", tt.label, tt.device, got, tt.want)
		}
		offer, why := (&tailored{inv: inv}).offer(catalog.Query{FastNetwork: true})
		if (why == "") != (tt.want != "") {
			t.Errorf("%s with %q: offered %v, %q", tt.label, tt.device, offer, why)
		}
	}
}

func TestAPodsShareOfANetwork(t *testing.T) {
	efa, ib := fabricOf(t, "Elastic"), fabricOf(t, "CoreWeave")
	rapid.Check(t, func(t *rapid.T) {
		gpus, adapters := rapid.IntRange(1, 16).Draw(t, "gpus"), rapid.IntRange(1, 32).Draw(t, "adapters")
		asked := rapid.IntRange(1, gpus).Draw(t, "asked")
		m := &machine{has: podSize{accelerators: float64(gpus)}}
		m.Status.Allocatable = map[string]string{efaKey: number(float64(adapters)), "rdma/ib": number(float64(adapters))}
		share := efa.share(m, podSize{accelerators: float64(asked)})
		if share < 1 || share > float64(adapters) || share != float64(int(share)) {
			t.Fatalf("%v of %d adapters for %d of %d GPUs", share, adapters, asked, gpus)
		}
		// Pods that fill the machine's GPUs never want more adapters than it has,
		// unless it has less than one each.
		if pods := gpus / asked; pods <= adapters && share*float64(pods) > float64(adapters) {
			t.Fatalf("%d pods take %v adapters each of %d", pods, share, adapters)
		}
		if n := ib.share(m, podSize{accelerators: float64(asked)}); n != 1 {
			t.Fatalf("%v InfiniBand devices", n)
		}
	})
}

func TestPodsJoinTheNetworkThatAllMachinesShare(t *testing.T) {
	inv := &inventory{}
	aws := map[string]string{"k8s.io/cloud-provider-aws": "c", skyKey: "h100"}
	inv.take([]node{
		nodeOf("a", aws, map[string]string{"cpu": "64", "memory": "512Gi", nvidiaKey: "8", efaKey: "32"}),
		nodeOf("b", aws, map[string]string{"cpu": "64", "memory": "512Gi", nvidiaKey: "8", efaKey: "16"}),
		nodeOf("small", aws, map[string]string{"cpu": "1", "memory": "1Gi", nvidiaKey: "8", efaKey: "1"}),
		nodeOf("without", map[string]string{skyKey: "h100"}, map[string]string{"cpu": "64", "memory": "512Gi", nvidiaKey: "8"}),
	}, nil)
	want := podSize{4, 16, "H100", 4}
	f, n := join(inv.matching(want, choice{fast: true}), want)
	if f == nil || f.device != efaKey || n != 8 {
		t.Fatalf("%+v, %v", f, n)
	}
	if f, _ := join(nil, want); f != nil {
		t.Errorf("a network of no machine: %+v", f)
	}
}

func TestPodsWithAFastNetworkAreDescribed(t *testing.T) {
	describe := func(f *fabric, n float64) string {
		w := podRequest{size: podSize{4, 16, "H100", 8}, devices: placement{resource: nvidiaKey, label: skyKey, values: []string{"h100"}}, network: f, adapters: n,
			spec: cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Nodes: 2, MachineSpec: cloud.MachineSpec{NetworkTier: "best"}}}
		return jsonOf(w.describe(0, "web-head"))
	}
	for _, tt := range []struct {
		network string
		n       float64
		has     []string
		not     []string
	}{
		{"Elastic", 16, []string{`"vpc.amazonaws.com/efa":"16"`, `{"name":"FI_PROVIDER","value":"efa"}`, `"add":["IPC_LOCK"]`, `"nvidia.com/gpu":"8"`}, []string{"privileged", "hostNetwork"}},
		{"CoreWeave", 1, []string{`"rdma/ib":"1"`, `{"name":"NCCL_IB_HCA","value":"ibp"}`}, []string{"hostNetwork"}},
		{"Nebius", 1, []string{`{"name":"NCCL_IB_HCA","value":"mlx5"}`}, []string{"rdma", "hostNetwork"}},
		{"OCI", 1, []string{`"hostNetwork":true`, `"privileged":true`, `/dev/infiniband`, `ClusterFirstWithHostNet`, `"sky-host-network":"true"`,
			`"requiredDuringSchedulingIgnoredDuringExecution":[{"labelSelector":{"matchLabels":{"sky-host-network":"true"}}`, `"preferredDuringSchedulingIgnoredDuringExecution":[{"podAffinityTerm"`}, nil},
	} {
		text := describe(fabricOf(t, tt.network), tt.n)
		for _, part := range tt.has {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %s is missing in %s", tt.network, part, text)
			}
		}
		for _, part := range tt.not {
			if strings.Contains(text, part) {
				t.Errorf("%s: %s is in %s", tt.network, part, text)
			}
		}
	}
}

func TestFlexStart(t *testing.T) {
	for _, tt := range []struct {
		section map[string]any
		want    bool
	}{
		{nil, false},
		{map[string]any{"dws": map[string]any{"enabled": true}}, true},
		{map[string]any{"dws": map[string]any{"enabled": true}, "kueue": map[string]any{"local_queue_name": "q"}}, false},
	} {
		conf, err := newSettings(tt.section)
		if err != nil {
			t.Fatal(err)
		}
		w := podRequest{conf: conf, size: podSize{cpus: 1, memoryGB: 1}, spec: cloud.LaunchSpec{Nodes: 1}}
		if got := strings.Contains(jsonOf(w.describe(0, "web-head")), `"nodeSelector":{"cloud.google.com/gke-flex-start":"true"}`); got != tt.want {
			t.Errorf("%v: %t", tt.section, got)
		}
	}
}

func TestSpotMachinesOfGKE(t *testing.T) {
	has := map[string]string{"cpu": "8", "memory": "32Gi"}
	spot := nodeOf("spot", map[string]string{gkeSpotKey: "true"}, has)
	spot.Spec.Taints = []taint{{Key: gkeSpotKey, Value: "true", Effect: "NoSchedule"}}
	with, without := &inventory{context: "here"}, &inventory{context: "here"}
	with.take([]node{spot}, nil)
	without.take([]node{nodeOf("n", nil, has)}, nil)
	for _, tt := range []struct {
		name   string
		inv    *inventory
		scaler string
		spot   bool
		says   string // "": it is offered
	}{
		{"spot machines for who wants them", with, "", true, ""},
		{"spot machines that are tainted are for nobody else", with, "", false, "1: it has the taint " + gkeSpotKey},
		{"no spot machines", without, "", true, "1: it is no spot machine"},
		{"GKE may add some", without, "gke", true, ""},
		{"others do not", without, "karpenter", true, "1: it is no spot machine"},
	} {
		o, why := (&tailored{inv: tt.inv, conf: settings{Autoscaler: tt.scaler}}).offer(catalog.Query{Spot: tt.spot})
		if (why == "") != (tt.says == "") || !strings.Contains(why, tt.says) || why == "" && o.Spot != tt.spot {
			t.Errorf("%s: %+v, %q", tt.name, o, why)
		}
	}
	w := podRequest{size: podSize{cpus: 1, memoryGB: 1}, spec: cloud.LaunchSpec{Nodes: 1, Offer: cloud.Offer{Spot: true}}}
	text := jsonOf(w.describe(0, "web-head"))
	for _, part := range []string{`"nodeSelector":{"cloud.google.com/gke-spot":"true"}`, `"tolerations":[{"effect":"NoSchedule","key":"cloud.google.com/gke-spot","operator":"Equal","value":"true"}]`} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is missing in %s", part, text)
		}
	}
}
