package vast

import (
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vast/vastfake"
	"github.com/skypilot-go/sky/internal/cloud/vm"
	"github.com/skypilot-go/sky/internal/registry"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "US"}, InstanceType: vastfake.Type(0), CPUs: 16, MemoryGiB: 62.5, HourlyPrice: 0.4}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "SE"}, InstanceType: vastfake.Type(0), CPUs: 16, MemoryGiB: 62.5, HourlyPrice: 0.4}
)

func start(t testing.TB) (*vastfake.Fake, func(o Options) *Provider) {
	fake := vastfake.New()
	t.Cleanup(fake.Restore)
	home := t.TempDir()
	cloudtest.HomeFile(t, home, ".config/vastai/vast_api_key", vastfake.Key+"\n")
	return fake, func(o Options) *Provider {
		o.Home, o.Transport = home, fake
		return New(o)
	}
}

var quick = Options{Poll: 100 * time.Millisecond, Busy: -1, Paces: []rest.Pace{}}

func cluster(name string) cloud.LaunchSpec { return cloudtest.Cluster(here, name) }

func TestConformance(t *testing.T) {
	spot := here
	spot.Spot, spot.HourlyPrice = true, 0.2
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(func() cloud.Provider { return provider(quick) })
		h.Raise = func(_ testing.TB, by float64) { fake.Raise(by) }
		h.Spec, h.Elsewhere, h.Spot = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key}, &elsewhere, &spot
		h.Quota = nil // what is refused is a lack of credit
		h.Halt = func(_ testing.TB, n cloud.Node) { fake.Halt(n.ID) }
		h.Limited = func(testing.TB) (cloud.Provider, func() int) {
			fake.Limit()
			return provider(Options{Busy: -1}), fake.Over
		}
		return h
	})
}

// Every state of the reference has a meaning, and what is wanted of an instance counts.
func TestWhatStatesMean(t *testing.T) {
	for _, tt := range []struct {
		status, contract, intended string
		bid                        bool
		want                       vm.State
		why                        string
	}{
		{"", "running", "running", false, vm.Pending, ""},
		{"loading", "running", "running", false, vm.Pending, ""},
		{"running", "running", "running", false, vm.Running, ""},
		{"rebooting", "running", "running", false, vm.Pending, ""},
		{"frozen", "running", "running", false, vm.Pending, ""},
		{"offline", "running", "running", false, vm.Pending, ""},
		{"unknown", "running", "running", false, vm.Pending, ""},
		{"running", "running", "stopped", false, vm.Stopping, ""},
		{"loading", "running", "stopped", false, vm.Stopping, ""},
		{"stopped", "stopped", "stopped", false, vm.Stopped, ""},
		{"exited", "stopped", "stopped", false, vm.Stopped, ""},
		{"exited", "running", "running", false, vm.Stopped, "ended"},
		{"stopped", "stopped", "running", true, vm.Stopped, "pays more"},
		{"", "stopped", "running", true, vm.Stopped, "pays more"},
		{"stopped", "stopped", "running", false, vm.Pending, ""},
		{"running", "unloaded", "running", false, vm.Ended, ""},
		{"odd", "running", "running", false, vm.Unknown, ""},
	} {
		i := instance{Status: tt.status, Contract: tt.contract, Intended: tt.intended, Bid: tt.bid}
		if state, _, why := i.state(); state != tt.want || !strings.Contains(why, tt.why) || tt.why == "" && why != "" {
			t.Errorf("%+v: %v, %q", tt, state, why)
		}
	}
}

func TestWhatRefusalsMean(t *testing.T) {
	cloudtest.Refusals(t, here.Place, rest.ReadError, refusals("fix"), []cloudtest.Refusal{
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, `{"success": false, "error": "auth_error", "msg": "Invalid user key"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 404, `{"error": "auth_error", "msg": "Invalid user key"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 400, `{"success": false, "error": "insufficient_credit", "msg": "x"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 400, `{"success": false, "error": "missing_billing", "msg": "x"}`),
		cloudtest.Means[*cloud.PermissionError](vm.Refused, 403, `{"success": false, "error": "invalid_args", "msg": "Offer 1 is not your own."}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 404, `{"success": false, "error": "invalid_args", "msg": "error 404/3603: no_such_ask Instance type by id 1 is not available."}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 410, `{"success": false, "error": "no_such_ask", "msg": "x"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"success": false, "error": "invalid_price", "msg": "x"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"success": false, "error": "resources_unavailable", "msg": "x"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"success": false, "error": "invalid_args", "msg": "x"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"success": false, "error": "no_ssh_key_for_vm", "msg": "x"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"success": false, "error": "label_too_long", "msg": "x"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"error": "invalid_request", "msg": "Invalid json body"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, `{"success": false, "error": "no_such_instance", "msg": "x"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, `{"success": false, "error": "not_found", "msg": "x"}`),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 429, `API requests too frequent: endpoint threshold=4.5`),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 429, `{"success": false, "error": "rate_limit_exceeded", "msg": "x"}`),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 400, `{"detail": "API requests too frequent endpoint threshold=1.0"}`),
		cloudtest.Nothing(500, `{"success": false, "error": "server_error", "msg": "x"}`),
	})
	if e := (*cloud.AuthError)(nil); !errors.As(refusals("fix").Refusal(t.Context(), here.Place, &rest.Error{Status: 400, Code: "insufficient_credit"}), &e) || !strings.Contains(e.Fix, "billing") {
		t.Errorf("%v", e)
	}
}

// An offer that somebody else takes costs a call and no time, and the next one is taken.
func TestAnOfferThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		p := provider(quick)
		fake.Inject(model.Fault{Kind: model.Fail, Code: "insufficient_capacity", Op: "instances.create", Times: 1})
		fake.Slow(0)
		began := time.Now()
		if _, err := p.Launch(t.Context(), cluster("web")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		fake.Inject(model.Fault{Kind: model.Fail, Code: "insufficient_capacity", Op: "instances.create"})
		began = time.Now()
		if _, err := p.Launch(t.Context(), cluster("web2")); !cloudtest.Is[*cloud.CapacityError](err) || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// What the settings ask for is searched for, and takes part in the ranking.
func TestSettings(t *testing.T) {
	_, provider := start(t)
	p := provider(quick)
	offers, err := p.Offers(t.Context())
	if err != nil || len(offers) != 8 { // two kinds in two countries, spot and not
		t.Fatalf("%v, %v", offers, err)
	}
	i := slices.IndexFunc(offers, func(o cloud.Offer) bool { return o.Region == "US" && o.InstanceType == here.InstanceType && o.Spot })
	if i < 0 || offers[i].HourlyPrice != 0.2 || offers[i].Accelerators["RTX4090"] != 1 {
		t.Errorf("%+v", offers)
	}
	for settings, want := range map[string]int{
		`{"datacenter_only": true, "verified": false}`: 8, `{"countries": ["se"]}`: 4, `{"min_reliability": 0.999}`: 0, `{"min_bandwidth": 1000}`: 0, `{"min_disk_bandwidth": 5000}`: 0, `{"min_cuda": 13}`: 0,
	} {
		var set map[string]any
		if err := json.Unmarshal([]byte(settings), &set); err != nil {
			t.Fatal(err)
		}
		if offers, err := p.OffersWith(t.Context(), set); err != nil || len(offers) != want {
			t.Errorf("%s: %d offers, %v", settings, len(offers), err)
		}
	}
	spec := cluster("web")
	spec.Settings = map[string]any{"min_reliability": 0.999}
	if _, err := p.Launch(t.Context(), spec); !cloudtest.Is[*cloud.CapacityError](err) {
		t.Error(err)
	}
	spec.Settings = map[string]any{"countries": []any{"SE"}}
	if _, err := p.Launch(t.Context(), spec); !cloudtest.Is[*cloud.InvalidError](err) {
		t.Error(err)
	}
	asks := []ask{{ID: 1, Base: 1, Reliability: 0.5, Down: 900}, {ID: 2, Base: 1.5, Reliability: 0.99, Down: 100}, {ID: 3, Base: 1.5, Reliability: 0.99, Down: 500}}
	if fetch.RankVast(asks, false); asks[0].ID != 3 || asks[1].ID != 2 {
		t.Errorf("%+v", asks)
	}
}

// An instance that is outbid is off and says why; one that cannot start again is not left
// to start when nobody waits.
func TestSpotAndQueues(t *testing.T) {
	fake, provider := start(t)
	p := provider(quick)
	spec := cluster("web")
	spec.Offer.Spot, spec.Offer.HourlyPrice = true, 0.2
	nodes, err := p.Launch(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if got := fake.Asked(nodes[0].ID)["price"]; got != 0.2 {
		t.Errorf("bid %v", got)
	}
	fake.Outbid(nodes[0].ID)
	if nodes, err = p.Nodes(t.Context(), spec.ID); err != nil || nodes[0].State != cloud.NodeStopped || !strings.Contains(nodes[0].Reason, "pays more") {
		t.Errorf("%+v, %v", nodes, err)
	}
	on := cluster("two")
	if _, err := p.Launch(t.Context(), on); err != nil {
		t.Fatal(err)
	}
	s, _ := cloud.As[cloud.Stopper](p)
	if err := s.Stop(t.Context(), on.ID); err != nil {
		t.Fatal(err)
	}
	fake.Fill("US", here.InstanceType, 0)
	if _, err := p.Launch(t.Context(), on); !cloudtest.Is[*cloud.CapacityError](err) {
		t.Error(err)
	}
	fake.Restore()
	if nodes, err = p.Nodes(t.Context(), on.ID); err != nil || nodes[0].State != cloud.NodeStopped {
		t.Errorf("it waits to start: %+v, %v", nodes, err)
	}
}

// A bid is never higher than what the task allows, also where the user sets it.
func TestABidIsBoundedByTheTask(t *testing.T) {
	for _, tt := range []struct {
		spot       bool
		most       float64
		own        any
		want       any // nil: none
		price, bad bool
	}{
		{spot: true, want: 0.2}, {spot: true, most: 0.5, want: 0.2}, {spot: true, most: 0.2, want: 0.2}, {spot: true, most: 0.19, price: true},
		{spot: true, own: 0.3, want: 0.3}, {spot: true, own: 0.3, most: 0.25, want: 0.25}, {spot: true, own: 0.3, most: 0.1, price: true}, {spot: true, own: "0.3", bad: true},
		{}, {most: 0.5}, {own: 0.3, most: 0.5, want: 0.3}, {own: 1.0, most: 0.5, want: 0.5},
	} {
		fake, provider := start(t)
		spec := cluster("web")
		spec.Offer.MaxHourlyCost = tt.most
		if spec.Offer.Spot = tt.spot; tt.spot {
			spec.Offer.HourlyPrice = 0.2
		}
		if tt.own != nil {
			spec.Settings = map[string]any{"create_instance_kwargs": map[string]any{"bid_price": tt.own}}
		}
		nodes, err := provider(quick).Launch(t.Context(), spec)
		switch {
		case tt.price != cloudtest.Is[*cloud.PriceError](err), tt.bad != cloudtest.Is[*cloud.InvalidError](err), !tt.price && !tt.bad && err != nil:
			t.Errorf("%+v: %v", tt, err)
		case err == nil && fake.Asked(nodes[0].ID)["price"] != tt.want:
			t.Errorf("%+v: bid %v", tt, fake.Asked(nodes[0].ID)["price"])
		}
	}
}

// The user's own fields count where they say nothing else than sky does.
func TestMoreFields(t *testing.T) {
	spec := cluster("web")
	spec.ImageID, spec.Ports, spec.DiskGB = "docker:team/tool", []string{"8080-8081"}, 120
	spec.Login = &registry.Login{Username: "ann", Password: "secret", Server: "ghcr.io"}
	spec.Settings = map[string]any{"create_instance_kwargs": map[string]any{"template_hash": "abc", "bid_price": 0.1, "api_key": "x", "disk": 1}}
	b, err := body(spec)
	if err != nil || b["template_hash_id"] != "abc" || b["price"] != 0.1 || b["api_key"] != nil || b["disk"] != 120 || b["image"] != "ghcr.io/team/tool" || b["image_login"] != "-u ann -p secret ghcr.io" {
		t.Errorf("%v, %v", b, err)
	}
	if env := b["env"].(map[string]string); env["-p 8081:8081"] != "1" || !strings.Contains(b["onstart"].(string), cloudtest.Key) {
		t.Errorf("%v", b)
	}
	spec.Login = &registry.Login{Server: "ghcr.io"}
	if _, err := body(spec); !cloudtest.Is[*cloud.InvalidError](err) {
		t.Error(err)
	}
}

func TestTypesAndPlaces(t *testing.T) {
	for name, want := range map[string]ask{
		"1x-RTX_4090-16-65536": {GPU: "RTX 4090", GPUs: 1, CPUs: 16, MemoryMiB: 65536}, "8x-H100_SXM-192.5-2097152": {GPU: "H100 SXM", GPUs: 8, CPUs: 192.5, MemoryMiB: 2097152},
		"2x-RTX_A-1-4-8": {GPU: "RTX A-1", GPUs: 2, CPUs: 4, MemoryMiB: 8}, "x": {}, "1x-RTX_4090": {}, "ax-b-c-d": {}, "0x-RTX_4090-1-1": {},
	} {
		if got, err := fetch.VastKind(name); got != want || (err == nil) != (want.GPUs > 0) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for place, want := range map[string]string{"Oregon, US": "US", "SE": "SE", ", GB": "GB", "California, United States": "", "": ""} {
		if got := (ask{Place: place}).Country(); got != want {
			t.Errorf("%s is in %q", place, got)
		}
	}
}

// The price list that sky catalog fetch makes can be read.
func TestThePriceList(t *testing.T) {
	fake, _ := start(t)
	server := httptest.NewServer(fake)
	defer server.Close()
	rows, err := fetch.Vast{API: fetch.API{BaseURL: server.URL + "/api/v0", Token: vastfake.Key}}.Rows(t.Context())
	if err != nil || len(rows) != 4 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	if err := fetch.Write(io.Discard, Name, rows); err != nil {
		t.Error(err)
	}
}
