package mithril

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/catalog/fetch"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/cloudtest"
	"github.com/skypilot-go/sky/internal/cloud/mithril/mithrilfake"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

var (
	here      = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "us-central1-b"}, InstanceType: "a100-80gb.sxm.1x", CPUs: 15, MemoryGiB: 116, HourlyPrice: 1.2, Spot: true}
	elsewhere = cloud.Offer{Place: cloud.Place{Cloud: Name, Region: "us-central2-a"}, InstanceType: "a100-80gb.sxm.1x", CPUs: 15, MemoryGiB: 116, HourlyPrice: 1.2, Spot: true}
)

func start(t testing.TB) (*mithrilfake.Fake, func() *Provider) {
	fake := mithrilfake.New()
	o := fake.Tuning(t, ".config/mithril/config.yaml", "api_key: "+mithrilfake.Key+"\nproject_id: "+mithrilfake.Project+"\n")
	return fake, func() *Provider { return New(o) }
}

func launch(name string) cloud.LaunchSpec { return cloudtest.Cluster(here, name) }

func TestConformance(t *testing.T) {
	cloudtest.RunVirtual(t, func(t testing.TB) cloudtest.Harness {
		fake, provider := start(t)
		h := fake.Harness(func() cloud.Provider { return provider() }, "keys") // those are the project's and stay
		h.Raise = func(_ testing.TB, by float64) { fake.Raise(by) }
		h.Spec, h.Elsewhere, h.Spot = cloud.LaunchSpec{Offer: here, AuthorizedKey: cloudtest.Key}, &elsewhere, &here
		return h
	})
}

// A bid whose machine was taken back wins another one at once, which has nothing of the
// cluster's: it is none of its nodes, and goes with the cluster.
func TestABidThatWasTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, provider := start(t)
		p, spec := provider(), launch("web")
		nodes, err := p.Launch(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		fake.Preempt(nodes[0].ID, 0)
		time.Sleep(time.Minute)
		for n := range 3 { // which is known also once the bid is cancelled
			nodes, err = p.Nodes(t.Context(), spec.ID)
			if err != nil || len(nodes) != 1 || nodes[0].State != cloud.NodeGone || !strings.Contains(nodes[0].Reason, "others bid more than $1.80 an hour") {
				t.Fatalf("%d: %+v, %v", n, nodes, err)
			}
			time.Sleep(time.Minute)
			for _, line := range fake.Inventory() {
				if !strings.HasPrefix(line, "keys ") {
					t.Errorf("%d: it goes on costing money: %s", n, line)
				}
			}
		}
		if err := p.Terminate(t.Context(), spec.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if nodes, err := p.Nodes(t.Context(), spec.ID); err != nil || len(nodes) != 0 {
			t.Errorf("it came back: %+v, %v", nodes, err)
		}
		for _, line := range fake.Inventory() {
			if !strings.HasPrefix(line, "keys ") {
				t.Errorf("left: %s", line)
			}
		}
	})
}

// A rank that is bid for anew has another name, and is the same rank.
func TestNamesOfBids(t *testing.T) {
	id := launch("web").ID
	had := []vm.Machine{}
	seen := map[string]bool{}
	for range 3 {
		for _, rank := range []int{0, 7} {
			name := nameOf(id, rank, had)
			m := bid{Name: name, Status: bidTerminated}.machine(id, nil)
			if had = append(had, m); seen[name] || m.Tags[cloud.TagRank] != strconv.Itoa(rank) || m.Tags[cloud.TagCluster] != "web" {
				t.Errorf("%d: %s, %v", rank, name, m.Tags)
			}
			seen[name] = true
		}
	}
	spec := launch("web")
	if spec.Nodes = mostNodes + 1; valid(spec) == nil {
		t.Error("too many nodes")
	}
}

// What was planned without a price, as a cluster that a server has adopted, is bid for by
// what the auction says; a limit below the market is no bid.
func TestWhatIsBid(t *testing.T) {
	fake, provider := start(t)
	p, spec := provider(), launch("web")
	spec.Offer.HourlyPrice = 0
	if err := p.Prepare(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	nodes, err := p.Launch(t.Context(), spec)
	if err != nil || fake.Asked(nodes[0].ID)["limit_price"] != "$1.80" {
		t.Fatalf("%v, %v", nodes, err)
	}
	other := launch("low")
	other.Settings = map[string]any{"limit_price": 1.0}
	if _, err := p.Launch(t.Context(), other); !cloudtest.Is[*cloud.CapacityError](err) || !strings.Contains(err.Error(), "mithril.limit_price is $1.00") {
		t.Error(err)
	}
	if err := p.Prepare(t.Context(), other); !cloudtest.Is[*cloud.CapacityError](err) {
		t.Error(err)
	}
}

// A bid is never higher than what the task allows, also where the user sets it and where a
// bid that was paused goes on at another price.
func TestABidIsBoundedByTheTask(t *testing.T) {
	for _, tt := range []struct {
		most, own, raised float64
		want, started     string // "": the price is refused
	}{
		{0, 0, 1, "$1.80", "$1.80"}, {5, 0, 1, "$1.80", "$1.80"}, {1.5, 0, 1, "$1.50", "$1.50"}, {1.2, 0, 1, "$1.20", "$1.20"}, {1, 0, 1, "", ""},
		{1.5, 20, 1, "$1.50", "$1.50"}, {1.5, 1.3, 1, "$1.30", "$1.30"},
		{3, 0, 2, "$1.80", "$3.00"}, {2, 0, 2, "$1.80", ""}, {0, 0, 2, "$1.80", "$3.60"},
	} {
		synctest.Test(t, func(t *testing.T) {
			fake, provider := start(t)
			p, spec := provider(), launch("web")
			if spec.Offer.MaxHourlyCost = tt.most; tt.own > 0 {
				spec.Settings = map[string]any{"limit_price": tt.own}
			}
			nodes, err := p.Launch(t.Context(), spec)
			if tt.want == "" {
				if !cloudtest.Is[*cloud.PriceError](err) || !cloudtest.Is[*cloud.PriceError](p.Prepare(t.Context(), spec)) {
					t.Errorf("%+v: %v", tt, err)
				}
				return
			}
			if err != nil || fake.Asked(nodes[0].ID)["limit_price"] != tt.want {
				t.Fatalf("%+v: %v, %v", tt, nodes, err)
			}
			if err := p.Stop(t.Context(), spec.ID); err != nil {
				t.Fatal(err)
			}
			fake.Raise(tt.raised)
			_, err = p.Launch(t.Context(), spec)
			bids := fake.Things("bids")
			switch {
			case tt.started == "" && (!cloudtest.Is[*cloud.PriceError](err) || bids[0]["limit_price"] != tt.want || bids[0]["paused"] != true):
				t.Errorf("%+v: started with %v: %v", tt, bids[0], err)
			case tt.started != "" && (err != nil || bids[0]["limit_price"] != tt.started):
				t.Errorf("%+v: started with %v: %v", tt, bids[0]["limit_price"], err)
			}
		})
	}
}

// What the auctions say is what is offered, and a price that rose is no surprise.
func TestThePriceListIsOfWhatCanBeRented(t *testing.T) {
	fake, provider := start(t)
	rows, err := fetch.Mithril{API: fetch.API{Client: &http.Client{Transport: fake}, Token: mithrilfake.Key}}.Rows(t.Context())
	if err != nil || len(rows) == 0 {
		t.Fatal(rows, err)
	}
	offers, err := provider().Offers(t.Context())
	if err != nil || len(offers) != 2*len(rows) {
		t.Errorf("%d offers of %d rows, %v", len(offers), len(rows), err)
	}
	cloudtest.PriceList(t, provider(), cloud.AvailableNow, offers)
}

func TestWhatStatesMean(t *testing.T) {
	of := func(status string) *instance { return &instance{Status: status} }
	for _, tt := range []struct {
		bid  string
		i    *instance
		want vm.State
		said string
	}{
		{bidOpen, nil, vm.Pending, bidOpen}, {bidAllocated, nil, vm.Pending, bidAllocated}, {bidPaused, nil, vm.Stopped, bidPaused}, {bidTerminated, nil, vm.Ended, bidTerminated}, {"odd", nil, vm.Unknown, "odd"},
		{bidAllocated, of("STATUS_NEW"), vm.Pending, "STATUS_NEW"}, {bidAllocated, of("STATUS_CONFIRMED"), vm.Pending, "STATUS_CONFIRMED"}, {bidAllocated, of("STATUS_SCHEDULED"), vm.Pending, "STATUS_SCHEDULED"},
		{bidAllocated, of("STATUS_INITIALIZING"), vm.Pending, "STATUS_INITIALIZING"}, {bidAllocated, of("STATUS_STARTING"), vm.Pending, "STATUS_STARTING"},
		{bidAllocated, of("STATUS_RUNNING"), vm.Running, "STATUS_RUNNING"}, {bidAllocated, of("STATUS_STOPPING"), vm.Running, "STATUS_STOPPING"}, {bidAllocated, of("STATUS_RELOCATING"), vm.Running, "STATUS_RELOCATING"},
		{bidAllocated, of("STATUS_ERROR"), vm.Pending, "STATUS_ERROR"}, {bidAllocated, of("odd"), vm.Unknown, "odd"}, {"odd", of("STATUS_RUNNING"), vm.Unknown, "odd"},
		// The bid gets another machine, or this one again.
		{bidAllocated, of("STATUS_REPLACED"), vm.Pending, bidAllocated}, {bidAllocated, of("STATUS_STOPPED"), vm.Pending, bidAllocated}, {bidAllocated, of("STATUS_PAUSED"), vm.Pending, bidAllocated}, {bidOpen, of("STATUS_TERMINATED"), vm.Ended, "STATUS_TERMINATED"},
		// Others bid more.
		{bidPreempting, of("STATUS_PREEMPTING"), vm.Running, "STATUS_PREEMPTING"}, {bidOpen, of("STATUS_PREEMPTING"), vm.Running, "STATUS_PREEMPTING"}, {bidOpen, of("STATUS_PREEMPTED"), vm.Ended, "STATUS_PREEMPTED"},
		// The user does not want it now, or any more.
		{bidPaused, of("STATUS_RUNNING"), vm.Stopping, "STATUS_RUNNING"}, {bidPaused, of("STATUS_STOPPING"), vm.Stopping, "STATUS_STOPPING"}, {bidPaused, of("STATUS_PAUSED"), vm.Stopped, bidPaused}, {bidPaused, of("STATUS_STOPPED"), vm.Stopped, bidPaused},
		{bidTerminated, of("STATUS_STOPPING"), vm.Ending, "STATUS_STOPPING"}, {bidTerminated, of("STATUS_TERMINATED"), vm.Ended, bidTerminated}, {bidTerminated, of("STATUS_PREEMPTED"), vm.Ended, bidTerminated},
	} {
		state, said, reason := bid{Status: tt.bid, Limit: "$15.00"}.state(tt.i)
		if state != tt.want || said != tt.said || (reason != "") != (said == preempted || said == "STATUS_TERMINATED") {
			t.Errorf("%s, %+v: %v %s %q", tt.bid, tt.i, state, said, reason)
		}
	}
}

func TestWhatRefusalsMean(t *testing.T) {
	cloudtest.Refusals(t, here.Place, rest.ReadDetails, refusals("fix"), []cloudtest.Refusal{
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 400, `{"detail": "Invalid request parameters"}`),
		cloudtest.Means[*cloud.QuotaError](vm.Refused, 400, `{"detail": "Quota exceeded for instance type"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"detail": "Insufficient capacity"}`),
		cloudtest.Means[*cloud.CapacityError](vm.Refused, 400, `{"detail": "limit_price is below the minimum price"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 400, `{"detail": "The bid was already terminated"}`),
		cloudtest.Means[error](vm.Changed, 400, `{"detail": "Name already used"}`),
		cloudtest.Means[error](vm.Changed, 400, `{"detail": "The bid is already paused"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 401, `{"detail": "Invalid credentials"}`),
		cloudtest.Means[*cloud.AuthError](vm.Refused, 402, `{"detail": "Payment required"}`),
		cloudtest.Means[*cloud.PermissionError](vm.Refused, 403, `{"detail": "Forbidden"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Missing, 404, `{"detail": "Not found"}`),
		cloudtest.Means[error](vm.Changed, 409, `{"detail": "not ready"}`),
		cloudtest.Means[*cloud.InvalidError](vm.Refused, 422, `{"detail": [{"loc": ["body", "region"], "msg": "Field required", "type": "missing"}]}`),
		cloudtest.Means[*cloud.ThrottledError](vm.Refused, 429, `{}`),
		cloudtest.Means[*rest.Error](vm.Refused, 418, `{"detail": "odd"}`),
		cloudtest.Nothing(502, `{"detail": "upstream"}`),
	})
	if err := rest.ReadDetails(422, nil, []byte(`{"detail": [{"loc": ["body", "region"], "msg": "Field required"}]}`)); err == nil || !strings.Contains(err.Error(), "body.region: Field required") {
		t.Error(err)
	}
}

// What is bid is what the user says, never less than the plan's price.
func TestTheLimitPrice(t *testing.T) {
	for _, tt := range []struct {
		own   any
		price float64
		want  string
		wrong string
	}{
		{nil, 10, "$15.00", ""}, {nil, 2.25, "$3.38", ""}, {20.5, 10, "$20.50", ""}, {12, 10, "$12.00", ""}, {8.0, 10, "", "limit_price is $8.00"}, {nil, 0, "", "no price to bid"}, {3, 0, "$3.00", ""},
	} {
		spec := cloud.LaunchSpec{Offer: here, Settings: map[string]any{}}
		if spec.Offer.HourlyPrice = tt.price; tt.own != nil {
			spec.Settings["limit_price"] = tt.own
		}
		got, err := limit(spec)
		if got != tt.want || (tt.wrong != "") != (err != nil) || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%v, %v: %q, %v", tt.own, tt.price, got, err)
		}
	}
}

func TestCredentials(t *testing.T) {
	home := t.TempDir()
	_, err := New(Options{Home: home}).Check(t.Context())
	var auth *cloud.AuthError
	if !errors.As(err, &auth) || !auth.NotSetUp || !strings.Contains(auth.Fix, "~/.config/mithril/config.yaml") {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"api_key: k\nproject_id: p\n": "", "current_profile: a\nprofiles:\n  a:\n    api_key: k\n    project_id: p\n": "", "api_key: k\n": `no "project_id"`,
	} {
		cloudtest.HomeFile(t, home, ".config/mithril/config.yaml", text)
		keys, err := New(Options{Home: home}).Read()
		if want == "" && (err != nil || keys["api_key"] != "k" || keys["project_id"] != "p") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, %v", text, keys, err)
		}
	}
}
