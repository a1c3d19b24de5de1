package ibm

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/ibm/ibmfake"
	"github.com/skypilot-go/sky/internal/cloud/ibmapi"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "us-south", Zone: "us-south-1"}, InstanceType: "bx2-4x16", CPUs: 4, MemoryGiB: 16, HourlyPrice: 0.19}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "eu-de", Zone: "eu-de-2"}, InstanceType: "bx2-4x16", CPUs: 4, MemoryGiB: 16, HourlyPrice: 0.19}
)

const credentials = "iam_api_key: " + ibmfake.APIKey + "\nresource_group_id: " + ibmfake.ResourceGroup + "\n"

func start(t testing.TB) (*ibmfake.Fake, func() cloud.Provider) {
	fake := ibmfake.New()
	o := fake.Tuning(t, ibmapi.Path, credentials)
	o.Timeout = time.Minute
	return fake, func() cloud.Provider { return New(o) }
}

func TestConformance(t *testing.T) {
	t.Run("in a zone", func(t *testing.T) { conformance(t, here, &elsewhere) })
	t.Run("in a region", func(t *testing.T) {
		here := here
		here.Zone = ""
		conformance(t, here, nil) // machines are in another place than was asked for: in a zone
	})
}

func conformance(t *testing.T, here cloud.Offer, elsewhere *cloud.Offer) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(provider, shared...)
		h.Spec, h.Elsewhere = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key}, elsewhere
		if here.Zone != "" {
			h.Beside = cloudtest.In(here, "us-south-2")
		}
		h.Fill = func(_ testing.TB, o cloud.Offer, left int) {
			zones := []string{o.Zone}
			if o.Zone == "" { // what is left is in the zone that is tried last
				fake.Fill(o.Region+"-1", o.InstanceType, 0)
				zones = []string{o.Region + "-2"}
			}
			fake.Fill(zones[0], o.InstanceType, left)
		}
		inventory := h.Inventory
		h.Inventory = func(t testing.TB) []string { // the network comes with a group of its own
			return slices.DeleteFunc(inventory(t), func(line string) bool { return strings.Contains(line, "security_groups default-of-") })
		}
		return h
	})
}

// shared are the kinds of things that all clusters share and that stay.
var shared = []string{"vpcs", "vpc", "subnets", "subnet", "keys", "key"}

func cluster(name string) cloud.LaunchSpec { return cloudtest.Cluster(here, name) }

func TestWhatStatesMean(t *testing.T) {
	for status, want := range map[string]vm.State{
		"pending": vm.Pending, "starting": vm.Pending, "restarting": vm.Pending, "running": vm.Running, "stopping": vm.Stopping, "stopped": vm.Stopped, "deleting": vm.Ending, "failed": vm.Ending, "odd": vm.Unknown, "": vm.Unknown,
	} {
		var i instance
		i.Status = status
		i.Card.IP.Address = "0.0.0.0"
		if m := i.machine("us-south", nil); m.State != want || m.PrivateIP != "" {
			t.Errorf("%q: %+v", status, m)
		}
	}
}

func TestWhatRefusalsMean(t *testing.T) {
	cloudtest.Refusals(t, here.Place, ibmapi.Refusal, refusals("fix"), []cloudtest.Refusal{
		cloudtest.Means[*cloud.AuthError](vm.Refused, 400, `{"errorCode": "BXNIM0415E", "errorMessage": "Provided API key could not be found."}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, `{"errors": [{"code": "not_authorized", "message": ""}]}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, `{"errors": [{"code": "not_authenticated"}]}`),
		cloudtest.Means[*cloud.PermissionError](vm.Refused, 403, `{"errors": [{"code": "not_authorized"}]}`),
		cloudtest.Means[*cloud.PermissionError](vm.Refused, 403, `{"errors": [{"code": "forbidden"}]}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, `{"errors": [{"code": "not_found"}]}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, `{"errors": [{"code": "instance_profile_not_found"}]}`),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 400, `{"errors": [{"code": "over_quota"}]}`),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 403, `{"errors": [{"code": "some_quota_exceeded", "message": "The quota is exceeded"}]}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 409, `{"errors": [{"code": "cannot_start_capacity"}]}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 409, `{"errors": [{"code": "cannot_start_placement_group"}]}`),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 429, `{"errors": [{"code": "too_many_requests"}]}`),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 429, `busy`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"errors": [{"code": "bad_field"}]}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"errors": [{"code": "missing_field"}]}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"errors": [{"code": "invalid_zone"}]}`),
		cloudtest.Means[*rest.Error](vm.Changed, 400, `{"errors": [{"code": "validation_unique_failed"}]}`),
		cloudtest.Means[*rest.Error](vm.Changed, 409, `{"errors": [{"code": "conflict_field"}]}`),
		cloudtest.Means[*rest.Error](vm.Changed, 409, `{"errors": [{"code": "invalid_state"}]}`),
		cloudtest.Means[*rest.Error](vm.Busy, 409, `{"errors": [{"code": "security_group_in_use"}]}`),
		cloudtest.Means[*rest.Error](vm.Refused, 418, `{"errors": [{"code": "odd", "message": "tea"}]}`),
		cloudtest.Nothing(500, `{"errors": [{"code": "internal_error"}]}`),
		cloudtest.Nothing(503, `{"errors": [{"code": "internal_error"}]}`),
	})
}

func TestWhyMachinesFail(t *testing.T) {
	for _, tt := range []struct {
		status, code string
		want         func(error) bool
	}{
		{"failed", "cannot_start_capacity", cloudtest.Is[*cloud.CapacityError]}, {"failed", "cannot_start_placement_group", cloudtest.Is[*cloud.CapacityError]}, {"failed", "encryption_key_deleted", cloudtest.Is[*rest.Error]}, {"failed", "", cloudtest.Is[*rest.Error]},
		{"stopped", "cannot_start_capacity", cloudtest.Is[*cloud.CapacityError]}, {"stopped", "stopped_by_host_failure", nil}, {"stopped", "stopped_for_image_creation", nil}, {"running", "", nil},
		{"stopped", "cannot_start", cloudtest.Is[*rest.Error]}, {"stopped", "cannot_start_compute", cloudtest.Is[*rest.Error]}, {"stopped", "cannot_start_network", cloudtest.Is[*rest.Error]}, {"stopped", "cannot_start_ip_address", cloudtest.Is[*rest.Error]}, {"stopped", "cannot_start_storage", cloudtest.Is[*rest.Error]},
	} {
		text := `{"status": "` + tt.status + `", "status_reasons": [{"code": "` + tt.code + `", "message": "Why."}]}`
		if tt.code == "" {
			text = `{"status": "` + tt.status + `"}`
		}
		var i instance
		if err := json.Unmarshal([]byte(text), &i); err != nil {
			t.Fatal(err)
		}
		err := i.failure()
		if (err == nil) != (tt.want == nil) || err != nil && !tt.want(refusals("").Refusal(t.Context(), here.Place, err)) {
			t.Errorf("%+v: %v", tt, err)
		}
		if m := i.machine("us-south", nil); tt.code != "" && m.Reason != "Why" {
			t.Errorf("%+v: %q", tt, m.Reason)
		}
	}
}

// What a machine is made with, that the network is made once and that addresses go.
func TestTheMachineThatIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		p := provider()
		spec := cluster("web")
		spec.DiskGB, spec.Ports = 20, []string{"8080-8090"}
		nodes, err := cloudtest.PrepareAndLaunch(t, p, spec)
		if err != nil {
			t.Fatal(err)
		}
		asked := fake.Asked(nodes[0].ID)
		boot := asked["boot_volume_attachment"].(map[string]any)
		volume := boot["volume"].(map[string]any)
		if volume["capacity"] != 100.0 || volume["profile"].(map[string]any)["name"] != "general-purpose" || boot["delete_volume_on_instance_delete"] != true || asked["image"].(map[string]any)["id"] != "r006-ubuntu-2204-3" ||
			asked["resource_group"].(map[string]any)["id"] != ibmfake.ResourceGroup {
			t.Errorf("%v", asked)
		}
		if n := nodes[0]; n.Reach.User != "ubuntu" || n.Reach.Host == "" || n.Reach.Host != n.ExternalIP || n.InternalIP == n.ExternalIP {
			t.Errorf("%+v", n)
		}
		if got := fake.Rules(nodes[0].ID); !slices.Equal(got, []string{"22", "8080-8090"}) {
			t.Error(got)
		}
		mine := cluster("other")
		mine.ImageID = "r006-ubuntu-2204-1"
		if nodes, err = cloudtest.PrepareAndLaunch(t, p, mine); err != nil || fake.Asked(nodes[0].ID)["image"].(map[string]any)["id"] != mine.ImageID {
			t.Error(err)
		}
		for _, kind := range []string{"vpcs", "subnets", "keys"} {
			if n := len(fake.Things(kind)); n != 1 {
				t.Errorf("%d %s", n, kind)
			}
		}
		for _, id := range []cloud.ClusterID{spec.ID, mine.ID} {
			if err := p.Terminate(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
		if n := len(fake.Things("floating_ips")); n != 0 {
			t.Errorf("%d addresses are left", n)
		}
	})
}

// A zone that is full costs a try, and the next one is taken.
func TestZones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		p := provider()
		fake.Fill("us-south-1", here.InstanceType, 0)
		spec := cluster("web")
		spec.Offer.Zone, spec.Nodes = "", 2
		nodes, err := cloudtest.PrepareAndLaunch(t, p, spec)
		if err != nil || len(nodes) != 2 || nodes[0].Place.Zone != "us-south-2" || nodes[1].Place.Zone != "us-south-2" {
			t.Fatalf("%+v, %v", nodes, err)
		}
		if again, err := cloudtest.PrepareAndLaunch(t, p, spec); err != nil || again[0].ID != nodes[0].ID {
			t.Errorf("%+v, %v", again, err)
		}
		fake.Fill("us-south-2", here.InstanceType, 0)
		more := cluster("more")
		more.Offer.Zone = ""
		var full *cloud.CapacityError
		if _, err := cloudtest.PrepareAndLaunch(t, p, more); !errors.As(err, &full) || full.Place != more.Offer.Place {
			t.Errorf("%v", err)
		}
	})
}

func TestDisks(t *testing.T) {
	for gb, want := range map[int]int{0: 100, 20: 100, 150: 150, 256: 250} {
		spec := cluster("web")
		spec.DiskGB = gb
		if got := body(spec, ready{}, 0)["boot_volume_attachment"].(map[string]any)["volume"].(map[string]any)["capacity"]; got != want {
			t.Errorf("%d: %v", gb, got)
		}
	}
}

func TestRules(t *testing.T) {
	all, err := wanted("g", nil, []string{"22", "8000-8010", "22"})
	if err != nil || len(all) != 4 || all[1].Remote.ID != "g" || all[3].Min != 8000 || all[3].Max != 8010 {
		t.Errorf("%+v, %v", all, err)
	}
	if again, err := wanted("g", all, []string{"22"}); err != nil || len(again) != 0 {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := wanted("g", nil, []string{"x"}); !cloudtest.Is[*cloud.InvalidError](err) {
		t.Error(err)
	}
}

func TestRequirementsThatCannotBeMet(t *testing.T) {
	for name, change := range map[string]func(*cloud.LaunchSpec){
		"image": func(s *cloud.LaunchSpec) { s.ImageID = "ibm-ubuntu-22-04" }, "digit": func(s *cloud.LaunchSpec) { s.ID.Name = "1web" }, "capital": func(s *cloud.LaunchSpec) { s.ID.Name = "Web" }, "key": func(s *cloud.LaunchSpec) { s.AuthorizedKey = "" },
	} {
		spec := cluster("web")
		if err := valid(spec); err != nil {
			t.Fatal(err)
		}
		if change(&spec); valid(spec) == nil {
			t.Error(name)
		}
	}
	_, provider := start(t)
	spec := cluster("web")
	spec.Offer.Region, spec.Offer.Zone = "mars", "mars-1"
	if err := provider().Prepare(t.Context(), spec); !cloudtest.Is[*cloud.InvalidError](err) || !strings.Contains(err.Error(), "eu-de, us-south") {
		t.Error(err)
	}
}

// Credentials that are no good say how to get better ones.
func TestCredentials(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"nothing": {"", "is not there"}, "no group": {"iam_api_key: x\n", "resource_group_id"}, "no YAML": {"{", "neither YAML nor JSON"},
		"wrong key": {strings.Replace(credentials, ibmfake.APIKey, "wrong", 1), "BXNIM"}, "good": {credentials + "access_key_id: for buckets\n", ""},
	} {
		home := t.TempDir()
		if tt.text != "" {
			cloudtest.HomeFile(t, home, ibmapi.Path, tt.text)
		}
		p := New(Options{Home: home, Transport: ibmfake.New()})
		who, err := p.Check(t.Context())
		if tt.want == "" {
			carried, err2 := p.CarryCredentials(t.Context())
			if err != nil || err2 != nil || !strings.Contains(who[0], ibmfake.ResourceGroup) || string(carried[".ibm/credentials.yaml"]) != tt.text {
				t.Errorf("%s: %v, %v, %v, %s", name, who, err, err2, carried)
			}
			continue
		}
		var auth *cloud.AuthError
		if !errors.As(err, &auth) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(auth.Fix, "~/.ibm/credentials.yaml") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A list goes on where the last page says, and a broken one is no list.
func TestPages(t *testing.T) {
	ask := func(answers map[string]string) ([]ibmapi.Named, error) {
		c := rest.New(rest.Options{Cloud: "IBM", Endpoint: "https://x.example", Transport: answer(func(r *http.Request) string { return answers[r.URL.Query().Get("start")] })})
		return ibmapi.List[ibmapi.Named](t.Context(), c, "things", nil)
	}
	all, err := ask(map[string]string{"": `{"things": [{"id": "1"}], "next": {"href": "https://x.example/things?start=2&limit=100"}}`, "2": `{"things": [{"id": "2"}]}`})
	if err != nil || len(all) != 2 || all[1].ID != "2" {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := ask(map[string]string{"": `{"other": []}`}); !cloudtest.Is[*rest.NoAnswerError](err) {
		t.Error(err)
	}
}

type answer func(r *http.Request) string

func (a answer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(a(r))), Request: r}, nil
}
