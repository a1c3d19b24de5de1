package jobs

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// Queue lists managed jobs, one record a task, filtered and paged by the
// database.
func (m *Manager) Queue(ctx context.Context, call cluster.Call, b api.JobsQueueBody) (*api.JobsQueueResult, error) {
	f := state.ManagedFilter{IDs: b.JobIDs, Live: b.SkipFinished, Scope: call.Scope}
	if !b.AllUsers {
		f.UserHash = call.User.ID
	}
	for p, v := range map[*string]*string{&f.UserMatch: b.UserMatch, &f.Workspace: b.WorkspaceMatch, &f.NameMatch: b.NameMatch, &f.SortBy: b.SortBy} {
		if v != nil {
			*p = *v
		}
	}
	if b.PoolMatch != nil && *b.PoolMatch != "" {
		return &api.JobsQueueResult{Jobs: []map[string]any{}, StatusCounts: map[string]int{}}, nil // no job is on a pool
	}
	if f.SortBy != "" && !slices.Contains(state.ManagedSortKeys(), f.SortBy) {
		return nil, &api.Error{Type: api.ErrValue, Message: "Managed jobs cannot be sorted by " + f.SortBy + "."}
	}
	f.Ascending = b.SortOrder != nil && *b.SortOrder == "asc"
	for _, s := range b.Statuses {
		f.Statuses = append(f.Statuses, api.ManagedStatus(s))
	}
	if b.Limit != nil {
		f.Limit = *b.Limit
		if b.Page != nil && *b.Page > 1 {
			f.Skip = (*b.Page - 1) * *b.Limit
		}
	}
	page, err := m.store.ManagedJobs().List(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &api.JobsQueueResult{Jobs: []map[string]any{}, Total: page.Total, TotalNoFilter: page.All, StatusCounts: map[string]int{}}
	for s, n := range page.Counts {
		out.StatusCounts[string(s)] = n
	}
	now := time.Now()
	history := map[int][]*state.ManagedAttempt{}
	for _, r := range page.Rows {
		rec := selected(record(r, m.until(r, now)), b.Fields)
		if b.Attempts {
			if _, ok := history[r.Job.ID]; !ok {
				if history[r.Job.ID], err = m.store.ManagedJobs().Attempts(ctx, r.Job.ID); err != nil {
					return nil, err
				}
			}
			rec["attempts"] = attempts(history[r.Job.ID], r.Task.Index)
		}
		out.Jobs = append(out.Jobs, rec)
	}
	return out, nil
}

// attempts is the history of one task, from that of its job.
func attempts(all []*state.ManagedAttempt, task int) []api.JobsAttempt {
	out := []api.JobsAttempt{}
	for _, a := range all {
		if a.Task != task {
			continue
		}
		r := api.JobsAttempt{
			Attempt: a.Number, Cluster: a.ClusterName, Infra: "-", Nodes: a.Nodes, Resources: a.Resources,
			StartedAt: secondsOf(a.StartedAt), RanAt: secondsOf(a.RanAt), EndedAt: secondsOf(a.EndedAt), ClosedAt: secondsOf(a.ClosedAt),
			Outcome: a.Outcome, Reason: a.Reason, ExitCodes: a.ExitCodes,
		}
		if a.ClusterHash != "" {
			r.Infra, r.Cloud, r.Region, r.Zone, r.Spot = infra(a), a.Offer.Cloud, a.Offer.Region, a.Offer.Zone, a.Offer.Spot
			r.HourlyPrice = a.Offer.HourlyPrice * float64(max(a.Nodes, 1))
		}
		out = append(out, r)
	}
	return out
}

// OldQueue is Queue as clients of old ask for it: the records alone.
func (m *Manager) OldQueue(ctx context.Context, call cluster.Call, b api.JobsQueueBody) ([]map[string]any, error) {
	page, err := m.Queue(ctx, call, api.JobsQueueBody{Refresh: b.Refresh, SkipFinished: b.SkipFinished, AllUsers: b.AllUsers, JobIDs: b.JobIDs})
	if err != nil {
		return nil, err
	}
	return page.Jobs, nil
}

// selected is a record with the fields asked for, and those that every client
// needs.
func selected(r map[string]any, fields []string) map[string]any {
	if len(fields) == 0 {
		return r
	}
	keep := append([]string{"job_id", "status"}, fields...)
	maps.DeleteFunc(r, func(k string, _ any) bool { return !slices.Contains(keep, k) })
	return r
}

// record is a task as clients see it.
func record(row state.ManagedRow, now time.Time) map[string]any {
	j, t, a := row.Job, row.Task, row.Attempt
	r := map[string]any{
		"_job_id": j.ID, "job_id": j.ID, "task_id": t.Index, "job_name": j.Name, "task_name": t.Name,
		"status": string(t.Status), "schedule_state": string(j.Schedule),
		"job_duration": duration(t, now).Seconds(), "recovery_count": t.Recoveries,
		"workspace": j.Workspace, "user_name": j.UserName, "user_hash": j.UserHash,
		"resources": t.Resources, "cluster_resources": "-", "cluster_resources_full": "-",
		"cloud": nil, "region": nil, "zone": nil, "infra": "-", "accelerators": nil, "labels": nil,
		"details": text(details(j, t)), "failure_reason": text(t.Failure),
		"submitted_at": seconds(j.SubmittedAt), "start_at": seconds(t.StartedAt), "end_at": seconds(t.EndedAt),
		"last_recovered_at": seconds(t.LastRecoveredAt), "run_timestamp": runID(j, t),
		"user_yaml": j.UserYAML, "entrypoint": j.Entrypoint, "metadata": metadata(t),
		"priority": j.Priority, "priority_class": text(j.PriorityClass),
		"pool": nil, "pool_hash": nil, "job_id_on_pool_cluster": nil, "current_cluster_name": nil, "cluster_name_on_cloud": nil,
		"controller_pid": nil, "controller_pid_started_at": nil, "links": map[string]any{}, "node_names": nil,
		"execution": "serial", "is_job_group": j.Parallel, "is_primary_in_job_group": nil,
		"array_id": positive(j.Array), "array_rank": nil, "schedule_id": positive(j.ScheduleID),
		"is_batch": false, "batch_total_batches": nil, "batch_completed_batches": nil,
		"internal_external_ips": nil, "internal_services": nil,
	}
	if j.Size > 0 {
		r["array_rank"] = j.Rank
	}
	if j.Parallel {
		r["execution"], r["is_primary_in_job_group"] = "parallel", !t.Auxiliary
	}
	if a == nil {
		return r
	}
	r["current_cluster_name"] = a.ClusterName
	if a.ClusterHash == "" {
		return r
	}
	r["cluster_resources"], r["cluster_resources_full"] = a.Resources, a.Full
	r["cloud"], r["region"], r["zone"] = text(a.Offer.Cloud), text(a.Offer.Region), text(a.Offer.Zone)
	r["infra"] = infra(a)
	r["node_names"] = text(strings.Join(a.NodeNames, ","))
	r["accelerators"] = wholeCounts(a.Offer.Accelerators)
	return r
}

// wholeCounts is how many accelerators there are of each name, null for none. The protocol
// has whole numbers only: a fraction of one is left to the text of the resources.
func wholeCounts(accelerators map[string]float64) any {
	counts := map[string]int{}
	for name, n := range accelerators {
		if n == math.Trunc(n) {
			counts[name] = int(n)
		}
	}
	if len(counts) == 0 {
		return nil
	}
	return counts
}

// heardWithin is for how long the agent of a job may say nothing before the job's duration
// stops to grow: until it is heard of again nobody knows whether the job works. Agents
// say something every 10 s.
const heardWithin = 30 * time.Second

// until is the time until which the duration of a job that runs is certain: now, or
// when its agent was heard last if that is a while ago, as after the server was off.
func (m *Manager) until(r state.ManagedRow, now time.Time) time.Time {
	if r.Attempt == nil || r.Attempt.ClusterHash == "" || r.Task.Status != api.ManagedRunning {
		return now
	}
	if at := m.env.HeardLast(r.Attempt); !at.IsZero() && now.Sub(at) > heardWithin {
		return at
	}
	return now
}

// duration is for how long the task ran, without what was lost in between.
func duration(t *state.ManagedTask, now time.Time) time.Duration {
	if t.Status == api.ManagedRunning && !t.LastRecoveredAt.IsZero() {
		return t.RanFor + max(now.Sub(t.LastRecoveredAt), 0)
	}
	return t.RanFor
}

// details is what the task waits for.
func details(j *state.ManagedJob, t *state.ManagedTask) string {
	switch {
	case t.Status.Terminal():
		return ""
	case j.CancelAsked:
		return "being cancelled"
	case j.Schedule == api.ScheduleWaiting:
		return "waits for other jobs to launch"
	}
	return t.Details
}

func infra(a *state.ManagedAttempt) string {
	s := a.Offer.Cloud
	if place := cmp.Or(a.Offer.Zone, task.PoolOf(a.Offer.Cloud, a.Offer.Region)); place != "" {
		s += " (" + place + ")"
	}
	return s
}

func metadata(t *state.ManagedTask) map[string]any {
	if t.Metadata == nil {
		return map[string]any{}
	}
	return t.Metadata
}

// positive is null for none.
func positive(n int) any {
	if n == 0 {
		return nil
	}
	return n
}

// text is null for none.
func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// seconds is a time as clients read it, null for none.
func seconds(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return float64(t.UnixMicro()) / 1e6
}
