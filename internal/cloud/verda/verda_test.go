package verda

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
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

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJvn8zhV7YgJpPZK1f2sYd4eVMOy6l3vLx7i7mWn3yQd test"

func start(t testing.TB) (*verdafake.Fake, func() *Provider) {
	fake := verdafake.New()
	t.Cleanup(fake.Restore)
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".verda"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".verda", "config.json"), []byte(`{"client_id": "`+verdafake.ClientID+`", "client_secret": "`+verdafake.Secret+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return fake, func() *Provider {
		return New(Options{Home: home, Transport: fake, Poll: 100 * time.Millisecond, Busy: -1})
	}
}

func launch(o cloud.Offer) cloud.LaunchSpec {
	return cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: o, Nodes: 1, Token: "t", AuthorizedKey: key}
}

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(func() cloud.Provider { return provider() }, "keys") // those are the account's and stay
		h.Spec, h.Elsewhere, h.Spot = cloud.LaunchSpec{Offer: here, AuthorizedKey: key}, &elsewhere, &spot
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

func TestWhatRefusalsMean(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
		want   func(error) bool
		kind   vm.Kind
	}{
		{400, `{"code": "invalid_request", "message": "Invalid instance type"}`, is[*cloud.InvalidError], vm.Refused},
		{400, `{"code": "invalid_request", "message": "Invalid location code"}`, is[*cloud.InvalidError], vm.Refused},
		{400, `{"code": "invalid_request", "message": "more than the quota of 8"}`, is[*cloud.QuotaError], vm.Refused},
		{400, `{"code": "invalid_request", "message": "the instance is provisioning"}`, is[*rest.Error], vm.Changed},
		{400, `{"code": "invalid_request", "message": "something else"}`, is[*cloud.InvalidError], vm.Refused},
		{401, `{"code": "unauthorized_request", "message": "Access token is missing or invalid"}`, is[*cloud.AuthError], vm.Refused},
		{402, `{"code": "insufficient_funds", "message": "x"}`, is[*cloud.AuthError], vm.Refused},
		{403, `{"code": "forbidden_action", "message": "x"}`, is[*cloud.PermissionError], vm.Refused},
		{404, `{"code": "not_found", "message": "x"}`, is[*cloud.InvalidError], vm.Missing},
		{429, `{"code": "too_many_requests", "message": "x"}`, is[*cloud.ThrottledError], vm.Refused},
		{503, `{"code": "service_unavailable", "message": "Not enough resources to deploy a 1 GPU instance"}`, is[*cloud.CapacityError], vm.Refused},
	} {
		err := refusal(tt.status, nil, []byte(tt.body))
		r := refusals("fix")
		if got := r.Refusal(t.Context(), here.Place, err); !tt.want(got) || r.Kind(err) != tt.kind {
			t.Errorf("%s: %T (%v), %v", tt.body, got, got, r.Kind(err))
		}
	}
	for _, status := range []int{500, 503} {
		if err := refusal(status, nil, []byte(`{"code": "service_unavailable", "message": "later"}`)); err != nil {
			t.Errorf("%d proves something: %v", status, err)
		}
	}
	fake, provider := start(t)
	fake.Inject(model.Fault{Kind: model.Fail, Code: verdafake.Poor})
	var auth *cloud.AuthError
	if _, err := provider().Check(t.Context()); !errors.As(err, &auth) || !strings.Contains(auth.Fix, "funds") {
		t.Error(err)
	}
}

func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// What the fetched price list offers can be rented, and costs what it says.
func TestThePriceListIsOfWhatCanBeRented(t *testing.T) {
	fake, provider := start(t)
	rows, err := fetch.Verda{API: fetch.API{Client: &http.Client{Transport: fake}}, ID: verdafake.ClientID, Secret: verdafake.Secret}.Rows(t.Context())
	if err != nil || len(rows) == 0 {
		t.Fatal(rows, err)
	}
	gpus := map[string]bool{}
	for _, r := range rows {
		gpus[r.Accelerator] = true
		for _, o := range []cloud.Offer{{HourlyPrice: r.Price}, {HourlyPrice: r.Spot, Spot: true}} {
			o.Place, o.InstanceType = cloud.Place{Cloud: Name, Region: r.Region}, r.InstanceType
			if a, err := provider().Available(t.Context(), o, 1); err != nil || a.Verdict != cloud.AvailableNow || o.HourlyPrice <= 0 {
				t.Errorf("%+v: %v, %v", r, a, err)
			}
			o.HourlyPrice /= 2
			if a, err := provider().Available(t.Context(), o, 1); err != nil || a.Verdict != cloud.AvailableNone || !strings.Contains(a.Reason, "rose") {
				t.Errorf("%+v: %v, %v", r, a, err)
			}
		}
	}
	if !gpus["V100"] || !gpus["H100"] || !gpus[""] || len(gpus) != 3 {
		t.Errorf("%v", gpus)
	}
}
