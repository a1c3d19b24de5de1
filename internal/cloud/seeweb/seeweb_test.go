package seeweb

import (
	"encoding/json"
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
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/seeweb/seewebfake"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "it-mi2"}, InstanceType: "ECS1GPU6", CPUs: 4, MemoryGiB: 32, HourlyPrice: 0.38}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "it-fr2"}, InstanceType: "ECS1GPU6", CPUs: 4, MemoryGiB: 32, HourlyPrice: 0.38}
)

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJvn8zhV7YgJpPZK1f2sYd4eVMOy6l3vLx7i7mWn3yQd test"

func start(t testing.TB) (*seewebfake.Fake, func() *Provider) {
	fake := seewebfake.New()
	t.Cleanup(fake.Restore)
	home := t.TempDir()
	write(t, home, "[DEFAULT]\napi_key = "+seewebfake.Token+"\n")
	return fake, func() *Provider {
		return New(Options{Home: home, Transport: fake, Poll: 100 * time.Millisecond, Busy: -1})
	}
}

func write(t testing.TB, home, keys string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(home, ".seeweb_cloud"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".seeweb_cloud", "seeweb_keys"), []byte(keys), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(func() cloud.Provider { return provider() }, "pubkeys") // those are the account's and stay
		h.Spec, h.Elsewhere = cloud.LaunchSpec{Offer: here, AuthorizedKey: key}, &elsewhere
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
	for _, o := range offers {
		if a, err := provider().Available(t.Context(), o, 1); err != nil || a.Verdict != cloud.AvailableNow {
			t.Errorf("%+v: %v, %v", o, a, err)
		}
		o.HourlyPrice /= 2
		if a, err := provider().Available(t.Context(), o, 1); err != nil || a.Verdict != cloud.AvailableNone || !strings.Contains(a.Reason, "rose") {
			t.Errorf("%+v: %v, %v", o, a, err)
		}
	}
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
	for _, tt := range []struct {
		status int
		body   string
		want   func(error) bool
		kind   vm.Kind
	}{
		{400, `{"status": "error", "error_code": 42, "message": "The plan is not available in this region"}`, is[*cloud.CapacityError], vm.Refused},
		{400, `{"status": "error", "message": "lack of resources"}`, is[*cloud.CapacityError], vm.Refused}, {400, `{"status": "error", "message": "No capacity left"}`, is[*cloud.CapacityError], vm.Refused},
		{400, `{"status": "error", "message": "plan not activatable"}`, is[*cloud.CapacityError], vm.Refused}, {400, `{"status": "error", "message": "no host found"}`, is[*cloud.CapacityError], vm.Refused},
		{400, `{"status": "error", "message": "quota exceeded"}`, is[*cloud.QuotaError], vm.Refused}, {400, `{"status": "error", "message": "limit of servers reached"}`, is[*cloud.QuotaError], vm.Refused},
		{400, `{"status": "error", "message": "another action is in progress"}`, is[error], vm.Changed}, {400, `{"status": "error", "message": "server is already off"}`, is[error], vm.Changed},
		{400, `{"status": "error", "message": "invalid image"}`, is[*cloud.InvalidError], vm.Refused}, {400, `{"error": {"error_code": 400, "status": "error", "message": "maximum number of servers reached"}}`, is[*cloud.QuotaError], vm.Refused}, {400, `{"detail": "server does not exist"}`, is[*cloud.InvalidError], vm.Missing},
		{401, `{"status": "error", "message": "Invalid token."}`, is[*cloud.AuthError], vm.Refused}, {401, ``, is[*cloud.AuthError], vm.Refused}, {402, `{"message": "pay"}`, is[*cloud.AuthError], vm.Refused},
		{403, `{"message": "forbidden"}`, is[*cloud.PermissionError], vm.Refused}, {404, `{"message": "Not found."}`, is[*cloud.InvalidError], vm.Missing},
		{409, `{"message": "odd"}`, is[error], vm.Changed}, {422, `{"error": "odd"}`, is[*cloud.InvalidError], vm.Refused}, {429, ``, is[*cloud.ThrottledError], vm.Refused}, {418, `{"message": "odd"}`, is[*rest.Error], vm.Refused},
	} {
		err := refusal(tt.status, nil, []byte(tt.body))
		r := refusals("fix")
		if got := r.Refusal(t.Context(), here.Place, err); err == nil || !tt.want(got) || r.Kind(err) != tt.kind {
			t.Errorf("%d %s: %T (%v), %v", tt.status, tt.body, got, got, r.Kind(err))
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
	write(t, home, "[DEFAULT]\napi_key = k\n")
	if keys, err := New(Options{Home: home}).Read(); err != nil || keys["api_key"] != "k" {
		t.Errorf("%v, %v", keys, err)
	}
}
