package primeintellect

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cloud/primeintellect/primeintellectfake"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// with the usual disk, which costs besides
var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "US-1"}, InstanceType: "hyperstack_1x_H100_80GB_PCIe", CPUs: 28, MemoryGiB: 180, HourlyPrice: 1.9112}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "CANADA-1"}, InstanceType: "hyperstack_1x_H100_80GB_PCIe", CPUs: 28, MemoryGiB: 180, HourlyPrice: 1.9112}
	spot      = cloud.Offer{Place: here.Place, InstanceType: "datacrunch_8x_A100_80GB_SXM4", CPUs: 176, MemoryGiB: 960, HourlyPrice: 6.4112, Spot: true}
)

func start(t testing.TB) (*primeintellectfake.Fake, func() cloud.Provider) {
	for _, variable := range []string{"PRIME_API_KEY", "PRIME_TEAM_ID"} {
		if os.Getenv(variable) != "" {
			t.Skip(variable + " is set")
		}
	}
	fake := primeintellectfake.New()
	o := fake.Tuning(t, ".prime/config.json", `{"api_key": "`+primeintellectfake.Key+`", "team_id": null, "base_url": "https://api.primeintellect.ai"}`)
	return fake, func() cloud.Provider { return New(o) }
}

func cluster(name string) cloud.LaunchSpec { return cloudtest.Cluster(here, name) }

// ids are the fake's names of types.
var ids = map[string]string{here.InstanceType: "n3-H100x1", spot.InstanceType: "8x-a100-spot"}

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(provider, "keys") // those are the account's and stay
		h.Raise = func(_ testing.TB, by float64) { fake.Raise(by) }
		h.Spec, h.Elsewhere, h.Spot = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key}, &elsewhere, &spot
		h.Fill = func(_ testing.TB, o cloud.Offer, left int) { fake.Fill(o.Region, ids[o.InstanceType], left) }
		return h
	})
}

func TestWhatStatesMean(t *testing.T) {
	for status, want := range map[string]vm.State{
		"PROVISIONING": vm.Pending, "PENDING": vm.Pending, "UNKNOWN": vm.Pending, "ERROR": vm.Pending, "ACTIVE": vm.Running, "STOPPED": vm.Stopped, "DELETING": vm.Ending, "TERMINATED": vm.Ended, "odd": vm.Unknown,
	} {
		m := pod{Status: status, SSH: "root@1.2.3.4 -p 2222"}.machine(nil)
		if m.State != want || (m.Failure != nil) != (status == "ERROR") || m.Reach.Host != "1.2.3.4" || m.Reach.Port != 2222 || m.Reach.User != "root" {
			t.Errorf("%s: %+v", status, m)
		}
	}
	if m := (pod{Status: "ACTIVE"}).machine(nil); m.State != vm.Pending || m.RawState != installing {
		t.Errorf("%+v", m)
	}
	if m := (pod{Status: "PENDING", Failure: "no driver"}).machine(nil); !cloudtest.Is[*cloud.CapacityError](m.Failure) {
		t.Errorf("%+v", m)
	}
	for text, want := range map[string]firstOf{`null`: "", `[null]`: "", `[]`: "", `"a@b"`: "a@b", `["a@b", "a@c"]`: "a@b"} {
		var got firstOf
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}

func TestWhatRefusalsMean(t *testing.T) {
	cloudtest.Refusals(t, here.Place, refusal, refusals("fix"), []cloudtest.Refusal{
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, `{"detail": "Not authenticated"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 402, `{"errors": [{"param": "", "details": "Insufficient wallet balance"}]}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 400, `{"detail": "Insufficient funds"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 400, `{"detail": "the balance is too low"}`),
		cloudtest.Means[*cloud.PermissionError](vm.Refused, 403, `{}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, `{"detail": "no such pod"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 422, `{"errors": [{"param": "pod.socket", "details": "odd"}]}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"detail": "odd"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"detail": "There are currently no available instances"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"detail": "It is not available"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"detail": "unavailable"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 409, `{"detail": "Out of stock"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"detail": "no capacity"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 422, `{"errors": [{"param": "pod.maxPrice", "details": "not enough"}]}`),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 400, `{"detail": "Quota exceeded"}`),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 400, `{"detail": "limit of pods"}`),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 429, `{}`),
		cloudtest.Means[*rest.Error](vm.Busy, 409, `{"detail": "in use"}`),
		cloudtest.Nothing(502, `{"errors": [{"details": "x"}]}`),
	})
}

// Without funds the error says where to add some, not to make another key.
func TestNoFunds(t *testing.T) {
	fake, provider := start(t)
	fake.Inject(model.Fault{Kind: model.Fail, Op: "instances.create", Code: primeintellectfake.Poor, Times: 9})
	_, err := provider().Launch(t.Context(), cluster("web"))
	var auth *cloud.AuthError
	if !errors.As(err, &auth) || auth.Fix != billing {
		t.Errorf("%v", err)
	}
}

// What is offered is what there is now, with the price of now, and nothing of strangers.
func TestOffersAreOfNow(t *testing.T) {
	fake, provider := start(t)
	p := provider()
	count := func() (n, spots, others int) {
		t.Helper()
		offers, err := p.Offers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range offers {
			switch {
			case o.InstanceType == here.InstanceType && !o.Spot && math.Abs(o.HourlyPrice-here.HourlyPrice) < 1e-9 && o.Accelerators["H100"] == 1:
				n++
			case o.InstanceType == spot.InstanceType && o.Spot && math.Abs(o.HourlyPrice-spot.HourlyPrice) < 1e-9 && o.Accelerators["A100-80GB"] == 8:
				spots++
			default:
				others++
			}
		}
		return n, spots, others
	}
	if n, spots, others := count(); n != 2 || spots != 2 || others != 0 {
		t.Error(n, spots, others)
	}
	fake.Fill("US-1", "n3-H100x1", 0)
	if n, spots, others := count(); n != 1 || spots != 2 || others != 0 {
		t.Error(n, spots, others)
	}
	if got, err := p.(*Provider).Available(t.Context(), here, 1); err != nil || got.Verdict != cloud.AvailableNone {
		t.Errorf("%+v, %v", got, err)
	}
}

// A pod has the disk that was asked for, and a price that cannot be higher.
func TestThePodThatIsMade(t *testing.T) {
	fake, provider := start(t)
	p := provider()
	spec := cluster("web")
	spec.DiskGB = 200
	nodes, err := p.Launch(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	asked := fake.Asked(nodes[0].ID)
	if asked["diskSize"] != 200.0 || asked["maxPrice"] != 1.928 || asked["image"] != "ubuntu_22_cuda_12" || asked["dataCenterId"] != "US-1" || asked["security"] != "secure_cloud" {
		t.Errorf("%v", asked)
	}
	spec = cluster("large")
	spec.DiskGB = 5000
	if _, err := p.Launch(t.Context(), spec); !cloudtest.Is[*cloud.InvalidError](err) || !strings.Contains(err.Error(), "750") {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	spec := cluster("web")
	for region, told := range map[string]string{"US-1": "US-1", "Oslo (2)": "", "anywhere": "anywhere"} {
		spec.Offer.Region = region
		name, at := parse(podName(spec, 0))
		if name != names.Of(spec.ID, 0) || at != told {
			t.Errorf("%s: %s, %s", region, name, at)
		}
	}
}

func TestSizes(t *testing.T) {
	n := func(i int) *int { return &i }
	yes, price := true, 0.5
	for _, tt := range []struct {
		r     fetch.PrimeResource
		want  int
		size  int
		price float64
		fits  bool
	}{
		{fetch.PrimeResource{}, 0, 0, 0, true}, {fetch.PrimeResource{}, 7, 7, 0, true}, {fetch.PrimeResource{Min: n(10)}, 0, 10, 0, true}, {fetch.PrimeResource{Min: n(10), Default: n(20)}, 0, 20, 0, true},
		{fetch.PrimeResource{Min: n(10), Default: n(20)}, 5, 10, 0, true}, {fetch.PrimeResource{Max: n(20)}, 21, 21, 0, false}, {fetch.PrimeResource{Min: n(10), Step: n(4)}, 15, 18, 0, true},
		{fetch.PrimeResource{Default: n(20), Price: &price}, 0, 20, 10, true}, {fetch.PrimeResource{Default: n(20), Price: &price, Included: &yes}, 22, 22, 1, true},
	} {
		if size, price, fits := tt.r.Size(tt.want); size != tt.size || price != tt.price || fits != tt.fits {
			t.Errorf("%+v: %d, %v, %v", tt, size, price, fits)
		}
	}
}

// The price list that sky catalog fetch makes can be read.
func TestThePriceList(t *testing.T) {
	fake, _ := start(t)
	server := httptest.NewServer(fake)
	defer server.Close()
	rows, err := fetch.PrimeIntellect{API: fetch.API{BaseURL: server.URL + "/api/v1", Token: primeintellectfake.Key}}.Rows(t.Context())
	if err != nil || len(rows) != 6 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	if err := fetch.Write(io.Discard, Name, rows); err != nil {
		t.Error(err)
	}
}

// How much there is, in the cloud's own word.
func TestStock(t *testing.T) {
	_, provider := start(t)
	a, err := provider().(cloud.AvailabilityProber).Available(t.Context(), here, 1)
	if err != nil || a.Stock != cloud.StockHigh || a.Verdict != cloud.AvailableNow || a.At.IsZero() {
		t.Errorf("%+v, %v", a, err)
	}
	gone := here
	gone.Region = "nowhere"
	if a, err := provider().(cloud.AvailabilityProber).Available(t.Context(), gone, 1); a.Stock != "" || err == nil {
		t.Errorf("%+v, %v", a, err)
	}
}
