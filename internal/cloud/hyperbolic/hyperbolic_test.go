package hyperbolic

import (
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

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
	o := fake.Tuning(t, ".hyperbolic/api_key", hyperbolicfake.Key+"\n")
	return fake, func() cloud.Provider { return New(o) }
}

func cluster(name string) cloud.LaunchSpec { return cloudtest.Cluster(here, name) }

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
	cloudtest.Refusals(t, here.Place, rest.ReadError, refusals("fix"), []cloudtest.Refusal{
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, ``),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 402, `{"message": "x"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 400, `{"message": "Insufficient funds"}`),
		cloudtest.Means[*cloud.PermissionError](vm.Refused, 403, ``),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, `{"message": "x"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"message": "gpu_count: wrong"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 422, `{"message": "x"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"message": "no available instances"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 409, `{"message": "already reserved"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"message": "The node is not available"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"message": "insufficient capacity"}`),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 400, `{"message": "quota exceeded"}`),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 400, `{"message": "instance limit reached"}`),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 429, ``),
		cloudtest.Means[*rest.Error](vm.Busy, 409, `{"message": "in use"}`),
		cloudtest.Nothing(502, `{"message": "x"}`),
	})
}

// Without funds the error says where to add some, not to make another key.
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
