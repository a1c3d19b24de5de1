//go:build unix

package execution_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
)

func isType(err error, want string) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Type == want
}

func idle(context.Context, string) (bool, error) { return false, nil }

// What cannot run is refused before anything is rented, with the reason.
func TestWhatCannotRunIsRefusedBeforeAnythingIsRented(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		for name, tt := range map[string]struct {
			task, cluster, kind, says string
			change                    func(*api.LaunchBody)
		}{
			"two tasks":       {"name: a\n---\nrun: x\n---\nrun: y\n", "dev", api.ErrValue, "single task", nil},
			"no task":         {"name: [\n", "dev", api.ErrValue, "", nil},
			"a bad name":      {"run: x\n", "Übel!", api.ErrInvalidClusterName, "", nil},
			"another address": {"file_mounts: {/data: 'ftp://b/x'}\nrun: x\n", "dev", "sky.exceptions.StorageSourceError", "ftp://b", nil},
			"a cloned disk":   {"run: x\n", "dev", api.ErrClusterDoesNotExist, `"x" does not exist`, func(l *api.LaunchBody) { from := "x"; l.CloneDiskFrom = &from }},
			"nothing like it": {"resources: {infra: fluffycloud, cpus: 512+}\nrun: x\n", "dev", api.ErrResourcesUnavailable, "", nil},
			"a missing file":  {"workdir: /nowhere/at/all\nresources: {infra: fluffycloud}\nrun: x\n", "dev", api.ErrFileNotFound, "/nowhere/at/all", nil},
		} {
			var changes []func(*api.LaunchBody)
			if tt.change != nil {
				changes = append(changes, tt.change)
			}
			_, err := s.Launch(testbed.NewRequest(), tt.cluster, tt.task, changes...)
			if !isType(err, tt.kind) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		b.WantNothingLeft("dev")
	})
}

func TestADryRunShowsThePlanAndRentsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		r := testbed.NewRequest()
		if _, err := s.Launch(r, "dev", train(t, 1), func(l *api.LaunchBody) { l.Dryrun, l.Explain = true, true }); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"puff", "Alternatives for train", "fluff"} {
			if !strings.Contains(r.Out.String(), want) {
				t.Errorf("%q is not in\n%s", want, r.Out)
			}
		}
		b.WantNothingLeft("dev")
		r = testbed.NewRequest()
		if _, err := s.Executor.Optimize(s.Context(), s.Call(r), api.DagBody{Dag: train(t, 1)}); err != nil || !strings.Contains(r.Out.String(), "puff") {
			t.Errorf("%v\n%s", err, r.Out)
		}
		if err := s.Executor.Validate(s.Context(), api.DagBody{Dag: "run: x\nresurces: {}\n"}); err == nil || !strings.Contains(err.Error(), "resurces") {
			t.Errorf("a misspelt field: %v", err)
		}
		if err := s.Executor.ValidateDag(s.Context(), train(t, 1)); err != nil {
			t.Error(err)
		}
	})
}

// An exec waits for a cluster that is being launched, and is refused by one that is
// not there, that is off, or that has not what the task asks for.
func TestAnExecRunsOnlyWhereItFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		exec := func(task string, busy func(context.Context, string) (bool, error)) (*api.LaunchResult, error) {
			return s.Executor.Exec(s.Context(), s.Call(testbed.NewRequest()), api.ExecBody{Task: task, ClusterName: "dev"}, busy)
		}
		if _, err := exec("run: x\n", idle); !isType(err, api.ErrClusterDoesNotExist) {
			t.Errorf("no cluster: %v", err)
		}
		var launching atomic.Bool
		launching.Store(true)
		launch := make(chan error, 1)
		go func() {
			_, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1))
			launching.Store(false)
			launch <- err
		}()
		got, err := exec("run: sleep 1m\n", func(context.Context, string) (bool, error) { return launching.Load(), nil })
		if err := <-launch; err != nil {
			t.Fatal(err)
		}
		if err != nil || got.JobID == nil || b.Cluster("dev").Status != api.ClusterUp {
			t.Errorf("while it is launched: %+v, %v", got, err)
		}
		for name, task := range map[string]string{
			"two nodes": "num_nodes: 2\nrun: x\n", "an accelerator": "resources: {accelerators: A100}\nrun: x\n", "another region": "resources: {infra: fluffycloud/south}\nrun: x\n",
			"a port": "resources: {ports: 80}\nrun: x\n", "another cloud": "resources: {infra: aws}\nrun: x\n", "another type": "resources: {instance_type: fluff}\nrun: x\n",
		} {
			if _, err := exec(task, idle); !isType(err, api.ErrResourcesMismatch) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := s.Stop(testbed.NewRequest(), "dev"); err != nil {
			t.Fatal(err)
		}
		if _, err := exec("run: x\n", idle); !isType(err, api.ErrClusterNotUp) {
			t.Errorf("a cluster that is off: %v", err)
		}
	})
}

// A job takes what its task says, and nothing of it is lost or shown on the way.
func TestAJobGetsWhatItsTaskSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "data.txt"), []byte("1"), 0o600); err != nil {
			t.Fatal(err)
		}
		r := testbed.NewRequest()
		task := fmt.Sprintf("name: train\nresources: {infra: fluffycloud}\nfile_mounts: {data: %s/data.txt, ~/all: %[1]s}\nenvs: {A: '1'}\nsecrets: {TOKEN: hush}\nsetup: sleep 1s\nrun: sleep 1m\n", dir)
		if _, err := s.Launch(r, "dev", task); err != nil {
			t.Fatalf("%v\n%s", err, r.Out)
		}
		head := b.Head("dev")
		spec := head.JobSpecs()[0]
		if spec.Envs["A"] != "1" || spec.Secrets["TOKEN"] != "hush" || spec.Envs["TOKEN"] != "" || spec.Setup != "sleep 1s" || spec.Run != "sleep 1m" || spec.NumNodes != 1 {
			t.Errorf("%+v", spec)
		}
		for _, name := range []string{"sky_workdir/data", "all/data.txt"} {
			if text, err := os.ReadFile(filepath.Join(head.Home(), name)); err != nil || string(text) != "1" {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
		if strings.Contains(r.Out.String(), "hush") {
			t.Errorf("a secret is shown:\n%s", r.Out)
		}
		// Once more without setup, and then with nothing to run.
		if _, err := s.Launch(testbed.NewRequest(), "dev", task, func(l *api.LaunchBody) { l.NoSetup = true }); err != nil {
			t.Fatal(err)
		}
		if spec := head.JobSpecs()[1]; spec.Setup != "" || spec.Run == "" {
			t.Errorf("%+v", spec)
		}
		if got, err := s.Launch(testbed.NewRequest(), "dev", "resources: {infra: fluffycloud}\n"); err != nil || got.JobID != nil || len(head.Jobs()) != 2 {
			t.Errorf("nothing to run: %+v, %v, %d jobs", got, err, len(head.Jobs()))
		}
	})
}

// What the agent says about a job that it does not take is said to the user; the cluster
// stays, and the user learns how to give back a machine that cannot take its job.
func TestAJobThatTheAgentDoesNotTakeIsRefusedWithItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for code, want := range map[agentapi.ErrorCode]struct{ says, hint string }{
			agentapi.CodeInvalid:    {"does not take the job: no such thing", "The cluster stays up. If you do not need it, give it back: sky down dev"},
			agentapi.CodeNoSpace:    {"is full: no such thing", "The cluster stays up. Make room on it (sky ssh dev) and run this again."},
			agentapi.CodeStaleEpoch: {"was launched anew", ""},
			agentapi.CodeInternal:   {"could not be submitted", "See what became of it with: sky status --refresh dev"},
		} {
			b := testbed.New(t)
			s := b.Boot(failpoint.Endless)
			s.Tell(func(step string) {
				if step == "agent.configure" {
					for _, m := range b.Cloud.Machines() {
						if n := b.Node(m.ID); n != nil {
							n.RefuseJobs(&agentapi.Error{Code: code, Message: "no such thing"})
						}
					}
				}
			})
			_, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1))
			if e, ok := errors.AsType[*api.Error](err); !ok || !strings.Contains(e.Message, want.says) || e.Hint != want.hint {
				t.Errorf("%s: %#v", code, err)
			}
			b.WantMachines("dev running")
		}
	})
}

// A cluster that is just stopping itself is waited for, and then switched on.
func TestALaunchOnAClusterThatStopsItselfWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		hash := b.Cluster("dev").Hash
		if _, err := b.Store.Clusters().Update(t.Context(), "dev", hash, func(c *state.Cluster) error { c.Status = api.ClusterAutostopping; return nil }); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1))
			done <- err
		}()
		time.Sleep(time.Minute)
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		for _, n := range b.Cluster("dev").Nodes {
			if err := b.Cloud.Halt(n.ID); err != nil {
				t.Fatal(err)
			}
			b.Node(n.ID)
		}
		if _, err := b.Store.Clusters().Update(t.Context(), "dev", hash, func(c *state.Cluster) error { c.Status = api.ClusterStopped; return nil }); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		b.WantMachines("dev running")
		if c := b.Cluster("dev"); c.Hash != hash || c.Status != api.ClusterUp {
			t.Errorf("%+v", c)
		}
	})
}

// The launch of a managed job marks its cluster, tries places in the order that the
// job wants, and takes no cluster that is not the job's.
func TestALaunchOfAManagedJobIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		south := func(offers []cloud.Offer) [][]cloud.Offer {
			var first, rest []cloud.Offer
			for _, o := range offers {
				if o.Region == "south" {
					first = append(first, o)
				} else {
					rest = append(rest, o)
				}
			}
			return [][]cloud.Offer{first, rest}
		}
		launch := func(job int) error {
			_, err := s.Executor.LaunchHeld(s.Context(), s.Call(testbed.NewRequest()), api.LaunchBody{Task: train(t, 1), ClusterName: "dev"},
				execution.Held{Holder: state.JobHolder(job), TaskID: "the-task", Envs: map[string]string{"B": "2"}, Order: south})
			return err
		}
		if err := launch(7); err != nil {
			t.Fatal(err)
		}
		c := b.Cluster("dev")
		if !c.Held() || c.Offer.Region != "south" {
			t.Errorf("managed %v, in %s", c.Held(), c.Offer.Region)
		}
		if spec := b.Head("dev").JobSpecs()[0]; spec.TaskID != "the-task" || spec.Envs["B"] != "2" {
			t.Errorf("%+v", spec)
		}
		if err := launch(8); !isType(err, api.ErrInvalidClusterName) {
			t.Errorf("another job: %v", err)
		}
		if _, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1)); !isType(err, api.ErrNotSupported) {
			t.Errorf("a user: %v", err)
		}
		if n := len(b.Head("dev").Jobs()); n != 1 {
			t.Errorf("%d jobs", n)
		}
	})
}

// A launch that may wait does so until there is room, and then gets it.
func TestALaunchUntilUpWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		b.Inject(full("instances.create"))
		go func() {
			time.Sleep(30 * time.Minute)
			b.Cloud.Remove("full")
		}()
		began := time.Now()
		if _, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1), func(l *api.LaunchBody) { l.RetryUntilUp = true }); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 30*time.Minute || took > 2*time.Hour {
			t.Errorf("it took %v", took)
		}
		if m := b.Machines(); !slices.Equal(m, []string{"dev running"}) {
			t.Errorf("machines: %v", m)
		}
	})
}

// A launch opens the ports that its task names on a cluster that exists, as on a new one.
func TestALaunchOnAClusterThatExistsOpensPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		want := func(when string, ports ...string) {
			t.Helper()
			if got := b.Cluster("dev").Ports; !slices.Equal(got, ports) {
				t.Errorf("%s: recorded are %v, want %v", when, got, ports)
			}
			if f := b.Cloud.Firewalls(); len(f) != 1 || !slices.Equal(slices.Sorted(slices.Values(f[0].Ports)), slices.Sorted(slices.Values(ports))) {
				t.Errorf("%s: %+v, want %v", when, f, ports)
			}
		}
		for _, c := range []struct {
			when, task string
			ports      []string
		}{
			{"new", "resources: {ports: 80}\nrun: x\n", []string{"80"}},
			{"one more", "resources: {ports: [8080, 80]}\nrun: x\n", []string{"80", "8080"}},
			{"none named", "run: x\n", []string{"80", "8080"}},
		} {
			if _, err := s.Launch(testbed.NewRequest(), "dev", c.task); err != nil {
				t.Fatal(err)
			}
			want(c.when, c.ports...)
		}
		if err := s.Stop(testbed.NewRequest(), "dev"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Launch(testbed.NewRequest(), "dev", "resources: {ports: 9000-9010}\nrun: x\n"); err != nil {
			t.Fatal(err)
		}
		want("started", "80", "8080", "9000-9010")
	})
}
