package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// late is by how much a run may begin after its time without that time being
// called missed.
const late = time.Minute

// mostMissed is how many missed times are made up for one by one; of more, the
// latest.
const mostMissed = 100

// turn is what is decided about the times of a schedule that have come.
type turn struct {
	run     time.Time // the time of the run; zero: none
	leftOut int       // times without a run
	next    time.Time // the first time that nothing is decided about; zero: there is none
}

// decideTurn says what becomes of the times from due to now. busy reports that the
// run before has not ended. It is pure; more than one run takes more than one
// turn.
func decideTurn(s task.Schedule, due, now time.Time, busy bool) (turn, error) {
	var times []time.Time // those that may get a run, the latest of them
	t := turn{next: due}
	var err error
	for !t.next.IsZero() && !t.next.After(now) {
		if times = append(times, t.next); len(times) > mostMissed {
			times = times[1:]
			t.leftOut++
		}
		if t.next, err = s.Next(t.next); err != nil {
			return turn{}, err
		}
	}
	if len(times) == 0 {
		return t, nil
	}
	last := times[len(times)-1]
	switch {
	case s.Overlap != task.OverlapAllow && busy, s.Missed == task.MissedSkip && now.Sub(last) > late:
		t.leftOut += len(times)
	case s.Missed == task.MissedAll:
		t.run = times[0]
		if len(times) > 1 {
			t.next = times[1]
		}
	default:
		t.run = last
		t.leftOut += len(times) - 1
	}
	return t, nil
}

// submitDue submits the jobs of schedules whose time has come. Of several
// servers that try, one does.
func (m *Manager) submitDue(ctx context.Context) {
	due, err := m.store.ManagedSchedules().Due(ctx)
	if err != nil {
		if ctx.Err() == nil {
			m.log.WarnContext(ctx, "schedules of managed jobs not read", "err", err)
		}
		return
	}
	for _, s := range due {
		for { // one turn after the other: a run may be due for each missed time
			again, err := m.take(ctx, s)
			if err != nil && !errors.Is(err, state.ErrConflict) && ctx.Err() == nil {
				m.log.WarnContext(ctx, "schedule not served", "schedule", s.ID, "err", err)
			}
			if err != nil || !again {
				break
			}
		}
	}
}

// take decides about the times of a schedule that have come, and reports whether
// some are left.
func (m *Manager) take(ctx context.Context, s *state.ManagedSchedule) (bool, error) {
	busy, err := m.goesOn(ctx, s.LastJob)
	if err != nil {
		return false, err
	}
	now := m.store.Now()
	t, err := decideTurn(scheduleOf(s), s.NextAt, now, busy)
	if err != nil {
		return false, err
	}
	var job *state.ManagedJob
	if !t.run.IsZero() {
		j := *s.Job
		// The time is the name of the run: there is never another for it.
		j.RequestID = fmt.Sprintf("schedule-%d-%d", s.ID, t.run.Unix())
		j.ScheduleID, j.SubmittedAt = s.ID, now
		job = &j
		s.LastAt = t.run
		s.Runs++
	}
	s.LeftOut += t.leftOut
	if s.NextAt = t.next; t.next.IsZero() {
		s.EndedAt = now
	}
	if err := m.store.ManagedSchedules().Fire(ctx, s, job); err != nil {
		return false, err
	}
	if job != nil {
		m.log.InfoContext(ctx, "schedule submitted a managed job", "schedule", s.ID, "job", s.LastJob, "time", t.run)
		m.wake()
	}
	return !t.next.IsZero() && !t.next.After(now), nil
}

// goesOn reports whether a job, or one of its array, has not ended.
func (m *Manager) goesOn(ctx context.Context, id int) (bool, error) {
	if id == 0 {
		return false, nil
	}
	page, err := m.store.ManagedJobs().List(ctx, state.ManagedFilter{Members: id, Live: true, Limit: 1})
	if err != nil {
		return false, err
	}
	return page.Total > 0, nil
}

func scheduleOf(s *state.ManagedSchedule) task.Schedule {
	return task.Schedule{Cron: s.Cron, Timezone: s.Timezone, Missed: task.Missed(s.Missed), Overlap: task.Overlap(s.Overlap)}
}

// schedule stores a schedule instead of submitting its job.
func (m *Manager) schedule(ctx context.Context, call cluster.Call, j *state.ManagedJob, at task.Schedule) (*api.JobsLaunchResult, error) {
	next, err := at.Next(m.store.Now())
	if err != nil {
		return nil, &api.Error{Type: api.ErrValue, Message: err.Error(), Err: err}
	}
	if next.IsZero() {
		return nil, &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("The schedule %q never comes.", at.Cron)}
	}
	s, err := m.store.ManagedSchedules().Submit(ctx, &state.ManagedSchedule{
		RequestID: call.RequestID, Name: j.Name, UserHash: j.UserHash, UserName: j.UserName, Workspace: j.Workspace,
		Cron: at.Cron, Timezone: at.Timezone, Missed: string(at.Missed), Overlap: string(at.Overlap),
		Job: j, Files: j.Files, SubmittedAt: j.SubmittedAt, NextAt: next,
	})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(call.Out, "✓ Schedule kept, ID: %d; its first run is at %s\n", s.ID, inZone(s, s.NextAt).Format("2006-01-02 15:04 MST"))
	return &api.JobsLaunchResult{JobID: api.IntList{}, ScheduleID: s.ID}, nil
}

func inZone(s *state.ManagedSchedule, t time.Time) time.Time {
	if zone, err := scheduleOf(s).Location(); err == nil {
		return t.In(zone)
	}
	return t.UTC()
}

// Schedules lists schedules, in order of their ids.
func (m *Manager) Schedules(ctx context.Context, call cluster.Call, b api.JobsSchedulesBody) ([]api.JobsSchedule, error) {
	f := state.ScheduleFilter{Scope: call.Scope, Live: !b.All}
	if !b.AllUsers {
		f.UserHash = call.User.ID
	}
	list, err := m.store.ManagedSchedules().List(ctx, f)
	if err != nil {
		return nil, err
	}
	out := make([]api.JobsSchedule, len(list))
	for i, s := range list {
		out[i] = api.JobsSchedule{
			ID: s.ID, Name: s.Name, UserName: s.UserName, UserHash: s.UserHash, Workspace: s.Workspace,
			Cron: s.Cron, Timezone: cmp.Or(s.Timezone, "UTC"), Missed: s.Missed, Overlap: s.Overlap,
			SubmittedAt: secondsOf(s.SubmittedAt), LastAt: secondsOf(s.LastAt), Runs: s.Runs, LeftOut: s.LeftOut, EndedAt: secondsOf(s.EndedAt),
		}
		if s.EndedAt.IsZero() {
			out[i].NextAt = secondsOf(s.NextAt)
		}
		if s.LastJob > 0 {
			out[i].LastJob = &s.LastJob
		}
	}
	return out, nil
}

func secondsOf(t time.Time) *float64 {
	if t.IsZero() {
		return nil
	}
	s := float64(t.UnixMicro()) / 1e6
	return &s
}

// EndSchedules ends schedules. Jobs that they submitted go on.
func (m *Manager) EndSchedules(ctx context.Context, call cluster.Call, b api.JobsEndSchedulesBody) error {
	name := b.Name != nil && *b.Name != ""
	if given := count(len(b.ScheduleIDs) > 0, name, b.All || b.AllUsers); given != 1 {
		return &api.Error{Type: api.ErrValue, Message: "Say in exactly one way which schedules to end: by ids, by name, or all."}
	}
	if b.AllUsers && call.Scope != nil {
		return &api.Error{Type: api.ErrPermissionDenied, Message: "Only administrators end the schedules of all users."}
	}
	f := state.ScheduleFilter{IDs: b.ScheduleIDs, Scope: call.Scope, Live: true}
	if name {
		f.Name = *b.Name
	}
	if b.All && !b.AllUsers || name && call.Scope != nil {
		f.UserHash = call.User.ID
	}
	list, err := m.store.ManagedSchedules().List(ctx, f)
	if err != nil {
		return err
	}
	ids := make([]int, len(list))
	for i, s := range list {
		if !call.Scope.Owns(s.UserHash) {
			return &api.Error{Type: api.ErrPermissionDenied,
				Message: fmt.Sprintf("Schedule %d belongs to %s: only they or an administrator may end it.", s.ID, s.UserName)}
		}
		ids[i] = s.ID
	}
	if ids, err = m.store.ManagedSchedules().End(ctx, ids); err != nil {
		return err
	}
	if len(ids) == 0 {
		fmt.Fprintln(call.Out, "No schedule to end.")
		return nil
	}
	if err := m.files.Sweep(ctx); err != nil {
		m.log.WarnContext(ctx, "files of ended schedules not removed", "err", err)
	}
	fmt.Fprintf(call.Out, "Ended: %s. Jobs that were submitted go on; end them with: sky jobs cancel\n", join(ids))
	return nil
}

// count is how many are true.
func count(list ...bool) int {
	n := 0
	for _, b := range list {
		if b {
			n++
		}
	}
	return n
}
