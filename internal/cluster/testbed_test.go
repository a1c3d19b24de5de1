//go:build unix

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/testbed"
)

const longJob = "name: train\nresources: {infra: fluffycloud, cpus: 2+}\nrun: sleep 1h\n"

// launched is an installation with one cluster "dev" that is up and works.
func launched(t *testing.T, nodes int) (*testbed.Bed, *testbed.Server) {
	t.Helper()
	b := testbed.New(t)
	s := b.Boot(failpoint.Endless)
	if _, err := s.Launch(testbed.NewRequest(), "dev", fmt.Sprintf("num_nodes: %d\n%s", nodes, longJob)); err != nil {
		t.Fatal(err)
	}
	return b, s
}

func wantStatus(t *testing.T, b *testbed.Bed, want api.ClusterStatus) {
	t.Helper()
	if c := b.Cluster("dev"); c == nil || c.Status != want {
		t.Errorf("record: %v, want %s", c, want)
	}
}

func isType(err error, want string) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Type == want
}

func TestADownSurvivesACrashAtEveryStep(t *testing.T) {
	testbed.EveryHalfStep(t, func(t *testing.T, n int) bool {
		b, _ := launched(t, 2)
		r := testbed.NewRequest()
		died, err := b.Resume(n, func(s *testbed.Server) error { return s.Down(r, "dev") })
		if err != nil {
			t.Fatalf("%v\n%s", err, r.Out)
		}
		b.WantNothingLeft("dev")
		return died
	})
}

func TestAStopSurvivesACrashAtEveryStep(t *testing.T) {
	testbed.EveryHalfStep(t, func(t *testing.T, n int) bool {
		b, _ := launched(t, 2)
		r := testbed.NewRequest()
		died, err := b.Resume(n, func(s *testbed.Server) error { return s.Stop(r, "dev") })
		if err != nil {
			t.Fatalf("%v\n%s", err, r.Out)
		}
		b.WantMachines("dev stopped", "dev stopped")
		wantStatus(t, b, api.ClusterStopped)
		return died
	})
}

func TestAFailedStopIsNotStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		b.Inject(model.Fault{ID: "no", Kind: model.Fail, Op: "instances.stop", Code: fluffyapi.Internal, Message: "try later"})
		if err := s.Stop(testbed.NewRequest(), "dev"); err == nil {
			t.Fatal("it stopped")
		}
		wantStatus(t, b, api.ClusterUp)
		b.WantMachines("dev running")
	})
}

func TestAFailedDownStaysOnRecordAndIsFinishedByTheNextLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		b.Inject(model.Fault{ID: "no", Kind: model.Fail, Op: "instances.terminate", Code: fluffyapi.Internal, Message: "try later"})
		if err := s.Down(testbed.NewRequest(), "dev"); err == nil {
			t.Fatal("it went")
		}
		wantStatus(t, b, api.ClusterInit)
		if c := b.Cluster("dev"); !cluster.GivingBack(c) {
			t.Error("the record does not say that it is being given back")
		}
		b.Cloud.Remove("no")
		if c, err := s.Clusters.Refresh(s.Context(), "dev"); c != nil || err != nil {
			t.Errorf("%v, %v", c, err)
		}
		b.WantNothingLeft("dev")
	})
}

// Two requests to end "dev" are queued, and between them somebody launches a new
// cluster of the name: the second one was about the old cluster.
func TestADownBehindALockSparesANewClusterOfTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		was := b.Cluster("dev")
		ctx, unlock, err := s.Clusters.Lock(s.Context(), "dev")
		if err != nil {
			t.Fatal(err)
		}
		down := make(chan error, 1)
		go func() { down <- s.Down(testbed.NewRequest(), "dev") }()
		synctest.Wait() // it waits for the lock
		if err := s.Clusters.Release(ctx, nil, b.Cluster("dev"), "for this test"); err != nil {
			t.Fatal(err)
		}
		fresh := *was
		fresh.Hash, fresh.Status, fresh.Version = "another", api.ClusterUp, 0
		if err := b.Store.Clusters().Create(t.Context(), &fresh); err != nil {
			t.Fatal(err)
		}
		unlock()
		if err := <-down; err != nil {
			t.Errorf("got %v", err)
		}
		if c := b.Cluster("dev"); c == nil || c.Hash != fresh.Hash || cluster.GivingBack(c) {
			t.Errorf("the new cluster is %v", c)
		}
	})
}

// Another account's lists do not show the machines, which is no proof that they are
// gone.
func TestWithOtherCredentialsALiveClusterIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := launched(t, 1)
		b.Account = "bob"
		s := b.Boot(failpoint.Endless)
		if _, err := s.Clusters.Refresh(s.Context(), "dev"); err == nil || !strings.Contains(err.Error(), "bob") {
			t.Errorf("refresh: %v", err)
		}
		if err := s.Down(testbed.NewRequest(), "dev"); err == nil {
			t.Error("down went through")
		}
		if err := s.Stop(testbed.NewRequest(), "dev"); !isType(err, api.ErrClusterOwnerMismatch) {
			t.Errorf("stop: %v", err)
		}
		if b.Cluster("dev") == nil {
			t.Fatal("the record is gone")
		}
		b.WantMachines("dev running")
	})
}

// A machine that switches itself off has to be told to the cloud before the agent
// may do so: otherwise it is stopped where it should end, or the other way round.
func TestTheCloudIsToldWhatPoweringOffMeans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		for _, down := range []bool{true, false} {
			if err := s.Clusters.Autostop(s.Context(), s.Call(testbed.NewRequest()), api.AutostopBody{ClusterName: "dev", IdleMinutes: 7, Down: down}); err != nil {
				t.Fatal(err)
			}
			for _, m := range b.Cloud.Machines() {
				if m.EndsWhenOff != down {
					t.Errorf("down %v: the cloud was told %v", down, m.EndsWhenOff)
				}
			}
			if a := b.Head("dev").Autostop(); a == nil || a.Down != down || a.IdleMinutes != 7 {
				t.Errorf("the agent was told %+v", a)
			}
			if c := b.Cluster("dev"); c.AutostopDown != down || c.AutostopMinutes != 7 {
				t.Errorf("the record says %d, %v", c.AutostopMinutes, c.AutostopDown)
			}
		}
	})
}

// If the cloud cannot be told, the agent is not: it would act on the wrong meaning.
func TestAnAutostopThatTheCloudRefusesReachesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		s.Refuse("instances.when_off", fluffyapi.Errorf(fluffyapi.Forbidden, "no"))
		if err := s.Clusters.Autostop(s.Context(), s.Call(testbed.NewRequest()), api.AutostopBody{ClusterName: "dev", IdleMinutes: 7, Down: true}); err == nil {
			t.Fatal("it was set")
		}
		if a := b.Head("dev").Autostop(); a != nil {
			t.Errorf("the agent was told %+v", a)
		}
		if c := b.Cluster("dev"); c.AutostopMinutes >= 0 {
			t.Errorf("the record says %d", c.AutostopMinutes)
		}
	})
}

func TestAnIdleClusterStopsItselfAndTheRecordFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		s.Watch()
		if err := s.Clusters.Autostop(s.Context(), s.Call(testbed.NewRequest()), api.AutostopBody{ClusterName: "dev", IdleMinutes: 5}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour + 3*time.Minute)
		wantStatus(t, b, api.ClusterUp) // the job has ended three minutes ago
		time.Sleep(4 * time.Minute)
		b.WantMachines("dev stopped")
		wantStatus(t, b, api.ClusterStopped)
	})
}

// An agent that died is started again; its job has gone on meanwhile.
func TestAnAgentThatDiedIsBroughtBackToItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 2)
		s.Watch()
		time.Sleep(time.Minute)
		head := b.Head("dev")
		head.Crash()
		time.Sleep(2 * time.Minute)
		if jobs, err := s.Clusters.Queue(s.Context(), s.Call(testbed.NewRequest()), api.QueueBody{ClusterName: "dev"}); err != nil || len(jobs) != 1 || jobs[0].Status != api.JobRunning {
			t.Errorf("%+v, %v", jobs, err)
		}
		wantStatus(t, b, api.ClusterUp)
		time.Sleep(time.Hour)
		if jobs := head.Jobs(); len(jobs) != 1 || jobs[0].Status != api.JobSucceeded {
			t.Errorf("jobs: %+v", jobs)
		}
	})
}

// An agent that does not answer proves nothing: machines and record stay.
func TestASilentAgentIsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		s.Watch()
		b.Head("dev").Deafen(true)
		time.Sleep(10 * time.Minute)
		if c := b.Cluster("dev"); c == nil || c.Status == api.ClusterStopped {
			t.Errorf("record: %v", c)
		}
		b.WantMachines("dev running")
		b.Head("dev").Deafen(false)
		time.Sleep(3 * time.Minute)
		wantStatus(t, b, api.ClusterUp)
	})
}

// Machines that somebody took away are found by the background look; what is left
// of the cluster is told as such.
func TestLostMachinesAreFoundByTheBackgroundLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 2)
		s.Watch()
		kill := func(n int) {
			for _, m := range b.Cloud.Machines() {
				if m.State == fluffyapi.Running && n > 0 {
					n--
					if err := b.Cloud.Kill(m.ID, "preempted"); err != nil {
						t.Fatal(err)
					}
					b.Node(m.ID)
				}
			}
		}
		kill(1)
		time.Sleep(3 * time.Minute)
		wantStatus(t, b, api.ClusterInit)
		b.WantMachines("dev running")
		kill(1)
		time.Sleep(3 * time.Minute)
		b.WantNothingLeft("dev")
	})
}

// A cloud that does not answer is no proof either.
func TestACloudThatIsAwayForgetsNoCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		s.Watch()
		b.Inject(model.Fault{ID: "away", Kind: model.Cut})
		for _, m := range b.Cloud.Machines() {
			b.Node(m.ID).Crash()
		}
		time.Sleep(30 * time.Minute)
		if b.Cluster("dev") == nil {
			t.Fatal("the record is gone")
		}
		b.Cloud.Remove("away")
		time.Sleep(3 * time.Minute)
		wantStatus(t, b, api.ClusterUp)
		b.WantMachines("dev running")
	})
}

// An orphan is a cluster that never was up and that nobody brings up: each of these
// is none.
func TestOnlyOrphansAreReleased(t *testing.T) {
	wanted := func(is bool) func(context.Context) (bool, error) {
		return func(context.Context) (bool, error) { return is, nil }
	}
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		hash := b.Cluster("dev").Hash
		if err := s.Clusters.ReleaseOrphan(s.Context(), "dev", hash, wanted(false)); err != nil {
			t.Error(err)
		}
		wantStatus(t, b, api.ClusterUp)
	})
	synctest.Test(t, func(t *testing.T) { // one whose server died in the middle of its launch
		b := testbed.New(t)
		r := testbed.NewRequest()
		s := b.Boot(failpoint.Endless)
		s.Tell(func(step string) {
			if step == "agent.start" {
				s.At(1, s.Kill) // with its effect, and before its answer
			}
		})
		if _, err := s.Launch(r, "dev", longJob); err == nil {
			t.Fatal("a dead server answered")
		}
		hash := b.Cluster("dev").Hash
		s = b.Boot(failpoint.Endless)
		for name, f := range map[string]func() error{
			"somebody wants it": func() error { return s.Clusters.ReleaseOrphan(s.Context(), "dev", hash, wanted(true)) },
			"it is another one": func() error { return s.Clusters.ReleaseOrphan(s.Context(), "dev", "other", wanted(false)) },
			"somebody works on it": func() error {
				_, unlock, err := s.Clusters.Lock(s.Context(), "dev")
				if err != nil {
					return err
				}
				defer unlock()
				return s.Clusters.ReleaseOrphan(s.Context(), "dev", hash, wanted(false))
			},
		} {
			if err := f(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if len(b.Machines()) != 1 || b.Cluster("dev") == nil {
				t.Errorf("%s: it was released", name)
			}
		}
		if err := s.Clusters.ReleaseOrphan(s.Context(), "dev", hash, wanted(false)); err != nil {
			t.Error(err)
		}
		b.WantNothingLeft("dev")
	})
}

// A lease that another server has taken over ends the work of the one that had it.
func TestWorkEndsWhenItsLeaseIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		var away atomic.Bool
		slow := cluster.NewLocks(b.Store.Gated(func(change func() error) error {
			if away.Load() {
				time.Sleep(20 * time.Second) // as a server does whose machine was asleep
			}
			return change()
		}), "one", "cluster")
		ctx, unlock, err := slow.Lock(t.Context(), "dev")
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		if _, _, ok, err := cluster.NewLocks(b.Store, "two", "cluster").TryLock(t.Context(), "dev"); ok || err != nil {
			t.Fatalf("two have it: %v", err)
		}
		away.Store(true)
		_, release, err := cluster.NewLocks(b.Store, "two", "cluster").Lock(t.Context(), "dev")
		if err != nil {
			t.Fatal(err)
		}
		away.Store(false)
		defer release()
		time.Sleep(30 * time.Second)
		if ctx.Err() == nil {
			t.Error("both work on it")
		}
	})
}

// A server that does not reach the database it shares stops working on a cluster
// before its lease runs out, and another one may begin. One that has its database for
// itself works on.
func TestWorkEndsBeforeALeaseThatCannotBeRenewedRunsOut(t *testing.T) {
	for _, shared := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := testbed.New(t)
			var away atomic.Bool
			store := b.Store.Gated(func(change func() error) error {
				if away.Load() {
					return errors.New("the database does not answer")
				}
				return change()
			})
			if shared {
				store = store.AsShared()
			}
			ctx, unlock, err := cluster.NewLocks(store, "one", "cluster").Lock(t.Context(), "dev")
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			time.Sleep(time.Minute)
			away.Store(true)
			began := time.Now()
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			if took := time.Since(began); shared && took < 2*time.Second || (ctx.Err() != nil) != shared {
				t.Errorf("shared %v: %v after %v", shared, context.Cause(ctx), took)
			}
			other := cluster.NewLocks(b.Store, "two", "cluster")
			if shared {
				if _, _, ok, err := other.TryLock(t.Context(), "dev"); ok || err != nil {
					t.Errorf("the lease ran out while the first one worked: %v", err)
				}
			}
			away.Store(false)
		})
	}
}
