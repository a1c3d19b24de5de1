package fluffycloud_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
)

// TestAThousandClustersOnABadDay runs the lives of many clusters at once on a
// cloud where everything goes wrong now and then. Whatever happens, no rank has
// two machines, and in the end nothing is left and nothing is billed any more.
func TestAThousandClustersOnABadDay(t *testing.T) {
	clusters := 1000
	if testing.Short() {
		clusters = 200
	}
	synctest.Test(t, func(t *testing.T) {
		cfg := model.Default(11)
		cfg.SpotLife, cfg.Capacity = 3*time.Hour, clusters/2
		c, err := model.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []model.Fault{
			{Kind: model.Lose, Op: "instances.*", Chance: 0.03},
			{Kind: model.Cut, Chance: 0.02},
			{Kind: model.Throttle, Chance: 0.02},
			{Kind: model.Slow, Chance: 0.05, Delay: 20 * time.Second},
		} {
			if err := c.Inject(f); err != nil {
				t.Fatal(err)
			}
		}
		p := fluffycloud.New(fluffycloud.Options{API: c.Account("ann", "owner"), Poll: 5 * time.Second})
		var wg sync.WaitGroup
		for n := range clusters {
			wg.Go(func() { live(t, p, n) })
		}
		watch(t, c, &wg)
		c.Remove("")
		for _, m := range c.Machines() {
			if m.State != fluffyapi.Terminated || m.Billed {
				t.Errorf("%s is left: %s, billed %t", m.Name, m.State, m.Billed)
			}
		}
		for _, f := range c.Firewalls() {
			t.Errorf("%s is left", f.Name)
		}
	})
}

// watch looks at the cloud until all lives have ended.
func watch(t *testing.T, c *model.Cloud, wg *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	tick := time.NewTicker(10 * time.Minute)
	defer tick.Stop()
	most := 0
	for {
		ranks := map[string]string{}
		for _, m := range c.Machines() {
			if m.State == fluffyapi.Terminated || m.State == fluffyapi.Terminating {
				continue
			}
			rank := m.Tags[cloud.TagCluster] + "#" + m.Tags[cloud.TagRank]
			if other, taken := ranks[rank]; taken {
				t.Errorf("%s has %s and %s", rank, other, m.ID)
			}
			ranks[rank] = m.ID
		}
		most = max(most, len(ranks))
		select {
		case <-done:
			t.Logf("%d machines at once", most)
			return
		case <-tick.C:
		}
	}
}

// live is the life of one cluster; each try may fail, and is made again.
func live(t *testing.T, p *fluffycloud.Provider, n int) {
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	ctx := t.Context()
	id := cloud.ClusterID{Installation: "i", Name: fmt.Sprintf("c%d", n), Hash: fmt.Sprintf("h%d", n)}
	again := func(what string, f func() error) {
		for try := 0; ; try++ {
			err := f()
			if err == nil {
				return
			}
			if try == 200 {
				t.Errorf("%s of %s fails for ever: %v", what, id.Name, err)
				return
			}
			time.Sleep(time.Duration(1+rng.IntN(30)) * time.Second)
		}
	}
	time.Sleep(time.Duration(rng.IntN(3600)) * time.Second)
	zone := 0
	launch := func(nodes int) func() error {
		return func() error {
			o := offer([]string{"east-a", "east-b", "east-c"}[zone%3], n%2 == 0)
			spec := cloud.LaunchSpec{ID: id, Offer: o, Nodes: nodes, Token: fmt.Sprint(id.Name, "-", rng.Uint64())}
			if err := p.Prepare(ctx, spec); err != nil {
				return err
			}
			limited, cancel := context.WithTimeout(ctx, time.Duration(30+rng.IntN(600))*time.Second) // users lose patience
			defer cancel()
			got, err := p.Launch(limited, spec)
			var full *cloud.CapacityError
			if errors.As(err, &full) {
				again("giving back", func() error { return p.Terminate(ctx, id) })
				zone++
			}
			if err == nil && len(got) != nodes {
				t.Errorf("%s has %d nodes, want %d", id.Name, len(got), nodes)
			}
			return err
		}
	}
	size := 1 + rng.IntN(3)
	again("launching", launch(size))
	for range rng.IntN(3) {
		time.Sleep(time.Duration(rng.IntN(7200)) * time.Second)
		if rng.IntN(2) == 0 {
			again("stopping", func() error { return p.Stop(ctx, id) })
			time.Sleep(time.Duration(rng.IntN(3600)) * time.Second)
		}
		size += rng.IntN(2)
		again("launching again", launch(size))
	}
	again("terminating", func() error { return p.Terminate(ctx, id) })
}
