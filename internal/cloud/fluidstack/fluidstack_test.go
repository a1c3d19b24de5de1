package fluidstack

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fluidstack/fluidstackfake"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "norway_4_eu"}, InstanceType: "RTX_A6000_48GB::2", CPUs: 32, MemoryGiB: 118, HourlyPrice: 0.98}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "canada_1_ca"}, InstanceType: "RTX_A6000_48GB::2", CPUs: 32, MemoryGiB: 118, HourlyPrice: 0.98}
)

func start(t testing.TB) (*fluidstackfake.Fake, func() *Provider) {
	fake := fluidstackfake.New()
	o := fake.Tuning(t, ".fluidstack/api_key", fluidstackfake.Key+"\n")
	return fake, func() *Provider { return New(o) }
}

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(func() cloud.Provider { return provider() }, "keys") // those are the account's and stay
		h.Raise = func(_ testing.TB, by float64) { fake.Raise(by) }
		h.Spec, h.Elsewhere = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key}, &elsewhere
		return h
	})
}

// The list goes on over several pages, and over none twice.
func TestManyInstances(t *testing.T) {
	fake, provider := start(t)
	p := provider()
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: here, Nodes: 60, Token: "t", AuthorizedKey: cloudtest.Key}
	nodes, err := p.Launch(t.Context(), spec)
	if err != nil || len(nodes) != 60 || nodes[59].Reach.User != "ubuntu" || nodes[59].InternalIP == "" {
		t.Fatalf("%d nodes, %v", len(nodes), err)
	}
	if err := p.Terminate(t.Context(), spec.ID); err != nil {
		t.Error(err)
	}
	fake.Restore()
}

// An instance that failed is no capacity, and is not ended again.
func TestAnInstanceThatFailed(t *testing.T) {
	fake, provider := start(t)
	p := provider()
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: here, Nodes: 1, Token: "t", AuthorizedKey: cloudtest.Key}
	if _, err := p.Launch(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	fake.Lie(fake.Cloud.Machines()[0].ID, "failed")
	nodes, err := p.Nodes(t.Context(), spec.ID)
	if err != nil || len(nodes) != 1 || nodes[0].State != cloud.NodeGone || !strings.Contains(nodes[0].Reason, "failed") {
		t.Errorf("%+v, %v", nodes, err)
	}
}

// A region that has none of a kind of GPU is not asked for machines.
func TestARegionThatIsSoldOut(t *testing.T) {
	fake, provider := start(t)
	for _, n := range []int{1, 2, 4, 8} {
		fake.Fill(here.Region, fluidstackfake.Type("RTX_A6000_48GB", n), 0)
	}
	fake.Forbid() // who asks for one is told that they may not
	var full *cloud.CapacityError
	if _, err := provider().Launch(t.Context(), cloudtest.Cluster(here, "web")); !errors.As(err, &full) {
		t.Error(err)
	}
}

func TestWhatStatesMean(t *testing.T) {
	fake, provider := start(t)
	cloudtest.States(t, provider(), cloudtest.Cluster(here, "web"), fake.Lie, fake.Restore, map[string]cloud.NodeState{
		"pending": cloud.NodePending, "provisioning": cloud.NodePending, "starting": cloud.NodePending, "running": cloud.NodeRunning, "stopping": cloud.NodeStopping,
		"stopped": cloud.NodeStopped, "failed": cloud.NodeGone, "terminated": cloud.NodeGone, "odd": "", "": "",
	})
}

func TestWhatRefusalsMean(t *testing.T) {
	cloudtest.Refusals(t, here.Place, refusal, refusals("fix"), []cloudtest.Refusal{
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"message": "The requested configuration is out of stock"}`),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 400, `{"message": "The limit of instances of your account is reached"}`),
		cloudtest.Means[*rest.Error](vm.Changed, 400, `{"message": "i-1 is stopped"}`),
		cloudtest.Means[*rest.Error](vm.Refused, 400, `{"message": "something else"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, `{"message": "Unauthorized"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 402, `{"message": "pay"}`),
		cloudtest.Means[*cloud.PermissionError](vm.Refused, 403, `{"message": "Forbidden"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, `{"message": "Not found"}`),
		cloudtest.Means[*rest.Error](vm.Busy, 409, `{"message": "An SSH key with this name already exists"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 422, `{"detail": [{"loc": ["body", "gpu_type"], "msg": "value is not a valid enumeration member"}]}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 422, `{"detail": [{"loc": ["body"], "msg": "there is no configuration with 3 X"}]}`),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 429, `{"message": "Rate limit exceeded"}`),
		cloudtest.Nothing(500, `{"message": "x"}`),
	})
}

// What the fetched price list offers can be rented, and costs what it says.
func TestThePriceListIsOfWhatCanBeRented(t *testing.T) {
	fake, provider := start(t)
	rows, err := fetch.FluidStack{API: fetch.API{Client: &http.Client{Transport: fake}, Token: fluidstackfake.Key}}.Rows(t.Context())
	if err != nil || len(rows) == 0 {
		t.Fatal(rows, err)
	}
	var offers []cloud.Offer
	for _, r := range rows {
		offers = append(offers, cloud.Offer{Place: cloud.Place{Cloud: Name, Region: r.Region}, InstanceType: r.InstanceType, HourlyPrice: r.Price})
	}
	cloudtest.PriceList(t, provider(), cloud.AvailabilityUnknown, offers) // that a region has a kind is not said of each number of GPUs
}
