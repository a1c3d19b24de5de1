package verda

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/verda/verdafake"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "FIN-01"}, InstanceType: "1V100.6V", CPUs: 6, MemoryGiB: 23, HourlyPrice: 0.14}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "ICE-01"}, InstanceType: "1V100.6V", CPUs: 6, MemoryGiB: 23, HourlyPrice: 0.14}
	spot      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "FIN-01"}, InstanceType: "1V100.6V", CPUs: 6, MemoryGiB: 23, HourlyPrice: 0.05, Spot: true}
)

func start(t testing.TB) (*verdafake.Fake, func() *Provider) {
	fake := verdafake.New()
	o := fake.Tuning(t, ".verda/config.json", `{"client_id": "`+verdafake.ClientID+`", "client_secret": "`+verdafake.Secret+`"}`)
	return fake, func() *Provider { return New(o) }
}

func launch(o cloud.Offer) cloud.LaunchSpec {
	return cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: o, Nodes: 1, Token: "t", AuthorizedKey: cloudtest.Key}
}

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(func() cloud.Provider { return provider() }, "keys") // those are the account's and stay
		h.Raise = func(_ testing.TB, by float64) { fake.Raise(by) }
		h.Spec, h.Elsewhere, h.Spot = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key}, &elsewhere, &spot
		return h
	})
}

// A token is good for an hour, and servers live longer.
func TestATokenThatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, provider := start(t)
		p := provider()
		for range 3 {
			if who, err := p.Check(t.Context()); err != nil || !strings.Contains(who[0], verdafake.ClientID) {
				t.Errorf("%v, %v", who, err)
			}
			time.Sleep(2 * time.Hour)
		}
	})
}

// The disk of a spot machine goes with it, and that it was taken back is not what its
// cluster asked for.
func TestASpotMachine(t *testing.T) {
	fake, provider := start(t)
	p := provider()
	nodes, err := p.Launch(t.Context(), launch(spot))
	if err != nil {
		t.Fatal(err)
	}
	asked := fake.Asked(nodes[0].ID)
	if v := asked["os_volume"].(map[string]any); asked["contract"] != "SPOT" || v["on_spot_discontinue"] != "delete_permanently" || !nodes[0].About.Spot {
		t.Errorf("%v, %+v", asked, nodes[0].About)
	}
	fake.Lie(nodes[0].ID, "discontinued")
	if nodes, err = p.Nodes(t.Context(), launch(spot).ID); err != nil || len(nodes) > 1 || len(nodes) == 1 && nodes[0].Reason != "Verda took it back" {
		t.Errorf("%+v, %v", nodes, err)
	}
}

func TestWhatStatesMean(t *testing.T) {
	fake, provider := start(t)
	cloudtest.States(t, provider(), cloudtest.Cluster(here, "web"), fake.Lie, fake.Restore, map[string]cloud.NodeState{
		"new": cloud.NodePending, "ordered": cloud.NodePending, "pending": cloud.NodePending, "provisioning": cloud.NodePending, "validating": cloud.NodePending, "restoring": cloud.NodePending, "error": cloud.NodePending, "no_capacity": cloud.NodePending,
		"running": cloud.NodeRunning, "starting_hibernation": cloud.NodeStopping, "hibernating": cloud.NodeStopped, "offline": cloud.NodeStopped, "deleting": cloud.NodeGone, "discontinued": cloud.NodeGone, "notfound": cloud.NodeGone, "odd": "", "": "",
	})
}

func TestWhatRefusalsMean(t *testing.T) {
	cloudtest.Refusals(t, here.Place, refusal, refusals("fix"), []cloudtest.Refusal{
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"code": "invalid_request", "message": "Invalid instance type"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"code": "invalid_request", "message": "Invalid location code"}`),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 400, `{"code": "invalid_request", "message": "more than the quota of 8"}`),
		cloudtest.Means[*rest.Error](vm.Changed, 400, `{"code": "invalid_request", "message": "the instance is provisioning"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"code": "invalid_request", "message": "something else"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, `{"code": "unauthorized_request", "message": "Access token is missing or invalid"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 402, `{"code": "insufficient_funds", "message": "x"}`),
		cloudtest.Means[*cloud.PermissionError](vm.Refused, 403, `{"code": "forbidden_action", "message": "x"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, `{"code": "not_found", "message": "x"}`),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 429, `{"code": "too_many_requests", "message": "x"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 503, `{"code": "service_unavailable", "message": "Not enough resources to deploy a 1 GPU instance"}`),
		cloudtest.Nothing(500, `{"code": "service_unavailable", "message": "later"}`),
		cloudtest.Nothing(503, `{"code": "service_unavailable", "message": "later"}`),
	})
	fake, provider := start(t)
	fake.Inject(model.Fault{Kind: model.Fail, Code: verdafake.Poor})
	var auth *cloud.AuthError
	if _, err := provider().Check(t.Context()); !errors.As(err, &auth) || !strings.Contains(auth.Fix, "funds") {
		t.Error(err)
	}
}

// What the fetched price list offers can be rented, and costs what it says.
func TestThePriceListIsOfWhatCanBeRented(t *testing.T) {
	fake, provider := start(t)
	rows, err := fetch.Verda{API: fetch.API{Client: &http.Client{Transport: fake}}, ID: verdafake.ClientID, Secret: verdafake.Secret}.Rows(t.Context())
	if err != nil || len(rows) == 0 {
		t.Fatal(rows, err)
	}
	gpus := map[string]bool{}
	var offers []cloud.Offer
	for _, r := range rows {
		gpus[r.Accelerator] = true
		o := cloud.Offer{Place: cloud.Place{Cloud: Name, Region: r.Region}, InstanceType: r.InstanceType, HourlyPrice: r.Price}
		offers = append(offers, o)
		o.Spot, o.HourlyPrice = true, r.Spot
		offers = append(offers, o)
	}
	cloudtest.PriceList(t, provider(), cloud.AvailableNow, offers)
	if !gpus["V100"] || !gpus["H100"] || !gpus[""] || len(gpus) != 3 {
		t.Errorf("%v", gpus)
	}
}
