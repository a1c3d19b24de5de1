package seeweb

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/seeweb/seewebfake"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "it-mi2"}, InstanceType: "ECS1GPU6", CPUs: 4, MemoryGiB: 32, HourlyPrice: 0.38}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "it-fr2"}, InstanceType: "ECS1GPU6", CPUs: 4, MemoryGiB: 32, HourlyPrice: 0.38}
)

func start(t testing.TB) (*seewebfake.Fake, func() *Provider) {
	fake := seewebfake.New()
	o := fake.Tuning(t, ".seeweb_cloud/seeweb_keys", "[DEFAULT]\napi_key = "+seewebfake.Token+"\n")
	return fake, func() *Provider { return New(o) }
}

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(func() cloud.Provider { return provider() }, "pubkeys") // those are the account's and stay
		h.Raise = func(_ testing.TB, by float64) { fake.Raise(by) }
		h.Spec, h.Elsewhere = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key}, &elsewhere
		return h
	})
}

// What the fetched price list offers can be rented, and costs what it says.
func TestThePriceListIsOfWhatCanBeRented(t *testing.T) {
	fake, provider := start(t)
	rows, err := fetch.Seeweb{API: fetch.API{Client: &http.Client{Transport: fake}, Token: seewebfake.Token}}.Rows(t.Context())
	if err != nil || len(rows) == 0 {
		t.Fatal(rows, err)
	}
	offers, err := provider().Offers(t.Context())
	if err != nil || len(offers) != len(rows) {
		t.Errorf("%d offers of %d rows, %v", len(offers), len(rows), err)
	}
	cloudtest.PriceList(t, provider(), cloud.AvailableNow, offers)
}

func TestWhatStatesMean(t *testing.T) {
	for status, want := range map[string]vm.State{
		"Booting": vm.Pending, "PoweringOn": vm.Pending, "Booted": vm.Running, "RUNNING": vm.Running, "PoweringOff": vm.Stopping, "Off": vm.Stopped, "Stopped": vm.Stopped, "SHUTOFF": vm.Stopped,
		"Deleting": vm.Ending, "Deleted": vm.Ended, "Terminated": vm.Ended, "odd": vm.Unknown,
	} {
		if m := (server{Status: status}).machine(nil); m.State != want || m.RawState != status {
			t.Errorf("%s: %+v", status, m)
		}
	}
	if m := (server{Status: "Booted", Deleted: new(time.Time)}).machine(nil); m.State != vm.Ended {
		t.Errorf("%+v", m)
	}
}

func TestWhatRefusalsMean(t *testing.T) {
	cloudtest.Refusals(t, here.Place, refusal, refusals("fix"), []cloudtest.Refusal{
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"status": "error", "error_code": 42, "message": "The plan is not available in this region"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"status": "error", "message": "lack of resources"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"status": "error", "message": "No capacity left"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"status": "error", "message": "plan not activatable"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"status": "error", "message": "no host found"}`),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 400, `{"status": "error", "message": "quota exceeded"}`),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 400, `{"status": "error", "message": "limit of servers reached"}`),
		cloudtest.Means[error](vm.Changed, 400, `{"status": "error", "message": "another action is in progress"}`),
		cloudtest.Means[error](vm.Changed, 400, `{"status": "error", "message": "server is already off"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"status": "error", "message": "invalid image"}`),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 400, `{"error": {"error_code": 400, "status": "error", "message": "maximum number of servers reached"}}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 400, `{"detail": "server does not exist"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, `{"status": "error", "message": "Invalid token."}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, ``),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 402, `{"message": "pay"}`),
		cloudtest.Means[*cloud.PermissionError](vm.Refused, 403, `{"message": "forbidden"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, `{"message": "Not found."}`),
		cloudtest.Means[error](vm.Changed, 409, `{"message": "odd"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 422, `{"error": "odd"}`),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 429, ``),
		cloudtest.Means[*rest.Error](vm.Refused, 418, `{"message": "odd"}`),
		cloudtest.Nothing(500, `{"message": "x"}`),
	})
}

func plan(t *testing.T, text string) (p fetch.SeewebPlan) {
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTheImage(t *testing.T) {
	for text, want := range map[string]string{
		`{"gpu": "1", "default_image": "x", "os_availables": [{"name": "ubuntu-2204"}, {"name": "ubuntu-2004-uefi-nvidia-driver"}, {"name": "ubuntu-2204-uefi-nvidia-driver", "active_flag": true}, {"name": "ubuntu-2404-uefi-nvidia-driver", "active_flag": false}]}`: "ubuntu-2204-uefi-nvidia-driver",
		`{"gpu": null, "default_image": "x", "os_availables": [{"name": "ubuntu-2004"}, {"name": "ubuntu-2204"}, {"name": "ubuntu-2204-uefi-nvidia-driver"}, {"name": "windows-2022"}]}`:                                                                                "ubuntu-2204",
		`{"gpu": "1", "default_image": "x", "os_availables": [{"name": "ubuntu-2204"}]}`: "x", `{"os_availables": []}`: "ubuntu-2204",
	} {
		if got := image(plan(t, text)); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

func TestThePriceList(t *testing.T) {
	rows := fetch.SeewebRows([]fetch.SeewebPlan{
		plan(t, `{"name": "ECS1", "cpu": "1", "ram": "1024", "disk": "20", "hourly_price": 0.017, "windows": false, "region_availables": [{"region": "it-fr2"}, {"region": "it-mi2"}]}`),
		plan(t, `{"name": "ECS1GPU11", "cpu": "8", "ram": "65536", "gpu": "1", "gpu_label": "A100 80GB", "hourly_price": 1.89, "region_availables": [{"region": "it-fr2"}]}`),
		plan(t, `{"name": "ECS2GPU7", "cpu": "8", "ram": "65536", "gpu": "2", "gpu_label": "RTX A6000 48GB", "hourly_price": 1.5, "region_availables": [{"region": "it-mi2"}]}`),
		plan(t, `{"name": "A30", "cpu": "8", "ram": "65536", "gpu": "1", "gpu_label": "A30", "hourly_price": 1, "region_availables": [{"region": "it-mi2"}]}`),
		plan(t, `{"name": "AMD", "cpu": "8", "ram": "65536", "gpu": "1", "gpu_label": "MI300X", "hourly_price": 1, "region_availables": [{"region": "it-mi2"}]}`),
		plan(t, `{"name": "WIN", "cpu": "8", "ram": "65536", "windows": true, "hourly_price": 1, "region_availables": [{"region": "it-mi2"}]}`),
	})
	var got []string
	for _, r := range rows {
		got = append(got, r.InstanceType+" "+r.Region+" "+r.Accelerator)
	}
	if want := "ECS1 it-fr2 |ECS1 it-mi2 |ECS1GPU11 it-fr2 A100-80GB|ECS2GPU7 it-mi2 RTXA6000|A30 it-mi2 A30"; strings.Join(got, "|") != want {
		t.Errorf("%q", got)
	}
	if r := rows[3]; r.Count != 2 || r.DeviceMiB != 48*1024 || r.MemoryGiB != 64 || r.CPUs != 8 || r.Price != 1.5 {
		t.Errorf("%+v", r)
	}
}

func TestCredentials(t *testing.T) {
	home := t.TempDir()
	_, err := New(Options{Home: home}).Check(t.Context())
	var auth *cloud.AuthError
	if !errors.As(err, &auth) || !auth.NotSetUp || !strings.Contains(auth.Fix, "~/.seeweb_cloud/seeweb_keys") {
		t.Error(err)
	}
	cloudtest.HomeFile(t, home, ".seeweb_cloud/seeweb_keys", "[DEFAULT]\napi_key = k\n")
	if keys, err := New(Options{Home: home}).Read(); err != nil || keys["api_key"] != "k" {
		t.Errorf("%v, %v", keys, err)
	}
}
