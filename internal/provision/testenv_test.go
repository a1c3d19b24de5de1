package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/state"
)

// testEnv is two clouds, a database, and servers that come and go. The server
// does what package execution and package cluster do with this package.
type testEnv struct {
	rng      *rand.Rand
	clouds   map[string]*model.Cloud
	records  store
	requests []*request // the oldest first
	log      strings.Builder
	began    time.Time
	ending   map[string]bool // clusters, by hash, that somebody wanted to end
	hid      bool            // a cloud listed machines late: no list is a proof
	err      error           // the first broken promise
}

// request is what a user wants. It outlives servers.
type request struct {
	verb    string // "launch", "start", "stop", "down"
	cluster string
	nodes   int
	hedge   int
	seed    uint64
	hash    string // the incarnation that a launch made, as its record's metadata tell
	done    bool
}

const (
	east, west = "fluffycloud", "puffy"
	account    = "ann"
	installed  = "installation"
)

func newTestEnv(seed uint64, records store) *testEnv {
	env := &testEnv{rng: rand.New(rand.NewPCG(seed, 1)), clouds: map[string]*model.Cloud{}, ending: map[string]bool{}, records: records, began: time.Now()}
	for i, name := range []string{east, west} {
		c, err := model.New(model.Config{
			Seed: seed + uint64(i),
			Regions: []model.Region{
				{Name: "north", Zones: []string{"north-a", "north-b"}}, {Name: "south", Zones: []string{"south-a"}, Factor: 1.1},
			},
			Types:    []model.Type{{Name: "puff", CPUs: 2, Price: 1, SpotPrice: 0.4}, {Name: "fluff", CPUs: 8, Price: 3, SpotPrice: 1}},
			Boot:     model.Delay{Min: 20 * time.Second, Max: 3 * time.Minute},
			Halt:     model.Delay{Min: time.Second, Max: 30 * time.Second},
			Notice:   2 * time.Minute,
			SpotLife: 6 * time.Hour,
			Linger:   1000 * time.Hour, // the dead are counted
			Record:   true,
		})
		if err != nil {
			panic(err)
		}
		env.clouds[name] = c
	}
	return env
}

func (env *testEnv) say(format string, args ...any) {
	fmt.Fprintf(&env.log, "%8s  ", time.Since(env.began).Round(time.Second))
	fmt.Fprintf(&env.log, format+"\n", args...)
}

func (env *testEnv) broken(format string, args ...any) {
	if env.err == nil {
		env.err = fmt.Errorf(format, args...)
		env.say("BROKEN: %v", env.err)
	}
}

// takeDown bounds stopping and giving back, as in package cluster.
const takeDown = 10 * time.Minute

// server is one life with its engine.
type server struct {
	*life
	w         *testEnv
	engine    *Engine
	records   mortalRecords
	providers *cloud.Registry
}

func (env *testEnv) boot(ctx context.Context, fuse int) *server {
	l := newLife(ctx, fuse)
	provider := func(name string) *fluffycloud.Provider {
		return fluffycloud.New(fluffycloud.Options{API: mortalAPI{env.clouds[name].Account(account, "owner"), l}, Poll: 5 * time.Second})
	}
	other := provider(west)
	s := &server{life: l, w: env, records: mortalRecords{l, env.records}, providers: cloud.NewRegistry(provider(east), renamed{other, other, west})}
	s.engine = &Engine{providers: s.providers, records: s.records, log: slog.New(slog.DiscardHandler), install: installed}
	env.say("a server starts")
	return s
}

// run does a request as far as it goes in this life.
func (s *server) run(ctx context.Context, r *request) {
	s.w.say("%s %s (%d nodes, hedge %d)", r.verb, r.cluster, r.nodes, r.hedge)
	lease, ok, err := s.records.Acquire(ctx, clusterLease(r.cluster), "local", time.Hour)
	if err != nil || !ok {
		s.w.say("no lease: %v", err)
		return
	}
	switch r.verb {
	case "launch":
		err = s.launch(ctx, r)
	case "start":
		err = s.start(ctx, r)
	case "stop":
		err = s.stop(ctx, r)
	case "down":
		err = s.down(ctx, r.cluster)
	}
	if s.isDead() {
		s.w.say("the server died")
		return
	}
	r.done = !errors.Is(context.Cause(ctx), state.ErrHandover)
	s.w.say("%s %s: %v", r.verb, r.cluster, err)
	_ = s.records.Release(context.WithoutCancel(ctx), lease)
}

// tiers are offers in a random order of preference, which a resumed request
// has again.
func (r *request) tiers() [][]cloud.Offer {
	rng := rand.New(rand.NewPCG(r.seed, 2))
	var offers []cloud.Offer
	for _, name := range []string{east, west} {
		for _, zone := range []string{"north-a", "north-b", "south-a"} {
			for machine, price := range map[string]float64{"puff": 1, "fluff": 3} {
				region, _, _ := strings.Cut(zone, "-")
				o := cloud.Offer{Place: cloud.Place{Cloud: name, Region: region, Zone: zone}, InstanceType: machine, HourlyPrice: price}
				offers = append(offers, o)
				o.Spot, o.HourlyPrice = true, price/3
				offers = append(offers, o)
			}
		}
	}
	// Maps have no order of their own.
	sortOffers(offers)
	rng.Shuffle(len(offers), func(i, j int) { offers[i], offers[j] = offers[j], offers[i] })
	n := 1 + rng.IntN(5)
	cut := rng.IntN(n + 1)
	if cut == 0 || cut == n {
		return [][]cloud.Offer{offers[:n]}
	}
	return [][]cloud.Offer{offers[:cut], offers[cut:n]}
}

// launch does what package execution does.
func (s *server) launch(ctx context.Context, r *request) error {
	c, err := s.records.Cluster(ctx, r.cluster)
	switch {
	case errors.Is(err, state.ErrNotFound):
	case err != nil:
		return err
	case c.EverUp && !goes(c):
		return s.bring(ctx, c, Exactly(c.Offer), true, 0)
	case c.Hash != r.hash || c.EverUp:
		if err := s.forget(ctx, c); err != nil {
			return err
		}
		c = nil
	}
	tiers := r.tiers()
	if c == nil || err != nil {
		first := tiers[0][0]
		r.hash = uuid.NewString()
		c = &state.Cluster{Name: r.cluster, Hash: r.hash, NameOnCloud: r.cluster + "-u", Status: api.ClusterInit, Offer: first, NumNodes: r.nodes, LaunchedAt: time.Now()}
		if err := s.records.Create(ctx, c); err != nil {
			return err
		}
	}
	return s.bring(ctx, c, tiers, false, r.hedge)
}

func (s *server) bring(ctx context.Context, c *state.Cluster, tiers [][]cloud.Offer, keep bool, hedge int) error {
	c, err := s.records.UpdateCluster(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		c.Status, c.Notes.GivingBack = api.ClusterInit, ""
		return nil
	})
	if err != nil {
		return err
	}
	out := &said{w: s.w}
	offer, nodes, err := s.engine.Provision(ctx, Request{Cluster: c, Nodes: c.NumNodes, Tiers: tiers, Keep: keep, Out: out, Options: Options{Hedge: hedge, HedgePrice: 100}})
	if err == nil {
		s.wholeGang(c, offer, nodes)
		_, err = s.records.UpdateCluster(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
			c.Offer, c.Nodes, c.Status, c.EverUp = offer, nodes, api.ClusterUp, true
			return nil
		})
		if err == nil || ctx.Err() == nil {
			return err
		}
	}
	if errors.Is(context.Cause(ctx), state.ErrHandover) || keep || is[*LeftoverError](err) {
		return err
	}
	rest := context.WithoutCancel(ctx)
	if c, rerr := s.records.Cluster(rest, c.Name); rerr == nil {
		if rerr = s.forget(rest, c); rerr != nil {
			return errors.Join(err, rerr)
		}
	}
	return err
}

// wholeGang checks what Provision promises at the moment it returns.
func (s *server) wholeGang(c *state.Cluster, o cloud.Offer, nodes []cloud.Node) {
	if len(nodes) != c.NumNodes {
		s.w.broken("%s has %d nodes, not %d", c.Name, len(nodes), c.NumNodes)
	}
	for _, n := range nodes {
		if n.State != cloud.NodeRunning || n.Place != o.Place {
			s.w.broken("%s was said to be up in %v, but a node is %s in %v", c.Name, o.Place, n.State, n.Place)
		}
	}
}

func (s *server) start(ctx context.Context, r *request) error {
	c, err := s.records.Cluster(ctx, r.cluster)
	if err != nil {
		return err
	}
	if !c.EverUp || goes(c) {
		return nil
	}
	return s.bring(ctx, c, Exactly(c.Offer), true, 0)
}

func (s *server) stop(ctx context.Context, r *request) error {
	c, err := s.records.Cluster(ctx, r.cluster)
	if err != nil || !c.EverUp {
		return err
	}
	p, _ := s.providers.Get(c.Offer.Cloud)
	stopper, _ := cloud.As[cloud.Stopper](p)
	ctx, cancel := context.WithTimeout(ctx, takeDown)
	defer cancel()
	if err := stopper.Stop(ctx, s.engine.ClusterID(c)); err != nil {
		return err
	}
	_, err = s.records.UpdateCluster(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		c.Status = api.ClusterStopped
		return nil
	})
	return err
}

func (s *server) down(ctx context.Context, name string) error {
	c, err := s.records.Cluster(ctx, name)
	if err != nil {
		return err
	}
	return s.forget(ctx, c)
}

// forget does what package cluster does: the intent first, the row last.
func (s *server) forget(ctx context.Context, c *state.Cluster) error {
	s.w.ending[c.Hash] = true
	c, err := s.records.UpdateCluster(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		c.Notes.GivingBack = "it goes"
		return nil
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, takeDown)
	defer cancel()
	if err := s.engine.GiveBack(ctx, c, nil); err != nil {
		return err
	}
	for _, m := range s.w.clouds[c.Offer.Cloud].Machines() {
		if m.Tags[cloud.TagHash] == c.Hash && m.Tags[cloud.TagCluster] == c.NameOnCloud && !ended(m.State) && !s.isDead() && !s.w.hid {
			s.w.broken("%s is forgotten, but %s is %s", c.Name, m.Name, m.State)
		}
	}
	return s.records.Delete(ctx, c.Name, c.Hash)
}

// goes reports whether a cluster is being given back.
func goes(c *state.Cluster) bool { return c.Notes.GivingBack != "" }

func ended(s fluffyapi.State) bool { return s == fluffyapi.Terminated || s == fluffyapi.Terminating }

// refresh does what package cluster does with a cluster that is being given back,
// or was never up and has no machines.
func (s *server) refresh(ctx context.Context, c *state.Cluster) error {
	if goes(c) {
		return s.forget(ctx, c)
	}
	p, _ := s.providers.Get(c.Offer.Cloud)
	nodes, err := p.Nodes(ctx, s.engine.ClusterID(c))
	if err != nil || c.EverUp || alive(nodes) > 0 {
		return err
	}
	return s.forget(ctx, c)
}

// must is for what cannot fail in good weather.
func (env *testEnv) must(clusters []*state.Cluster, err error) []*state.Cluster {
	if err != nil {
		env.broken("%v", err)
	}
	return clusters
}

// said keeps what users are told with the history.
type said struct{ w *testEnv }

func (s *said) Write(b []byte) (int, error) {
	s.w.say("  %s", strings.TrimSpace(string(b)))
	return len(b), nil
}

var _ io.Writer = (*said)(nil)

// trouble makes calls to a cloud go wrong for a while.
func (env *testEnv) trouble() {
	name := []string{east, west}[env.rng.IntN(2)]
	ops := []string{"instances.*", "instances.create", "instances.list", "instances.terminate", "instances.start", "firewalls.*", ""}
	f := model.Fault{
		Kind:   []model.FaultKind{model.Fail, model.Throttle, model.Slow, model.Cut, model.Lose, model.Hang, model.Hide}[env.rng.IntN(7)],
		Op:     ops[env.rng.IntN(len(ops))],
		Times:  1 + env.rng.IntN(4),
		Chance: []float64{0, 0.3, 0.8}[env.rng.IntN(3)],
		Code:   []fluffyapi.Code{"", fluffyapi.NoCapacity, fluffyapi.QuotaExceeded, fluffyapi.Unauthorized, fluffyapi.Forbidden, fluffyapi.Invalid}[env.rng.IntN(6)],
		Delay:  time.Duration(env.rng.IntN(300)) * time.Second,
	}
	if f.Kind == model.Hide {
		f.Chance, env.hid = 0, true
	}
	env.say("%s: %s %q %d times, code %q, delay %v", name, f.Kind, f.Op, f.Times, f.Code, f.Delay)
	if err := env.clouds[name].Inject(f); err != nil {
		panic(err)
	}
}

// weather changes what a zone has room for, or takes machines away.
func (env *testEnv) weather() {
	name := []string{east, west}[env.rng.IntN(2)]
	zone := []string{"north-a", "north-b", "south-a"}[env.rng.IntN(3)]
	if env.rng.IntN(4) > 0 {
		machine, n := []string{"puff", "fluff"}[env.rng.IntN(2)], []int{0, 0, 1, 2, -1}[env.rng.IntN(5)]
		env.say("%s: room in %s for %d %s", name, zone, n, machine)
		if err := env.clouds[name].SetCapacity(zone, machine, n); err != nil {
			panic(err)
		}
		return
	}
	for _, m := range env.clouds[name].Machines() {
		if m.State == fluffyapi.Running && env.rng.IntN(3) == 0 {
			env.say("%s: %s breaks", name, m.Name)
			if err := env.clouds[name].Kill(m.ID, "the machine broke"); err != nil {
				panic(err)
			}
		}
	}
}

// settle ends all trouble.
func (env *testEnv) settle() {
	for _, c := range env.clouds {
		c.Remove("")
	}
}
