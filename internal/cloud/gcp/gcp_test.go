package gcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cloud/gcp/gcpfake"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/googleauth"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "us-central1", Zone: "us-central1-a"}, InstanceType: "n2-standard-2", CPUs: 2, MemoryGiB: 8, HourlyPrice: 0.1}
	spot      = cloud.Offer{Place: here.Place, InstanceType: "n2-standard-2", CPUs: 2, MemoryGiB: 8, HourlyPrice: 0.03, Spot: true}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "us-east1", Zone: "us-east1-b"}, InstanceType: "n2-standard-2", CPUs: 2, MemoryGiB: 8, HourlyPrice: 0.1}
)

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJvn8zhV7YgJpPZK1f2sYd4eVMOy6l3vLx7i7mWn3yQd test"

// home is a folder with a user's login, and the environment of it.
func home(t testing.TB, set func(name, value string)) {
	t.Helper()
	for _, name := range []string{"CLOUDSDK_CONFIG", "CLOUDSDK_CORE_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_ACTIVE_CONFIG_NAME", "GCE_METADATA_HOST", vm.EndpointVariable(Name)} {
		set(name, "")
	}
	dir := t.TempDir()
	text, err := json.Marshal(map[string]string{"type": googleauth.User, "client_id": gcpfake.ClientID, "client_secret": gcpfake.ClientSecret, "refresh_token": gcpfake.RefreshToken})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "login.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	set("HOME", dir)
	set("GOOGLE_APPLICATION_CREDENTIALS", path)
	set("GOOGLE_CLOUD_PROJECT", gcpfake.Project)
}

// quick are the options of tests that are about something else than the time.
var quick = Options{Poll: 100 * time.Millisecond, Paces: []rest.Pace{}, Busy: -1}

// shared are what stays when clusters go.
var shared = []string{"networks", "firewalls skypilot-vpc-allow-custom", "firewalls skypilot-vpc-allow-ssh", "firewalls skypilot-vpc-allow-icmp", "serviceAccounts"}

// armed is a provider whose machines have agents, which know what they are to do when
// they power off.
type armed struct {
	*Provider
	ends *bool
}

func (p armed) WhenOff(ctx context.Context, id cloud.ClusterID, ends bool) error {
	*p.ends = ends
	return p.Provider.WhenOff(ctx, id, ends)
}

// seed makes a machine of a cluster that nobody launched.
func seed(t testing.TB, fake *gcpfake.Fake, id cloud.ClusterID) {
	t.Helper()
	spec := cloud.LaunchSpec{ID: id, Offer: here, AuthorizedKey: key}
	p := &plan{subnet: subnet{URL: "regions/us-central1/subnetworks/default"}, image: image{url: plain(here)[0]}}
	text, err := json.Marshal(map[string]any{"count": "1", "perInstanceProperties": map[string]any{names.Of(id, 0): map[string]any{}}, "instanceProperties": p.properties(spec, share{})})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", fmt.Sprintf("https://compute.googleapis.com/compute/v1/projects/%s/zones/%s/instances/bulkInsert", gcpfake.Project, here.Zone), strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+fake.Token())
	r.Header.Set("Content-Type", "application/json")
	if answer, err := fake.RoundTrip(r); err != nil || answer.StatusCode != 200 {
		t.Fatalf("%v, %v", answer, err)
	}
}

// halt is what a machine does that powers off. One that its agent ends runs the script
// that it has from its metadata, which deletes it.
func halt(t testing.TB, fake *gcpfake.Fake, n cloud.Node, ends bool) {
	t.Helper()
	fake.Halt(n.ID)
	if !ends {
		return
	}
	text, err := json.Marshal(fake.Body(n.ID))
	if err != nil || !strings.Contains(string(text), cloud.EndMark) || !strings.Contains(string(text), accountID+"@") {
		t.Fatalf("the machine has no script that ends it, or no account to do it with: %s, %v", text, err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "DELETE", fmt.Sprintf("https://compute.googleapis.com/compute/v1/projects/%s/zones/%s/instances/%s", gcpfake.Project, n.Place.Zone, n.ID), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+fake.Token())
	if answer, err := fake.RoundTrip(r); err != nil || answer.StatusCode != 200 {
		t.Fatalf("deleting %s: %v, %v", n.ID, answer, err)
	}
}

func over(fake *gcpfake.Fake, o Options) *Provider {
	o.Transport = fake
	return New(o)
}

func TestConformance(t *testing.T) {
	home(t, t.Setenv)
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake := gcpfake.New()
		ends := false
		h := fake.Harness(func() cloud.Provider { return armed{over(fake, quick), &ends} }, shared...)
		h.Halt = func(t testing.TB, n cloud.Node) { halt(t, fake, n, ends) }
		h.Seed = func(t testing.TB, id cloud.ClusterID) { seed(t, fake, id) }
		h.Spec, h.Spot, h.Elsewhere = cloud.LaunchSpec{Offer: here, AuthorizedKey: key}, &spot, &elsewhere
		h.Beside = cloudtest.In(here, "us-central1-b")
		h.Limited = func(testing.TB) (cloud.Provider, func() int) {
			fake.Limit()
			return over(fake, Options{Busy: -1}), fake.Over
		}
		return h
	})
}

// unstoppable is a provider of slices of several machines, which cannot be off.
type unstoppable struct {
	cloud.Provider
	cloud.PortOpener
}

func (p unstoppable) Features() cloud.Features {
	f := p.Provider.Features()
	f.Lacks = maps.Clone(f.Lacks)
	f.Lacks[cloud.FeatureStop], _ = cloud.LackingSlice(2, cloud.FeatureStop)
	return f
}

func TestConformanceOfTPUs(t *testing.T)  { conformTPUs(t, "tpu-v5litepod-8", false) }
func TestConformanceOfPods(t *testing.T)  { conformTPUs(t, "tpu-v5litepod-16", false) }
func TestConformanceOfQueue(t *testing.T) { conformTPUs(t, "tpu-v5litepod-16", true) }

func conformTPUs(t *testing.T, name string, queued bool) {
	home(t, t.Setenv)
	tpu := cloud.Offer{Place: here.Place, InstanceType: tpuMachine, CPUs: 96, MemoryGiB: 334, Accelerators: map[string]float64{name: 1}, HourlyPrice: 9}
	if hosts := facts.TPUHosts(name); hosts > 1 {
		tpu.Hosts = hosts
	}
	spot, elsewhere := tpu, tpu
	spot.Spot = true
	elsewhere.Place = cloud.Place{Cloud: Name, Region: "us-west4", Zone: "us-west4-a"}
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake := gcpfake.New()
		h := fake.Harness(func() cloud.Provider {
			if tpu.Hosts > 1 {
				p := over(fake, quick)
				return unstoppable{p, p}
			}
			return over(fake, quick)
		}, shared...)
		h.Spec, h.Spot, h.Elsewhere = cloud.LaunchSpec{Offer: tpu, AuthorizedKey: key, MachineSpec: cloud.MachineSpec{TPUQueued: queued}}, &spot, &elsewhere
		h.Unprotected = "the rule for ports can go before them"
		// What the fake says of these is about Compute Engine's machines, or in no form of this API's.
		if queued { // which waits in a full zone
			h.Fill = nil
		}
		h.Halt, h.Odd, h.Bare, h.OpenPorts, h.Quota = nil, nil, nil, nil, nil
		return h
	})
}

// Machines with GPUs that a managed instance group makes, which cannot be off, keep the
// contract, too.
func TestConformanceOfGroups(t *testing.T) {
	home(t, t.Setenv)
	gpu := cloud.Offer{Place: here.Place, InstanceType: "g2-standard-4", CPUs: 4, MemoryGiB: 16, Accelerators: map[string]float64{"L4": 1}, HourlyPrice: 0.7}
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake := gcpfake.New()
		h := fake.Harness(func() cloud.Provider {
			o := quick
			o.Settings = func() Settings { return Settings{RunSeconds: 7200, WaitSeconds: 30} }
			p := over(fake, o)
			return unstoppable{p, p}
		}, shared...)
		h.Spec = cloud.LaunchSpec{Offer: gpu, AuthorizedKey: key, ImageID: plain(here)[0]}
		h.Halt = nil // it stays off
		return h
	})
}
