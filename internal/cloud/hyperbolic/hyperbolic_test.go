package hyperbolic

import (
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cloud/hyperbolic/hyperbolicfake"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

var here = cloud.Offer{
	Place: cloud.Place{Cloud: Name, Region: "default"}, InstanceType: "2x-NVIDIA-GeForce-RTX-4090", CPUs: 32, MemoryGiB: 128, Accelerators: map[string]float64{"RTX4090": 2}, HourlyPrice: 0.7,
}

func start(t testing.TB) (*hyperbolicfake.Fake, func() cloud.Provider) {
	fake := hyperbolicfake.New()
	t.Cleanup(fake.Restore)
	home := t.TempDir()
	cloudtest.HomeFile(t, home, ".hyperbolic/api_key", hyperbolicfake.Key+"\n")
	return fake, func() cloud.Provider {
		return New(Options{Home: home, Transport: fake, Poll: 100 * time.Millisecond, Busy: -1})
	}
}

func cluster(name string) cloud.LaunchSpec {
	return cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: name, Hash: "h"}, Offer: here, Nodes: 1, Token: name, AuthorizedKey: cloudtest.Key}
}

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(provider)
		h.Raise = func(_ testing.TB, by float64) { fake.Raise(by) }
		h.Spec, h.Quota = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key}, nil // Hyperbolic has no quotas
		h.Fill = func(_ testing.TB, _ cloud.Offer, left int) {
			fake.Fill(hyperbolicfake.Region, hyperbolicfake.Type("NVIDIA-GeForce-RTX-4090", 2), left)
			for _, more := range []int{4, 8} {
				fake.Fill(hyperbolicfake.Region, hyperbolicfake.Type("NVIDIA-GeForce-RTX-4090", more), 0)
			}
		}
		return h
	})
}

func TestWhatStatesMean(t *testing.T) {
	for status, want := range map[string]vm.State{
		"creating": vm.Pending, "starting": vm.Pending, "pending": vm.Pending, "restarting": vm.Pending, "unknown": vm.Pending, "busy": vm.Pending, "offline": vm.Pending, "failed": vm.Pending,
		"error": vm.Pending, "online": vm.Running, "RUNNING": vm.Running, "stopping": vm.Ending, "terminating": vm.Ending, "terminated": vm.Ended, "odd": vm.Unknown,
	} {
		i := instance{SSH: "ssh ubuntu@1.2.3.4 -p 31424"}
		i.Instance.Status = status
		m := i.machine()
		if m.State != want || (m.Failure != nil) != (status == "failed" || status == "error") || m.Reach.Host != "1.2.3.4" || m.Reach.Port != 31424 || m.Reach.User != "ubuntu" {
			t.Errorf("%s: %+v", status, m)
		}
	}
	if m := (instance{SSH: "ssh me@host.example"}).machine(); m.Reach.Port != 22 || m.Reach.Host != "host.example" {
		t.Errorf("%+v", m)
	}
}

func TestWhatRefusalsMean(t *testing.T) {
	r := refusals("fix")
	for _, tt := range []struct {
		status  int
		message string
		right   func(error) bool
	}{
		{401, "", cloudtest.Is[*cloud.AuthError]}, {402, "", cloudtest.Is[*cloud.AuthError]}, {400, "Insufficient funds", cloudtest.Is[*cloud.AuthError]}, {403, "", cloudtest.Is[*cloud.PermissionError]}, {404, "", cloudtest.Is[*cloud.InvalidError]},
		{400, "gpu_count: wrong", cloudtest.Is[*cloud.InvalidError]}, {422, "", cloudtest.Is[*cloud.InvalidError]}, {400, "no available instances", cloudtest.Is[*cloud.CapacityError]}, {409, "already reserved", cloudtest.Is[*cloud.CapacityError]},
		{400, "The node is not available", cloudtest.Is[*cloud.CapacityError]}, {400, "insufficient capacity", cloudtest.Is[*cloud.CapacityError]}, {400, "quota exceeded", cloudtest.Is[*cloud.QuotaError]},
		{400, "instance limit reached", cloudtest.Is[*cloud.QuotaError]}, {429, "", cloudtest.Is[*cloud.ThrottledError]}, {409, "in use", cloudtest.Is[*rest.Error]},
	} {
		if err := r.Refusal(t.Context(), here.Place, &rest.Error{Status: tt.status, Message: tt.message}); !tt.right(err) {
			t.Errorf("%d %s: %T (%v)", tt.status, tt.message, err, err)
		}
	}
}

// Who has no funds is told where to add some, not to make another key.
func TestNoFunds(t *testing.T) {
	fake, provider := start(t)
	fake.Inject(model.Fault{Kind: model.Fail, Op: "instances.create", Code: hyperbolicfake.Poor, Times: 9})
	_, err := provider().Launch(t.Context(), cluster("web"))
	var auth *cloud.AuthError
	if !errors.As(err, &auth) || auth.Fix != billing {
		t.Errorf("%v", err)
	}
}

// What is offered is what there is now, with the price of now.
func TestOffersAreOfNow(t *testing.T) {
	fake, provider := start(t)
	p := provider()
	types := func() string {
		t.Helper()
		offers, err := p.Offers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, o := range offers {
			if o.Accelerators["RTX4090"] > 0 {
				all = append(all, o.InstanceType[:2])
			}
		}
		return strings.Join(all, " ")
	}
	if got := types(); got != "1x 2x 4x 8x" {
		t.Error(got)
	}
	for _, count := range []int{2, 4, 8} {
		fake.Fill(hyperbolicfake.Region, hyperbolicfake.Type("NVIDIA-GeForce-RTX-4090", count), 0)
	}
	if got := types(); got != "1x" {
		t.Error(got)
	}

	if got, err := p.(*Provider).Available(t.Context(), here, 1); err != nil || got.Verdict != cloud.AvailableNone {
		t.Errorf("%+v, %v", got, err)
	}
	spec := cluster("web")
	spec.Ports = []string{"80"}
	if _, err := p.Launch(t.Context(), spec); !cloudtest.Is[*cloud.InvalidError](err) {
		t.Error(err)
	}
}

// The price list that sky catalog fetch makes can be read.
func TestThePriceList(t *testing.T) {
	fake, _ := start(t)
	server := httptest.NewServer(fake)
	defer server.Close()
	rows, err := fetch.Hyperbolic{API: fetch.API{BaseURL: server.URL, Token: hyperbolicfake.Key}}.Rows(t.Context())
	if err != nil || len(rows) != 8 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, r := range rows {
		if r.Accelerator != "RTX4090" && r.Accelerator != "H100" || r.CPUs == 0 || r.MemoryGiB == 0 {
			t.Errorf("%+v", r)
		}
	}
	if err := fetch.Write(io.Discard, Name, rows); err != nil {
		t.Error(err)
	}
}
