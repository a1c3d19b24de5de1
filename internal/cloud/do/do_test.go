package do

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/do/dofake"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "nyc2"}, InstanceType: "gpu-h100x1-80gb", CPUs: 20, MemoryGiB: 240, HourlyPrice: 3.39}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "tor1"}, InstanceType: "gpu-h100x1-80gb", CPUs: 20, MemoryGiB: 240, HourlyPrice: 3.39}
)

// start is a cloud, and how to make providers over it.
func start(t testing.TB) (*dofake.Fake, func(o Options) *Provider) {
	fake := dofake.New()
	t.Cleanup(fake.Restore)
	home := t.TempDir()
	cloudtest.HomeFile(t, home, ".config/doctl/config.yaml", "access-token: "+dofake.Token+"\n")
	return fake, func(o Options) *Provider {
		o.Home, o.Transport = home, fake
		return New(o)
	}
}

var quick = Options{Poll: 100 * time.Millisecond, Paces: []rest.Pace{}, Busy: -1}

func launch(name string) cloud.LaunchSpec { return cloudtest.Cluster(here, name) }

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(func() cloud.Provider { return provider(quick) }, "keys") // those are the account's and stay
		h.Raise = func(_ testing.TB, by float64) { fake.Raise(by) }
		h.Spec, h.Elsewhere = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key}, &elsewhere
		h.Limited = func(testing.TB) (cloud.Provider, func() int) {
			fake.Limit()
			return provider(Options{Busy: -1}), fake.Over
		}
		return h
	})
}

// Calls that are made as soon as the minute's limit lets them keep the hour's, too.
func TestTheLimitOfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		fake.Limit()
		p := provider(Options{Busy: -1})
		for began := time.Now(); time.Since(began) < 70*time.Minute; {
			if _, err := p.Nodes(t.Context(), cloud.ClusterID{Installation: "i", Name: "c"}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestCredentials(t *testing.T) {
	for config, want := range map[string]string{
		"access-token: " + dofake.Token + "\n":                                           "",
		"auth-contexts:\n  default: true\n  team: " + dofake.Token + "\ncontext: team\n": "",
		"access-token: \"\"\nauth-contexts:\n  team: " + dofake.Token + "\n":             "",
		"auth-contexts: {}\n":      "access-token",
		"access-token: dop_v1_x\n": "unauthorized",
	} {
		home := t.TempDir()
		cloudtest.HomeFile(t, home, ".config/doctl/config.yaml", config)
		who, err := New(Options{Transport: dofake.New(), Home: home}).Check(t.Context())
		var auth *cloud.AuthError
		if want == "" && (err != nil || !strings.Contains(who[0], "ann@example.com")) || want != "" && (!errors.As(err, &auth) || !strings.Contains(err.Error(), want) || !strings.Contains(auth.Fix, "doctl")) {
			t.Errorf("%q: %v, %v", config, who, err)
		}
	}
}

func TestCrashesWithVolumes(t *testing.T) {
	cloudtest.Crashes(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(func() cloud.Provider { return provider(quick) }, "keys")
		h.Spec = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key, MachineSpec: cloud.MachineSpec{DiskGB: 2000}}
		return h
	})
}

// A droplet whose own disk is too small has a volume, which goes with the cluster, and
// which what a launch left half done does not make twice.
func TestADiskThatIsTooSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		p := provider(quick)
		spec := launch("web")
		spec.DiskGB = 2000
		if _, err := p.Launch(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		volumes := func() []string {
			return slices.DeleteFunc(fake.Inventory(), func(line string) bool { return !strings.HasPrefix(line, "volumes ") })
		}
		fake.Cloud.Kill(fake.Cloud.Machines()[0].ID, "broken")
		time.Sleep(time.Second)
		if _, err := p.Launch(t.Context(), spec); err != nil || len(volumes()) != 1 {
			t.Errorf("%v, %v", volumes(), err)
		}
		if err := p.Terminate(t.Context(), spec.ID); err != nil || len(volumes()) > 0 {
			t.Errorf("left: %v, %v", volumes(), err)
		}
	})
}

// stubborn droplets do not shut down.
type stubborn struct {
	http.RoundTripper
	shutdowns, offs atomic.Int32
}

func (s *stubborn) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/actions") {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if strings.Contains(string(body), "shutdown") {
			s.shutdowns.Add(1)
			return &http.Response{StatusCode: http.StatusCreated, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
		}
		s.offs.Add(1)
	}
	return s.RoundTripper.RoundTrip(r)
}

// A droplet that does not shut down is switched off, and people are told what being off
// costs.
func TestADropletThatDoesNotShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		s := &stubborn{RoundTripper: fake}
		p := New(Options{Home: provider(quick).Home, Transport: s, Poll: time.Second, Paces: []rest.Pace{}})
		spec := launch("web")
		if _, err := p.Launch(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		var told []string
		if err := p.Stop(cloud.WithNotes(t.Context(), func(text string) { told = append(told, text) }), spec.ID); err != nil {
			t.Fatal(err)
		}
		if s.shutdowns.Load() < 2 || s.offs.Load() != 1 || len(told) == 0 || !strings.Contains(told[0], "sky down") {
			t.Errorf("shut down %d times, switched off %d times, said %q", s.shutdowns.Load(), s.offs.Load(), told)
		}
		if err := p.Terminate(t.Context(), spec.ID); err != nil {
			t.Error(err)
		}
	})
}

// What DigitalOcean says has one code as a rule: its texts tell.
func TestWhatStatesMean(t *testing.T) {
	for status, want := range map[string][2]vm.State{ // and while something is being done to it
		"new": {vm.Pending, vm.Pending}, "active": {vm.Running, vm.Stopping}, "off": {vm.Stopped, vm.Pending}, "archive": {vm.Stopped, vm.Pending}, "odd": {vm.Unknown, vm.Unknown}, "": {vm.Unknown, vm.Unknown},
	} {
		if got := [2]vm.State{droplet{Status: status}.state(), droplet{Status: status, Locked: true}.state()}; got != want {
			t.Errorf("%q: %v", status, got)
		}
	}
}

func TestWhatRefusalsMean(t *testing.T) {
	cloudtest.Refusals(t, here.Place, refusal, refusals("fix"), []cloudtest.Refusal{
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, said("unauthorized", "Unable to authenticate you")),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 402, said("payment_required", "x")),
		cloudtest.Means[*cloud.PermissionError](vm.Refused, 403, said("forbidden", "You are not authorized to perform this operation")),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, said("not_found", "The resource you requested could not be found.")),
		cloudtest.Means[*rest.Error](vm.Busy, 409, said("conflict", "attached volume cannot be deleted")),
		cloudtest.Means[*rest.Error](vm.Changed, 412, said("precondition_failed", "x")),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 422, said("unprocessable_entity", "Size is not available in this region.")),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 422, said("unprocessable_entity", "creating this/these droplet(s) will exceed your droplet limit")),
		cloudtest.Means[*rest.Error](vm.Changed, 422, said("unprocessable_entity", "Droplet already has a pending event.")),
		cloudtest.Means[*rest.Error](vm.Changed, 422, said("unprocessable_entity", "Droplet is already powered on.")),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 422, said("unprocessable_entity", "You specified an invalid region for Droplet creation.")),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 422, said("unprocessable_entity", "You specified an invalid size for Droplet creation.")),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 422, said("unprocessable_entity", "You specified an invalid image for Droplet creation.")),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 422, said("unprocessable_entity", "something else")),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 429, said("too_many_requests", "API Rate limit exceeded.")),
		cloudtest.Nothing(500, `{"id":"server_error","message":"Unexpected server-side error"}`),
		cloudtest.Nothing(503, `{"id":"server_error","message":"Unexpected server-side error"}`),
	})
}

// said is a refusal in DigitalOcean's form.
func said(id, message string) string { return `{"id":"` + id + `","message":"` + message + `"}` }

func TestImages(t *testing.T) {
	for size, want := range map[string]any{"s-4vcpu-8gb": "gpu-h100x1-base", "gpu-h100x1-80gb": "gpu-h100x1-base", "gpu-h100x8-640gb": "gpu-h100x8-base", "gpu-mi300x8-1536gb": "gpu-amd-base"} {
		if got := image(cloud.LaunchSpec{Offer: cloud.Offer{InstanceType: size}}); got != want {
			t.Errorf("%s starts from %v", size, got)
		}
	}
	for id, want := range map[string]any{"63663980": 63663980, "ubuntu-22-04-x64": "ubuntu-22-04-x64"} {
		if got := image(cloud.LaunchSpec{ImageID: id}); got != want {
			t.Errorf("%s: %v", id, got)
		}
	}
}

// What the fetched price list offers can be rented.
func TestThePriceListIsOfWhatCanBeRented(t *testing.T) {
	fake, provider := start(t)
	rows, err := fetch.DigitalOcean{API: fetch.API{Client: &http.Client{Transport: fake}, Token: dofake.Token}}.Rows(t.Context())
	if err != nil || len(rows) == 0 {
		t.Fatal(rows, err)
	}
	for _, r := range rows {
		o := cloud.Offer{Place: cloud.Place{Cloud: Name, Region: r.Region}, InstanceType: r.InstanceType}
		if a, err := provider(quick).Available(t.Context(), o, 1); err != nil || a.Verdict != cloud.AvailableNow || r.Price <= 0 || r.Accelerator == "H100" && r.DeviceMiB <= 0 {
			t.Errorf("%+v: %v, %v", r, a, err)
		}
	}
}
