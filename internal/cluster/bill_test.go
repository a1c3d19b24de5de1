package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
)

// What a record of running time may be off by. A machine that is taken away is
// noticed at the next look; between a cloud's act and our note of it are a poll
// and the time that a machine takes to boot or to halt.
const (
	perChange = 20 * time.Second
	perLoss   = refreshPeriod + perChange
)

// agentless is FluffyCloud with machines that no agent runs on.
type agentless struct{ *fluffycloud.Provider }

func (u agentless) Launch(ctx context.Context, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	nodes, err := u.Provider.Launch(ctx, spec)
	return withoutAgents(nodes), err
}

func (u agentless) Nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	nodes, err := u.Provider.Nodes(ctx, id)
	return withoutAgents(nodes), err
}

func withoutAgents(nodes []cloud.Node) []cloud.Node {
	for i := range nodes {
		nodes[i].Reach = cloud.Reach{Method: cloud.ReachNone}
	}
	return nodes
}

type silent struct{}

func (silent) Write(b []byte) (int, error) { return len(b), nil }
func (silent) Spin(string)                 {}
func (silent) StopSpin()                   {}

// renter is a server, and one after it when it died, that rents on a cloud.
type renter struct {
	t       *testing.T
	cloud   *model.Cloud
	db      *state.Store
	m       *Manager
	allowed map[string]time.Duration // by cluster hash: what the record may be off by
}

func (r *renter) boot() {
	r.bootWith(agentless{fluffycloud.New(fluffycloud.Options{API: r.cloud.Account("ann", "owner"), Poll: 2 * time.Second})})
}

func (r *renter) bootWith(p cloud.Provider) {
	log := slog.New(slog.DiscardHandler)
	reg := cloud.NewRegistry(p)
	r.m = New(Deps{
		Store: r.db, Providers: reg, Provision: provision.New("i", reg, r.db, log),
		Remote: remote.New(remote.Options{Logger: log}), Log: log, ServerID: "s",
	})
}

// bring does what package execution does once agents need not be started.
func (r *renter) bring(ctx context.Context, c *state.Cluster, offers [][]cloud.Offer, keep bool) error {
	offer, nodes, err := r.m.Provision.Provision(ctx, provision.Request{Cluster: c, Nodes: c.NumNodes, Tiers: offers, Keep: keep, AuthorizedKey: "ssh-ed25519 AAAA"})
	if err != nil {
		return err
	}
	r.allowed[c.Hash] += time.Duration(c.NumNodes) * perChange
	if err := r.db.Clusters().OpenUsage(ctx, c.Hash, time.Now()); err != nil {
		return err
	}
	_, err = r.db.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		c.Offer, c.Nodes, c.Status, c.EverUp, c.StatusUpdatedAt = offer, nodes, api.ClusterUp, true, time.Now()
		return nil
	})
	return err
}

func (r *renter) launch(ctx context.Context, name string, nodes int) error {
	c := &state.Cluster{
		Name: name, Hash: "hash-" + name, NameOnCloud: name + "-u", Status: api.ClusterInit, NumNodes: nodes, LaunchedAt: time.Now(), AutostopMinutes: -1,
		Offer: cloud.Offer{Place: cloud.Place{Cloud: fluffycloud.Name, Region: "east", Zone: "east-a"}, InstanceType: "puff-2", HourlyPrice: 1},
	}
	if err := r.db.Clusters().Create(ctx, c); err != nil {
		return err
	}
	return r.bring(ctx, c, provision.Exactly(c.Offer), false)
}

// pass lets time go by, with the server's look at every cluster.
func (r *renter) pass(ctx context.Context, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(refreshPeriod, time.Until(end)))
		r.m.refreshEvery(ctx)
	}
}

// TestUsageIsWhatTheCloudBills compares the running time on record with the
// cloud's bill after random histories of launches, stops, starts, ends, machines
// that are taken away, and servers that die, in the middle of something or not.
// SKY_SIM_HISTORIES says how many.
func TestUsageIsWhatTheCloudBills(t *testing.T) {
	n := 6
	if v := os.Getenv("SKY_SIM_HISTORIES"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range uint64(n) {
		t.Run(fmt.Sprint("history ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { compareBills(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

func compareBills(t *testing.T, rng *rand.Rand) {
	ctx := t.Context()
	cfg := model.Default(rng.Uint64())
	cfg.Boot, cfg.Halt = model.Delay{Min: 10 * time.Second, Max: 10 * time.Second}, model.Delay{Min: 5 * time.Second, Max: 5 * time.Second}
	cfg.Linger = 10_000 * time.Hour
	rented, err := model.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db, err := state.Open(ctx, filepath.Join(t.TempDir(), "sky.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r := &renter{t: t, cloud: rented, db: db, allowed: map[string]time.Duration{}}
	r.boot()
	call := Call{User: state.User{ID: "u", Name: "ann"}, Out: silent{}}
	for step := range 15 {
		list, err := db.Clusters().List(ctx, state.ClusterFilter{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 || rng.IntN(4) == 0 {
			if err := r.launch(ctx, fmt.Sprint("c", step), 1+rng.IntN(3)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		c := list[rng.IntN(len(list))]
		r.allowed[c.Hash] += time.Duration(c.NumNodes) * perChange
		short, cancel := context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(20*time.Second)))) // of a server that dies then
		if rng.IntN(2) == 0 {
			short = ctx
		}
		switch rng.IntN(5) {
		case 0:
			err = r.m.Stop(short, call, api.StopBody{ClusterName: c.Name})
		case 1:
			err = r.m.Down(short, call, api.StopBody{ClusterName: c.Name})
		case 2:
			if c.Status == api.ClusterStopped {
				err = r.bring(ctx, c, provision.Exactly(c.Offer), true)
			}
		case 3: // all machines at once: a part of a cluster counts as the whole
			for _, m := range rented.Machines() {
				if m.Tags[cloud.TagHash] == c.Hash && m.Billed {
					if err := rented.Kill(m.ID, "spot reclaimed"); err != nil {
						t.Fatal(err)
					}
				}
			}
			r.allowed[c.Hash] += time.Duration(c.NumNodes) * perLoss
		case 4: // nobody looks for a while
			dead := time.Duration(rng.Int64N(int64(10 * time.Minute)))
			time.Sleep(dead)
			r.boot()
		}
		if err != nil && short.Err() == nil {
			t.Fatalf("step %d, %s: %v", step, c.Name, err)
		}
		if short.Err() != nil {
			r.boot()
			// What it had begun is seen at the next look, and ended at the one after.
			r.allowed[c.Hash] += 2 * time.Duration(c.NumNodes) * perLoss
		}
		cancel()
		r.pass(ctx, time.Duration(rng.Int64N(int64(8*time.Minute))))
	}
	r.compare(ctx)
}

func (r *renter) compare(ctx context.Context) {
	all := 0
	records, err := r.m.CostReport(ctx, Call{}, api.CostReportBody{Days: &all})
	if err != nil {
		r.t.Fatal(err)
	}
	if len(records) == 0 {
		r.t.Error("nothing is on record")
	}
	running := r.cloud.Running()
	billed := map[string]time.Duration{}
	for _, m := range r.cloud.Machines() {
		billed[m.Tags[cloud.TagHash]] += running[m.ID]
	}
	for _, c := range records {
		ours := time.Duration(c.Duration*int64(c.NumNodes)) * time.Second
		if off := (ours - billed[c.ClusterHash]).Abs(); off > r.allowed[c.ClusterHash] {
			r.t.Errorf("%s: %v of machine time on record, %v billed, %v apart; %v may be", c.Name, ours, billed[c.ClusterHash], off, r.allowed[c.ClusterHash])
		}
		delete(billed, c.ClusterHash)
	}
	for hash, d := range billed {
		if d > 0 {
			r.t.Errorf("%s: %v billed, nothing on record", hash, d)
		}
	}
}
