//go:build unix

package execution_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
)

var errRefused = errors.New("it is refused here")

// refuseAt makes the n-th step of that name, from now on, fail without an effect. hit
// reports whether there was one.
func refuseAt(s *testbed.Server, name string, n int) (hit *atomic.Bool) {
	hit = new(atomic.Bool)
	var count atomic.Int32
	s.Tell(func(step string) {
		if step != name {
			return
		}
		switch i := int(count.Add(1)) - 1; i {
		case n:
			hit.Store(true)
			s.Refuse(name, errRefused)
		case n + 1:
			s.Refuse(name, nil)
		}
	})
	return hit
}

// A launch answers with its job only if everything came about, whatever call of the
// database failed: else it says what failed, and what it left is given back or taken
// up by the next one.
func TestALaunchWhoseDatabaseFailsOnceSaysSo(t *testing.T) {
	for n, more := 0, true; more && !t.Failed(); n++ {
		synctest.Test(t, func(t *testing.T) {
			b := testbed.New(t)
			s := b.Boot(failpoint.Endless)
			hit := refuseAt(s, "database", n)
			r, yaml := testbed.NewRequest(), train(t, 1)
			got, err := s.Launch(r, "dev", yaml)
			more = hit.Load()
			s.Tell(nil)
			s.Refuse("database", nil)
			switch {
			case err != nil && !more:
				t.Errorf("nothing failed: %v", err)
			case err != nil:
				if !strings.Contains(err.Error(), errRefused.Error()) {
					t.Errorf("change %d: %v", n, err)
				}
				b.Boot(failpoint.Endless) // settles what that change was about
				if b.Cluster("dev") == nil {
					b.WantNothingLeft("dev")
				}
			case got.JobID == nil || len(b.Head("dev").Jobs()) != 1 || b.Cluster("dev").Status != api.ClusterUp || b.Cluster("dev").AutostopMinutes != 20 || b.Head("dev").Autostop() == nil:
				t.Errorf("change %d: %+v, %+v", n, got, b.Cluster("dev"))
			}
			if _, err := b.Boot(failpoint.Endless).Launch(testbed.NewRequest(), "dev", yaml); err != nil {
				t.Errorf("after change %d the next launch fails: %v", n, err)
			}
			b.WantMachines("dev running")
		})
	}
}

// answered is an error unless there is one or a job.
func answered(got *api.LaunchResult, err error) error {
	if err == nil && (got == nil || got.JobID == nil) {
		return errors.New("no job and no error")
	}
	return err
}

// The same of what is done with a cluster that exists.
func TestUsesOfAClusterWhoseDatabaseFailsOnceSaySo(t *testing.T) {
	for name, use := range map[string]func(*testbed.Server, *testbed.Request, string) error{
		"launch": func(s *testbed.Server, r *testbed.Request, yaml string) error {
			return answered(s.Launch(r, "dev", yaml))
		},
		"start": func(s *testbed.Server, r *testbed.Request, _ string) error { return s.Start(r, "dev") },
		"exec": func(s *testbed.Server, r *testbed.Request, yaml string) error {
			return answered(s.Executor.Exec(s.Context(), s.Call(r), api.ExecBody{Task: yaml, ClusterName: "dev"}, idle))
		},
	} {
		for _, kind := range []string{"database", "progress", "agent.configure", "agent.autostop"} {
			for n, more := 0, true; more && !t.Failed(); n++ {
				synctest.Test(t, func(t *testing.T) {
					b, s := launched(t, 1)
					if name == "start" {
						if err := s.Stop(testbed.NewRequest(), "dev"); err != nil {
							t.Fatal(err)
						}
					}
					yaml, hash := train(t, 1), b.Cluster("dev").Hash
					hit := refuseAt(s, kind, n)
					r := testbed.NewRequest()
					err := use(s, r, yaml)
					more = hit.Load()
					s.Tell(nil)
					s.Refuse(kind, nil)
					c := b.Cluster("dev")
					switch {
					case c == nil || c.Hash != hash:
						t.Fatalf("%s, %s %d: the cluster is gone: %v", name, kind, n, err)
					case err != nil && (!more || strings.HasPrefix(err.Error(), "no job")):
						t.Errorf("%s, %s %d: %v", name, kind, n, err)
					case err == nil && (c.Status != api.ClusterUp || c.LastUse != "sky "+r.ID[:4] || c.AutostopMinutes != 20 || b.Head("dev").Autostop() == nil || name != "start" && len(b.Head("dev").Jobs()) != 2):
						t.Errorf("%s, %s %d: %+v", name, kind, n, c)
					}
					if err := use(b.Boot(failpoint.Endless), r, yaml); err != nil {
						t.Errorf("%s, %s %d: once more: %v", name, kind, n, err)
					}
					if c := b.Cluster("dev"); c.Status != api.ClusterUp || c.AutostopMinutes != 20 {
						t.Errorf("%s, %s %d: once more: %+v", name, kind, n, c)
					}
				})
			}
		}
	}
}

// What a request does is told while it does it and when it is done, once.
func TestARequestTellsWhatItDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		dir := t.TempDir()
		task := fmt.Sprintf("num_nodes: 2\nservice: {readiness_probe: /, replicas: 1}\nresources: {infra: fluffycloud, ports: 80}\nfile_mounts: {~/data: %s}\nrun: sleep 1s\n", dir)
		want := func(r *testbed.Request, once []string, never ...string) {
			t.Helper()
			for _, w := range once {
				if n := strings.Count(r.Out.String(), w); n != 1 {
					t.Errorf("%q is told %d times:\n%s", w, n, r.Out)
				}
			}
			for _, w := range never {
				if strings.Contains(r.Out.String(), w) {
					t.Errorf("%q is told:\n%s", w, r.Out)
				}
			}
		}
		dry := func(l *api.LaunchBody) { l.Dryrun = true }
		r := testbed.NewRequest()
		if got, err := s.Launch(r, "dev", task, dry); err != nil || got == nil || *got != (api.LaunchResult{}) {
			t.Fatal(got, err)
		}
		want(r, []string{"Considered resources (2 nodes)", "Dryrun finished.", "The service section is ignored"}, "Running on cluster", "Alternatives")
		r = testbed.NewRequest()
		if _, err := s.Launch(r, "dev", task); err != nil {
			t.Fatal(err)
		}
		want(r, []string{"Considered resources (2 nodes)", "✓ Cluster launched: dev.", "✓ Synced file mount: " + dir + " -> ~/data (0 files", "✓ Job submitted, ID: 1"}, "Dryrun", "Running on cluster", "nothing to run", "without_agents")
		r = testbed.NewRequest()
		if _, err := s.Launch(r, "dev", "run: sleep 1s\n", func(l *api.LaunchBody) { l.QuietOptimizer = true }); err != nil {
			t.Fatal(err)
		}
		want(r, []string{"✓ Job submitted, ID: 2"}, "Running on cluster", "⚠", "Considered", "launched", "service", "Synced", "does not get")
		r = testbed.NewRequest()
		if _, err := s.Launch(r, "dev", "run: x\n", dry); err != nil {
			t.Fatal(err)
		}
		want(r, []string{"Running on cluster: dev", "Dryrun finished."}, "Considered", "submitted")
		r = testbed.NewRequest()
		if _, err := s.Launch(r, "dev", "run: x\nresources: {cpus: 999+}\n", dry); err != nil {
			t.Fatal(err)
		}
		want(r, []string{"⚠ Cluster dev exists and has on each node only", "(the task asks for 999+)"})
		if _, err := s.Launch(testbed.NewRequest(), "dev", "resources: {accelerators: A100}\n", dry); !isType(err, api.ErrResourcesMismatch) {
			t.Errorf("what does not fit, dry: %v", err)
		}
		r = testbed.NewRequest()
		if _, err := s.Launch(r, "quiet", "resources: {infra: fluffycloud}\n", func(l *api.LaunchBody) { l.QuietOptimizer = true }); err != nil {
			t.Fatal(err)
		}
		want(r, []string{"✓ Cluster launched: quiet.", "The task has nothing to run; the cluster is ready."}, "Considered", "submitted")
		if _, err := s.Launch(testbed.NewRequest(), "other", "resources: {infra: fluffycloud, cpus: 512+}\n", dry); !isType(err, api.ErrResourcesUnavailable) {
			t.Errorf("what there is not, dry: %v", err)
		}
	})
}

// A launch that may skip what is done already does so only on a cluster that was up.
func TestAFastLaunchSkipsSetupOnlyWhereItWasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		fast := func(l *api.LaunchBody) { l.Fast = true }
		for range 2 {
			if _, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1), fast); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1)); err != nil {
			t.Fatal(err)
		}
		for i, setup := range []string{"sleep 1s", "", "sleep 1s"} {
			if spec := b.Head("dev").JobSpecs()[i]; spec.Setup != setup {
				t.Errorf("launch %d: %q", i, spec.Setup)
			}
		}
	})
}

// A launch with an autostop that its cluster's cloud cannot do is refused before
// anything is copied or run.
func TestALaunchFitsItsClusterWithItsAutostop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		x := dressed(s, func(a *another) { a.stays = true })
		for with, fits := range map[string]bool{"autostop: 5": false, "autostop: {idle_minutes: 5, down: true}": true, "autostop: false": true, "cpus: 2+": true} {
			_, err := on(x, s, testbed.NewRequest(), "resources: {infra: fluffycloud, "+with+"}\n", func(_ *cluster.Call, l *api.LaunchBody) { l.Dryrun = true })
			if (err == nil) != fits || err != nil && !isType(err, api.ErrNotSupported) {
				t.Errorf("%s: %v", with, err)
			}
		}
		if n := len(b.Head("dev").Jobs()); n != 1 {
			t.Errorf("%d jobs", n)
		}
	})
}

// Where a task's files may not lie is known before anything is rented or started.
func TestMountsOutsideOfHomeAreRefusedBeforeAnythingIsRented(t *testing.T) {
	src := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		x := dressed(s, func(a *another) { a.name = "local" })
		launch := func(name, mount string) error {
			_, err := on(x, s, testbed.NewRequest(), "file_mounts: {"+mount+": "+src+"}\n", func(_ *cluster.Call, l *api.LaunchBody) { l.ClusterName, l.Dryrun = name, true })
			return err
		}
		for cloud, mounts := range map[string]map[string]bool{
			"aws":         {"/data": true, "~/data": true},
			"local":       {"/data": false, "~/data": true},
			"fluffycloud": {"/data": false, "/tmp/data": true},
		} {
			if _, err := b.Store.Clusters().Update(t.Context(), "dev", b.Cluster("dev").Hash, func(c *state.Cluster) error { c.Offer.Cloud = cloud; return nil }); err != nil {
				t.Fatal(err)
			}
			for mount, good := range mounts {
				if err := launch("dev", mount); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "outside the home folder") {
					t.Errorf("%s onto a cluster of %s: %v", mount, cloud, err)
				}
			}
		}
	})
}

// A launch that waits for a cluster when its server ends goes on with the next one.
func TestALaunchThatEndsWhileItWaitsSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		if _, err := b.Store.Clusters().Update(t.Context(), "dev", b.Cluster("dev").Hash, func(c *state.Cluster) error { c.Status = api.ClusterAutostopping; return nil }); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { _, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1)); done <- err }()
		time.Sleep(time.Minute + 100*time.Millisecond) // between two looks at the record
		s.Kill()
		if err := <-done; !errors.Is(err, state.ErrHandover) {
			t.Errorf("got %v", err)
		}
	})
}

// Machines that are lost behind agents that do not answer are a loss to a managed job,
// which goes where there is room; a user's cluster is brought up again in its place.
func TestALostClusterIsBroughtBackOnlyForItsUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		was := b.Cluster("dev")
		if err := b.Cloud.Kill(was.Nodes[0].ID, "taken back"); err != nil {
			t.Fatal(err)
		}
		b.Node(was.Nodes[0].ID)
		b.Inject(model.Fault{ID: "full", Kind: model.Fail, Op: "instances.create", Code: "insufficient_capacity", Message: "no room"})
		_, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1))
		var e *api.Error
		if !errors.As(err, &e) || e.Type != api.ErrResourcesUnavailable || e.Attributes["no_failover"] != true {
			t.Errorf("got %v", err)
		}
		if c := b.Cluster("dev"); c == nil || c.Hash != was.Hash {
			t.Fatal("the record is gone")
		}
		b.Cloud.Remove("full")
		if _, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1)); err != nil || b.Cluster("dev").Hash != was.Hash || b.Cluster("dev").Offer.Place != was.Offer.Place {
			t.Errorf("%v, %+v", err, b.Cluster("dev"))
		}
		if m := b.Machines(); !slices.Equal(m, []string{"dev running"}) {
			t.Errorf("machines: %v", m)
		}
	})
}
