package shadeform

import (
	"encoding/base64"
	"errors"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/shadeform/shadeformfake"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "us-central-1"}, InstanceType: "massedcompute_A6000x4", CPUs: 24, MemoryGiB: 192, HourlyPrice: 2.28}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "canada-1"}, InstanceType: "massedcompute_A6000x4", CPUs: 24, MemoryGiB: 192, HourlyPrice: 2.28}
)

func start(t testing.TB) (*shadeformfake.Fake, func() cloud.Provider) {
	fake := shadeformfake.New()
	o := fake.Tuning(t, ".shadeform/api_key", shadeformfake.Key+"\n")
	return fake, func() cloud.Provider { return New(o) }
}

func cluster(name string) cloud.LaunchSpec { return cloudtest.Cluster(here, name) }

func TestConformance(t *testing.T) {
	spot := here
	spot.Spot, spot.HourlyPrice = true, 1.5
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(provider, "keys") // those are the account's and stay
		h.Raise = func(_ testing.TB, by float64) { fake.Raise(by) }
		h.Spec, h.Elsewhere, h.Spot = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key}, &elsewhere, &spot
		return h
	})
}

func TestWhatStatesMean(t *testing.T) {
	for status, want := range map[string]vm.State{
		"creating": vm.Pending, "pending_provider": vm.Pending, "pending": vm.Pending, "active": vm.Running, "error": vm.Pending, "deleting": vm.Ending, "deleted": vm.Ended, "odd": vm.Unknown,
	} {
		m := instance{Status: status, Details: "why"}.machine()
		if m.State != want || (m.Failure != nil) != (status == "error") {
			t.Errorf("%s: %+v", status, m)
		}
	}
	if m := (instance{Status: "deleting", Details: "preempted"}).machine(); !m.Reclaimed || m.State != vm.Ended || m.Reason == "" {
		t.Errorf("%+v", m)
	}
}

func TestWhatRefusalsMean(t *testing.T) {
	cloudtest.Refusals(t, here.Place, rest.ReadError, refusals("fix"), []cloudtest.Refusal{
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, ``),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 402, `{"message": "no balance"}`),
		cloudtest.Means[*cloud.PermissionError](vm.Refused, 403, ``),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, `{"message": "no such type"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"message": "region: unknown"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 422, `{"message": "name"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 409, `{"message": "out of stock: A6000"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"message": "The instance is no longer available"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"message": "no capacity"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 409, `{"message": "unavailable"}`),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 400, `{"message": "quota exceeded"}`),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 400, `{"message": "the limit of instances is reached"}`),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 429, ``),
		cloudtest.Means[*rest.Error](vm.Busy, 409, `{"message": "in use"}`),
		cloudtest.Nothing(502, `{"message": "x"}`),
	})
	var auth *cloud.AuthError
	if err := refusals("fix").Refusal(t.Context(), here.Place, &rest.Error{Status: 402}); !errors.As(err, &auth) || auth.Fix != billing {
		t.Error(err)
	}
}

// What is offered is what there is now, with the price of now.
func TestOffersAreOfNow(t *testing.T) {
	fake, provider := start(t)
	p := provider()
	count := func() (n, spot int) {
		t.Helper()
		offers, err := p.Offers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range offers {
			if o.InstanceType == here.InstanceType && o.Spot && o.HourlyPrice == 1.5 && o.Accelerators["RTXA6000"] == 4 {
				spot++
			} else if o.InstanceType == here.InstanceType && o.HourlyPrice == 2.28 {
				n++
			}
		}
		return n, spot
	}
	if n, spot := count(); n != 3 || spot != 3 {
		t.Errorf("%d, %d", n, spot)
	}
	fake.Fill(here.Region, here.InstanceType, 0)
	if n, spot := count(); n != 2 || spot != 2 {
		t.Errorf("%d, %d", n, spot)
	}
}

// A machine has its ports from the beginning, and no others.
func TestPorts(t *testing.T) {
	fake, provider := start(t)
	p := provider()
	spec := cluster("web")
	spec.Ports = []string{"8080-8081", "9000"}
	nodes, err := p.Launch(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	asked := fake.Asked(nodes[0].ID)
	launch := asked["launch_configuration"].(map[string]any)["script_configuration"].(map[string]any)["base64_script"].(string)
	if text, err := base64.StdEncoding.DecodeString(launch); err != nil || !strings.Contains(string(text), "ufw allow 8080:8081/tcp") {
		t.Errorf("%s, %v", text, err)
	}
	if asked["os"] != "ubuntu22.04_cuda12.2_shade_os" || asked["rental_type"] != "on_demand" || !slices.Contains(asked["tags"].([]any), any("sky-ports=8080-8081+9000")) {
		t.Errorf("%v", asked)
	}
	e, _ := cloud.As[cloud.Endpointer](p)
	at, why, err := e.Endpoints(t.Context(), spec.ID, []int{8081, 9000, 1})
	if err != nil || at[8081] == "" || at[9000] == "" || at[1] != "" || why == "" {
		t.Errorf("%v, %q, %v", at, why, err)
	}
	o, _ := cloud.As[cloud.PortOpener](p)
	if err := o.OpenPorts(t.Context(), spec.ID, []string{"9000"}); err != nil {
		t.Error(err)
	}
	if err := o.OpenPorts(t.Context(), spec.ID, []string{"1"}); !cloudtest.Is[*cloud.InvalidError](err) {
		t.Error(err)
	}
}

func TestTheImage(t *testing.T) {
	for _, tt := range []struct {
		options []string
		want    string
	}{
		{[]string{"ubuntu22.04", "ubuntu20.04_cuda12.0_shade_os", "ubuntu22.04_cuda12.2_shade_os"}, "ubuntu22.04_cuda12.2_shade_os"},
		{[]string{"ubuntu22.04", "ubuntu20.04_cuda12.0_shade_os"}, "ubuntu20.04_cuda12.0_shade_os"}, {[]string{"ubuntu22.04", "ubuntu20.04"}, "ubuntu22.04"}, {[]string{"debian"}, ""},
	} {
		if got := system(tt.options); got != tt.want {
			t.Errorf("%v: %s", tt.options, got)
		}
	}
}

// The price list that sky catalog fetch makes can be read.
func TestThePriceList(t *testing.T) {
	fake, _ := start(t)
	server := httptest.NewServer(fake)
	defer server.Close()
	rows, err := fetch.Shadeform{API: fetch.API{BaseURL: server.URL + "/v1", Token: shadeformfake.Key}}.Rows(t.Context())
	if err != nil || len(rows) != 12 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	if err := fetch.Write(io.Discard, Name, rows); err != nil {
		t.Error(err)
	}
}
