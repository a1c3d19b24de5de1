package state

import (
	"errors"
	"sync"
	"testing"
	"time"
)

func newSchedule(request string) *ManagedSchedule {
	return &ManagedSchedule{RequestID: request, Name: "nightly", UserHash: "u1", UserName: "ann", Workspace: "default", Cron: "@daily", Timezone: "Asia/Tokyo",
		Missed: "once", Overlap: "skip", Job: newManaged("template", 2), Files: []string{"f9"}, SubmittedAt: day, NextAt: day}
}

func TestScheduleRoundTrip(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, ss := t.Context(), s.ManagedSchedules()
		m := must(ss.Submit(ctx, newSchedule("r1")))(t)
		want := newSchedule("r1")
		want.ID, want.Version = 1, 1
		same(t, "kept", m, want)
		same(t, "the same request", must(ss.Submit(ctx, newSchedule("r1")))(t), m)
		must(ss.Submit(ctx, newSchedule("r2")))(t)
		due := must(ss.Due(ctx))(t)
		if len(due) != 2 {
			t.Errorf("%d are due", len(due))
		}
		if !must(s.ManagedJobs().FilesInUse(ctx))(t)["f9"] {
			t.Error("the files of a schedule count as unused")
		}
		same(t, "ended", must(ss.End(ctx, []int{2, 1, 7}))(t), []int{1, 2})
		same(t, "ended already", must(ss.End(ctx, []int{1}))(t), []int(nil))
		if due := must(ss.Due(ctx))(t); len(due) > 0 {
			t.Error("an ended schedule is due")
		}
		is(t, ss.Fire(ctx, due[0], newManaged("late", 1)), ErrConflict)
		if live := must(s.ManagedJobs().Live(ctx))(t); len(live) > 0 {
			t.Error("an ended schedule submitted a job")
		}
		if list := must(ss.List(ctx, ScheduleFilter{Live: true}))(t); len(list) > 0 {
			t.Error("an ended schedule is live")
		}
		if list := must(ss.List(ctx, ScheduleFilter{Name: "nightly", UserHash: "u1", IDs: []int{2}, Scope: &Scope{Workspaces: []string{"default"}}}))(t); len(list) != 1 || list[0].ID != 2 {
			t.Errorf("listed %v", list)
		}
		if list := must(ss.List(ctx, ScheduleFilter{Scope: &Scope{Workspaces: []string{"other"}}}))(t); len(list) > 0 {
			t.Error("a schedule is seen from elsewhere")
		}
		if must(s.ManagedJobs().FilesInUse(ctx))(t)["f9"] {
			t.Error("the files of an ended schedule count as used")
		}
	})
}

// TestATimeIsServedOnce lets several servers serve the same times.
func TestATimeIsServedOnce(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, ss := t.Context(), s.ManagedSchedules()
		must(ss.Submit(ctx, newSchedule("r1")))(t)
		const times = 5
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					due, err := ss.Due(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					if len(due) == 0 || due[0].Runs == times {
						return
					}
					m := due[0]
					job := newManaged("run-"+m.NextAt.Format(time.RFC3339), 1)
					job.ScheduleID, job.Size = m.ID, 2
					m.LastAt, m.NextAt = m.NextAt, m.NextAt.Add(24*time.Hour)
					m.Runs++
					if err := ss.Fire(ctx, m, job); err != nil && !errors.Is(err, ErrConflict) {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		page := must(s.ManagedJobs().List(ctx, ManagedFilter{Schedule: 1}))(t)
		if page.Total != 2*times {
			t.Errorf("%d jobs of %d runs of 2", page.Total, times)
		}
		m := must(ss.Get(ctx, 1))(t)
		if m.Runs != times || m.LastJob != 2*times-1 {
			t.Errorf("%+v", m)
		}
	})
}

func TestArraysAreSubmittedAtOnce(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, js := t.Context(), s.ManagedJobs()
		must(js.Submit(ctx, newManaged("r0", 1)))(t)
		array := newManaged("r1", 2)
		array.Size = 3
		first := must(js.Submit(ctx, array))(t)
		if again := must(js.Submit(ctx, array))(t); first.ID != 2 || again.ID != 2 {
			t.Errorf("ids %d and %d", first.ID, again.ID)
		}
		for rank := range 3 {
			j := must(js.Get(ctx, 2+rank))(t)
			if j.Array != 2 || j.Rank != rank || j.Size != 3 || len(j.Tasks) != 2 {
				t.Errorf("%+v", j)
			}
		}
		if page := must(js.List(ctx, ManagedFilter{Members: 2}))(t); page.Total != 3 {
			t.Errorf("%d members", page.Total)
		}
		if page := must(js.List(ctx, ManagedFilter{Members: 1}))(t); page.Total != 1 {
			t.Errorf("%d members of no array", page.Total)
		}
		if next := must(js.Submit(ctx, newManaged("r2", 1)))(t); next.ID != 5 {
			t.Errorf("next id %d", next.ID)
		}
	})
}
