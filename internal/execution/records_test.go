//go:build unix

package execution_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
)

// history is what a cluster's status was and why, as "FROM→TO reason".
func history(t *testing.T, b *testbed.Bed, c *state.Cluster) (out []string) {
	t.Helper()
	events, err := b.Store.Clusters().Events(t.Context(), c.Name, c.Hash, []string{"STATUS_CHANGE"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.ClusterName != c.Name || time.Since(e.At) > time.Hour || time.Since(e.At) < 0 {
			t.Errorf("%+v", e)
		}
		out = append(out, fmt.Sprintf("%s→%s %s", e.Starting, e.Ending, e.Reason))
	}
	return out
}

// running are the times during which the machines of a cluster ran, as our record has
// it.
func running(t *testing.T, b *testbed.Bed, c *state.Cluster) []state.UsageInterval {
	t.Helper()
	all, err := b.Store.Clusters().History(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		if h.Hash == c.Hash {
			return h.Intervals
		}
	}
	return nil
}

// Whatever is shown, billed or made later of a cluster is on its record from its
// launch on.
func TestALaunchLeavesACompleteRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		r := testbed.NewRequest()
		began := time.Now()
		task := "num_nodes: 2\nresources: {infra: fluffycloud/north, cpus: 2+, disk_size: 77, labels: {team: blue}}\n" +
			"secrets: {SKYPILOT_DOCKER_USERNAME: ann, SKYPILOT_DOCKER_SERVER: r.example, SKYPILOT_DOCKER_PASSWORD: hush}\nrun: sleep 1m\n"
		if _, err := s.Launch(r, "dev", task); err != nil {
			t.Fatal(err)
		}
		c := b.Cluster("dev")
		if c.Status != api.ClusterUp || !c.EverUp || c.Held() || c.Epoch != 1 || c.AgentBuild != testbed.Build || c.NumNodes != 2 || len(c.Nodes) != 2 {
			t.Errorf("%+v", c)
		}
		if c.UserHash != testbed.Ann.ID || c.UserName != "ann" || c.Workspace != "default" || !strings.HasPrefix(c.NameOnCloud, "dev-"+testbed.Ann.ID) || !slices.Equal(c.Owner, []string{"ann"}) {
			t.Errorf("whose: %q %q %q %q %q", c.UserHash, c.UserName, c.Workspace, c.NameOnCloud, c.Owner)
		}
		if c.Offer.Region != "north" || c.Offer.InstanceType != "puff" || c.Machine.DiskGB != 77 || c.Labels["team"] != "blue" || c.AutostopMinutes != -1 || c.AutostopDown {
			t.Errorf("what: %+v", c)
		}
		if want := "sky " + r.ID[:4]; c.LastUse != want || c.CreationCmd != want || c.LastEvent != "all machines run and the agent answers" {
			t.Errorf("how: %q, %q, %q", c.LastUse, c.CreationCmd, c.LastEvent)
		}
		if c.Notes.Registry != "r.example" || strings.Contains(fmt.Sprint(c.Notes), "hush") {
			t.Errorf("notes: %+v", c.Notes)
		}
		if c.LaunchedAt.Before(began) || !c.StatusUpdatedAt.After(c.LaunchedAt) || c.StatusUpdatedAt.After(time.Now()) {
			t.Errorf("when: %v, %v", c.LaunchedAt, c.StatusUpdatedAt)
		}
		for i, n := range c.Nodes {
			if n.Reach.Agent == "" || b.Node(n.ID) == nil {
				t.Errorf("node %d: %+v", i, n)
			}
		}
		if got, want := history(t, b, c), []string{"INIT→INIT getting machines", "INIT→UP all machines run and the agent answers"}; !slices.Equal(got, want) {
			t.Errorf("history: %q", got)
		}
		if u := running(t, b, c); len(u) != 1 || u[0].Start.Before(began) || !u[0].End.IsZero() {
			t.Errorf("usage: %v", u)
		}
	})
}

// A cluster of one request has one entry of its own for what it must remember: images
// and what its machines have besides their size.
func TestALaunchRemembersWhatItsMachinesAreLike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		x := dressed(s, func(*another) {})
		task := "resources: {infra: fluffycloud, image_id: img-1, disk_tier: low, network_tier: best, ports: 8080}\n"
		if _, err := x.Launch(s.Context(), s.Call(testbed.NewRequest()), api.LaunchBody{Task: task, ClusterName: "dev"}); err != nil {
			t.Fatal(err)
		}
		c := b.Cluster("dev")
		if c.Machine.DiskTier != "low" || c.Machine.NetworkTier != "best" || !strings.Contains(fmt.Sprint(c.Machine.Images), "img-1") || !slices.Equal(c.Ports, []string{"8080"}) {
			t.Errorf("%+v, ports %q", c.Machine, c.Ports)
		}
		launch := func(with string) error {
			_, err := x.Launch(s.Context(), s.Call(testbed.NewRequest()), api.LaunchBody{Task: "resources: {infra: fluffycloud, " + with + "}\n", ClusterName: "dev"})
			return err
		}
		for with, fits := range map[string]bool{"image_id: img-1": true, "image_id: img-2": false, "disk_tier: low": true, "disk_tier: medium": false} {
			if err := launch(with); (err == nil) != fits || err != nil && !isType(err, api.ErrResourcesMismatch) {
				t.Errorf("%s: %v", with, err)
			}
		}
	})
}

// Each use of a cluster is on its record, and each time that its machines are got anew
// its agents have a new epoch.
func TestEachUseOfAClusterIsOnItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		first := b.Cluster("dev")
		for _, use := range []struct {
			name string
			do   func(*testbed.Request) error
			anew bool // machines are got
		}{
			{"an exec", func(r *testbed.Request) error {
				_, err := s.Executor.Exec(s.Context(), s.Call(r), api.ExecBody{Task: "run: sleep 1s\n", ClusterName: "dev"}, idle)
				return err
			}, false},
			{"a launch", func(r *testbed.Request) error { _, err := s.Launch(r, "dev", train(t, 1)); return err }, false},
			{"a start", func(r *testbed.Request) error { return s.Start(r, "dev") }, true},
		} {
			if use.anew {
				if err := s.Stop(testbed.NewRequest(), "dev"); err != nil {
					t.Fatal(err)
				}
			}
			was := b.Cluster("dev")
			time.Sleep(time.Second) // events of one moment have no order
			r := testbed.NewRequest()
			if err := use.do(r); err != nil {
				t.Fatalf("%s: %v", use.name, err)
			}
			c := b.Cluster("dev")
			if c.LastUse != "sky "+r.ID[:4] || c.CreationCmd != first.CreationCmd || !c.LaunchedAt.Equal(first.LaunchedAt) || c.Hash != first.Hash || c.AgentBuild != testbed.Build {
				t.Errorf("%s: %+v", use.name, c)
			}
			if grew := c.Epoch - was.Epoch; grew != 0 && !use.anew || grew != 1 && use.anew {
				t.Errorf("%s: its epoch was %d and is %d", use.name, was.Epoch, c.Epoch)
			}
			if spec := b.Head("dev").Spec(); spec.Epoch != c.Epoch {
				t.Errorf("%s: the agent's epoch is %d, not %d", use.name, spec.Epoch, c.Epoch)
			}
		}
		c := b.Cluster("dev")
		got := history(t, b, c)
		if n := len(got); n < 2 || got[n-2] != "STOPPED→INIT getting machines" || got[n-1] != "INIT→UP all machines run and the agent answers" {
			t.Errorf("history: %q", got)
		}
		if u := running(t, b, c); len(u) != 2 || u[0].End.IsZero() || !u[1].Start.After(u[0].End) || !u[1].End.IsZero() {
			t.Errorf("usage: %v", u)
		}
	})
}

// A call that names no command leaves the last one on record.
func TestAUseWithoutACommandLeavesTheLastOneOnRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		was := b.Cluster("dev").LastUse
		call := s.Call(testbed.NewRequest())
		call.Command = ""
		if _, err := s.Executor.Exec(s.Context(), call, api.ExecBody{Task: "run: sleep 1s\n", ClusterName: "dev"}, idle); err != nil || b.Cluster("dev").LastUse != was {
			t.Errorf("%q, %v", b.Cluster("dev").LastUse, err)
		}
	})
}

// A launch without a name gets one that is the same when the request is resumed.
func TestALaunchWithoutANameIsNamedAfterItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		r := testbed.NewRequest()
		got, err := b.Boot(failpoint.Endless).Launch(r, "", "resources: {infra: fluffycloud}\nrun: sleep 1s\n")
		name := "sky-" + r.ID[:4] + "-ann"
		if err != nil || got.Handle.ClusterName != name || b.Cluster(name) == nil {
			t.Fatalf("%+v, %v", got, err)
		}
		again, err := b.Boot(failpoint.Endless).Launch(r, "", "resources: {infra: fluffycloud}\nrun: sleep 1s\n")
		if err != nil || *again.JobID != *got.JobID || again.SubmittedAt != got.SubmittedAt || again.SubmittedAt == 0 || len(b.Machines()) != 1 {
			t.Errorf("%+v, %v, machines %v", again, err, b.Machines())
		}
	})
}

// A start sets the autostop that it is asked for, keeps the one that was, and takes
// "at once" for a minute.
func TestAStartSetsTheAutostopThatIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		start := func(change func(*api.StartBody)) (*api.Handle, error) {
			t.Helper()
			if b.Cluster("dev").Status == api.ClusterUp {
				if err := s.Stop(testbed.NewRequest(), "dev"); err != nil {
					t.Fatal(err)
				}
			}
			body := api.StartBody{ClusterName: "dev"}
			if change != nil {
				change(&body)
			}
			return s.Executor.Start(s.Context(), s.Call(testbed.NewRequest()), body)
		}
		for _, tt := range []struct {
			name   string
			change func(*api.StartBody)
			want   agentapi.Autostop
		}{
			{"nothing", nil, agentapi.Autostop{IdleMinutes: 20, WaitFor: api.WaitForJobsAndSSH}},
			{"a down", func(b *api.StartBody) { b.IdleMinutesAutostop, b.Down = new(5), true }, agentapi.Autostop{IdleMinutes: 5, Down: true, WaitFor: api.WaitForJobsAndSSH}},
			{"at once", func(b *api.StartBody) { b.IdleMinutesAutostop, b.WaitFor = new(0), new(api.WaitForJobs) }, agentapi.Autostop{IdleMinutes: 1, WaitFor: api.WaitForJobs}},
		} {
			h, err := start(tt.change)
			if err != nil || h.ClusterName != "dev" {
				t.Fatalf("%s: %+v, %v", tt.name, h, err)
			}
			c, a := b.Cluster("dev"), b.Head("dev").Autostop()
			if a == nil || *a != tt.want || c.AutostopMinutes != tt.want.IdleMinutes || c.AutostopDown != tt.want.Down || c.AutostopWaitFor != tt.want.WaitFor {
				t.Errorf("%s: %+v; on record %d, %v, %s", tt.name, a, c.AutostopMinutes, c.AutostopDown, c.AutostopWaitFor)
			}
		}
		if _, err := start(func(b *api.StartBody) { b.IdleMinutesAutostop = new(-1) }); err != nil || b.Cluster("dev").AutostopMinutes != -1 || cluster.Waking(b.Cluster("dev")) {
			t.Errorf("never: %v, %+v", err, b.Cluster("dev"))
		}
		if _, err := start(func(b *api.StartBody) { b.Down = true }); !isType(err, api.ErrValue) || !strings.Contains(err.Error(), "-i") {
			t.Errorf("a down without minutes: %v", err)
		}
		if err := s.Start(testbed.NewRequest(), "nobody"); !isType(err, api.ErrClusterDoesNotExist) {
			t.Errorf("no such cluster: %v", err)
		}
	})
}

// A start of a cluster that is up does nothing and says so, unless it is forced.
func TestAStartOfAClusterThatIsUpIsNoStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		was := b.Cluster("dev")
		r := testbed.NewRequest()
		h, err := s.Executor.Start(s.Context(), s.Call(r), api.StartBody{ClusterName: "dev", IdleMinutesAutostop: new(3)})
		if err != nil || h.ClusterName != "dev" || !strings.Contains(r.Out.String(), "Cluster dev is UP already.") || b.Cluster("dev").Version != was.Version {
			t.Errorf("%+v, %v\n%s", h, err, r.Out)
		}
		r = testbed.NewRequest()
		if _, err := s.Executor.Start(s.Context(), s.Call(r), api.StartBody{ClusterName: "dev", Force: true}); err != nil || b.Cluster("dev").Epoch != was.Epoch+1 || strings.Contains(r.Out.String(), "already") {
			t.Errorf("forced: %v, %+v\n%s", err, b.Cluster("dev"), r.Out)
		}
		// One that an earlier life of the request brought up still gets its autostop.
		r = testbed.NewRequest()
		s.Call(r)
		if _, err := s.Executor.Start(s.Context(), s.Call(r), api.StartBody{ClusterName: "dev", IdleMinutesAutostop: new(3)}); err != nil || b.Head("dev").Autostop().IdleMinutes != 3 {
			t.Errorf("resumed: %v, %+v", err, b.Head("dev").Autostop())
		}
	})
}

// Machines of another account are not looked for with these credentials.
func TestAStartNeedsTheAccountThatLaunched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		if err := s.Stop(testbed.NewRequest(), "dev"); err != nil {
			t.Fatal(err)
		}
		b.Account = "bob"
		if err := b.Boot(failpoint.Endless).Start(testbed.NewRequest(), "dev"); !isType(err, api.ErrClusterOwnerMismatch) {
			t.Errorf("got %v", err)
		}
		b.WantMachines("dev stopped")
	})
}

// A cluster whose machines are being given back cannot be started or launched on; a
// launch waits until they are gone and makes it anew.
func TestAClusterThatIsBeingGivenBackIsNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		was := b.Cluster("dev").Hash
		b.Inject(model.Fault{ID: "stuck", Kind: model.Fail, Op: "instances.terminate", Code: "internal", Message: "try later"})
		if err := s.Down(testbed.NewRequest(), "dev"); err == nil {
			t.Fatal("it is down")
		}
		err := s.Start(testbed.NewRequest(), "dev")
		if !isType(err, api.ErrClusterNotUp) || !strings.Contains(err.Error(), "being given back") {
			t.Errorf("start: %v", err)
		}
		if _, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1)); err == nil || !strings.Contains(err.Error(), "giving back what the earlier cluster dev left") {
			t.Errorf("launch: %v", err)
		}
		b.Cloud.Remove("stuck")
		if _, err := s.Launch(testbed.NewRequest(), "dev", train(t, 1)); err != nil || b.Cluster("dev").Hash == was {
			t.Errorf("launch: %v", err)
		}
		b.WantMachines("dev running")
	})
}

// What an earlier life of a launch submitted is its answer, whatever became of the
// cluster.
func TestAResumedLaunchAnswersWithItsJob(t *testing.T) {
	for name, meanwhile := range map[string]func(b *testbed.Bed, s *testbed.Server) error{
		"it is up":   func(*testbed.Bed, *testbed.Server) error { return nil },
		"it is off":  func(_ *testbed.Bed, s *testbed.Server) error { return s.Stop(testbed.NewRequest(), "dev") },
		"it is gone": func(_ *testbed.Bed, s *testbed.Server) error { return s.Down(testbed.NewRequest(), "dev") },
		"it is another one": func(b *testbed.Bed, s *testbed.Server) error {
			if err := s.Down(testbed.NewRequest(), "dev"); err != nil {
				return err
			}
			_, err := s.Launch(testbed.NewRequest(), "dev", "resources: {infra: fluffycloud}\n")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := testbed.New(t)
				s := b.Boot(failpoint.Endless)
				r, yaml := testbed.NewRequest(), train(t, 1)
				first, err := s.Launch(r, "dev", yaml)
				if err != nil {
					t.Fatal(err)
				}
				exec := testbed.NewRequest()
				body := api.ExecBody{Task: "run: sleep 1s\n", ClusterName: "dev"}
				second, err := s.Executor.Exec(s.Context(), s.Call(exec), body, idle)
				if err != nil {
					t.Fatal(err)
				}
				if err := meanwhile(b, s); err != nil {
					t.Fatal(err)
				}
				machines := b.Machines()
				got, err := s.Launch(r, "dev", yaml)
				if err != nil || got.JobID == nil || *got.JobID != *first.JobID || got.SubmittedAt != first.SubmittedAt || got.Handle == nil || got.Handle.ClusterName != "dev" {
					t.Errorf("launch: %+v, %v", got, err)
				}
				got, err = s.Executor.Exec(s.Context(), s.Call(exec), body, idle)
				if name == "it is another one" {
					if err == nil || !strings.Contains(err.Error(), "was replaced") {
						t.Errorf("exec: %+v, %v", got, err)
					}
				} else if err != nil || got.JobID == nil || *got.JobID != *second.JobID {
					t.Errorf("exec: %+v, %v", got, err)
				}
				if !slices.Equal(b.Machines(), machines) {
					t.Errorf("machines: %v, were %v", b.Machines(), machines)
				}
			})
		})
	}
}

// An exec is refused where it must not run, and a dry one runs nothing.
func TestAnExecThatMustNotRunRunsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := launched(t, 1)
		change := func(f func(*state.Cluster)) {
			t.Helper()
			if _, err := b.Store.Clusters().Update(t.Context(), "dev", b.Cluster("dev").Hash, func(c *state.Cluster) error { f(c); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		exec := func(body api.ExecBody, busy func(context.Context, string) (bool, error)) (*api.LaunchResult, *testbed.Request, error) {
			r := testbed.NewRequest()
			body.ClusterName = "dev"
			got, err := s.Executor.Exec(s.Context(), s.Call(r), body, busy)
			return got, r, err
		}
		got, r, err := exec(api.ExecBody{Task: "run: x\n", Dryrun: true}, idle)
		if err != nil || got.JobID != nil || got.Handle.ClusterName != "dev" || !strings.Contains(r.Out.String(), "Dryrun finished.") {
			t.Errorf("a dry run: %+v, %v\n%s", got, err, r.Out)
		}
		for name, task := range map[string]string{"a bad task": "run: [\n", "two tasks": "name: a\n---\nrun: x\n---\nrun: y\n"} {
			if _, _, err := exec(api.ExecBody{Task: task}, idle); !isType(err, api.ErrValue) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, _, err := exec(api.ExecBody{Task: "workdir: {url: 'https://example.com/r.git'}\nrun: x\n"}, idle); !isType(err, api.ErrNotSupported) {
			t.Errorf("what cannot be copied: %v", err)
		}
		if _, _, err := exec(api.ExecBody{Task: "workdir: /nowhere/at/all\nrun: x\n"}, idle); !isType(err, api.ErrFileNotFound) {
			t.Errorf("a missing folder: %v", err)
		}
		change(func(c *state.Cluster) { c.Status = api.ClusterAutostopping })
		if _, _, err := exec(api.ExecBody{Task: "run: x\n"}, idle); !isType(err, api.ErrClusterNotUp) {
			t.Errorf("a cluster that stops itself: %v", err)
		}
		change(func(c *state.Cluster) { c.Status = api.ClusterInit })
		broken := errors.New("broken")
		if _, _, err := exec(api.ExecBody{Task: "run: x\n"}, func(context.Context, string) (bool, error) { return false, broken }); !errors.Is(err, broken) {
			t.Errorf("nobody knows whether it is launched: %v", err)
		}
		began := time.Now()
		if _, _, err := exec(api.ExecBody{Task: "run: x\n"}, func(context.Context, string) (bool, error) { return true, nil }); err != nil && !isType(err, api.ErrClusterNotUp) {
			t.Errorf("a launch that never ends: %v", err)
		}
		if took := time.Since(began); took < time.Hour || took > time.Hour+time.Minute {
			t.Errorf("it was given up after %v", took)
		}
		ctx, cancel := context.WithCancelCause(s.Context())
		change(func(c *state.Cluster) { c.Status = api.ClusterInit })
		_, err = s.Executor.Exec(ctx, s.Call(testbed.NewRequest()), api.ExecBody{Task: "run: x\n", ClusterName: "dev"}, func(context.Context, string) (bool, error) { cancel(broken); return true, nil })
		if !errors.Is(err, broken) {
			t.Errorf("cancelled: %v", err)
		}
		change(func(c *state.Cluster) { c.Status = api.ClusterUp; c.Holder = state.JobHolder(7) })
		if _, _, err := exec(api.ExecBody{Task: "run: x\n"}, idle); !isType(err, api.ErrNotSupported) || !strings.Contains(err.Error(), "managed job 7") {
			t.Errorf("a managed job's cluster: %v", err)
		}
	})
}

// A managed job's cluster is on record as the job's, its jobs are told to the server,
// and jobs of earlier attempts end before the next is submitted.
func TestALaunchOfAManagedJobReplacesItsEarlierAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testbed.New(t)
		s := b.Boot(failpoint.Endless)
		launch := func() error {
			_, err := s.Executor.LaunchHeld(s.Context(), s.Call(testbed.NewRequest()), api.LaunchBody{Task: train(t, 1), ClusterName: "dev"}, execution.Held{Holder: state.JobHolder(7), Replaces: func(all []agentapi.Job) (ids []int) {
				for _, j := range all {
					ids = append(ids, j.ID)
				}
				return ids
			}})
			return err
		}
		for range 2 {
			if err := launch(); err != nil {
				t.Fatal(err)
			}
		}
		if jobs := b.Head("dev").Jobs(); len(jobs) != 2 || jobs[0].Status != api.JobCancelled || jobs[1].Status == api.JobCancelled || !jobs[1].Report {
			t.Errorf("%+v", jobs)
		}
		if c := b.Cluster("dev"); c.Holder != state.JobHolder(7) {
			t.Errorf("%+v", c.Holder)
		}
		s.Refuse("agent.cancel", errors.New("no answer"))
		if err := launch(); err == nil || !strings.Contains(err.Error(), "ending jobs of earlier attempts") || len(b.Head("dev").Jobs()) != 2 {
			t.Errorf("%v, %d jobs", err, len(b.Head("dev").Jobs()))
		}
	})
}
