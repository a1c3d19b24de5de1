package jobs

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// shown is a row of a queue with what is common to the tests.
func shown(change func(j *state.ManagedJob, t *state.ManagedTask, a *state.ManagedAttempt)) state.ManagedRow {
	row := state.ManagedRow{
		Job: &state.ManagedJob{ID: 7, Name: "n", UserHash: "u", UserName: "ann", Workspace: "w", UserYAML: "run: x\n", Entrypoint: "sky jobs launch",
			Schedule: api.ScheduleAlive, SubmittedAt: noon.Add(-time.Hour), Priority: 3},
		Task:    &state.ManagedTask{JobID: 7, Index: 1, Name: "t", Resources: "1x[CPU:1+]", Status: api.ManagedRunning, Details: "d"},
		Attempt: &state.ManagedAttempt{JobID: 7, Task: 1, Number: 1, ClusterName: "t-7", ClusterHash: "h", Resources: "1x(puff)", Full: "1x(puff, more)"},
	}
	row.Job.Tasks = []*state.ManagedTask{{JobID: 7}, row.Task}
	row.Attempt.Offer.Place = cloud.Place{Cloud: "fluffycloud", Region: "north", Zone: "north-a"}
	if change != nil {
		change(row.Job, row.Task, row.Attempt)
	}
	return row
}

// What clients read of a task that has no cluster yet, field by field.
func TestEveryFieldOfATaskIsThereWhetherItIsKnownOrNot(t *testing.T) {
	row := shown(nil)
	row.Attempt = nil
	want := map[string]any{
		"_job_id": 7, "job_id": 7, "task_id": 1, "job_name": "n", "task_name": "t", "status": "RUNNING", "schedule_state": "ALIVE",
		"job_duration": 0.0, "recovery_count": 0, "workspace": "w", "user_name": "ann", "user_hash": "u",
		"resources": "1x[CPU:1+]", "cluster_resources": "-", "cluster_resources_full": "-",
		"cloud": nil, "region": nil, "zone": nil, "infra": "-", "accelerators": nil, "labels": nil,
		"details": "d", "failure_reason": nil,
		"submitted_at": float64(noon.Add(-time.Hour).Unix()), "start_at": nil, "end_at": nil, "last_recovered_at": nil,
		"run_timestamp": "sky-managed-2026-03-01-11-00-00-000000_n_t_7-1",
		"user_yaml":     "run: x\n", "entrypoint": "sky jobs launch", "metadata": map[string]any{},
		"priority": 3, "priority_class": nil, "pool": nil, "pool_hash": nil, "job_id_on_pool_cluster": nil,
		"current_cluster_name": nil, "cluster_name_on_cloud": nil, "controller_pid": nil, "controller_pid_started_at": nil,
		"links": map[string]any{}, "node_names": nil, "execution": "serial", "is_job_group": false, "is_primary_in_job_group": nil,
		"array_id": nil, "array_rank": nil, "schedule_id": nil,
		"is_batch": false, "batch_total_batches": nil, "batch_completed_batches": nil, "internal_external_ips": nil, "internal_services": nil,
	}
	got := jsonFields(t, record(row, noon))
	for k := range want {
		if got[k] != jsonText(t, want[k]) {
			t.Errorf("%s: %s, want %v", k, got[k], want[k])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d fields, want %d", len(got), len(want))
	}
}

// jsonFields are the fields of v as clients get them.
func jsonFields(t *testing.T, v any) map[string]string {
	t.Helper()
	var fields map[string]json.RawMessage
	must(t, json.Unmarshal([]byte(jsonText(t, v)), &fields))
	out := map[string]string{}
	for k, v := range fields {
		out[k] = string(v)
	}
	return out
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	must(t, err)
	return string(b)
}

func TestWhatTheQueueSaysOfATask(t *testing.T) {
	type (
		job     = state.ManagedJob
		tsk     = state.ManagedTask
		attempt = state.ManagedAttempt
	)
	for name, c := range map[string]struct {
		change func(j *job, t *tsk, a *attempt)
		want   map[string]any
	}{
		"it has a cluster": {nil, map[string]any{
			"current_cluster_name": "t-7", "cluster_resources": "1x(puff)", "cluster_resources_full": "1x(puff, more)",
			"cloud": "fluffycloud", "region": "north", "zone": "north-a", "infra": "fluffycloud (north-a)", "accelerators": nil, "node_names": nil,
		}},
		"its cluster is only named": {func(_ *job, _ *tsk, a *attempt) { a.ClusterHash = "" }, map[string]any{
			"current_cluster_name": "t-7", "cluster_resources": "-", "cloud": nil, "infra": "-",
		}},
		"its cluster is in a region without zones": {func(_ *job, _ *tsk, a *attempt) { a.Offer.Zone = "" }, map[string]any{"zone": nil, "infra": "fluffycloud (north)"}},
		"its cluster is nowhere in particular": {func(_ *job, _ *tsk, a *attempt) { a.Offer.Zone, a.Offer.Region = "", "" },
			map[string]any{"region": nil, "zone": nil, "infra": "fluffycloud"}},
		"its cluster has accelerators and named nodes": {func(_ *job, _ *tsk, a *attempt) {
			a.Offer.Accelerators, a.NodeNames = map[string]float64{"A100": 8}, []string{"i-1", "i-2"}
		}, map[string]any{"accelerators": map[string]int{"A100": 8}, "node_names": "i-1,i-2"}},
		"its cluster has a part of an accelerator": {func(_ *job, _ *tsk, a *attempt) { a.Offer.Accelerators = map[string]float64{"T4": 0.5} },
			map[string]any{"accelerators": nil}},
		"one of an array": {func(j *job, _ *tsk, _ *attempt) { j.Array, j.Rank, j.Size = 5, 0, 1 }, map[string]any{"array_id": 5, "array_rank": 0}},
		"of a schedule":   {func(j *job, _ *tsk, _ *attempt) { j.ScheduleID = 1 }, map[string]any{"schedule_id": 1, "array_id": nil}},
		"of a group": {func(j *job, _ *tsk, _ *attempt) { j.Parallel = true },
			map[string]any{"execution": "parallel", "is_job_group": true, "is_primary_in_job_group": true}},
		"an auxiliary one of a group": {func(j *job, t *tsk, _ *attempt) { j.Parallel, t.Auxiliary = true, true },
			map[string]any{"execution": "parallel", "is_primary_in_job_group": false}},
		"it has metadata and a class": {func(j *job, t *tsk, _ *attempt) { t.Metadata, j.PriorityClass = map[string]any{"a": 1}, "high" },
			map[string]any{"metadata": map[string]any{"a": 1}, "priority_class": "high"}},
		"it has not run": {func(_ *job, t *tsk, _ *attempt) { t.Status = api.ManagedStarting }, map[string]any{"job_duration": 0.0}},
		"it runs": {func(_ *job, t *tsk, _ *attempt) { t.LastRecoveredAt = noon.Add(-90 * time.Second) },
			map[string]any{"job_duration": 90.0, "last_recovered_at": float64(noon.Unix() - 90)}},
		"it runs again": {func(_ *job, t *tsk, _ *attempt) {
			t.RanFor, t.LastRecoveredAt, t.Recoveries = time.Minute, noon.Add(-90*time.Second), 2
		}, map[string]any{"job_duration": 150.0, "recovery_count": 2}},
		"it runs by a clock that is ahead": {func(_ *job, t *tsk, _ *attempt) { t.RanFor, t.LastRecoveredAt = time.Minute, noon.Add(time.Hour) },
			map[string]any{"job_duration": 60.0}},
		"its machine was lost": {func(_ *job, t *tsk, _ *attempt) {
			t.Status, t.RanFor, t.LastRecoveredAt = api.ManagedRecovering, time.Minute, noon.Add(-time.Hour)
		}, map[string]any{"job_duration": 60.0, "details": "d"}},
		"it failed": {func(_ *job, t *tsk, _ *attempt) { t.Status, t.Failure, t.EndedAt = api.ManagedFailed, "why", noon },
			map[string]any{"failure_reason": "why", "details": nil, "end_at": float64(noon.Unix())}},
		"it is to be cancelled": {func(j *job, _ *tsk, _ *attempt) { j.CancelAsked = true }, map[string]any{"details": "being cancelled"}},
		"it was cancelled": {func(j *job, t *tsk, _ *attempt) { j.CancelAsked, t.Status = true, api.ManagedCancelled },
			map[string]any{"details": nil}},
		"it waits": {func(j *job, t *tsk, _ *attempt) { j.Schedule, t.Details = api.ScheduleWaiting, "" },
			map[string]any{"details": "waits for other jobs to launch", "schedule_state": "WAITING"}},
	} {
		got := jsonFields(t, record(shown(c.change), noon))
		for k, want := range c.want {
			if got[k] != jsonText(t, want) {
				t.Errorf("%s: %s is %s, want %v", name, k, got[k], want)
			}
		}
	}
}

// heard is an environment whose agents were heard of last at a time.
type heard struct {
	environment
	at time.Time
}

func (h heard) HeardLast(*state.ManagedAttempt) time.Time { return h.at }
func (h heard) Heard(context.Context, *state.ManagedAttempt) time.Time {
	return h.at
}

// Nobody knows whether a job works whose agent is not heard of: its duration ends with
// the last word.
func TestTheDurationOfAJobThatIsNotHeardOfDoesNotGrow(t *testing.T) {
	for name, c := range map[string]struct {
		ago    time.Duration
		never  bool
		change func(j *state.ManagedJob, t *state.ManagedTask, a *state.ManagedAttempt)
		none   bool // no attempt
		want   time.Duration
	}{
		"heard a moment ago":         {ago: heardWithin},
		"not heard for a while":      {ago: heardWithin + time.Second, want: heardWithin + time.Second},
		"never heard by this server": {never: true},
		"it does not run": {ago: time.Hour, change: func(_ *state.ManagedJob, t *state.ManagedTask, _ *state.ManagedAttempt) {
			t.Status = api.ManagedRecovering
		}},
		"its cluster is only named":   {ago: time.Hour, change: func(_ *state.ManagedJob, _ *state.ManagedTask, a *state.ManagedAttempt) { a.ClusterHash = "" }},
		"its attempt is not recorded": {ago: time.Hour, none: true},
	} {
		h := heard{at: noon.Add(-c.ago)}
		if c.never {
			h.at = time.Time{}
		}
		row := shown(c.change)
		if c.none {
			row.Attempt = nil
		}
		if got := noon.Sub((&Manager{env: h}).until(row, noon)); got != c.want {
			t.Errorf("%s: certain until %v ago, want %v", name, got, c.want)
		}
	}
}

func TestTheHistoryOfATaskIsItsAttempts(t *testing.T) {
	at := func(s int) *float64 { v := float64(noon.Unix() + int64(s)); return &v }
	offer := cloud.Offer{Place: cloud.Place{Cloud: "fluffycloud", Region: "north", Zone: "north-a"}, Spot: true, HourlyPrice: 0.5}
	all := []*state.ManagedAttempt{
		{Task: 0, Number: 1},
		{Task: 1, Number: 1, ClusterName: "t-7", ClusterHash: "h", Nodes: 3, Offer: offer, Resources: "r", StartedAt: noon, RanAt: noon.Add(time.Second),
			EndedAt: noon.Add(2 * time.Second), ClosedAt: noon.Add(3 * time.Second), Outcome: "failed", Reason: "why", ExitCodes: []int{1}},
		{Task: 2, Number: 1},
		{Task: 1, Number: 2, ClusterName: "t-7", ClusterHash: "h2", Offer: offer},
		{Task: 1, Number: 3, ClusterName: "t-7", StartedAt: noon},
	}
	want := []api.JobsAttempt{
		{Attempt: 1, Cluster: "t-7", Infra: "fluffycloud (north-a)", Cloud: "fluffycloud", Region: "north", Zone: "north-a", Spot: true, HourlyPrice: 1.5,
			Nodes: 3, Resources: "r", StartedAt: at(0), RanAt: at(1), EndedAt: at(2), ClosedAt: at(3), Outcome: "failed", Reason: "why", ExitCodes: []int{1}},
		{Attempt: 2, Cluster: "t-7", Infra: "fluffycloud (north-a)", Cloud: "fluffycloud", Region: "north", Zone: "north-a", Spot: true, HourlyPrice: 0.5},
		{Attempt: 3, Cluster: "t-7", Infra: "-", StartedAt: at(0)},
	}
	if got := attempts(all, 1); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := attempts(all, 9); got == nil || len(got) > 0 {
		t.Errorf("of no task: %#v", got)
	}
}

func TestOnlyTheFieldsAskedForAreSent(t *testing.T) {
	for _, c := range []struct {
		fields []string
		want   string
	}{
		{[]string{"zone"}, `{"job_id":7,"status":"RUNNING","zone":"north-a"}`},
		{[]string{"unknown"}, `{"job_id":7,"status":"RUNNING"}`},
	} {
		r := record(shown(nil), noon)
		r.Only(c.fields)
		if got := jsonText(t, r); got != c.want {
			t.Errorf("%q: %s", c.fields, got)
		}
	}
}
