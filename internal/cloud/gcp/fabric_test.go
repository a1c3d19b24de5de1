package gcp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/gcp/gcpfake"
)

// fast is a launch of machines of a type whose GPUs are to have networks of their own.
func (b *bed) fast(name, instanceType, zone string, nodes int) cloud.LaunchSpec {
	spec := b.spec(name, nodes)
	spec.Offer = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: region(zone), Zone: zone}, InstanceType: instanceType, CPUs: 208, Accelerators: map[string]float64{"H100": 8}}
	spec.NetworkTier, spec.ImageID = "best", plain(here)[0]
	return spec
}

// cardsOf are the network cards of a machine as the cloud has them: subnet and kind.
func (b *bed) cardsOf(n cloud.Node) (all []string) {
	b.Helper()
	var in struct {
		Interfaces []struct {
			Subnet string `json:"subnetwork"`
			Type   string `json:"nicType"`
			Access []any  `json:"accessConfigs"`
		} `json:"networkInterfaces"`
	}
	text, err := json.Marshal(b.fake.Body(n.ID))
	if err != nil {
		b.Fatal(err)
	}
	if err := json.Unmarshal(text, &in); err != nil {
		b.Fatal(err)
	}
	for _, c := range in.Interfaces {
		all = append(all, fmt.Sprint(base(c.Subnet), " ", c.Type, " ", len(c.Access)))
	}
	return all
}

func TestNetworksBetweenGPUs(t *testing.T) {
	data := func(n int) (all []string) {
		all = []string{"default GVNIC 1"}
		for i := range n {
			all = append(all, fmt.Sprintf("skypilot-data-net-%d-sub GVNIC 0", i+1))
		}
		return all
	}
	rdma := func(zone string) (all []string) {
		all = data(1)
		for i := range 8 {
			all = append(all, fmt.Sprintf("skypilot-rdma-%s-sub-%d MRDMA 0", zone, i))
		}
		return all
	}
	virtual(t, func(b *bed) {
		for instanceType, want := range map[string][]string{
			"a3-highgpu-8g": data(4), "a3-megagpu-8g": data(8), "a3-ultragpu-8g": rdma("us-central1-a"), "a4-highgpu-8g": rdma("us-central1-a"), "a3-highgpu-4g": data(0),
		} {
			for _, n := range b.launch(b.fast(instanceType[:4]+fmt.Sprint(len(want)), instanceType, "us-central1-a", 2)) {
				if got := b.cardsOf(n); !slices.Equal(got, want) {
					t.Errorf("%s has the cards %v, want %v", instanceType, got, want)
				}
				if in := strings.Contains(b.body(n), "sky-place-"); in != (len(want) > 1) {
					t.Errorf("%s is placed beside the others: %t", instanceType, in)
				}
				if n.InternalIP == "" || n.ExternalIP == "" {
					t.Errorf("%s is reached at %+v", instanceType, n.Reach)
				}
			}
		}
	})
}

// Whoever comes first makes the networks, and all who come after use them.
func TestNetworksBetweenGPUsAreMadeOnce(t *testing.T) {
	virtual(t, func(b *bed) {
		b.fake.Take(2 * time.Second)
		var all sync.WaitGroup
		for name, zone := range map[string]string{"a": "us-central1-a", "b": "us-central1-a", "c": "us-east1-b"} {
			all.Go(func() {
				if _, err := b.try(b.fast(name, "a3-highgpu-8g", zone, 1)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		all.Wait()
		before := b.fake.called("POST", "/global/networks") + b.fake.called("POST", "/subnetworks")
		b.launch(b.fast("d", "a3-highgpu-8g", "us-central1-b", 1))
		if n := b.fake.called("POST", "/global/networks") + b.fake.called("POST", "/subnetworks") - before; n != 0 {
			t.Errorf("one that came later made %d more", n)
		}
		b.p = b.another()
		b.launch(b.fast("e", "a3-highgpu-8g", "us-east1-c", 1))
		if n := b.fake.called("POST", "/global/networks") + b.fake.called("POST", "/subnetworks") - before; n != 0 {
			t.Errorf("another server made %d more", n)
		}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			b.down(b.spec(name, 1).ID)
		}
		left := b.fake.Inventory()
		for n := range 4 {
			name := fmt.Sprint("skypilot-data-net-", n+1)
			has(t, strings.Join(left, ";"), "networks "+name, "firewalls "+name+"-allow-custom")
		}
		if slices.ContainsFunc(left, func(s string) bool { return strings.Contains(s, "sky-place") || strings.HasPrefix(s, "instances") }) {
			t.Errorf("left: %v", left)
		}
		// Nothing of these networks lets the world in, so that no machine is put there first.
		b.fake.NoDefault()
		has(t, b.body(b.launch(b.spec("plain", 1))[0]), "/subnetworks/skypilot-vpc")
	})
}

func TestNetworksBetweenGPUsThatCannotBe(t *testing.T) {
	virtual(t, func(b *bed) {
		for n := range 12 { // of the 15 that a project may have
			b.make("/global/networks", fmt.Sprintf(`{"name": "other-%d", "autoCreateSubnetworks": false}`, n))
		}
		b.refused(b.fast("many", "a3-highgpu-8g", "us-central1-a", 1), "quota gcp")
		if n := b.fake.called("POST", "/global/networks"); n > 0 {
			t.Errorf("%d networks were asked for that cannot all be made", n)
		}
		b.launch(b.fast("two", "a3-ultragpu-8g", "us-central1-a", 1)) // with two
	})
	virtual(t, func(b *bed) {
		b.refused(b.fast("rdma", "a3-ultragpu-8g", "us-central1-f", 1), "invalid gcp/us-central1/us-central1-f")
		b.fake.Deny("compute.networks.create")
		b.refused(b.fast("denied", "a3-highgpu-8g", "us-central1-a", 1), "forbidden")
	})
	virtual(t, func(b *bed) { // the setting does not need the task's tier, and means nothing to other machines
		b.s = Settings{GPUDirect: true}
		spec := b.fast("set", "a3-megagpu-8g", "us-central1-a", 1)
		spec.NetworkTier = ""
		if got := b.cardsOf(b.launch(spec)[0]); len(got) != 9 {
			t.Errorf("cards %v", got)
		}
		if got := b.cardsOf(b.launch(b.spec("cpu", 1))[0]); len(got) != 1 {
			t.Errorf("cards of another machine %v", got)
		}
		b.fake.Deny("compute.subnetworks.create")
		if l, err := b.p.Lacking(b.Context()); err != nil || !slices.Equal(l.Permissions, []string{"compute.subnetworks.create"}) {
			t.Errorf("lacking %v, %v", l, err)
		}
	})
}

// Subnets take the first range that no region has.
func TestRangesOfSubnets(t *testing.T) {
	virtual(t, func(b *bed) {
		b.make("/global/networks", `{"name": "skypilot-data-net-2", "autoCreateSubnetworks": false}`)
		for n := range rangesOfNetwork - 1 {
			b.make("/regions/us-west1/subnetworks", fmt.Sprintf(`{"name": "skypilot-data-net-2-sub-%d", "network": "global/networks/skypilot-data-net-2", "ipCidrRange": "%s"}`, n, fabricRange(rangesOfNetwork+n)))
		}
		b.launch(b.fast("last", "a3-highgpu-8g", "us-central1-a", 1))
		b.refused(b.fast("none", "a3-highgpu-8g", "us-east1-b", 1), "invalid gcp/us-east1")
	})
	ranges := map[string]bool{}
	for _, instanceType := range []string{"a3-megagpu-8g", "a4-highgpu-8g"} {
		spec := cloud.LaunchSpec{MachineSpec: cloud.MachineSpec{NetworkTier: "best"}, Offer: cloud.Offer{InstanceType: instanceType}}
		clear(ranges)
		for _, c := range (Settings{}).cards(spec) {
			for n := range c.ranges {
				if r := fabricRange(c.first + n); ranges[r] || c.first+n > 255 {
					t.Errorf("%s: two cards have %s", instanceType, r)
				} else {
					ranges[r] = true
				}
			}
		}
	}
}

// Machines with networks between their GPUs keep the contract, whatever goes wrong while
// these are made.
func TestConformanceOfNetworksBetweenGPUs(t *testing.T) {
	home(t, t.Setenv)
	for _, instanceType := range []string{"a3-highgpu-8g", "a4-highgpu-8g"} {
		gpu := cloud.Offer{Place: here.Place, InstanceType: instanceType, CPUs: 208, MemoryGiB: 1872, Accelerators: map[string]float64{"H100": 8}, HourlyPrice: 88}
		t.Run(instanceType, func(t *testing.T) {
			cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
				fake := gcpfake.New()
				ends := false
				stay := append(slices.Clone(shared), "subnetworks")
				for n := range 4 {
					stay = append(stay, fmt.Sprintf("firewalls skypilot-data-net-%d-allow-custom", n+1))
				}
				h := fake.Harness(func() cloud.Provider { return armed{over(fake, quick), &ends} }, stay...)
				h.Halt = func(t testing.TB, n cloud.Node) { halt(t, fake, n, ends) }
				h.Spec = cloud.LaunchSpec{Offer: gpu, AuthorizedKey: key, ImageID: plain(here)[0], MachineSpec: cloud.MachineSpec{NetworkTier: "best"}}
				return h
			})
		})
	}
}
