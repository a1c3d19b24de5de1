package gcp

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cloud/gcp/gcpfake"
)

func tpuSpec(name, accelerator string, nodes int) cloud.LaunchSpec {
	return cloud.LaunchSpec{
		ID: cloud.ClusterID{Installation: "inst", Name: name, Hash: "h1"}, Nodes: nodes, Token: "t", AuthorizedKey: key, DisplayName: name,
		Offer: cloud.Offer{Place: here.Place, InstanceType: tpuMachine, CPUs: 96, MemoryGiB: 334, Accelerators: map[string]float64{accelerator: 1}, Spot: true, Hosts: facts.TPUHosts(accelerator)},
	}
}

func TestTPUs(t *testing.T) {
	virtual(t, func(b *bed) {
		spec := tpuSpec("web", "tpu-v5litepod-8", 2)
		spec.Ports = []string{"8080"}
		nodes := b.launch(spec)
		if len(nodes) != 2 || nodes[1].Rank != 1 || nodes[0].Reach.Host != nodes[0].ExternalIP || nodes[0].ExternalIP == "" || nodes[0].Reach.User != user || nodes[0].Place != here.Place {
			t.Errorf("nodes %+v", nodes)
		}
		has(t, b.fake.last, `"acceleratorType":"v5litepod-8"`, `"runtimeVersion":"v2-alpha-tpuv5"`, `"preemptible":true`, `"enableExternalIps":true`, "subnetworks/default", "gcpuser:ssh-ed25519", `"skypilot-cluster-name":"web"`,
			`"scope":["https://www.googleapis.com/auth/cloud-platform"]`, `"tags":["`+names.Cluster(spec.ID)+`"]`)
		has(t, strings.Join(b.fake.Inventory(), ";"), "firewalls sky-ports-web-")

		// One that was preempted is a proof of that, and goes before another one is made.
		b.fake.Preempt(nodes[0].ID, 0)
		time.Sleep(time.Minute)
		got, err := b.p.Nodes(b.Context(), spec.ID)
		if err != nil || got[0].State != cloud.NodeGone || !strings.Contains(got[0].Reason, "preempted") {
			t.Errorf("preempted: %+v, %v", got, err)
		}
		if nodes := b.launch(spec); len(nodes) != 2 || b.fake.called("DELETE", "/nodes/"+nodes[0].ID) != 1 {
			t.Errorf("made again: %+v", nodes)
		}
		b.fake.Preempt(nodes[1].ID, 0)
		time.Sleep(time.Minute)
		b.down(spec.ID)
		if left := strings.Join(b.fake.Inventory(), ";"); strings.Contains(left, "web") {
			t.Errorf("left: %s", left)
		}

		b.fake.FailTPU(8, "Quota limit 'TPUV5s' has been exceeded.", 1)
		b.refused(spec, "quota gcp/us-central1")
		spec.Offer.Accelerators = map[string]float64{"tpu-v6e-8": 1} // which other zones have
		b.refused(spec, "invalid "+inZone)
		b.fake.Disable("tpu.googleapis.com")
		b.p = b.another()
		if list, err := b.p.Nodes(b.Context(), spec.ID); err != nil || len(list) > 0 {
			t.Errorf("without the API: %v, %v", list, err)
		}
		b.refused(spec, "credentials: gcloud services enable tpu.googleapis.com --project "+gcpfake.Project)
	})
}

// A slice of several machines is that many nodes, which come, are preempted and go together.
func TestPods(t *testing.T) {
	virtual(t, func(b *bed) {
		spec := tpuSpec("web", "tpu-v5litepod-16", 2)
		nodes := b.launch(spec)
		if len(nodes) != 8 || b.fake.called("POST", "/nodes") != 2 {
			t.Fatalf("nodes %+v", nodes)
		}
		ids, hosts := map[string]bool{}, map[string]bool{}
		for i, n := range nodes {
			ids[n.ID], hosts[n.Reach.Host], hosts[n.InternalIP] = true, true, true
			if n.Rank != i || n.State != cloud.NodeRunning || n.Reach.Host != n.ExternalIP || n.Reach.User != user || !strings.HasPrefix(n.ID, names.Of(spec.ID, i/4)) || n.About.Hosts != 4 || n.About.Nodes != 2 {
				t.Errorf("node %d: %+v, %+v", i, n, n.About)
			}
		}
		if len(ids) != 8 || len(hosts) != 16 || nodes[4].ID != names.Of(spec.ID, 1) {
			t.Errorf("ids %v, addresses %v", ids, hosts)
		}
		has(t, b.fake.last, `"acceleratorType":"v5litepod-16"`)
		again := b.launch(spec)
		for i := range again {
			if again[i].ID != nodes[i].ID || again[i].InternalIP != nodes[i].InternalIP {
				t.Errorf("launched again, node %d is %+v", i, again[i])
			}
		}

		// One slice is preempted with all its machines, and is made again beside the other.
		b.fake.Preempt(nodes[4].ID, 0)
		time.Sleep(time.Minute)
		got, err := b.p.Nodes(b.Context(), spec.ID)
		if err != nil || len(got) != 8 {
			t.Fatalf("preempted: %+v, %v", got, err)
		}
		for i, n := range got {
			if gone := n.State == cloud.NodeGone; gone != (i >= 4) || n.Rank != i {
				t.Errorf("preempted: %+v", n)
			}
		}
		if nodes := b.launch(spec); len(nodes) != 8 || b.fake.called("DELETE", "/nodes/"+nodes[4].ID) != 1 || b.fake.called("DELETE", "/nodes/"+nodes[0].ID) != 0 {
			t.Errorf("made again: %+v", nodes)
		}
		b.down(spec.ID)
		if left := strings.Join(b.fake.Inventory(), ";"); strings.Contains(left, "web") {
			t.Errorf("left: %s", left)
		}
	})
}

// Requests that wait in Google's queue are found, waited for, given back and ended like
// the slices that they become.
func TestQueuedResources(t *testing.T) {
	virtual(t, func(b *bed) {
		spec := tpuSpec("web", "tpu-v5litepod-16", 2)
		spec.TPUQueued, spec.TPURuntime = true, "v2-alpha-tpuv5-lite"
		serve := func() {
			o := quick
			o.Poll, o.Transport = 10*time.Second, b.fake
			b.p = New(o)
		}
		serve()
		if limit := b.p.LaunchLimit(spec); limit < mostQueued {
			t.Errorf("a launch may take %v", limit)
		}
		clean := func(when string) {
			t.Helper()
			if left := strings.Join(b.fake.Inventory(), ";"); strings.Contains(left, "web") {
				t.Errorf("%s, left: %s", when, left)
			}
		}

		// There is room after an hour, and the server dies and another one goes on meanwhile.
		b.fake.Fill(here.Zone, "v5litepod-16", 0)
		room := time.AfterFunc(time.Hour, func() { b.fake.Restore() })
		defer room.Stop()
		dying, kill := context.WithTimeout(b.Context(), 10*time.Minute)
		defer kill()
		if err := b.p.Prepare(dying, spec); err != nil {
			t.Fatal(err)
		}
		if _, err := b.p.Launch(dying, spec); err == nil {
			t.Fatal("it has room at once")
		}
		serve()
		got, err := b.p.Nodes(b.Context(), spec.ID)
		if err != nil || len(got) != 8 || got[5].State != cloud.NodePending || got[5].Rank != 5 {
			t.Errorf("in the queue: %+v, %v", got, err)
		}
		begun := time.Now()
		nodes := b.launch(spec)
		if took := time.Since(begun); len(nodes) != 8 || took < 45*time.Minute || b.fake.called("POST", "/queuedResources") != 2 || b.fake.called("POST", "/nodes") != 0 {
			t.Errorf("after %v: %d nodes, %d requests", took, len(nodes), b.fake.called("POST", "/queuedResources"))
		}
		has(t, b.fake.last, `"runtimeVersion":"v2-alpha-tpuv5-lite"`, `"spot":{}`, `"validUntilDuration":"6000s"`, "queuedResources/$(md instance/attributes/sky-name)-q?force=true")

		// A preempted one is replaced, with its request.
		b.fake.Preempt(nodes[4].ID, 0)
		time.Sleep(time.Minute)
		if got, err := b.p.Nodes(b.Context(), spec.ID); err != nil || len(got) != 8 || got[4].State != cloud.NodeGone || got[0].State != cloud.NodeRunning {
			t.Errorf("preempted: %+v, %v", got, err)
		}
		if nodes := b.launch(spec); len(nodes) != 8 || b.fake.called("DELETE", "/queuedResources/"+queueName(names.Of(spec.ID, 1))) != 1 {
			t.Errorf("made again: %+v", nodes)
		}
		b.down(spec.ID)
		clean("ended")

		// No room in time is a lack of capacity, and what waits is given back.
		b.fake.Fill(here.Zone, "v5litepod-16", 0)
		b.refused(spec, "full "+inZone)
		b.down(spec.ID)
		clean("given back")
		b.fake.Restore()

		// Who may not list the queue does not enter it.
		b.fake.Deny("tpu.queuedresources.list")
		serve()
		if list, err := b.p.Nodes(b.Context(), spec.ID); err != nil || len(list) > 0 {
			t.Errorf("without the permission: %v, %v", list, err)
		}
		b.refused(spec, "forbidden")
		clean("without the permission")
	})
}

func TestValidTPUs(t *testing.T) {
	for name, hosts := range map[string]int{"tpu-v2-8": 1, "tpu-v4-32": 4, "tpu-v5litepod-8": 1, "tpu-v6e-256": 64, "tpu-v9-8": 0, "tpu-v4": 0} {
		if err := validTPU(tpuSpec("a", name, 1)); (err == nil) != (hosts > 0) {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := tpuSpec("a", "tpu-v4-32", 1)
	other.Offer.Hosts = 2
	if err := validTPU(other); err == nil || !strings.Contains(err.Error(), "of 4 machines") {
		t.Errorf("an offer with another number of machines: %v", err)
	}
	behind := tpuSpec("a", "tpu-v3-8", 1)
	behind.Offer.InstanceType = "n1-highmem-8"
	if err := validTPU(behind); err == nil || !strings.Contains(err.Error(), "tpu_vm") {
		t.Errorf("a TPU behind a host: %v", err)
	}
}

func TestDisks(t *testing.T) {
	for machine, want := range map[string][4]string{ // low, medium, high, ultra
		"n1-standard-8": {"pd-standard", "pd-balanced", "pd-ssd", "pd-ssd"}, "n2-standard-8": {"pd-standard", "pd-balanced", "pd-ssd", "pd-ssd"},
		"n2-standard-64": {"pd-standard", "pd-balanced", "pd-ssd", "pd-extreme"}, "g2-standard-8": {"pd-balanced", "pd-balanced", "pd-ssd", "pd-ssd"},
		"a2-highgpu-1g": {"pd-standard", "pd-balanced", "pd-ssd", "pd-ssd"}, "a3-highgpu-8g": {"pd-balanced", "pd-balanced", "pd-ssd", "hyperdisk-balanced"},
		"a3-ultragpu-8g": {"hyperdisk-balanced", "hyperdisk-balanced", "hyperdisk-balanced", "hyperdisk-balanced"},
		"n4-standard-8":  {"hyperdisk-balanced", "hyperdisk-balanced", "hyperdisk-balanced", "hyperdisk-balanced"},
		"a4-highgpu-8g":  {"hyperdisk-balanced", "hyperdisk-balanced", "hyperdisk-balanced", "hyperdisk-balanced"},
	} {
		for i, tier := range []string{"low", "", "high", "ultra"} {
			kind, iops := diskType(cloud.Offer{InstanceType: machine}, tier)
			if kind != want[i] || (iops == extremeIOPS) != (kind == "pd-extreme") {
				t.Errorf("%s with disks of tier %q: %s, %d", machine, tier, kind, iops)
			}
		}
	}
	for name, kind := range map[string]string{"T4": "nvidia-tesla-t4", "A100": "nvidia-tesla-a100", "A100-80GB": "nvidia-a100-80gb", "H100": "nvidia-h100-80gb", "H100-MEGA": "nvidia-h100-mega-80gb", "H200": "nvidia-h200-141gb", "B200": "nvidia-b200"} {
		if got := acceleratorType(name); got != kind {
			t.Errorf("%s is %s, want %s", name, got, kind)
		}
	}
}

// A list that leaves out a zone proves nothing about what is there, and nothing is lost
// by clusters that are known to be elsewhere.
func TestZonesThatCannotBeReached(t *testing.T) {
	virtual(t, func(b *bed) {
		slice, queued := tpuSpec("slice", "tpu-v5litepod-8", 1), tpuSpec("queued", "tpu-v5litepod-8", 1)
		queued.TPUQueued = true
		machines := b.spec("machines", 1)
		machines.Offer = elsewhere
		b.launch(slice)
		b.launch(queued)
		b.launch(machines)
		b.fake.Unreachable(here.Zone)
		for _, spec := range []cloud.LaunchSpec{slice, queued} {
			if nodes, err := b.p.Nodes(b.Context(), spec.ID); meaning(err) != "lost" {
				t.Errorf("%s: %+v, %v", spec.ID.Name, nodes, err)
			}
			if err := b.p.Terminate(b.Context(), spec.ID); meaning(err) != "lost" {
				t.Errorf("ending %s: %v", spec.ID.Name, err)
			}
		}
		if nodes, err := b.p.Nodes(b.Context(), machines.ID); err != nil || len(nodes) != 1 || nodes[0].State != cloud.NodeRunning {
			t.Errorf("in another zone: %+v, %v", nodes, err)
		}
		if nodes, err := b.another().Nodes(b.Context(), cloud.ClusterID{Installation: "inst", Name: "who", Hash: "knows"}); meaning(err) != "lost" {
			t.Errorf("that may be anywhere: %+v, %v", nodes, err)
		}
		b.fake.Restore()
		for _, spec := range []cloud.LaunchSpec{slice, queued} {
			if nodes, err := b.p.Nodes(b.Context(), spec.ID); err != nil || len(nodes) != 1 || nodes[0].State != cloud.NodeRunning {
				t.Errorf("%s afterwards: %+v, %v", spec.ID.Name, nodes, err)
			}
			b.down(spec.ID)
		}
	})
}

// Where no list has all zones, each zone is asked.
func TestQueuesZoneByZone(t *testing.T) {
	virtual(t, func(b *bed) {
		b.fake.ListZoneByZone()
		b.fake.Pages(3)
		spec := tpuSpec("web", "tpu-v5litepod-8", 2)
		spec.TPUQueued = true
		b.fake.Fill("us-central1-a", "v5litepod-8", 0)
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		if err := b.p.Prepare(ctx, spec); err != nil {
			t.Fatal(err)
		}
		if _, err := b.p.Launch(ctx, spec); err == nil {
			t.Error("it found room")
		}
		if left := strings.Join(b.fake.Inventory(), ";"); !strings.Contains(left, "web") {
			t.Errorf("nothing waits: %s", left)
		}
		b.p = b.another() // which knows nothing of them
		b.down(spec.ID)
		if left := strings.Join(b.fake.Inventory(), ";"); strings.Contains(left, "web") {
			t.Errorf("left: %s", left)
		}
		b.fake.Deny("tpu.queuedresources.list")
		b.p = b.another()
		b.refused(spec, "forbidden")
	})
}
