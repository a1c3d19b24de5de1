package oci

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/oci/ocifake"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

const (
	flexible = "VM.Standard.E4.Flex$_4_16"
	key      = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJvn8zhV7YgJpPZK1f2sYd4eVMOy6l3vLx7i7mWn3yQd test"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "us-phoenix-1", Zone: "PHX-AD-1"}, InstanceType: flexible, CPUs: 4, MemoryGiB: 16, HourlyPrice: 0.074}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "us-ashburn-1", Zone: "US-ASHBURN-AD-1"}, InstanceType: flexible, CPUs: 4, MemoryGiB: 16, HourlyPrice: 0.074}
)

func start(t testing.TB) (*ocifake.Fake, func() cloud.Provider) {
	t.Setenv("OCI_CLI_PROFILE", "")
	fake := ocifake.New()
	t.Cleanup(fake.Restore)
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".oci"), 0o700); err != nil {
		t.Fatal(err)
	}
	config, pem := ocifake.Config("~/.oci/key.pem")
	for name, text := range map[string][]byte{"config": []byte(config), "key.pem": pem} {
		if err := os.WriteFile(filepath.Join(home, ".oci", name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return fake, func() cloud.Provider {
		return New(Options{Home: home, Transport: fake, Poll: 200 * time.Millisecond, Timeout: time.Minute, Busy: -1})
	}
}

func cluster(name string) cloud.LaunchSpec { return cloudtest.Cluster(here, name) }

// network are the kinds of things that all clusters share and that stay.
var network = []string{"vcns", "subnets", "internetGateways", "routeTables", "securityLists"}

func TestConformance(t *testing.T) {
	spot := here
	spot.Spot, spot.HourlyPrice = true, 0.037
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(provider, network...)
		h.Spec, h.Elsewhere, h.Spot = cloud.LaunchSpec{Offer: here, AuthorizedKey: key}, &elsewhere, &spot
		h.Beside = cloudtest.In(here, "PHX-AD-2")
		h.Fill = func(_ testing.TB, o cloud.Offer, left int) {
			shape, _, _ := strings.Cut(o.InstanceType, "$")
			fake.Fill(o.Region+"-"+o.Zone, shape, left)
		}
		h.OpenPorts = func(_ testing.TB, n cloud.Node) []string {
			return slices.DeleteFunc(fake.Rules(n.ID), func(ports string) bool { return ports == "22" })
		}
		return h
	})
}

func TestWhatStatesMean(t *testing.T) {
	for state, want := range map[string]vm.State{
		"PROVISIONING": vm.Pending, "STARTING": vm.Pending, "CREATING_IMAGE": vm.Pending, "RUNNING": vm.Running, "MOVING": vm.Running, "STOPPING": vm.Stopping, "STOPPED": vm.Stopped,
		"TERMINATING": vm.Ending, "TERMINATED": vm.Ended, "ODD": vm.Unknown,
	} {
		if m := (instance{State: state, Domain: "Uocm:PHX-AD-1"}).machine("us-phoenix-1"); m.State != want || m.Zone != "PHX-AD-1" || !m.InZone("uocm:phx-ad-1") || m.Reach.User != "ubuntu" {
			t.Errorf("%s: %+v", state, m)
		}
	}
}

func TestWhatRefusalsMean(t *testing.T) {
	cloudtest.Refusals(t, here.Place, refusal, refusals("fix"), []cloudtest.Refusal{
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, `{"code": "NotAuthenticated", "message": ""}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 402, `{"code": "SignUpRequired", "message": ""}`),
		cloudtest.Means[*cloud.PermissionError](vm.Refused, 403, `{"code": "NotAuthorized", "message": ""}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, `{"code": "NotAuthorizedOrNotFound", "message": ""}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, `{"code": "NotFound", "message": ""}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 400, `{"code": "RelatedResourceNotAuthorizedOrNotFound", "message": "subnetId"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"code": "InvalidParameter", "message": ""}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"code": "InvalidParameters", "message": ""}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"code": "MissingParameter", "message": ""}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"code": "CannotParseRequest", "message": ""}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 413, `{"code": "RequestTooLarge", "message": ""}`),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 400, `{"code": "LimitExceeded", "message": ""}`),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 400, `{"code": "QuotaExceeded", "message": ""}`),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 429, `{"code": "TooManyRequests", "message": ""}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 500, `{"code": "InternalError", "message": "Out of host capacity."}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 500, `{"code": "OutOfHostCapacity", "message": "Out of capacity"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 409, `{"code": "OutOfCapacity", "message": ""}`),
		cloudtest.Means[*rest.Error](vm.Changed, 409, `{"code": "IncorrectState", "message": ""}`),
		cloudtest.Means[*rest.Error](vm.Changed, 409, `{"code": "ExternalServerIncorrectState", "message": ""}`),
		cloudtest.Means[*rest.Error](vm.Busy, 409, `{"code": "Conflict", "message": ""}`),
		cloudtest.Means[*rest.Error](vm.Busy, 409, `{"code": "NotAuthorizedOrResourceAlreadyExists", "message": ""}`),
		cloudtest.Means[*rest.Error](vm.Refused, 409, `{"code": "InvalidatedRetryToken", "message": ""}`),
		cloudtest.Nothing(500, `{"code": "InternalServerError", "message": "oh"}`),
		cloudtest.Nothing(502, `{"code": "InternalServerError", "message": "oh"}`),
		cloudtest.Nothing(503, `{"code": "InternalServerError", "message": "oh"}`),
	})
}

func TestTypes(t *testing.T) {
	for name, want := range map[string]struct {
		shape string
		size  *size
	}{
		flexible: {"VM.Standard.E4.Flex", &size{2, 16}}, "VM.Standard.A1.Flex$_4_24": {"VM.Standard.A1.Flex", &size{4, 24}}, "VM.Standard.E5.Flex$_1_8": {"VM.Standard.E5.Flex", &size{1, 8}},
		"VM.GPU.A10.1": {"VM.GPU.A10.1", nil}, "VM.Standard.E4.Flex": {}, "VM.Standard.E4.Flex$_x_1": {}, "VM.Standard.E4.Flex$_4": {},
	} {
		shape, s, err := parseType(name)
		if shape != want.shape || (err != nil) != (want.shape == "") || (s == nil) != (want.size == nil) || s != nil && *s != *want.size {
			t.Errorf("%s: %s, %v, %v", name, shape, s, err)
		}
	}
}

func TestDisks(t *testing.T) {
	for _, tt := range []struct {
		tier string
		cpus float64
		want int
	}{{"", 16, 10}, {"low", 16, 10}, {"medium", 16, 30}, {"high", 16, 100}, {"best", 16, 100}, {"high", 4, 30}, {"high", 2, 10}, {"medium", 2, 10}, {"high", 0, 100}} {
		spec := cluster("web")
		spec.DiskTier, spec.Offer.CPUs = tt.tier, tt.cpus
		if got := performance(spec); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
	spec := cluster("web")
	if spec.DiskTier = "ultra"; valid(spec) == nil {
		t.Error("ultra")
	}
}

// What an instance is launched with, and that the network is made once.
func TestTheInstanceThatIsMade(t *testing.T) {
	fake, provider := start(t)
	p := provider()
	spec := cluster("web")
	spec.DiskGB, spec.DiskTier, spec.Offer.Spot = 20, "high", true
	nodes, err := cloudtest.PrepareAndLaunch(t, p, spec)
	if err != nil {
		t.Fatal(err)
	}
	asked := fake.Asked(nodes[0].ID)
	source, shape, preempt := asked["sourceDetails"].(map[string]any), asked["shapeConfig"].(map[string]any), asked["preemptibleInstanceConfig"].(map[string]any)
	if source["bootVolumeSizeInGBs"] != 50.0 || source["bootVolumeVpusPerGB"] != 30.0 || shape["ocpus"] != 2.0 || shape["memoryInGBs"] != 16.0 || asked["availabilityDomain"] != "Uocm:PHX-AD-1" || preempt == nil {
		t.Errorf("%v", asked)
	}
	if n := nodes[0]; n.Reach.User != "ubuntu" || n.Reach.Host == "" {
		t.Errorf("%+v", n)
	}
	spec = cluster("other")
	spec.Ports = []string{"8080-8090"}
	if nodes, err = cloudtest.PrepareAndLaunch(t, p, spec); err != nil {
		t.Fatal(err)
	}
	if got := fake.Rules(nodes[0].ID); !slices.Equal(got, []string{"22", "8080-8090"}) {
		t.Error(got)
	}
	for _, kind := range network[:3] {
		if n := len(fake.Things(kind)); n != 1 {
			t.Errorf("%d %s", n, kind)
		}
	}
	opener, ok := cloud.As[cloud.PortOpener](p)
	if !ok || opener.OpenPorts(t.Context(), spec.ID, []string{"80"}) != nil || !slices.Contains(fake.Rules(nodes[0].ID), "80") {
		t.Error("no port 80")
	}
}

// Spot instances cannot be stopped.
func TestStopOfSpot(t *testing.T) {
	_, provider := start(t)
	p := provider()
	spec := cluster("web")
	spec.Offer.Spot = true
	if _, err := cloudtest.PrepareAndLaunch(t, p, spec); err != nil {
		t.Fatal(err)
	}
	if err := p.(*Provider).Stop(t.Context(), spec.ID); err == nil || !strings.Contains(err.Error(), "sky down web") {
		t.Error(err)
	}
}

func TestSettings(t *testing.T) {
	fake, provider := start(t)
	p := provider()
	if _, err := cloudtest.PrepareAndLaunch(t, p, cluster("first")); err != nil { // it makes a network
		t.Fatal(err)
	}
	vcn, subnet := fake.Things("vcns")[0]["id"].(string), fake.Things("subnets")[0]["id"].(string)
	for i, settings := range []map[string]any{{"vcn_ocid": vcn}, {"vcn_subnet": subnet}, {"compartment_ocid": ocifake.Tenancy, "image_tag_general": "ocid1.image.oc1..mine:OracleLinux"}} {
		spec := cluster("web" + string(rune('a'+i)))
		spec.Settings = settings
		nodes, err := cloudtest.PrepareAndLaunch(t, p, spec)
		if err != nil {
			t.Fatalf("%v: %v", settings, err)
		}
		if got := fake.Asked(nodes[0].ID)["createVnicDetails"].(map[string]any)["subnetId"]; got != subnet {
			t.Errorf("%v: %v", settings, got)
		}
		if (nodes[0].Reach.User == "opc") != (i == 2) {
			t.Errorf("%v: %+v", settings, nodes[0].Reach)
		}
	}
	for _, settings := range []map[string]any{{"compartment_ocid": "ocid1.compartment.oc1..none"}, {"vcn_ocid": "ocid1.vcn.oc1..none"}} {
		spec := cluster("wrong")
		spec.Settings = settings
		if _, err := p.Launch(t.Context(), spec); !cloudtest.Is[*cloud.InvalidError](err) {
			t.Errorf("%v: %v", settings, err)
		}
	}
}

func TestAvailable(t *testing.T) {
	fake, provider := start(t)
	p := provider().(*Provider)
	verdict := func(o cloud.Offer, nodes int) string {
		t.Helper()
		a, err := p.Available(t.Context(), o, nodes)
		if err != nil {
			return err.Error()
		}
		return string(a.Verdict)
	}
	if got := verdict(here, 1); got != string(cloud.AvailableNow) {
		t.Error(got)
	}
	if got := verdict(here, 2); got != string(cloud.AvailabilityUnknown) {
		t.Error(got)
	}
	fake.Fill("us-phoenix-1", "VM.Standard.E4.Flex", 0)
	if got := verdict(here, 1); got != string(cloud.AvailableNone) {
		t.Error(got)
	}
	wrong := here
	wrong.Zone = "PHX-AD-9"
	if got := verdict(wrong, 1); !strings.Contains(got, "PHX-AD-9") {
		t.Error(got)
	}
}

// Credentials that are no good say how to get better ones.
func TestCredentials(t *testing.T) {
	_, pem := ocifake.Config("")
	for name, tt := range map[string]struct {
		config, key func(string) string
		want        string
	}{
		"no file":     {func(string) string { return "" }, nil, "no line"},
		"no key":      {func(c string) string { return strings.ReplaceAll(c, "key.pem", "none.pem") }, nil, "none.pem"},
		"broken key":  {nil, func(string) string { return "x" }, "no PEM file"},
		"pass phrase": {nil, func(k string) string { return strings.ReplaceAll(k, "PRIVATE KEY", "ENCRYPTED PRIVATE KEY") }, "pass phrase"},
		"wrong key":   {func(c string) string { return strings.ReplaceAll(c, "fingerprint=", "fingerprint=00:") }, nil, "NotAuthenticated"},
		"good":        {},
	} {
		home := t.TempDir()
		config, _ := ocifake.Config("~/.oci/key.pem")
		file := string(pem)
		if tt.config != nil {
			config = tt.config(config)
		}
		if tt.key != nil {
			file = tt.key(file)
		}
		os.MkdirAll(filepath.Join(home, ".oci"), 0o700)
		os.WriteFile(filepath.Join(home, ".oci", "config"), []byte(config), 0o600)
		os.WriteFile(filepath.Join(home, ".oci", "key.pem"), []byte(file), 0o600)
		p := New(Options{Home: home, Transport: ocifake.New()})
		who, err := p.Check(t.Context())
		if name == "good" {
			if err != nil || !slices.Contains([]string(who), ocifake.Tenancy) {
				t.Errorf("%s: %v, %v", name, who, err)
			}
			carried, err := p.CarryCredentials(t.Context())
			if err != nil || !strings.Contains(string(carried[".oci/config"]), "key_file=~/.oci/oci_api_key.pem") || string(carried[".oci/oci_api_key.pem"]) != string(pem) {
				t.Errorf("%s, %v", carried, err)
			}
			continue
		}
		var auth *cloud.AuthError
		if !errors.As(err, &auth) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(auth.Fix, "oci setup config") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A list goes on where a header says so.
func TestPages(t *testing.T) {
	pagesOf := map[string]string{"": "2", "2": "3", "3": ""}
	c := rest.New(rest.Options{Cloud: "OCI", Endpoint: "https://x.example", Transport: answer(func(r *http.Request) (string, http.Header) {
		at := r.URL.Query().Get("page")
		return `[{"id": "` + at + `"}]`, http.Header{"Opc-Next-Page": {pagesOf[at]}}
	})})
	all, err := pages[thing](t.Context(), c, "/things", nil)
	if err != nil || len(all) != 3 || all[2].ID != "3" {
		t.Errorf("%v, %v", all, err)
	}
}

type answer func(r *http.Request) (string, http.Header)

func (a answer) RoundTrip(r *http.Request) (*http.Response, error) {
	body, header := a(r)
	return &http.Response{StatusCode: 200, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// TestAnotherServerSeesWhereCallsGo signs and sends calls to a server of the environment's as
// if it were the region's.
func TestAnotherServerSeesWhereCallsGo(t *testing.T) {
	fake, provider := start(t)
	s := httptest.NewServer(fake)
	t.Cleanup(s.Close)
	t.Setenv("SKY_OCI_ENDPOINT", s.URL)
	p := provider().(*Provider)
	p.Tuning.Transport = nil
	if _, err := p.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if a, err := p.Available(t.Context(), elsewhere, 1); err != nil || a.Verdict == cloud.AvailableNone {
		t.Errorf("%+v, %v", a, err)
	}
}
