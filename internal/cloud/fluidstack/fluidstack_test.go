package fluidstack

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJvn8zhV7YgJpPZK1f2sYd4eVMOy6l3vLx7i7mWn3yQd test"

func start(t testing.TB) (*fluidstackfake.Fake, func() *Provider) {
	fake := fluidstackfake.New()
	t.Cleanup(fake.Restore)
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".fluidstack"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".fluidstack", "api_key"), []byte(fluidstackfake.Key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return fake, func() *Provider {
		return New(Options{Home: home, Transport: fake, Poll: 100 * time.Millisecond, Busy: -1})
	}
}

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(func() cloud.Provider { return provider() }, "keys") // those are the account's and stay
		h.Spec, h.Elsewhere = cloud.LaunchSpec{Offer: here, AuthorizedKey: key}, &elsewhere
		return h
	})
}

// The list goes on over several pages, and over none twice.
func TestManyInstances(t *testing.T) {
	fake, provider := start(t)
	p := provider()
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: here, Nodes: 60, Token: "t", AuthorizedKey: key}
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
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: here, Nodes: 1, Token: "t", AuthorizedKey: key}
	if _, err := p.Launch(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	fake.Lie(fake.Cloud.Machines()[0].ID, "failed")
	nodes, err := p.Nodes(t.Context(), spec.ID)
	if err != nil || len(nodes) != 1 || nodes[0].State != cloud.NodeGone || !strings.Contains(nodes[0].Reason, "failed") {
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
		{400, `{"message": "The requested configuration is out of stock"}`, is[*cloud.CapacityError], vm.Refused},
		{400, `{"message": "The limit of instances of your account is reached"}`, is[*cloud.QuotaError], vm.Refused},
		{400, `{"message": "i-1 is stopped"}`, is[*rest.Error], vm.Changed},
		{400, `{"message": "something else"}`, is[*rest.Error], vm.Refused},
		{401, `{"message": "Unauthorized"}`, is[*cloud.AuthError], vm.Refused},
		{402, `{"message": "pay"}`, is[*cloud.AuthError], vm.Refused},
		{403, `{"message": "Forbidden"}`, is[*cloud.PermissionError], vm.Refused},
		{404, `{"message": "Not found"}`, is[*cloud.InvalidError], vm.Missing},
		{409, `{"message": "An SSH key with this name already exists"}`, is[*rest.Error], vm.Busy},
		{422, `{"detail": [{"loc": ["body", "gpu_type"], "msg": "value is not a valid enumeration member"}]}`, is[*cloud.InvalidError], vm.Refused},
		{422, `{"detail": [{"loc": ["body"], "msg": "there is no configuration with 3 X"}]}`, is[*cloud.InvalidError], vm.Refused},
		{429, `{"message": "Rate limit exceeded"}`, is[*cloud.ThrottledError], vm.Refused},
	} {
		err := refusal(tt.status, nil, []byte(tt.body))
		r := refusals("fix")
		if got := r.Refusal(t.Context(), here.Place, err); !tt.want(got) || r.Kind(err) != tt.kind {
			t.Errorf("%s: %T (%v), %v", tt.body, got, got, r.Kind(err))
		}
	}
	if err := refusal(500, nil, []byte(`{"message": "x"}`)); err != nil {
		t.Errorf("500 proves something: %v", err)
	}
}

func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// What the fetched price list offers can be rented, and costs what it says.
func TestThePriceListIsOfWhatCanBeRented(t *testing.T) {
	fake, provider := start(t)
	rows, err := fetch.FluidStack{API: fetch.API{Client: &http.Client{Transport: fake}, Token: fluidstackfake.Key}}.Rows(t.Context())
	if err != nil || len(rows) == 0 {
		t.Fatal(rows, err)
	}
	for _, r := range rows {
		o := cloud.Offer{Place: cloud.Place{Cloud: Name, Region: r.Region}, InstanceType: r.InstanceType, HourlyPrice: r.Price}
		if a, err := provider().Available(t.Context(), o, 1); err != nil || a.Verdict == cloud.AvailableNone || r.Price <= 0 {
			t.Errorf("%+v: %v, %v", r, a, err)
		}
		o.HourlyPrice /= 2
		if a, err := provider().Available(t.Context(), o, 1); err != nil || a.Verdict != cloud.AvailableNone || !strings.Contains(a.Reason, "rose") {
			t.Errorf("%+v: %v, %v", r, a, err)
		}
	}
}
