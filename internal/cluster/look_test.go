package cluster

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/state"
)

// counting is a provider that counts how often it is asked for machines.
type counting struct {
	agentless
	lists atomic.Int64
	takes time.Duration // for an answer
}

func (c *counting) Nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	c.lists.Add(1)
	time.Sleep(c.takes)
	return c.agentless.Nodes(ctx, id)
}

// rented is a server with clusters on a cloud that behaves, whose questions are
// counted.
func rented(t *testing.T, db *state.Store, machines int) (*renter, *counting) {
	t.Helper()
	cfg := model.Default(1)
	cfg.Capacity = machines
	c, err := model.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDelays(model.Delay{}, model.Delay{})
	p := &counting{agentless: agentless{fluffycloud.New(fluffycloud.Options{API: c.Account("ann", "owner"), Poll: time.Second})}}
	r := &renter{t: t, cloud: c, db: db, allowed: map[string]time.Duration{}}
	r.bootWith(p)
	return r, p
}

// launched is rented with cluster c of one machine.
func launched(t *testing.T) (*renter, *counting) {
	t.Helper()
	r, p := rented(t, openDB(t), 4)
	if err := r.launch(t.Context(), "c", 1); err != nil {
		t.Fatal(err)
	}
	return r, p
}

func openDB(t *testing.T) *state.Store {
	t.Helper()
	db, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "sky.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// printed is what a client reads.
type printed struct{ *bytes.Buffer }

func (printed) Spin(string) {}
func (printed) StopSpin()   {}

// Whoever waits for somebody's look at a cluster does not ask again, unless the
// answer may be older than the question.
func TestLookTrustsWhatWasFoundWhileItWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := launched(t)
		p.takes = 10 * time.Second
		p.lists.Store(0)
		start := time.Now()
		var answers []time.Duration
		done := make(chan time.Duration)
		for n := range 5 {
			go func() {
				time.Sleep(time.Duration(n) * time.Second)
				c, err := r.m.Confirm(t.Context(), "c")
				if err != nil || c.Status != api.ClusterUp {
					t.Errorf("%v, %v", c, err)
				}
				done <- time.Since(start)
			}()
		}
		for range 5 {
			answers = append(answers, <-done)
		}
		// The first asks; the others came while it did, so one of them asks anew.
		if n := p.lists.Load(); n != 2 {
			t.Errorf("the provider was asked %d times; answers after %v", n, answers)
		}
		if last := answers[4]; last > 21*time.Second {
			t.Errorf("the last answer came after %v", last)
		}
	})
}

// What another server found out is no reason to ask again either.
func TestLookTrustsWhatAnotherServerFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := launched(t)
		lease, _, err := r.db.Leases().Acquire(t.Context(), "cluster/c", "another", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		p.lists.Store(0)
		done := make(chan *state.Cluster, 1)
		go func() {
			c, err := r.m.Confirm(t.Context(), "c")
			if err != nil {
				t.Error(err)
			}
			done <- c
		}()
		time.Sleep(time.Second)
		if _, err := r.db.Clusters().Update(t.Context(), "c", "hash-c", func(c *state.Cluster) error {
			c.Status, c.StatusUpdatedAt = api.ClusterInit, time.Now()
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := r.db.Leases().Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		if c := <-done; c == nil || c.Status != api.ClusterInit || p.lists.Load() != 0 {
			t.Errorf("%v after %d questions", c, p.lists.Load())
		}
	})
}

// A follower of a cluster hears that it does not run any more, although another
// server found that out.
func TestTheEndOfAFollowerIsHeard(t *testing.T) {
	db := openDB(t)
	r, _ := rented(t, db, 4)
	if err := db.Clusters().Create(t.Context(), &state.Cluster{Name: "c", Hash: "h", Status: api.ClusterInit, NumNodes: 1}); err != nil {
		t.Fatal(err)
	}
	changed, stop := r.m.Changed("h")
	defer stop()
	r.m.watcher.follow(t.Context(), "c", "h", 0)
	select {
	case <-changed:
	default:
		t.Error("nobody was notified")
	}
}

// A fresh status is not answered from the record because another look is under way;
// launches and ends of the cluster are not waited for.
func TestAUsersLookWaitsForOthersThatLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := launched(t)
		p.takes = 5 * time.Second
		background := make(chan struct{})
		go func() {
			defer close(background)
			if _, err := r.m.Refresh(t.Context(), "c"); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		account := r.cloud.Account("ann", "owner")
		there, err := account.Instances(t.Context(), fluffyapi.Query{})
		if err != nil || len(there.Items) != 1 {
			t.Fatalf("%v, %v", there, err)
		}
		if _, err := account.Terminate(t.Context(), there.Items[0].ID); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		ask := func() []api.StatusRecord {
			t.Helper()
			out.Reset()
			list, err := r.m.Status(t.Context(), Call{Out: printed{&out}}, api.StatusBody{ClusterNames: []string{"c"}, Refresh: api.RefreshForce})
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		if list := ask(); len(list) != 0 {
			t.Errorf("the cluster is shown as %s\n%s", list[0].Status, &out)
		}
		<-background

		if err := r.launch(t.Context(), "c", 1); err != nil {
			t.Fatal(err)
		}
		_, unlock, err := r.m.Lock(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		began := time.Now()
		if list := ask(); len(list) != 1 || list[0].Status != api.ClusterUp || !strings.Contains(out.String(), "as last seen: somebody else works on it") || time.Since(began) > 0 {
			t.Errorf("%v after %v: %s", list, time.Since(began), &out)
		}
	})
}
