package jobs

import (
	"cmp"
	"context"
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
		return &api.JobsQueueResult{Jobs: []api.ManagedJob{}, StatusCounts: map[string]int{}}, nil // no job is on a pool
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
	out := &api.JobsQueueResult{Jobs: []api.ManagedJob{}, Total: page.Total, TotalNoFilter: page.All, StatusCounts: map[string]int{}}
	for s, n := range page.Counts {
		out.StatusCounts[string(s)] = n
	}
	now := time.Now()
	history := map[int][]*state.ManagedAttempt{}
	for _, r := range page.Rows {
		rec := record(r, m.until(r, now))
		if len(b.Fields) > 0 {
			rec.Only(b.Fields)
		}
		if b.Attempts {
			if _, ok := history[r.Job.ID]; !ok {
				if history[r.Job.ID], err = m.store.ManagedJobs().Attempts(ctx, r.Job.ID); err != nil {
					return nil, err
				}
			}
			rec.Attempts = attempts(history[r.Job.ID], r.Task.Index)
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
func (m *Manager) OldQueue(ctx context.Context, call cluster.Call, b api.JobsQueueBody) ([]api.ManagedJob, error) {
	page, err := m.Queue(ctx, call, api.JobsQueueBody{Refresh: b.Refresh, SkipFinished: b.SkipFinished, AllUsers: b.AllUsers, JobIDs: b.JobIDs})
	if err != nil {
		return nil, err
	}
	return page.Jobs, nil
}

// record is a task as clients see it.
func record(row state.ManagedRow, now time.Time) api.ManagedJob {
	j, t, a := row.Job, row.Task, row.Attempt
	r := api.ManagedJob{
		JobID: &j.ID, Same: &j.ID, TaskID: &t.Index, JobName: j.Name, TaskName: t.Name,
		Status: t.Status, ScheduleState: j.Schedule,
		JobDuration: new(duration(t, now).Seconds()), RecoveryCount: t.Recoveries,
		Workspace: j.Workspace, UserName: j.UserName, UserHash: j.UserHash,
		Details: orNull(details(j, t)), FailureReason: orNull(t.Failure),
		SubmittedAt: secondsOf(j.SubmittedAt), StartAt: secondsOf(t.StartedAt), EndAt: secondsOf(t.EndedAt), LastRecoveredAt: secondsOf(t.LastRecoveredAt),
		RunTimestamp: runID(j, t), UserYAML: j.UserYAML, Entrypoint: j.Entrypoint, Metadata: metadata(t),
		Priority: j.Priority, PriorityClass: orNull(j.PriorityClass),
		Resources: t.Resources, ClusterResources: "-", ClusterResourcesFull: "-", Infra: "-",
		Execution: "serial", JobGroup: j.Parallel, ArrayID: orNull(j.Array), ScheduleID: orNull(j.ScheduleID),
		Links: map[string]string{},
	}
	if j.Size > 0 {
		r.ArrayRank = &j.Rank
	}
	if j.Parallel {
		r.Execution, r.PrimaryInGroup = "parallel", new(!t.Auxiliary)
	}
	if a == nil {
		return r
	}
	r.CurrentCluster = &a.ClusterName
	if a.ClusterHash == "" {
		return r
	}
	r.ClusterResources, r.ClusterResourcesFull, r.Infra = a.Resources, a.Full, infra(a)
	r.Cloud, r.Region, r.Zone = orNull(a.Offer.Cloud), orNull(a.Offer.Region), orNull(a.Offer.Zone)
	r.NodeNames = orNull(strings.Join(a.NodeNames, ","))
	r.Accelerators = wholeCounts(a.Offer.Accelerators)
	return r
}

// wholeCounts is how many accelerators there are of each name, null for none. The protocol
// has whole numbers only: a fraction of one is left to the text of the resources.
func wholeCounts(accelerators map[string]float64) map[string]int {
	var counts map[string]int
	for name, n := range accelerators {
		if n == math.Trunc(n) {
			if counts == nil {
				counts = map[string]int{}
			}
			counts[name] = int(n)
		}
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

// orNull is null for the zero value.
func orNull[T comparable](v T) *T {
	var none T
	if v == none {
		return nil
	}
	return &v
}
