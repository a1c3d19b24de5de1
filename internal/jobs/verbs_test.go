//go:build unix

package jobs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/failpoint"
	"github.com/skypilot-go/sky/internal/jobs"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
)

func isType(err error, want string) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Type == want
}

// log is what following a job's log writes, and its exit code.
func (i *installation) log(body api.JobsLogsBody, at *jobs.Position) (string, int, jobs.Position) {
	i.t.Helper()
	var out bytes.Buffer
	var began jobs.Position
	code, err := i.m.Logs(i.s.Context(), i.s.Call(testbed.NewRequest()), body, at, func(p jobs.Position) error { began = p; return nil }, &out)
	if err != nil {
		i.t.Error(err)
	}
	return out.String(), code, began
}

// A job's log is followed through the loss of its machine, to its end and with its
// exit code; the same stream again is the same to the letter.
func TestALogIsFollowedThroughARecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t).serve(failpoint.Endless)
		id := i.submit("name: train\nresources: {infra: fluffycloud}\nrun: |\n  echo working\n  sleep 10m\n  echo done\n")
		lost := make(chan struct{})
		go func() {
			defer close(lost)
			i.until(id, api.ManagedRunning)
			time.Sleep(5 * time.Minute)
			i.lose(i.Cluster("train-1").Nodes[0].ID)
		}()
		text, code, began := i.log(api.JobsLogsBody{JobID: &id}, nil)
		<-lost
		if !strings.HasPrefix(text, "working\n↺ Attempt 1 ended: ") || !strings.HasSuffix(text, "Starting again.\nworking\ndone\n✓ Job finished (status: SUCCEEDED).\n") || code != 0 {
			t.Errorf("exit %d:\n%s", code, text)
		}
		if again, _, _ := i.log(api.JobsLogsBody{}, &began); again != text {
			t.Errorf("repeated:\n%s", again)
		}
		one := 1
		if last, _, _ := i.log(api.JobsLogsBody{JobID: &id, Tail: &one}, nil); !strings.HasPrefix(last, "done\n") {
			t.Errorf("the last line:\n%s", last)
		}
		if c, _, _ := i.log(api.JobsLogsBody{JobID: &id, Controller: true}, nil); !strings.Contains(c, "attempt 2 of task 0") || !strings.Contains(c, "SUCCEEDED") {
			t.Errorf("the controller's:\n%s", c)
		}
		other := 99
		if text, code, _ := i.log(api.JobsLogsBody{JobID: &other}, nil); code != api.ExitJobNotFound || !strings.Contains(text, "no managed job 99") {
			t.Errorf("exit %d: %s", code, text)
		}
		dirs, err := i.m.DownloadLogs(t.Context(), i.s.Call(testbed.NewRequest()), api.JobsDownloadLogsBody{JobID: &id}, t.TempDir(), nil)
		if err != nil || len(dirs) != 1 {
			t.Fatalf("%v, %v", dirs, err)
		}
		for _, dir := range dirs {
			for n, want := range map[int]string{1: "working\n", 2: "working\ndone\n"} {
				if got, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("task-0-attempt-%d.log", n))); err != nil || string(got) != want {
					t.Errorf("attempt %d: %q, %v", n, got, err)
				}
			}
		}
	})
}

// A program that fails is the user's, and everything that is asked about the job says
// so.
func TestAJobThatFailsIsToldAsFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t).serve(failpoint.Endless)
		id := i.submit("name: train\nresources: {infra: fluffycloud, cpus: 2+}\nrun: |\n  sleep 2m\n  exit 7\n")
		call := i.s.Call(testbed.NewRequest())
		soon := 30.0
		i.until(id, api.ManagedRunning)
		if _, err := i.m.Wait(t.Context(), call, api.JobsWaitBody{JobID: &id, Timeout: &soon}); !isType(err, "TimeoutError") || !strings.Contains(err.Error(), "RUNNING") {
			t.Errorf("too short a wait: %v", err)
		}
		code, err := i.m.Wait(t.Context(), call, api.JobsWaitBody{JobID: &id})
		if err != nil || code != api.ManagedFailed.ExitCode() {
			t.Errorf("exit %d, %v", code, err)
		}
		time.Sleep(time.Minute)
		i.WantMachines()
		q, err := i.m.Queue(t.Context(), call, api.JobsQueueBody{Attempts: true})
		if err != nil || len(q.Jobs) != 1 || q.Total != 1 {
			t.Fatalf("%+v, %v", q, err)
		}
		r := q.Jobs[0]
		if r.Status != api.ManagedFailed || *r.JobDuration < 119 || *r.JobDuration > 122 || r.FailureReason == nil || !strings.Contains(*r.FailureReason, "exit code 7") ||
			r.Infra != "fluffycloud (north-a)" || r.RecoveryCount != 0 {
			t.Errorf("%+v", r)
		}
		as := r.Attempts
		if len(as) != 1 || as[0].Outcome != "failed" || !slices.Equal(as[0].ExitCodes, []int{7}) || as[0].HourlyPrice != 1 || as[0].ClosedAt == nil {
			t.Errorf("%+v", as)
		}
		if q, err := i.m.Queue(t.Context(), call, api.JobsQueueBody{SkipFinished: true}); err != nil || len(q.Jobs) != 0 || q.TotalNoFilter != 1 {
			t.Errorf("%+v, %v", q, err)
		}
		if list, err := i.m.OldQueue(t.Context(), call, api.JobsQueueBody{JobIDs: []int{id}}); err != nil || len(list) != 1 {
			t.Errorf("%v, %v", list, err)
		}
		q, err = i.m.Queue(t.Context(), call, api.JobsQueueBody{Fields: []string{"job_name"}})
		if err != nil {
			t.Fatal(err)
		}
		if b, err := json.Marshal(q.Jobs); err != nil || string(b) != fmt.Sprintf(`[{"job_id":%d,"job_name":"train","status":"FAILED"}]`, id) {
			t.Errorf("%s, %v", b, err)
		}
		if q, err := i.m.Queue(t.Context(), i.callOf("b0b", "bob"), api.JobsQueueBody{}); err != nil || len(q.Jobs) != 0 {
			t.Errorf("bob's: %+v, %v", q, err)
		}
		many := 100
		events, err := i.m.Events(t.Context(), call, api.JobsEventsBody{JobID: id, Limit: &many, IncludeClusterEvents: true})
		var reasons []string
		for _, e := range events {
			line := e.Reason
			if e.NewStatus != nil {
				line = string(*e.NewStatus) + " " + line
			}
			reasons = append([]string{line}, reasons...)
		}
		all := strings.Join(reasons, "\n")
		at := -1
		for _, want := range []string{"STARTING getting a cluster", "train-1: all machines run", "RUNNING runs on cluster train-1", "FAILED the program failed with exit code 7", "train-1: terminated by ann"} {
			next := strings.Index(all, want)
			if next < at {
				t.Errorf("%q is not where it belongs:\n%s", want, all)
			}
			at = next
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// Tasks of a pipeline run one after the other, each on a cluster of its own, and one
// that fails leaves out those behind it.
func TestAPipelineEndsAtTheTaskThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t).serve(failpoint.Endless)
		part := func(name, run string) string {
			return "---\nname: " + name + "\nresources: {infra: fluffycloud}\nrun: |\n  echo " + name + "\n  sleep 1m\n" + run
		}
		id := i.submit("name: pipe\n" + part("one", "") + part("two", "  exit 1\n") + part("three", ""))
		text, code, _ := i.log(api.JobsLogsBody{JobID: &id}, nil)
		if !strings.HasPrefix(text, "├── Task 0 of 3: one\none\n├── Task 1 of 3: two\ntwo\n") || strings.Contains(text, "three\nthree") || code != api.ManagedFailed.ExitCode() {
			t.Errorf("exit %d:\n%s", code, text)
		}
		time.Sleep(time.Minute)
		i.WantMachines()
		var is []api.ManagedStatus
		for _, task := range i.job(id).Tasks {
			is = append(is, task.Status)
		}
		if !slices.Equal(is, []api.ManagedStatus{api.ManagedSucceeded, api.ManagedFailed, api.ManagedCancelled}) {
			t.Errorf("%v", is)
		}
		which := func(text string) *api.IntOrString {
			var v api.IntOrString
			if err := v.UnmarshalJSON([]byte(text)); err != nil {
				t.Fatal(err)
			}
			return &v
		}
		if text, code, _ := i.log(api.JobsLogsBody{JobID: &id, Task: which(`"one"`)}, nil); !strings.HasPrefix(text, "one\n✓") || code != 0 {
			t.Errorf("exit %d:\n%s", code, text)
		}
		call := i.s.Call(testbed.NewRequest())
		if code, err := i.m.Wait(t.Context(), call, api.JobsWaitBody{JobID: &id, Task: which("0")}); err != nil || code != 0 {
			t.Errorf("exit %d, %v", code, err)
		}
		if _, err := i.m.Wait(t.Context(), call, api.JobsWaitBody{JobID: &id, Task: which("7")}); !isType(err, api.ErrValue) {
			t.Errorf("no such task: %v", err)
		}
	})
}

// What can never run is told at once; what finds no room now is tried again until
// there is.
func TestWhatCanNeverRunIsRefusedAndWhatFindsNoRoomWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t).serve(failpoint.Endless)
		huge := i.submit("name: huge\nresources: {infra: fluffycloud, cpus: 4096+}\nrun: x\n")
		if got := i.until(huge, api.ManagedFailedPrechecks); got.Attempt != 1 {
			t.Errorf("attempt %d: %s", got.Attempt, got.Failure)
		}
		i.Inject(model.Fault{ID: "full", Kind: model.Fail, Op: "instances.create", Code: fluffyapi.NoCapacity, Message: "no room"})
		id := i.submit(train)
		time.Sleep(time.Hour)
		i.WantMachines()
		if got := i.job(id).Current(); got.Status.Terminal() || got.Tries < 5 || !strings.Contains(got.Details, "nothing to be had") {
			t.Errorf("%s after %d tries: %s", got.Status, got.Tries, got.Details)
		}
		i.Cloud.Remove("full")
		began := time.Now()
		i.until(id, api.ManagedRunning)
		if took := time.Since(began); took > 8*time.Minute {
			t.Errorf("it began %v after there was room", took)
		}
		i.until(id, api.ManagedSucceeded)
	})
}

// A schedule submits a job at each of its times, until it is ended.
func TestAScheduleSubmitsItsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t).serve(failpoint.Endless)
		call := i.s.Call(testbed.NewRequest())
		r, err := i.m.Submit(t.Context(), call, api.JobsLaunchBody{Task: "name: nightly\nschedule: {cron: '0 * * * *'}\nresources: {infra: fluffycloud}\nrun: sleep 1m\n"})
		if err != nil || r.ScheduleID != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		time.Sleep(3*time.Hour + time.Minute)
		list, err := i.m.Schedules(t.Context(), call, api.JobsSchedulesBody{})
		if err != nil || len(list) != 1 || list[0].Runs < 3 || list[0].NextAt == nil || list[0].LastJob == nil {
			t.Fatalf("%+v, %v", list, err)
		}
		runs := list[0].Runs
		for id := 1; id <= runs; id++ {
			i.until(id, api.ManagedSucceeded)
		}
		bob := i.callOf("b0b", "bob")
		if err := i.m.EndSchedules(t.Context(), bob, api.JobsEndSchedulesBody{ScheduleIDs: []int{1}}); !isType(err, api.ErrPermissionDenied) {
			t.Errorf("bob: %v", err)
		}
		if err := i.m.EndSchedules(t.Context(), bob, api.JobsEndSchedulesBody{AllUsers: true}); !isType(err, api.ErrPermissionDenied) {
			t.Errorf("bob, all: %v", err)
		}
		if err := i.m.EndSchedules(t.Context(), call, api.JobsEndSchedulesBody{}); !isType(err, api.ErrValue) {
			t.Errorf("none: %v", err)
		}
		if err := i.m.EndSchedules(t.Context(), call, api.JobsEndSchedulesBody{ScheduleIDs: []int{1}}); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Hour)
		if list, err := i.m.Schedules(t.Context(), call, api.JobsSchedulesBody{All: true}); err != nil || len(list) != 1 || list[0].Runs != runs || list[0].EndedAt == nil || list[0].NextAt != nil {
			t.Errorf("%+v, %v", list, err)
		}
		i.WantMachines()
	})
}

// Of several jobs of a name, or in a workspace that is not theirs, users find what is
// meant or are told.
func TestAJobIsFoundByItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t).serve(failpoint.Endless)
		first, second := i.submit(train), i.submit(train)
		i.until(first, api.ManagedRunning)
		i.until(second, api.ManagedRunning)
		call, name, none := i.s.Call(testbed.NewRequest()), "train", "other"
		if err := i.m.Cancel(t.Context(), call, api.JobsCancelBody{Name: &name}); !isType(err, api.ErrValue) || !strings.Contains(err.Error(), "Cancel them by id") {
			t.Errorf("two of a name: %v", err)
		}
		if err := i.m.Cancel(t.Context(), call, api.JobsCancelBody{Name: &name, All: true}); !isType(err, api.ErrValue) {
			t.Errorf("two ways: %v", err)
		}
		less := -1
		if err := i.m.Cancel(t.Context(), call, api.JobsCancelBody{All: true, Graceful: true, GracefulTimeout: &less}); !isType(err, api.ErrValue) {
			t.Errorf("less than no time: %v", err)
		}
		if err := i.m.Cancel(t.Context(), call, api.JobsCancelBody{JobIDs: []int{first}, Graceful: true}); err != nil {
			t.Error(err)
		}
		i.until(first, api.ManagedCancelled)
		if code, err := i.m.Wait(t.Context(), call, api.JobsWaitBody{Name: &name}); err != nil || code != 0 { // the latest
			t.Errorf("exit %d, %v", code, err)
		}
		if code, err := i.m.Wait(t.Context(), call, api.JobsWaitBody{Name: &none}); err != nil || code != api.ExitJobNotFound {
			t.Errorf("exit %d, %v", code, err)
		}
		if _, err := i.m.Wait(t.Context(), call, api.JobsWaitBody{Name: &name, JobID: &first}); !isType(err, api.ErrValue) {
			t.Errorf("both: %v", err)
		}
		far := i.callOf("b0b", "bob")
		far.Scope = &state.Scope{User: "b0b", Workspaces: []string{"elsewhere"}}
		if _, err := i.m.Wait(t.Context(), far, api.JobsWaitBody{JobID: &second}); !isType(err, api.ErrPermissionDenied) {
			t.Errorf("a workspace that is not theirs: %v", err)
		}
	})
}

// A machine that goes before its server wrote down that it has the job: the agent told
// how the job ended, and that counts.
func TestAWordFromAClusterThatWasLostInItsLaunchCounts(t *testing.T) {
	for name, tt := range map[string]struct {
		task string
		want api.ManagedStatus
	}{
		"it succeeded": {"name: train\nresources: {infra: fluffycloud}\nrun: sleep 2s\n", api.ManagedSucceeded},
		"it failed":    {"name: train\nresources: {infra: fluffycloud}\nrun: exit 3\n", api.ManagedFailed},
	} {
		synctest.Test(t, func(t *testing.T) {
			i := install(t).serve(failpoint.Endless)
			i.s.Tell(func(step string) {
				if step == "agent.reported" { // how it ended is stored
					go i.s.Kill()
				}
				if step == "agent.submit" {
					i.s.Refuse("progress", errors.New("later"))
				}
			})
			id := i.submit(tt.task)
			time.Sleep(time.Minute)
			if c := i.Cluster("train-1"); c != nil {
				i.lose(c.Nodes[0].ID)
			}
			i.serve(failpoint.Endless)
			if got := i.until(id, tt.want); got.Attempt != 1 {
				t.Errorf("%s: attempt %d", name, got.Attempt)
			}
			time.Sleep(time.Minute)
			i.WantMachines()
		})
	}
}
