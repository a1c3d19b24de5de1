package paperspace

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/paperspace/paperspacefake"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "East Coast (NY2)"}, InstanceType: "A4000", CPUs: 8, MemoryGiB: 45, HourlyPrice: 0.76}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "Europe (AMS1)"}, InstanceType: "A4000", CPUs: 8, MemoryGiB: 45, HourlyPrice: 0.76}
)

func start(t testing.TB) (*paperspacefake.Fake, func() *Provider) {
	fake := paperspacefake.New()
	o := fake.Tuning(t, ".paperspace/config.json", `{"apiKey": "`+paperspacefake.Key+`"}`)
	return fake, func() *Provider { return New(o) }
}

func launch(name string) cloud.LaunchSpec { return cloudtest.Cluster(here, name) }

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(func() cloud.Provider { return provider() }, "scripts") // those are the account's and stay
		h.Spec, h.Elsewhere = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key}, &elsewhere
		h.Fill = func(_ testing.TB, o cloud.Offer, left int) { fake.Fill(code(o.Region), o.InstanceType, left) }
		h.Quota = func(_ testing.TB, o cloud.Offer, left int) { fake.Quota(code(o.Region), left) }
		return h
	})
}

// All clusters of a cloudtest.Key share a script, which is taken by a shell.
func TestTheStartupScript(t *testing.T) {
	fake, provider := start(t)
	p := provider()
	for _, name := range []string{"web", "web2"} {
		if err := p.Prepare(t.Context(), launch(name)); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Launch(t.Context(), launch(name)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(fake.Things("scripts")); n != 1 {
		t.Fatalf("%d scripts", n)
	}
	inside := launch("web3") // a container
	inside.Images = []cloud.ImageChoice{{By: map[string]string{"": "docker:ubuntu"}}}
	if _, err := p.Launch(t.Context(), inside); err != nil {
		t.Fatal(err)
	}
	for n, script := range fake.Things("scripts") {
		text := script["script"].(string)
		c := exec.Command("sh", "-n")
		c.Stdin = strings.NewReader(text)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if dockerFirst := strings.Index(text, "get.docker") < strings.Index(text, "su - paperspace"); dockerFirst != (n == 1) || strings.Contains(text, "start ssh") != dockerFirst {
			t.Errorf("script %d:\n%s", n, text)
		}
	}
}

func TestWhatMachinesAreMadeOf(t *testing.T) {
	fake, provider := start(t)
	spec := launch("web")
	spec.Offer.InstanceType, spec.DiskGB = "H100x8", 600
	nodes, err := provider().Launch(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if a := fake.Asked(nodes[0].ID); a["diskSize"] != 1000.0 || a["enableNvlink"] != true || a["region"] != "ny2" || nodes[0].Place.Region != "East Coast (NY2)" {
		t.Errorf("%v, %+v", a, nodes[0].Place)
	}
	spec.DiskGB = 2001
	var invalid *cloud.InvalidError
	if _, err := provider().Launch(t.Context(), spec); !errors.As(err, &invalid) {
		t.Error(err)
	}
	for machine, want := range map[string]string{"C5": "t0nspur5", "H100": "tilqt47t", "A100-80G": "tqqsxr6b", "A100-80Gx8": "tvimtol9", "V100-32Gx4": "twnlo3zj", "GPU+": "twnlo3zj", "P4000x2": "twnlo3zj", "X": ""} {
		if got, _ := template(machine); got != want {
			t.Errorf("%s: %q", machine, got)
		}
	}
}

// A network that was left in another region is not taken for the cluster's.
func TestANetworkOfAnotherRegion(t *testing.T) {
	fake, provider := start(t)
	p := provider()
	spec := launch("web")
	for _, o := range []cloud.Offer{elsewhere, here} {
		spec.Offer = o
		if err := p.Prepare(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Launch(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if err := p.Terminate(t.Context(), spec.ID); err != nil {
		t.Error(err)
	}
	if left := slices.DeleteFunc(fake.Inventory(), func(line string) bool { return strings.HasPrefix(line, "scripts ") }); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestWhatStatesMean(t *testing.T) {
	fake, provider := start(t)
	cloudtest.States(t, provider(), cloudtest.Cluster(here, "web"), fake.Lie, fake.Restore, map[string]cloud.NodeState{
		"provisioning": cloud.NodePending, "serviceready": cloud.NodePending, "starting": cloud.NodePending, "restarting": cloud.NodePending, "upgrading": cloud.NodePending, "ready": cloud.NodeRunning, "running": cloud.NodeRunning,
		"stopping": cloud.NodeStopping, "off": cloud.NodeStopped, "odd": "", "": "",
	})
}

func TestWhatRefusalsMean(t *testing.T) {
	cloudtest.Refusals(t, here.Place, rest.ReadError, refusals("fix"), []cloudtest.Refusal{
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, said("BAD_REQUEST", "We are currently out of capacity for the selected machine type.")),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 400, said("BAD_REQUEST", "You have reached the limit of this machine type for your team.")),
		cloudtest.Means[*rest.Error](vm.Changed, 400, said("BAD_REQUEST", "This machine is currently starting.")),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, said("BAD_REQUEST", "region: there is no \\\"x\\\"")),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, said("BAD_REQUEST", "the machine type x is not available for the template t")),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, said("BAD_REQUEST", "something else")),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, said("UNAUTHORIZED", "x")),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 402, said("PAYMENT_REQUIRED", "x")),
		cloudtest.Means[*cloud.PermissionError](vm.Refused, 403, said("FORBIDDEN", "x")),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, said("NOT_FOUND", "Machine not found")),
		cloudtest.Means[*rest.Error](vm.Busy, 409, said("CONFLICT", "the private network has machines")),
		cloudtest.Means[*rest.Error](vm.Changed, 412, said("PRECONDITION_FAILED", "x")),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 413, said("PAYLOAD_TOO_LARGE", "x")),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 422, said("UNPROCESSABLE_CONTENT", "x")),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 429, said("TOO_MANY_REQUESTS", "x")),
		cloudtest.Means[*cloud.UnreachableError](vm.Lost, 408, said("TIMEOUT", "x")),
		cloudtest.Means[*cloud.UnreachableError](vm.Lost, 499, said("CLIENT_CLOSED_REQUEST", "x")),
	})
}

// said is a refusal in Paperspace's form.
func said(code, message string) string { return `{"code":"` + code + `","message":"` + message + `"}` }
