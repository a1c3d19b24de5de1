package runpod

import (
	"encoding/base64"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/runpod/runpodfake"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/registry"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "CZ", Zone: "EU-CZ-1"}, InstanceType: "1x_RTX4090_SECURE", CPUs: 8, MemoryGiB: 32, HourlyPrice: 0.69}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "US", Zone: "US-KS-2"}, InstanceType: "1x_RTX4090_SECURE", CPUs: 8, MemoryGiB: 32, HourlyPrice: 0.69}
)

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJvn8zhV7YgJpPZK1f2sYd4eVMOy6l3vLx7i7mWn3yQd test"

func start(t testing.TB) (*runpodfake.Fake, func() cloud.Provider) {
	fake := runpodfake.New()
	o := fake.Tuning(t, ".runpod/config.toml", "[default]\napi_key = \""+runpodfake.Key+"\"\n")
	return fake, func() cloud.Provider { return New(o) }
}

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(provider)
		h.Raise = func(_ testing.TB, by float64) { fake.Raise(by) }
		h.Spec, h.Elsewhere = cloud.LaunchSpec{Offer: elsewhere, AuthorizedKey: key}, &here
		h.Beside = cloudtest.In(elsewhere, "US-GA-2")
		h.Fill = func(_ testing.TB, o cloud.Offer, left int) {
			fake.Fill(o.Zone, runpodfake.Type("NVIDIA GeForce RTX 4090", 1), left)
		}
		h.Quota = nil // the reference tells of none
		return h
	})
}

// A pod has its ports from the beginning, and they are reached at others.
func TestPortsAreMapped(t *testing.T) {
	_, provider := start(t)
	p := provider()
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: here, Nodes: 1, Token: "t", AuthorizedKey: key, Ports: []string{"8080-8081"}}
	nodes, err := p.Launch(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if r := nodes[0].Reach; r.Port == 22 || r.Host == "" {
		t.Errorf("ssh at %+v", r)
	}
	e, _ := cloud.As[cloud.Endpointer](p)
	at, why, err := e.Endpoints(t.Context(), spec.ID, []int{8080, 9000})
	if err != nil || !strings.HasPrefix(at[8080], nodes[0].ExternalIP+":3") || at[9000] != "" || why == "" {
		t.Errorf("%v, %q, %v", at, why, err)
	}
	o, _ := cloud.As[cloud.PortOpener](p)
	if err := o.OpenPorts(t.Context(), spec.ID, []string{"8081"}); err != nil {
		t.Error(err)
	}
	var invalid *cloud.InvalidError
	if err := o.OpenPorts(t.Context(), spec.ID, []string{"9000"}); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "launch it anew") {
		t.Error(err)
	}
}

func TestCrashesWithALoginToARegistry(t *testing.T) {
	cloudtest.Crashes(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(provider)
		h.Spec = cloud.LaunchSpec{Offer: here, AuthorizedKey: key, ImageID: "docker:team/tool", Login: &registry.Login{Username: "ann", Password: "secret", Server: "ghcr.io"}}
		return h
	})
}

// The login to an image's registry is made before the pod and goes with the cluster.
func TestALoginToARegistryGoesWithTheCluster(t *testing.T) {
	fake, provider := start(t)
	p := provider()
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: here, Nodes: 1, Token: "t", AuthorizedKey: key,
		ImageID: "docker:team/tool", Login: &registry.Login{Username: "ann", Password: "secret", Server: "ghcr.io"}}
	for range 2 {
		if err := p.Prepare(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Launch(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	has := slices.ContainsFunc(fake.Inventory(), func(line string) bool { return strings.HasPrefix(line, "registries web-") })
	if err := p.Terminate(t.Context(), spec.ID); err != nil || !has || len(fake.Inventory()) > 0 {
		t.Errorf("%v; there was one: %t; left: %v", err, has, fake.Inventory())
	}
}

func TestWhatStatesMean(t *testing.T) {
	fake, provider := start(t)
	cloudtest.States(t, provider(), cloudtest.Cluster(here, "web"), fake.Lie, fake.Restore, map[string]cloud.NodeState{
		"PROVISIONING": cloud.NodePending, "STARTING": cloud.NodePending, "ERROR": cloud.NodePending, "RUNNING": cloud.NodeRunning,
		"EXITED": cloud.NodeStopped, "TERMINATED": cloud.NodeGone, "odd": "", "": "",
	})
}

// RunPod has no codes, and its texts are for people: statuses tell.
func TestWhatRefusalsMean(t *testing.T) {
	cloudtest.Refusals(t, here.Place, rest.ReadError, New(Options{}).Refusals, []cloudtest.Refusal{
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"title": "Bad Request", "detail": "There are no instances available with the requested specifications"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, `{"title": "Unauthorized"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 402, `{"title": "Payment Required"}`),
		cloudtest.Means[*cloud.PermissionError](vm.Refused, 403, `{"title": "Forbidden"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, `{"title": "Not Found"}`),
		cloudtest.Means[*rest.Error](vm.Busy, 409, `{"title": "Conflict"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 422, `{"title": "Unprocessable Entity", "detail": "gpu.count"}`),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 429, `{"title": "Too Many Requests"}`),
		cloudtest.Means[*rest.Error](vm.Refused, 418, `{"title": "odd"}`),
		cloudtest.Nothing(500, `{"title": "Internal Server Error"}`),
	})
}

func TestWithoutCredit(t *testing.T) {
	fake, provider := start(t)
	fake.Inject(model.Fault{Kind: model.Fail, Code: runpodfake.Poor})
	var auth *cloud.AuthError
	if _, err := provider().Check(t.Context()); !errors.As(err, &auth) || !strings.Contains(auth.Fix, "billing") {
		t.Error(err)
	}
}

func TestTypesAndPlaces(t *testing.T) {
	for name, want := range map[string]string{
		"1x_RTX4090_SECURE": "1 NVIDIA GeForce RTX 4090", "2x_RTX3080Ti_COMMUNITY": "2 NVIDIA GeForce RTX 3080 Ti", "1x_RTX4080SUPER_SECURE": "1 NVIDIA GeForce RTX 4080 SUPER",
		"8x_H100-SXM_SECURE": "8 NVIDIA H100 80GB HBM3", "1x_RTXA6000_SECURE": "1 NVIDIA RTX A6000", "1x_RTX6000-Ada_SECURE": "1 NVIDIA RTX 6000 Ada Generation",
		"1x_X_SECURE": "", "x_L4_SECURE": "", "1x_L4": "", "L4": "",
	} {
		id, n, _, err := gpuOf(name)
		if got := runpodfake.Type(id, n); (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	for dataCenter, want := range map[string]string{"EU-CZ-1": "CZ", "US-KS-2": "US", "CA-MTL-1": "CA", "EUR-IS-1": "IS", "AP-JP-1": "JP"} {
		if got := region(dataCenter); got != want {
			t.Errorf("%s is in %s, not %s", dataCenter, got, want)
		}
	}
}

// What a pod runs is taken by a shell, and lets the key in.
func TestTheStartOfAPod(t *testing.T) {
	fake, provider := start(t)
	spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: "i", Name: "web", Hash: "h"}, Offer: here, Nodes: 1, Token: "t", AuthorizedKey: key}
	nodes, err := provider().Launch(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	args := fake.Asked(nodes[0].ID)["args"].(string)
	encoded := strings.Fields(args)[3]
	script, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !strings.Contains(string(script), key) || !strings.HasPrefix(args, "sh -c 'echo ") {
		t.Fatalf("%q: %v", args, err)
	}
	c := exec.Command("sh", "-n")
	c.Stdin = strings.NewReader(string(script))
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
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
	gone.Zone = "nowhere"
	if a, err := provider().(cloud.AvailabilityProber).Available(t.Context(), gone, 1); a.Stock != "" || err == nil {
		t.Errorf("%+v, %v", a, err)
	}
}
