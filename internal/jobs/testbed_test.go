//go:build unix

package jobs_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient/agenttest"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/jobs"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
)

// installation is one whose server looks after managed jobs: on FluffyCloud's
// model, with agents in memory and a database on disk.
type installation struct {
	*testbed.Bed
	t    *testing.T
	dir  string
	deps func(*jobs.Deps) // what is different from other installations; nil: nothing

	s    *testbed.Server
	m    *jobs.Manager
	done chan struct{} // closed when the manager does nothing any more
}

func install(t *testing.T) *installation {
	i := &installation{Bed: testbed.New(t), t: t, dir: t.TempDir()}
	t.Cleanup(i.crash)
	return i
}

// serve starts a server, after the one before has died; it dies after that many
// half steps, see [failpoint.New].
func (i *installation) serve(halfSteps int) *installation {
	i.t.Helper()
	i.crash()
	i.s = i.Boot(halfSteps)
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("SKYPILOT_DEBUG") != "" {
		log = slog.New(slog.NewTextHandler(i.t.Output(), nil))
	}
	d := jobs.Deps{Store: i.s.Store, Executor: i.s.Executor, Clusters: i.s.Clusters, Log: log, ServerID: "local", Dir: i.dir, Launches: 4}
	if i.deps != nil {
		i.deps(&d)
	}
	i.m = jobs.New(d)
	i.s.Clusters.Ended = i.m.Ended
	i.s.Watch()
	done := make(chan struct{})
	i.done = done
	m, ctx := i.m, i.s.Context()
	go func() {
		m.Run(ctx)
		close(done)
	}()
	return i
}

// crash kills the server, if one runs.
func (i *installation) crash() {
	if i.s != nil {
		i.s.End()
		<-i.done
		i.s = nil
	}
}

// submit makes a job of a task.
func (i *installation) submit(task string) int {
	i.t.Helper()
	r, err := i.m.Submit(i.s.Context(), i.s.Call(testbed.NewRequest()), api.JobsLaunchBody{Task: task})
	if err != nil {
		i.t.Fatal(err)
	}
	return r.JobID[0]
}

// job is a managed job as it is stored.
func (i *installation) job(id int) *state.ManagedJob {
	i.t.Helper()
	j, err := i.Store.ManagedJobs().Get(context.Background(), id)
	if err != nil {
		i.t.Fatal(err)
	}
	return j
}

// until waits until a job is in a state, or for six hours.
func (i *installation) until(id int, want api.ManagedStatus) *state.ManagedTask {
	i.t.Helper()
	for end := time.Now().Add(6 * time.Hour); time.Now().Before(end); time.Sleep(time.Second / 2) {
		if t := i.job(id).Current(); t.Status == want {
			return t
		}
	}
	t := i.job(id).Current()
	i.t.Fatalf("job %d is %s (%s), not %s", id, t.Status, t.Details, want)
	return nil
}

// attempt is the latest attempt of a job's only task.
func (i *installation) attempt(id int) *state.ManagedAttempt {
	i.t.Helper()
	all, err := i.Store.ManagedJobs().Attempts(context.Background(), id)
	if err != nil || len(all) == 0 {
		i.t.Fatalf("no attempt: %v", err)
	}
	return all[len(all)-1]
}

// head is the head of the cluster of a job.
func (i *installation) head(id int) *agenttest.Node {
	i.t.Helper()
	return i.Head(i.attempt(id).ClusterName)
}

// lose takes a machine away, as a cloud does.
func (i *installation) lose(instance string) {
	i.t.Helper()
	if err := i.Cloud.Kill(instance, "preempted"); err != nil {
		i.t.Fatal(err)
	}
	i.Node(instance)
}

const train = "name: train\nresources: {infra: fluffycloud, cpus: 2+}\nrun: |\n  echo working\n  sleep 10m\n"

func TestAJobRunsOnceAndItsClusterGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t).serve(failpoint.Endless)
		id := i.submit(train)
		i.until(id, api.ManagedRunning)
		i.WantMachines("train-1 running")
		head := i.head(id)
		got := i.until(id, api.ManagedSucceeded)
		time.Sleep(time.Minute)
		i.WantMachines()
		if n := len(head.Jobs()); n != 1 || got.RanFor.Round(time.Second) != 10*time.Minute {
			t.Errorf("%d jobs, ran for %v", n, got.RanFor)
		}
	})
}

// The server dies at each step that it makes from a job's submission to its end: the
// program runs once, and no machine is left.
func TestAJobSurvivesACrashAtEveryStep(t *testing.T) {
	testbed.EveryHalfStep(t, func(t *testing.T, n int) (died bool) {
		i := install(t).serve(failpoint.Endless)
		id := i.submit("name: train\nresources: {infra: fluffycloud, cpus: 2+}\nrun: sleep 3s\n")
		i.serve(n)
		var heads []*agenttest.Node
		i.s.Tell(func(step string) {
			if step == "agent.submit" {
				heads = append(heads, i.head(id))
			}
		})
		for end := time.Now().Add(time.Minute); time.Now().Before(end) && !i.s.Dead() && !i.job(id).Current().Status.Terminal(); {
			time.Sleep(time.Second / 4)
		}
		if died = i.s.Dead(); died {
			i.serve(failpoint.Endless)
		}
		i.until(id, api.ManagedSucceeded)
		time.Sleep(time.Minute)
		i.WantMachines()
		runs := 0
		for _, h := range heads {
			runs += h.Runs("managed-1-0-1")
		}
		if a := i.attempt(id); a.Number != 1 || runs > 1 {
			t.Errorf("attempt %d, begun %d times", a.Number, runs)
		}
		return died
	})
}

// A server that never comes back must not leave machines that cost money. Until then
// one that was away finds out how the job ended, whatever the task says of autostop.
func TestAClusterThatNobodyLooksAfterGivesItselfBackAnHourAfterItsJob(t *testing.T) {
	for name, task := range map[string]string{
		"a task that says nothing":         train,
		"a task that would stop":           "resources: {infra: fluffycloud, autostop: 5m}\nname: train\nrun: sleep 10m\n",
		"a task that would never be ended": "resources: {infra: fluffycloud, autostop: false}\nname: train\nrun: sleep 10m\n",
	} {
		t.Run(name, func(t *testing.T) {
			for _, back := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					i := install(t).serve(failpoint.Endless)
					id := i.submit(task)
					i.until(id, api.ManagedRunning)
					i.crash()
					time.Sleep(10*time.Minute + 58*time.Minute)
					i.WantMachines("train-1 running")
					if back {
						i.serve(failpoint.Endless)
						if got := i.until(id, api.ManagedSucceeded); got.Attempt != 1 {
							t.Errorf("attempt %d", got.Attempt)
						}
					} else {
						time.Sleep(3 * time.Minute)
					}
					time.Sleep(time.Minute)
					i.WantMachines()
				})
			}
		})
	}
}

// The answer to a job's submission is lost, and its agent is silent for a while: the
// job may run, so its machine is kept and the job is found there.
func TestAJobThatMayRunIsNotTornDownWhenItsLaunchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t).serve(failpoint.Endless)
		hit := false
		var head *agenttest.Node
		i.s.Tell(func(step string) {
			if step == "agent.submit" && !hit {
				hit = true
				head = i.Head("train-1")
				head.Crash()
				i.s.Refuse("agent.start", errors.New("no shell"))
			}
		})
		id := i.submit(train)
		time.Sleep(5 * time.Minute)
		i.WantMachines("train-1 running")
		if got := i.job(id).Current(); got.Status != api.ManagedStarting && got.Status != api.ManagedPending || !hit {
			t.Errorf("the job is %s", got.Status)
		}
		i.s.Refuse("agent.start", nil)
		got := i.until(id, api.ManagedSucceeded)
		if runs := head.Runs("managed-1-0-1"); runs != 1 || got.Attempt != 1 || got.RanFor.Round(time.Second) != 10*time.Minute {
			t.Errorf("begun %d times, attempt %d, ran for %v", runs, got.Attempt, got.RanFor)
		}
		time.Sleep(time.Minute)
		i.WantMachines()
	})
}

// A launch that fails before its job may run costs nothing while the job waits for
// the next try.
func TestALaunchThatFailsBeforeItsJobMayRunGivesItsMachinesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t).serve(failpoint.Endless)
		i.s.Refuse("agent.autostop", errors.New("the agent is busy"))
		id := i.submit(train)
		for i.job(id).Current().Tries == 0 {
			time.Sleep(time.Second / 2)
		}
		i.WantMachines()
		i.s.Refuse("agent.autostop", nil)
		i.until(id, api.ManagedSucceeded)
		time.Sleep(time.Minute)
		i.WantMachines()
	})
}

// A node of three is replaced. What the first attempt left on the head is cancelled;
// a job that is none of the managed job's goes on.
func TestASecondAttemptEndsWhatTheFirstLeftAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t).serve(failpoint.Endless)
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "train.py"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		id := i.submit("name: train\nnum_nodes: 3\nworkdir: " + dir + "\nresources: {infra: fluffycloud, job_recovery: {recovery: node}}\nrun: sleep 30m\n")
		i.until(id, api.ManagedRunning)
		head := i.head(id)
		i.s.Tell(func(step string) {
			if j := head.Jobs()[0]; step == "agent.sync" && j.Status != api.JobCancelled {
				t.Errorf("files are copied under a job that is %s", j.Status)
			}
		})
		c := i.Cluster(i.attempt(id).ClusterName)
		client, err := i.s.Remote.Head(c)
		if err != nil {
			t.Fatal(err)
		}
		other, err := client.Submit(t.Context(), agentapi.SubmitRequest{Key: "somebody's", Epoch: c.Epoch, Spec: agentapi.JobSpec{Name: "other", Run: "sleep 20m"}})
		if err != nil {
			t.Fatal(err)
		}
		i.lose(c.Nodes[2].ID)
		for i.job(id).Current().Attempt < 2 {
			time.Sleep(time.Second)
		}
		i.until(id, api.ManagedRunning)
		want := map[string]api.JobStatus{"managed-1-0-1": api.JobCancelled, "somebody's": api.JobRunning, "managed-1-0-2": api.JobRunning}
		for _, j := range head.Jobs() {
			if j.Status != want[j.Key] {
				t.Errorf("job %s is %s, want %s", j.Key, j.Status, want[j.Key])
			}
		}
		if n := len(head.Jobs()); n != 3 || other.JobID != 2 {
			t.Errorf("%d jobs", n)
		}
		i.until(id, api.ManagedSucceeded)
		time.Sleep(time.Minute)
		i.WantMachines()
	})
}

// The machine goes before the server comes back: how the job ended is known, as its
// agent told it while the server was there.
func TestAMachineThatIsLostIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t).serve(failpoint.Endless)
		id := i.submit(train)
		i.until(id, api.ManagedRunning)
		first := i.Cluster("train-1").Nodes[0].ID
		time.Sleep(5 * time.Minute)
		i.lose(first)
		i.until(id, api.ManagedRecovering)
		got := i.until(id, api.ManagedSucceeded)
		if got.Recoveries != 1 || got.Attempt != 2 {
			t.Errorf("%d recoveries, attempt %d", got.Recoveries, got.Attempt)
		}
		time.Sleep(time.Minute)
		i.WantMachines()
	})
}

// A program that has ended well before max_duration was over is not called failed by
// a server that comes to look after that.
func TestAJobThatSucceededInTimeStaysSucceededPastItsMaxDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t).serve(failpoint.Endless)
		id := i.submit("name: train\nmax_duration: 15m\nresources: {infra: fluffycloud}\nrun: sleep 10m\n")
		i.until(id, api.ManagedRunning)
		i.crash()
		time.Sleep(30 * time.Minute)
		i.serve(failpoint.Endless)
		if got := i.until(id, api.ManagedSucceeded); got.RanFor.Round(time.Second) != 10*time.Minute {
			t.Errorf("it ran for %v", got.RanFor)
		}
	})
	synctest.Test(t, func(t *testing.T) { // one that still runs then is ended
		i := install(t).serve(failpoint.Endless)
		id := i.submit("name: train\nmax_duration: 5m\nresources: {infra: fluffycloud}\nrun: sleep 10m\n")
		i.until(id, api.ManagedRunning)
		if got := i.until(id, api.ManagedFailed); got.RanFor.Round(time.Second) != 5*time.Minute {
			t.Errorf("it ran for %v: %s", got.RanFor, got.Details)
		}
		time.Sleep(time.Minute)
		i.WantMachines()
	})
}

// callOf is a call of somebody who sees only what is theirs.
func (i *installation) callOf(id, name string) cluster.Call {
	r := testbed.NewRequest()
	r.User = state.User{ID: id, Name: name, Role: "user"}
	call := i.s.Call(r)
	call.Scope = &state.Scope{User: id, Workspaces: []string{"default"}}
	return call
}

func TestNobodyCancelsTheJobsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t).serve(failpoint.Endless)
		id := i.submit(train)
		i.until(id, api.ManagedRunning)
		bob, name := i.callOf("b0b", "bob"), "train"
		for what, body := range map[string]api.JobsCancelBody{
			"by id": {JobIDs: []int{id}}, "of all users": {AllUsers: true},
		} {
			var e *api.Error
			if err := i.m.Cancel(t.Context(), bob, body); !errors.As(err, &e) || e.Type != api.ErrPermissionDenied {
				t.Errorf("%s: %v", what, err)
			}
		}
		for what, body := range map[string]api.JobsCancelBody{"all of theirs": {All: true}, "by name": {Name: &name}} {
			if err := i.m.Cancel(t.Context(), bob, body); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		time.Sleep(time.Minute)
		if got := i.job(id); got.CancelAsked || got.Current().Status != api.ManagedRunning {
			t.Errorf("the job is %s, cancelled: %v", got.Current().Status, got.CancelAsked)
		}
		if err := i.m.Cancel(t.Context(), i.callOf(testbed.Ann.ID, "ann"), api.JobsCancelBody{All: true}); err != nil {
			t.Error(err)
		}
		i.until(id, api.ManagedCancelled)
		time.Sleep(time.Minute)
		i.WantMachines()
	})
}
