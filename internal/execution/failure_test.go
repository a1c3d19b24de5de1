//go:build unix

package execution_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
)

// full is a cloud that has no room, for new machines and for those that are off.
func full(op string) model.Fault {
	return model.Fault{ID: "full", Kind: model.Fail, Op: op, Code: fluffyapi.NoCapacity, Message: "no room"}
}

// launched is an installation with one cluster "dev" that is up.
func launched(t *testing.T, nodes int) (*testbed.Bed, *testbed.Server) {
	t.Helper()
	b := testbed.New(t)
	s := b.Boot(failpoint.Endless)
	if _, err := s.Launch(testbed.NewRequest(), "dev", train(t, nodes)); err != nil {
		t.Fatal(err)
	}
	return b, s
}

func TestAFailedStartKeepsMachinesAndDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 2)
		if err := s.Stop(testbed.NewRequest(), "dev"); err != nil {
			t.Fatal(err)
		}
		b.WantMachines("dev stopped", "dev stopped")
		b.Inject(full("instances.start"))
		err := s.Start(testbed.NewRequest(), "dev")
		var e *api.Error
		if !errors.As(err, &e) || e.Type != api.ErrResourcesUnavailable || e.Attributes["no_failover"] != true {
			t.Fatalf("got %v", err)
		}
		b.WantMachines("dev stopped", "dev stopped")
		if b.Cluster("dev") == nil {
			t.Fatal("the record is gone")
		}
		b.Cloud.Remove("full")
		if err := s.Start(testbed.NewRequest(), "dev"); err != nil {
			t.Fatal(err)
		}
		b.WantMachines("dev running", "dev running")
	})
}

func TestAStartSurvivesACrashAtEveryStep(t *testing.T) {
	testbed.EveryHalfStep(t, func(t *testing.T, n int) bool {
		b, s := launched(t, 1)
		if err := s.Stop(testbed.NewRequest(), "dev"); err != nil {
			t.Fatal(err)
		}
		r := testbed.NewRequest()
		died, err := b.Resume(n, func(s *testbed.Server) error { return s.Start(r, "dev") })
		if err != nil {
			t.Fatalf("%v\n%s", err, r.Out)
		}
		b.WantMachines("dev running")
		if c := b.Cluster("dev"); c == nil || c.Status != api.ClusterUp || c.AutostopMinutes != 20 {
			t.Errorf("record: %+v", c)
		}
		if a := b.Head("dev").Autostop(); a == nil || a.IdleMinutes != 20 {
			t.Errorf("the agent's autostop: %+v", a)
		}
		return died
	})
}

// A cluster that was up once and is INIT on record has disks with data: a launch
// that fails on it keeps them.
func TestALaunchThatFailsOnAHalfBrokenClusterKeepsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		if err := s.Stop(testbed.NewRequest(), "dev"); err != nil {
			t.Fatal(err)
		}
		b.Inject(full("instances.start"))
		if err := s.Start(testbed.NewRequest(), "dev"); err == nil {
			t.Fatal("started on a full cloud")
		}
		if c := b.Cluster("dev"); c.Status != api.ClusterInit || !c.EverUp {
			t.Fatalf("record: %+v", c)
		}
		if _, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1)); err == nil {
			t.Fatal("launched on a full cloud")
		}
		b.WantMachines("dev stopped")
		hash := b.Cluster("dev").Hash
		b.Cloud.Remove("full")
		if _, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1)); err != nil {
			t.Fatal(err)
		}
		b.WantMachines("dev running")
		if c := b.Cluster("dev"); c.Hash != hash {
			t.Error("it was launched anew")
		}
	})
}

func TestALaunchThatIsRefusedEverywhereLeavesNothingWhereverItCrashes(t *testing.T) {
	testbed.EveryHalfStep(t, func(t *testing.T, n int) bool {
		b, r, yaml := testbed.New(t), testbed.NewRequest(), train(t, 1)
		b.Inject(full("instances.create"))
		died, err := b.Resume(n, func(s *testbed.Server) error {
			_, err := s.Launch(r, "dev", yaml)
			return err
		})
		var e *api.Error
		if !errors.As(err, &e) || e.Type != api.ErrResourcesUnavailable {
			t.Fatalf("got %v", err)
		}
		b.WantNothingLeft("dev")
		return died
	})
}

// One zone gives one of two machines: what it gave goes back, and the next zone
// gives both.
func TestHalfAGangGoesBackBeforeTheNextZoneIsTried(t *testing.T) {
	testbed.EveryHalfStep(t, func(t *testing.T, n int) bool {
		b, r, yaml := testbed.New(t), testbed.NewRequest(), train(t, 2)
		created := 0
		s := b.Boot(n)
		s.Tell(func(step string) {
			if step == "instances.create" {
				if created++; created == 2 {
					f := full("instances.create")
					f.Times = 1
					b.Inject(f)
				}
			}
		})
		_, err := s.Launch(r, "dev", yaml)
		died := s.Dead()
		if died {
			b.Cloud.Remove("full")
			_, err = b.Boot(failpoint.Endless).Launch(r, "dev", yaml)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, r.Out)
		}
		b.WantMachines("dev running", "dev running")
		zones := map[string]bool{}
		for _, m := range b.Cloud.Machines() {
			if m.State == fluffyapi.Running {
				zones[m.Zone] = true
			}
		}
		if len(zones) != 1 {
			t.Errorf("the gang is spread over %v", zones)
		}
		return died
	})
}

func TestACancelledLaunchLeavesNothingWhereverItIsCancelled(t *testing.T) {
	cancelled := errors.New("cancelled")
	testbed.EveryHalfStep(t, func(t *testing.T, n int) (hit bool) {
		b, r, yaml := testbed.New(t), testbed.NewRequest(), train(t, 1)
		s := b.Boot(failpoint.Endless)
		ctx, cancel := context.WithCancelCause(s.Context())
		defer cancel(nil)
		s.At(n, func() { hit = true; cancel(cancelled) })
		_, err := s.Executor.Launch(ctx, s.Call(r), api.LaunchBody{Task: yaml, ClusterName: "dev"})
		if !hit { // it was through before
			return false
		}
		if c := b.Cluster("dev"); c != nil && c.EverUp {
			return true // an existing cluster is left as it is
		}
		if !errors.Is(err, cancelled) && !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		b.WantNothingLeft("dev")
		return true
	})
}

// An agent that cannot be started costs as much as one that can: the machines go
// back, and the error names the node.
func TestMachinesWhoseAgentsDoNotStartGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		s.Refuse("agent.start", errors.New("no shell"))
		_, err := s.Launch(testbed.NewRequest(), "dev", train(t, 2))
		if err == nil || !strings.Contains(err.Error(), "no shell") || !strings.Contains(err.Error(), "starting the agent") {
			t.Errorf("got %v", err)
		}
		b.WantNothingLeft("dev")
	})
}

// Machines that cannot be given back after a failed launch stay on record, so that
// somebody goes on.
func TestALaunchThatCannotGiveItsMachinesBackSaysSoAndKeepsTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		if err := b.Cloud.SetCapacity("north-a", "puff", 0); err != nil {
			t.Fatal(err)
		}
		s := b.Boot(failpoint.Endless)
		s.Refuse("agent.start", errors.New("no shell"))
		b.Inject(model.Fault{ID: "stuck", Kind: model.Fail, Op: "instances.terminate", Code: fluffyapi.Internal, Message: "try later"})
		_, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1))
		var left *provision.LeftoverError
		if !errors.As(err, &left) || left.Place.Zone != "north-b" {
			t.Fatalf("got %v", err)
		}
		if c := b.Cluster("dev"); c == nil || c.Status != api.ClusterInit {
			t.Fatalf("record: %v", c)
		}
		b.Cloud.Remove("stuck")
		if _, err := s.Clusters.Refresh(s.Context(), "dev"); err != nil {
			t.Fatal(err)
		}
		b.WantNothingLeft("dev")
	})
}

// After "submitting" is saved the job may run: whatever happens to the answer, its
// machine is kept and the next life finds the job.
func TestAJobWhoseSubmissionWasNotAnsweredRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r, yaml := testbed.New(t), testbed.NewRequest(), train(t, 1)
		s := b.Boot(failpoint.Endless)
		s.Tell(func(step string) {
			if step == "agent.submit" {
				s.At(1, s.Kill) // with its effect, and before its answer
			}
		})
		if _, err := s.Launch(r, "dev", yaml); err == nil {
			t.Fatal("a dead server answered")
		}
		b.WantMachines("dev running")
		got, err := b.Boot(failpoint.Endless).Launch(r, "dev", yaml)
		if err != nil || got.JobID == nil || *got.JobID != 1 || b.Head("dev").Runs(r.ID) != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// A cluster that is gone when the launch resumes takes the answer with it: the job
// may have run, so it does not run again.
func TestAJobThatMayHaveRunOnAClusterThatIsGoneIsNotRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, r, yaml := testbed.New(t), testbed.NewRequest(), train(t, 1)
		s := b.Boot(failpoint.Endless)
		s.Tell(func(step string) {
			if step == "agent.submit" {
				s.At(1, s.Kill) // with its effect, and before its answer
			}
		})
		if _, err := s.Launch(r, "dev", yaml); err == nil {
			t.Fatal("a dead server answered")
		}
		s = b.Boot(failpoint.Endless)
		if err := s.Down(testbed.NewRequest(), "dev"); err != nil {
			t.Fatal(err)
		}
		_, err := s.Launch(r, "dev", yaml)
		if err == nil || !strings.Contains(err.Error(), "may have run") {
			t.Errorf("got %v", err)
		}
		b.WantNothingLeft("dev")
	})
}

// An exec whose cluster was replaced meanwhile does not run on the new one.
func TestAnExecIsNotRepeatedOnAnotherClusterOfTheSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		none := func(context.Context, string) (bool, error) { return false, nil }
		r := testbed.NewRequest()
		s.Tell(func(step string) {
			if step == "agent.submit" {
				s.At(1, s.Kill) // with its effect, and before its answer
			}
		})
		body := api.ExecBody{Task: "run: sleep 1m\n", ClusterName: "dev"}
		if _, err := s.Executor.Exec(s.Context(), s.Call(r), body, none); err == nil {
			t.Fatal("a dead server answered")
		}
		s = b.Boot(failpoint.Endless)
		if err := s.Down(testbed.NewRequest(), "dev"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1)); err != nil {
			t.Fatal(err)
		}
		_, err := s.Executor.Exec(s.Context(), s.Call(r), body, none)
		if err == nil || !strings.Contains(err.Error(), "was replaced") || b.Head("dev").Runs(r.ID) != 0 {
			t.Errorf("got %v", err)
		}
	})
}

func TestALaunchWithAutodownGivesBackWhenItsJobIsThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		s.Watch()
		if _, err := s.Launch(testbed.NewRequest(), "dev", "resources: {infra: fluffycloud, autostop: {idle_minutes: 5, down: true}}\nrun: sleep 10m\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(14 * time.Minute)
		b.WantMachines("dev running")
		time.Sleep(3 * time.Minute)
		b.WantNothingLeft("dev")
	})
}

// A request for on-demand machines does not get a cluster on spot, and the other way
// round.
func TestSpotAndOnDemandDoNotFitEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		spot, demand := "resources: {infra: fluffycloud, use_spot: true}\nrun: sleep 1s\n", "resources: {infra: fluffycloud, use_spot: false}\nrun: sleep 1s\n"
		if _, err := s.Launch(testbed.NewRequest(), "dev", spot); err != nil {
			t.Fatal(err)
		}
		if !b.Cluster("dev").Offer.Spot {
			t.Fatal("on demand was rented for spot")
		}
		_, err := s.Launch(testbed.NewRequest(), "dev", demand)
		var e *api.Error
		if !errors.As(err, &e) || e.Type != api.ErrResourcesMismatch {
			t.Errorf("got %v", err)
		}
		if _, err := s.Launch(testbed.NewRequest(), "dev", spot); err != nil {
			t.Error(err)
		}
	})
}

// A launch waits for a cluster's lock; somebody else's cluster that was made
// meanwhile is not taken.
func TestALaunchDoesNotTakeAClusterThatSomebodyMadeMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		first := make(chan error, 1)
		go func() {
			_, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1))
			first <- err
		}()
		time.Sleep(time.Second)
		bob := testbed.NewRequest()
		bob.User = state.User{ID: "b0b", Name: "bob", Role: "user"}
		call := s.Call(bob)
		call.Scope = &state.Scope{User: bob.User.ID, Workspaces: []string{"default"}}
		_, err := s.Executor.Launch(s.Context(), call, api.LaunchBody{Task: train(t, 1), ClusterName: "dev"})
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		var e *api.Error
		if !errors.As(err, &e) || e.Type != api.ErrPermissionDenied {
			t.Errorf("got %v", err)
		}
		if n := len(b.Head("dev").Jobs()); n != 1 {
			t.Errorf("%d jobs", n)
		}
	})
}
