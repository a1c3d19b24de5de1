//go:build unix

package jobs_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/jobs"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
)

// The administrator's policy sees each launch with the job's own configuration, may
// change it, and may refuse it.
func TestThePolicyJudgesEachLaunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t)
		i.deps = func(d *jobs.Deps) {
			d.Admit = func(_ context.Context, user state.User, dag string, sent map[string]any, _ io.Writer) (string, *config.Config, error) {
				if sent["no"] != nil || user.ID != testbed.Ann.ID {
					return "", nil, &api.Error{Type: "UserRequestRejectedByPolicy", Message: "not here"}
				}
				return strings.Replace(dag, "secret work", "open work", 1), testbed.Config(), nil
			}
		}
		i.serve(failpoint.Endless)
		id := i.submit("name: train\nresources: {infra: fluffycloud}\nrun: echo secret work\n")
		if text, _, _ := i.log(api.JobsLogsBody{JobID: &id}, nil); !strings.HasPrefix(text, "open work\n") {
			t.Errorf("it ran\n%s", text)
		}
		r, err := i.m.Submit(t.Context(), i.s.Call(testbed.NewRequest()), api.JobsLaunchBody{Task: train, Envelope: api.Envelope{OverrideConfig: map[string]any{"no": true}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := i.until(r.JobID[0], api.ManagedFailedPrechecks); got.Failure != "not here" {
			t.Errorf("refused: %q", got.Failure)
		}
		time.Sleep(time.Minute)
		i.WantMachines()
	})
}

// The name of a job's cluster may be somebody's already.
func TestAJobTakesNobodysCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t).serve(failpoint.Endless)
		for _, name := range []string{"train-1", "train-1-2"} {
			if _, err := i.s.Launch(testbed.NewRequest(), name, "resources: {infra: fluffycloud}\nrun: sleep 5h\n"); err != nil {
				t.Fatal(err)
			}
		}
		id := i.submit(train)
		i.until(id, api.ManagedRunning)
		i.WantMachines("train-1 running", "train-1-2 running", "train-1-3 running")
		i.until(id, api.ManagedSucceeded)
		time.Sleep(time.Minute)
		i.WantMachines("train-1 running", "train-1-2 running")
	})
}

// Whoever cancels a job, or has limited its time, does not wait for its launch.
func TestALaunchEndsWithItsJob(t *testing.T) {
	full := model.Fault{ID: "full", Kind: model.Fail, Op: "instances.create", Code: fluffyapi.NoCapacity, Message: "no room"}
	synctest.Test(t, func(t *testing.T) { // it is cancelled while its machine boots
		i := install(t).serve(failpoint.Endless)
		id := i.submit(train)
		i.until(id, api.ManagedStarting)
		time.Sleep(2 * time.Second)
		began := time.Now()
		if err := i.m.Cancel(t.Context(), i.s.Call(testbed.NewRequest()), api.JobsCancelBody{JobIDs: []int{id}}); err != nil {
			t.Fatal(err)
		}
		i.until(id, api.ManagedCancelled)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("cancelled after %v", took)
		}
		time.Sleep(time.Minute)
		i.WantMachines()
		if i.job(id).Schedule != api.ScheduleDone {
			t.Errorf("the job is %s", i.job(id).Schedule)
		}
	})
	synctest.Test(t, func(t *testing.T) { // it pauses between launches that find no room
		i := install(t).serve(failpoint.Endless)
		i.Inject(full)
		id := i.submit(train)
		time.Sleep(20 * time.Minute)
		if got := i.job(id); got.Schedule != api.ScheduleAliveBackoff || got.Current().Status != api.ManagedPending {
			t.Errorf("%s, %s", got.Schedule, got.Current().Status)
		}
		began := time.Now()
		if err := i.m.Cancel(t.Context(), i.s.Call(testbed.NewRequest()), api.JobsCancelBody{JobIDs: []int{id}}); err != nil {
			t.Fatal(err)
		}
		i.until(id, api.ManagedCancelled)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("cancelled after %v", took)
		}
	})
	synctest.Test(t, func(t *testing.T) { // its time is over while there is no room for it
		i := install(t).serve(failpoint.Endless)
		id := i.submit("name: train\nmax_duration: 15m\nresources: {infra: fluffycloud}\nrun: sleep 10m\n")
		began := i.until(id, api.ManagedRunning).StartedAt
		time.Sleep(5 * time.Minute)
		i.Inject(full)
		i.lose(i.Cluster("train-1").Nodes[0].ID)
		got := i.until(id, api.ManagedFailed)
		if took := got.EndedAt.Sub(began).Round(time.Second); took != 15*time.Minute || !strings.Contains(got.Failure, "max_duration") {
			t.Errorf("ended after %v: %s", took, got.Failure)
		}
		time.Sleep(time.Minute)
		i.WantMachines()
	})
}

// As many launches run at once as are allowed; the next is that of the job that is
// most important.
func TestLaunchesWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t)
		i.deps = func(d *jobs.Deps) { d.Launches = 1 }
		i.serve(failpoint.Endless)
		task := func(priority string) string {
			return "name: t\nresources: {infra: fluffycloud, priority: " + priority + "}\nrun: sleep 8m\n"
		}
		ids := []int{i.submit(task("0"))}
		i.until(ids[0], api.ManagedStarting)
		for _, priority := range []string{"1", "5", "3"} {
			ids = append(ids, i.submit(task(priority)))
		}
		var order []int
		for len(order) < len(ids) {
			launching := 0
			for _, id := range ids {
				switch i.job(id).Current().Status {
				case api.ManagedStarting:
					launching++
				case api.ManagedRunning:
					if !slices.Contains(order, id) {
						order = append(order, id)
					}
				}
			}
			if launching > 1 {
				t.Fatalf("%d jobs launch at once", launching)
			}
			time.Sleep(300 * time.Millisecond)
		}
		if want := []int{ids[0], ids[2], ids[3], ids[1]}; !slices.Equal(order, want) {
			t.Errorf("they ran in the order %v, want %v", order, want)
		}
		// Jobs that come back wait for their turn as well.
		for _, id := range ids {
			i.lose(i.Cluster(i.attempt(id).ClusterName).Nodes[0].ID)
		}
		waited := 0
		for again := 0; again < len(ids); time.Sleep(300 * time.Millisecond) {
			launching := 0
			again = 0
			for _, id := range ids {
				switch j := i.job(id); {
				case j.Current().Recoveries > 0:
					again++
				case j.Schedule == api.ScheduleLaunching:
					launching++
				case j.Schedule == api.ScheduleAliveWaiting && j.Current().Details == "waits for other jobs to launch":
					waited++
				}
			}
			if launching > 1 {
				t.Fatalf("%d jobs launch again at once", launching)
			}
		}
		if waited == 0 {
			t.Error("no job is shown to wait for the others")
		}
		for _, id := range ids {
			if got := i.until(id, api.ManagedSucceeded); got.Recoveries != 1 || got.Details != "" {
				t.Errorf("%d recoveries, %q", got.Recoveries, got.Details)
			}
		}
		time.Sleep(time.Minute)
		i.WantMachines()
	})
}

// Tasks that wait for nobody run at the same time. One that fails does not end the
// others, and a cancel ends all.
func TestTasksThatWaitForNobodyRunAtTheSameTime(t *testing.T) {
	part := func(name, run string) string {
		return "---\nname: " + name + "\ndepends_on: []\nresources: {infra: fluffycloud}\nrun: |\n  sleep 5m\n" + run
	}
	dag := "name: fan\n" + part("one", "") + part("two", "  exit 1\n") + part("three", "  sleep 5m\n") + "---\nname: last\ndepends_on: [one, two]\nresources: {infra: fluffycloud}\nrun: sleep 5m\n"
	is := func(i *installation, id int) (out []api.ManagedStatus) {
		for _, task := range i.job(id).Tasks {
			out = append(out, task.Status)
		}
		return out
	}
	const ok, no, off, on, yet = api.ManagedSucceeded, api.ManagedFailed, api.ManagedCancelled, api.ManagedRunning, api.ManagedPending
	for _, cancel := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			i := install(t).serve(failpoint.Endless)
			id := i.submit(dag)
			time.Sleep(3 * time.Minute)
			if got := is(i, id); !slices.Equal(got, []api.ManagedStatus{on, on, on, yet}) || len(i.Machines()) != 3 {
				t.Errorf("%v on %v", got, i.Machines())
			}
			want := []api.ManagedStatus{ok, no, ok, off}
			if cancel {
				want = []api.ManagedStatus{off, off, off, off}
				if err := i.m.Cancel(t.Context(), i.s.Call(testbed.NewRequest()), api.JobsCancelBody{JobIDs: []int{id}}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
			} else {
				time.Sleep(4 * time.Minute)
				if got := is(i, id); !slices.Equal(got, []api.ManagedStatus{ok, no, on, off}) || len(i.Machines()) != 1 {
					t.Errorf("after one failed: %v on %v", got, i.Machines())
				}
				time.Sleep(5 * time.Minute)
			}
			if got := is(i, id); !slices.Equal(got, want) || i.job(id).Schedule != api.ScheduleDone || i.job(id).EndedAt.IsZero() {
				t.Errorf("in the end: %v, %s", got, i.job(id).Schedule)
			}
			i.WantMachines()
		})
	}
}

// What happened to a task's clusters is among its events, and to those of other tasks
// is not.
func TestTheEventsOfATaskAreThoseOfItsClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t).serve(failpoint.Endless)
		part := func(name string) string {
			return "---\nname: " + name + "\nresources: {infra: fluffycloud}\nrun: sleep 1m\n"
		}
		id := i.submit("name: pipe\n" + part("one") + part("two"))
		i.log(api.JobsLogsBody{JobID: &id}, nil) // to its end
		time.Sleep(time.Minute)
		events := func(task *int, limit int, clusters bool) (out []string) {
			t.Helper()
			list, err := i.m.Events(t.Context(), i.s.Call(testbed.NewRequest()), api.JobsEventsBody{JobID: id, TaskID: task, Limit: &limit, IncludeClusterEvents: clusters})
			if err != nil {
				t.Fatal(err)
			}
			for n, e := range list {
				if n > 0 && *e.Timestamp > *list[n-1].Timestamp {
					t.Errorf("event %d is newer than the one before", n)
				}
				out = append(out, e.Reason)
			}
			return out
		}
		count := func(events []string, prefix string) (n int) {
			for _, e := range events {
				if strings.HasPrefix(e, prefix) {
					n++
				}
			}
			return n
		}
		all, one, two := events(nil, 100, true), events(new(0), 100, true), events(new(1), 100, true)
		if count(all, "one-1: ") == 0 || count(all, "two-1: ") == 0 || len(all) != len(one)+len(two) {
			t.Errorf("%q", all)
		}
		if count(one, "one-1: ") == 0 || count(one, "two-1: ") > 0 || count(two, "two-1: ") == 0 || count(two, "one-1: ") > 0 {
			t.Errorf("of the first %q, of the second %q", one, two)
		}
		if got := events(nil, 3, true); !slices.Equal(got, all[:3]) {
			t.Errorf("the latest three: %q of %q", got, all)
		}
		if got := events(nil, 100, false); count(got, "one-1: ") > 0 {
			t.Errorf("without those of clusters: %q", got)
		}
	})
}

// Everybody in the workspace sees the text of a job in the queue.
func TestTheQueueShowsNoSecretsOfAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t).serve(failpoint.Endless)
		id := i.submit("name: train\nresources: {infra: fluffycloud}\nenvs: {EPOCHS: '10', HF_TOKEN: hf-0123456789}\nsecrets: {OTHER: other-4444}\nrun: echo done\n")
		j, err := i.Store.ManagedJobs().Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{j.UserYAML, j.Tasks[0].UserYAML} {
			if strings.Contains(text, "hf-0123456789") || strings.Contains(text, "other-4444") || !strings.Contains(text, "EPOCHS") {
				t.Errorf("the queue shows\n%s", text)
			}
		}
	})
}
