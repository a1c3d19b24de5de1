package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// full is a manager over a database with n clusters, the first of which is the
// newest; every third is a managed job's and every fourth in another workspace.
func full(tb testing.TB, n int) *Manager {
	tb.Helper()
	store, err := state.Open(tb.Context(), filepath.Join(tb.TempDir(), "sky.db"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { store.Close() })
	for i := range n {
		c := &state.Cluster{
			Name: fmt.Sprint("c", i), Hash: fmt.Sprint("h", i), Status: api.ClusterStopped, UserHash: "u", Workspace: "default",
			LaunchedAt: time.Unix(1e9-int64(i), 0), Offer: cloud.Offer{Place: cloud.Place{Cloud: "aws", Region: "us-east-1"}, InstanceType: "m6i.large", CPUs: 2, MemoryGiB: 8},
			NumNodes: 1, Nodes: []cloud.Node{{ID: "i-1"}}, Holder: holderIf(i%3 == 2),
		}
		if i%4 == 3 {
			c.Workspace = "other"
		}
		if err := store.Clusters().Create(tb.Context(), c); err != nil {
			tb.Fatal(err)
		}
	}
	return &Manager{Deps: Deps{Store: store, Providers: cloud.NewRegistry()}}
}

func TestStatusPages(t *testing.T) {
	m := full(t, 12)
	some := &state.Scope{User: "u", Workspaces: []string{"default"}}
	for _, tt := range []struct {
		name        string
		scope       *state.Scope
		limit, page int // 0: not given
		names       []string
		want        string
	}{
		{"everything", nil, 0, 0, nil, "c0 c1 c3 c4 c6 c7 c9 c10"},
		{"first page", nil, 3, 0, nil, "c0 c1 c3"},
		{"the same", nil, 3, 1, nil, "c0 c1 c3"},
		{"second", nil, 3, 2, nil, "c4 c6 c7"},
		{"last, not full", nil, 3, 3, nil, "c9 c10"},
		{"after the last", nil, 3, 4, nil, ""},
		{"pages are of what the caller sees", some, 3, 2, nil, "c6 c9 c10"},
		{"by name managed ones are shown", nil, 2, 2, []string{"c?"}, "c2 c3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := api.StatusBody{ClusterNames: tt.names}
			if tt.limit > 0 {
				b.Limit = &tt.limit
			}
			if tt.page > 0 {
				b.Page = &tt.page
			}
			records, err := m.Status(t.Context(), Call{Scope: tt.scope}, b)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range records {
				got = append(got, r.Name)
			}
			if want := strings.Fields(tt.want); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
	zero, one, most := 0, 1, math.MaxInt
	for _, b := range []api.StatusBody{{Limit: &zero}, {Page: &one}, {Limit: &one, Page: &zero}, {Limit: &most, Page: &most}} {
		_, err := m.Status(t.Context(), Call{}, b)
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Type != api.ErrValue {
			t.Errorf("limit and page that cannot be: %v", err)
		}
	}
}

// What a machine is called means something to clients that know its cloud only;
// the name of another cloud breaks their listing.
func TestHandlesNameMachinesOfCloudsThatClientsKnow(t *testing.T) {
	m := &Manager{Deps: Deps{Providers: cloud.NewRegistry()}}
	for name, known := range map[string]bool{"aws": true, "fluffycloud": false} {
		c := &state.Cluster{NumNodes: 1, Offer: cloud.Offer{Place: cloud.Place{Cloud: name, Region: "east"}, InstanceType: "puff", CPUs: 2, MemoryGiB: 8}}
		got := m.Record(c).Handle.LaunchedResources
		if (got.InstanceType != "") != known || (got.Infra != "") != known || got.CPUs != "2" || got.Memory != "8" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestWhatClientsReadOfMachines(t *testing.T) {
	o := cloud.Offer{Place: cloud.Place{Cloud: "aws", Region: "r", Zone: "z"}, InstanceType: "p3.2xlarge", CPUs: 8, MemoryGiB: 61, Accelerators: map[string]float64{"V100": 1}, Spot: true}
	for want, o := range map[string]cloud.Offer{
		`{"accelerators":{"V100":1},"cpus":"8","infra":"aws/r/z","instance_type":"p3.2xlarge","memory":"61","use_spot":true}`: o,
		`{"cpus":"0.5","memory":"1"}`: {Place: cloud.Place{Cloud: "fluffycloud", Region: "r"}, InstanceType: "puff", CPUs: 0.5, MemoryGiB: 1, Accelerators: map[string]float64{}},
	} {
		if got, err := json.Marshal(launchedResources(o)); err != nil || string(got) != want {
			t.Errorf("%s, %v\nwant %s", got, err, want)
		}
	}
}

func BenchmarkStatusOf10000(b *testing.B) {
	m := full(b, 10_000)
	first := 50
	for name, body := range map[string]api.StatusBody{"all": {}, "first_50": {Limit: &first}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := m.Status(b.Context(), Call{}, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// holderIf is a holder, or none.
func holderIf(held bool) state.Holder {
	if held {
		return state.JobHolder(7)
	}
	return state.Holder{}
}
