package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/state"
)

func sortOffers(offers []cloud.Offer) {
	slices.SortFunc(offers, func(a, b cloud.Offer) int {
		return cmp.Or(cmp.Compare(a.Place.String(), b.Place.String()), cmp.Compare(a.InstanceType, b.InstanceType), cmp.Compare(a.HourlyPrice, b.HourlyPrice))
	})
}

// TestRandomHistories plays random histories of launches, stops, ends, broken
// clouds and servers that die at any call, and looks whether what was promised
// holds afterwards. SKY_SIM_HISTORIES says how many; SKY_SIM_SEED plays one and
// prints it.
func TestRandomHistories(t *testing.T) {
	if seed, err := strconv.ParseUint(os.Getenv("SKY_SIM_SEED"), 10, 64); err == nil {
		env := history(t, seed, newMemory())
		t.Logf("history %d:\n%s", seed, env.log.String())
		if env.err != nil {
			t.Fatal(env.err)
		}
		return
	}
	n := 2000
	if testing.Short() {
		n = 200
	}
	if s := os.Getenv("SKY_SIM_HISTORIES"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	for seed := range uint64(n) {
		if env := history(t, seed, newMemory()); env.err != nil {
			t.Fatalf("history %d: %v\n%s\nplay it again with SKY_SIM_SEED=%d", seed, env.err, env.log.String(), seed)
		}
	}
	t.Logf("%d histories in %v", n, time.Since(start).Round(time.Millisecond))
}

// TestMemoryIsADatabase plays some of the histories on the real database: the
// one in memory must not be kinder.
func TestMemoryIsADatabase(t *testing.T) {
	for seed := range uint64(25) {
		synctest.Test(t, func(t *testing.T) {
			db, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "sky.db"))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if env := play1(t, seed, stored{database{db}, db.Clusters()}); env.err != nil {
				t.Errorf("history %d: %v\n%s", seed, env.err, env.log.String())
			}
		})
	}
}

// stored is the real database with what the simulated server needs besides.
type stored struct {
	database
	rows *state.Clusters
}

func (s stored) Create(ctx context.Context, c *state.Cluster) error { return s.rows.Create(ctx, c) }
func (s stored) Delete(ctx context.Context, name, hash string) error {
	return s.rows.Delete(ctx, name, hash)
}

func history(t *testing.T, seed uint64, records store) (env *testEnv) {
	synctest.Test(t, func(t *testing.T) { env = play1(t, seed, records) })
	return env
}

// play1 plays one history in virtual time.
func play1(t *testing.T, seed uint64, records store) *testEnv {
	env := newTestEnv(seed, records)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lives := 1 + env.rng.IntN(4)
	for range lives {
		fuse := -1
		if env.rng.IntN(5) > 0 {
			fuse = env.rng.IntN(150)
		}
		env.live(ctx, env.boot(ctx, fuse), 1+env.rng.IntN(4))
	}
	env.end(ctx)
	return env
}

// live is one run of a server: it settles what the one before left, takes up
// its requests, and does new ones while things happen.
func (env *testEnv) live(ctx context.Context, s *server, news int) {
	defer s.kill()
	if err := s.engine.Settle(s.ctx); err != nil {
		env.say("settling: %v", err)
	}
	for range news {
		env.requests = append(env.requests, env.someRequest())
	}
	for _, r := range env.requests {
		if r.done || s.isDead() {
			continue
		}
		for range env.rng.IntN(3) {
			env.trouble()
		}
		if env.rng.IntN(2) == 0 {
			env.weather()
		}
		env.do(s, r)
		if env.rng.IntN(4) == 0 {
			env.settle()
		}
		if env.rng.IntN(3) == 0 {
			time.Sleep(time.Duration(env.rng.IntN(7200)) * time.Second)
		}
		if env.rng.IntN(6) == 0 {
			if _, err := s.engine.Sweep(s.ctx, SweepOptions{End: func(Stray) bool { return true }}); err != nil {
				env.say("sweeping: %v", err)
			}
		}
	}
}

// do runs a request, which its user may cancel meanwhile.
func (env *testEnv) do(s *server, r *request) {
	rctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	if env.rng.IntN(6) == 0 {
		after := time.Duration(env.rng.IntN(240_000)) * time.Millisecond
		stop := time.AfterFunc(after, func() { cancel(errors.New("the user cancelled")) })
		defer stop.Stop()
	}
	wg.Go(func() { s.run(rctx, r) })
	wg.Wait()
}

// someRequest is what some user asks for next.
func (env *testEnv) someRequest() *request {
	verbs := []string{"launch", "launch", "launch", "launch", "stop", "start", "down"}
	return &request{
		verb: verbs[env.rng.IntN(len(verbs))], cluster: fmt.Sprintf("c%d", env.rng.IntN(3)), nodes: 1 + env.rng.IntN(3),
		hedge: []int{0, 0, 2, 3}[env.rng.IntN(4)], seed: env.rng.Uint64(),
	}
}

// end lets everything come to rest under a server that does not die, and checks
// what must hold then.
func (env *testEnv) end(ctx context.Context) {
	env.settle()
	env.say("the weather is good")
	time.Sleep(time.Hour) // what hung has given up, leases have run out
	s := env.boot(ctx, -1)
	defer s.kill()
	if err := s.engine.Settle(s.ctx); err != nil {
		env.say("settling: %v", err) // what was hidden is seen only now
	}
	for _, r := range env.requests {
		if !r.done {
			s.run(s.ctx, r)
		}
	}
	if err := s.engine.Settle(s.ctx); err != nil {
		env.broken("settling in good weather: %v", err)
	}
	for _, c := range env.must(s.records.Clusters(s.ctx)) {
		if err := s.refresh(s.ctx, c); err != nil {
			env.broken("looking at %s in good weather: %v", c.Name, err)
		}
	}
	// The clusters that are gone by now leave their attempts to be settled.
	if err := s.engine.Settle(s.ctx); err != nil {
		env.broken("settling in good weather: %v", err)
	}
	time.Sleep(2 * DefaultGrace)
	report, err := s.engine.Sweep(s.ctx, SweepOptions{End: func(Stray) bool { return true }})
	if err != nil || len(report.Unlisted) > 0 || report.Elsewhere {
		env.broken("sweeping in good weather: %v, %+v", err, report)
	}
	for _, stray := range report.Strays {
		env.say("stray %s/%s: ended %t %s", stray.Cloud, stray.Cluster, stray.Ended, stray.Error)
		if !stray.Ended {
			env.broken("a stray was not ended: %s", stray.Error)
		}
	}
	env.check(s)
}

// bills checks that a cloud billed each machine for the time that it ran, to the
// second, and bills nothing now that does not run.
func (env *testEnv) bills(name string, c *model.Cloud) {
	ran := map[string]time.Duration{}
	since := map[string]time.Time{}
	for _, change := range c.History() {
		if change.To == fluffyapi.Running {
			since[change.Instance] = change.At
		} else if from, ok := since[change.Instance]; ok {
			ran[change.Instance] += change.At.Sub(from)
			delete(since, change.Instance)
		}
	}
	for id, from := range since {
		ran[id] += time.Since(from)
	}
	billed := c.Running()
	for _, m := range c.Machines() {
		if m.Billed != (m.State == fluffyapi.Running) {
			env.broken("%s on %s is %s, and billed: %t", m.Name, name, m.State, m.Billed)
		}
		if billed[m.ID] != ran[m.ID] {
			env.broken("%s on %s ran %v, and %v were billed", m.Name, name, ran[m.ID], billed[m.ID])
		}
	}
}

// check is what must hold when everything has come to rest.
func (env *testEnv) check(s *server) {
	for name, c := range env.clouds {
		env.bills(name, c)
	}
	open, err := env.records.Open(s.ctx)
	if err != nil {
		env.broken("%v", err)
	}
	clusters, err := env.records.Clusters(s.ctx)
	if err != nil {
		env.broken("%v", err)
	}
	byHash := map[string]*state.Cluster{}
	for _, c := range clusters {
		byHash[c.Hash] = c
	}
	for _, a := range open {
		if c := byHash[a.ClusterHash]; c == nil || !about(c, &a) {
			env.broken("an attempt to launch %s in %v is still open", a.ClusterName, a.Offer.Place)
		}
	}
	alive, lost := map[string]int{}, map[string]int{} // by hash; lost are those that the cloud ended by itself
	for name, c := range env.clouds {
		for _, m := range c.Machines() {
			if m.State == fluffyapi.Terminated || m.State == fluffyapi.Terminating {
				if m.Reason != "" {
					lost[m.Tags[cloud.TagHash]]++
				}
				continue
			}
			owner := byHash[m.Tags[cloud.TagHash]]
			switch {
			case owner == nil:
				env.broken("%s on %s (%s) belongs to nobody", m.Name, name, m.State)
			case owner.Offer.Cloud != name || owner.NameOnCloud != m.Tags[cloud.TagCluster]:
				env.broken("%s on %s (%s) is not where the record of %s says (%v as %s)", m.Name, name, m.State, owner.Name, owner.Offer.Place, owner.NameOnCloud)
			case owner.Offer.Zone != m.Zone:
				env.broken("%s is in %s, the record of %s says %v", m.Name, m.Zone, owner.Name, owner.Offer.Place)
			}
			alive[m.Tags[cloud.TagHash]]++
		}
	}
	for _, c := range clusters {
		switch {
		case alive[c.Hash] > c.NumNodes:
			env.broken("%s has %d machines, but %d were asked for", c.Name, alive[c.Hash], c.NumNodes)
		case c.EverUp && !env.ending[c.Hash] && alive[c.Hash]+lost[c.Hash] < c.NumNodes:
			env.broken("%s has %d machines and lost %d, but %d were asked for: somebody ended some", c.Name, alive[c.Hash], lost[c.Hash], c.NumNodes)
		case !c.EverUp && c.Status != api.ClusterInit:
			env.broken("%s was never up and is %s", c.Name, c.Status)
		case !c.EverUp:
			env.broken("%s was never up, no request is under way, and its record is still there", c.Name)
		}
	}
}
