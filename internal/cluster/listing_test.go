package cluster

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/state"
)

// TestOneListServesAllClustersOfACloud counts how often a cloud with many clusters
// is asked in a minute, and sees that what happens to one of them is found out all
// the same.
//
//	SKY_TEST_CLUSTERS=10000 go test -run OneListServes -v ./internal/cluster
func TestOneListServesAllClustersOfACloud(t *testing.T) {
	many := 3 * listFrom
	if s := os.Getenv("SKY_TEST_CLUSTERS"); s != "" {
		var err error
		if many, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, db := t.Context(), openDB(t)
		defer db.Close()
		r, p := rented(t, db, 4*many)
		for n := range many {
			// Straight from the cloud: how clusters come to be is tested elsewhere.
			name := fmt.Sprint("c", n)
			c := &state.Cluster{
				Name: name, Hash: "hash-" + name, NameOnCloud: name, Status: api.ClusterUp, EverUp: true, NumNodes: 1, LaunchedAt: time.Now(), AutostopMinutes: -1,
				Offer: cloud.Offer{Place: cloud.Place{Cloud: fluffycloud.Name, Region: "east", Zone: "east-a"}, InstanceType: "puff-2"},
			}
			spec := cloud.LaunchSpec{ID: r.m.Provision.ClusterID(c), Offer: c.Offer, Nodes: 1, Token: name, MachineSpec: cloud.MachineSpec{DiskGB: 10}}
			if err := p.Prepare(ctx, spec); err != nil {
				t.Fatal(err)
			}
			var err error
			if c.Nodes, err = p.Launch(ctx, spec); err != nil {
				t.Fatal(err)
			}
			if err := db.Clusters().Create(ctx, c); err != nil {
				t.Fatal(err)
			}
		}
		minute := func(want int64) {
			t.Helper()
			p.lists.Store(0)
			r.m.refreshEvery(ctx)
			if n := p.lists.Load(); n != want {
				t.Errorf("%d questions for %d clusters, want %d", n, many, want)
			}
		}
		minute(1)

		lost, err := db.Clusters().Get(ctx, "c7")
		if err != nil {
			t.Fatal(err)
		}
		if err := r.cloud.Kill(lost.Nodes[0].ID, "preempted"); err != nil {
			t.Fatal(err)
		}
		p.lists.Store(0)
		r.m.refreshEvery(ctx)
		if n := p.lists.Load(); n < 2 || n > 5 { // the lost one is asked about, and given back
			t.Errorf("%d questions to find out that one cluster is lost", n)
		}
		if _, err := db.Clusters().Get(ctx, "c7"); err == nil {
			t.Error("a cluster without machines is still there")
		}

		// Without the list each cluster is asked about.
		if err := r.cloud.Inject(model.Fault{ID: "cut", Kind: model.Cut, Times: 1}); err != nil {
			t.Fatal(err)
		}
		minute(int64(many))
		minute(1)
		t.Logf("%d clusters: 1 question a minute; one by one it is %d", many-1, many-1)
	})
}

// Only a cluster whose machines all run and whose agents all speak needs no look
// of its own.
func TestAsRecorded(t *testing.T) {
	db := openDB(t)
	r, _ := rented(t, db, 4)
	node := func(rank int, s cloud.NodeState) cloud.Node { return cloud.Node{Rank: rank, State: s, Hash: "h"} }
	run := []cloud.Node{node(0, cloud.NodeRunning), node(1, cloud.NodeRunning)}
	for _, tt := range []struct {
		name  string
		of    func(c *state.Cluster)
		nodes []cloud.Node
		heard []time.Duration // ago, by rank
		want  bool
	}{
		{"all run and speak", nil, run, []time.Duration{time.Second, time.Second}, true},
		{"a machine is gone", nil, []cloud.Node{run[0], node(1, cloud.NodeGone)}, []time.Duration{0, 0}, false},
		{"a machine is not listed", nil, run[:1], []time.Duration{0, 0}, false},
		{"none is listed", nil, nil, []time.Duration{0, 0}, false},
		{"one too many", nil, append(run[:2:2], node(2, cloud.NodeRunning)), []time.Duration{0, 0}, false},
		{"one is off", nil, []cloud.Node{run[0], node(1, cloud.NodeStopped)}, []time.Duration{0, 0}, false},
		{"a worker is silent", nil, run, []time.Duration{0, time.Minute}, false},
		{"the head is silent", nil, run, []time.Duration{time.Minute, 0}, false},
		{"nobody listens", nil, run, nil, false},
		{"no agents, all run", func(c *state.Cluster) { c.Nodes[0].Reach.Method = cloud.ReachNone }, run, nil, true},
		{"its record says otherwise", func(c *state.Cluster) { c.Status = api.ClusterInit }, run, []time.Duration{0, 0}, false},
		{"it is stopping itself", func(c *state.Cluster) { c.Status = api.ClusterAutostopping }, run, []time.Duration{0, 0}, false},
		{"it is being given back", func(c *state.Cluster) { c.Notes.GivingBack = "why" }, run, []time.Duration{0, 0}, false},
	} {
		c := &state.Cluster{Name: "c", Hash: "h", Status: api.ClusterUp, NumNodes: 2, Nodes: []cloud.Node{{}, {}}}
		if tt.of != nil {
			tt.of(c)
		}
		var at []time.Time
		for _, ago := range tt.heard {
			at = append(at, time.Now().Add(-ago))
		}
		r.m.watcher.heard["h"] = at
		if got := r.m.asRecorded(c, tt.nodes); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
