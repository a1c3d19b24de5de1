package jobs

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/task"
)

func TestDecideTurn(t *testing.T) {
	day := func(n int, clock string) time.Time {
		at, err := time.Parse("2006-01-02 15:04", fmt.Sprintf("2026-03-%02d %s", n, clock))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for _, c := range []struct {
		name    string
		missed  task.Missed
		overlap task.Overlap
		due     time.Time
		now     time.Time
		busy    bool
		run     time.Time
		leftOut int
		next    time.Time
	}{
		{"not yet", "once", "skip", day(2, "03:00"), day(1, "12:00"), false, time.Time{}, 0, day(2, "03:00")},
		{"in time", "once", "skip", day(2, "03:00"), day(2, "03:00"), false, day(2, "03:00"), 0, day(3, "03:00")},
		{"the one before goes on", "once", "skip", day(2, "03:00"), day(2, "03:00"), true, time.Time{}, 1, day(3, "03:00")},
		{"both may run", "once", "allow", day(2, "03:00"), day(2, "03:00"), true, day(2, "03:00"), 0, day(3, "03:00")},
		{"one for all that were missed", "once", "skip", day(2, "03:00"), day(5, "01:00"), false, day(4, "03:00"), 2, day(5, "03:00")},
		{"none for those that were missed", "skip", "skip", day(2, "03:00"), day(5, "01:00"), false, time.Time{}, 3, day(5, "03:00")},
		{"late by a moment is not missed", "skip", "skip", day(2, "03:00"), day(2, "03:01"), false, day(2, "03:00"), 0, day(3, "03:00")},
		{"missed before, in time now", "skip", "skip", day(2, "03:00"), day(5, "03:00"), false, day(5, "03:00"), 3, day(6, "03:00")},
		{"each that was missed", "all", "allow", day(2, "03:00"), day(5, "01:00"), false, day(2, "03:00"), 0, day(3, "03:00")},
	} {
		got, err := decideTurn(task.Schedule{Cron: "0 3 * * *", Missed: c.missed, Overlap: c.overlap}, c.due, c.now, c.busy)
		if err != nil || !got.run.Equal(c.run) || got.leftOut != c.leftOut || !got.next.Equal(c.next) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

// TestTurnsAccountForEveryTime: whatever happens, each time of a schedule has a
// run or is left out, once, and runs come in order.
func TestTurnsAccountForEveryTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := task.Schedule{
			Cron:     rapid.SampledFrom([]string{"*/5 * * * *", "@hourly", "@every 7m", "30 2 * * *"}).Draw(t, "cron"),
			Timezone: rapid.SampledFrom([]string{"", "Europe/Berlin", "America/New_York"}).Draw(t, "zone"),
			Missed:   rapid.SampledFrom([]task.Missed{task.MissedOnce, task.MissedSkip, task.MissedAll}).Draw(t, "missed"),
			Overlap:  rapid.SampledFrom([]task.Overlap{task.OverlapSkip, task.OverlapAllow}).Draw(t, "overlap"),
		}
		start := time.Date(2026, 3, 28, 20, 0, 0, 0, time.UTC) // the night before summer time
		next, err := s.Next(start)
		if err != nil {
			t.Fatal(err)
		}
		now, decided := start, 0
		var last time.Time
		for range 20 {
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "minutes")) * time.Minute)
			for range mostMissed + 2 {
				turn, err := decideTurn(s, next, now, rapid.Bool().Draw(t, "busy"))
				if err != nil {
					t.Fatal(err)
				}
				next = turn.next
				decided += turn.leftOut
				if !turn.run.IsZero() {
					if decided++; turn.run.After(now) || !turn.run.After(last) {
						t.Fatalf("run of %v at %v after %v", turn.run, now, last)
					}
					last = turn.run
				}
			}
			if !next.After(now) {
				t.Fatalf("at %v the next is %v", now, next)
			}
		}
		times := 0
		for at, _ := s.Next(start); !at.After(now); at, _ = s.Next(at) {
			times++
		}
		if times != decided {
			t.Fatalf("%d times, %d decided", times, decided)
		}
	})
}

// Of more missed times than are made up for, the latest are.
func TestOfVeryManyMissedTimesTheLatestAreMadeUpFor(t *testing.T) {
	due := noon
	for _, c := range []struct {
		missed      int // before the last
		first, left int // the first run is so many times after due; so many are left out
		how         task.Missed
	}{
		{mostMissed - 1, 0, 0, task.MissedAll}, {mostMissed, 1, 1, task.MissedAll}, {mostMissed + 9, 10, 10, task.MissedAll}, {mostMissed + 9, mostMissed + 9, mostMissed + 9, task.MissedOnce},
	} {
		s := task.Schedule{Cron: "0 * * * *", Missed: c.how, Overlap: task.OverlapAllow}
		got, err := decideTurn(s, due, due.Add(time.Duration(c.missed)*time.Hour), false)
		if err != nil || !got.run.Equal(due.Add(time.Duration(c.first)*time.Hour)) || got.leftOut != c.left {
			t.Errorf("%d missed: run %v after the first, %d left out, %v", c.missed, got.run.Sub(due), got.leftOut, err)
		}
	}
	if got, err := decideTurn(task.Schedule{Cron: "x"}, due, due, false); err == nil {
		t.Errorf("a schedule that nobody can read: %+v", got)
	}
}

// A schedule is listed and ended by those whose it is.
func TestWhoseSchedulesAreListedAndEnded(t *testing.T) {
	a := newArchive(t)
	bob, _ := of("bob", "default")
	again, _ := of("bob", "default")
	for _, c := range []struct {
		call cluster.Call
		name string
	}{{ann(), "one"}, {ann(), "two"}, {bob, "one"}, {again, "two"}} {
		_, err := a.Submit(t.Context(), c.call, api.JobsLaunchBody{Task: "name: " + c.name + "\nschedule: {cron: '0 3 * * *', timezone: Europe/Berlin}\nrun: x\n"})
		must(t, err)
	}
	list := func(call cluster.Call, b api.JobsSchedulesBody) (ids []int) {
		t.Helper()
		all, err := a.Schedules(t.Context(), call, b)
		must(t, err)
		for _, s := range all {
			ids = append(ids, s.ID)
		}
		return ids
	}
	if got := list(bob, api.JobsSchedulesBody{}); !slices.Equal(got, []int{3, 4}) {
		t.Errorf("bob's: %v", got)
	}
	all, err := a.Schedules(t.Context(), ann(), api.JobsSchedulesBody{})
	if s := all[0]; err != nil || s.Name != "one" || s.UserName != "ann" || s.UserHash != "a" || s.Workspace != "default" || s.Cron != "0 3 * * *" || s.Timezone != "Europe/Berlin" ||
		s.SubmittedAt == nil || s.NextAt == nil || s.LastAt != nil || s.EndedAt != nil || s.LastJob != nil || s.Runs != 0 || s.LeftOut != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, c := range []struct {
		what string
		body api.JobsEndSchedulesBody
		said string // or the error's type
		left []int
	}{
		{"none", api.JobsEndSchedulesBody{}, api.ErrValue, []int{1, 2, 3, 4}},
		{"in two ways", api.JobsEndSchedulesBody{ScheduleIDs: []int{3}, Name: new("one")}, api.ErrValue, []int{1, 2, 3, 4}},
		{"somebody else's", api.JobsEndSchedulesBody{ScheduleIDs: []int{1}}, api.ErrPermissionDenied, []int{1, 2, 3, 4}},
		{"everybody's", api.JobsEndSchedulesBody{AllUsers: true}, api.ErrPermissionDenied, []int{1, 2, 3, 4}},
		{"of no name", api.JobsEndSchedulesBody{Name: new("six")}, "No schedule to end.\n", []int{1, 2, 3, 4}},
		{"of a name that others use", api.JobsEndSchedulesBody{Name: new("one")}, "Ended: 3. Jobs that were submitted go on; end them with: sky jobs cancel\n", []int{1, 2, 4}},
		{"all", api.JobsEndSchedulesBody{All: true, Name: new("")}, "Ended: 4. Jobs that were submitted go on; end them with: sky jobs cancel\n", []int{1, 2}},
		{"all, again", api.JobsEndSchedulesBody{All: true}, "No schedule to end.\n", []int{1, 2}},
	} {
		call, out := of("bob", "default")
		err := a.EndSchedules(t.Context(), call, c.body)
		if said := out.String(); err == nil && said != c.said || err != nil && errorType(err) != c.said {
			t.Errorf("%s: %q, %v", c.what, said, err)
		}
		if got := list(ann(), api.JobsSchedulesBody{AllUsers: true}); !slices.Equal(got, c.left) {
			t.Errorf("%s: %v go on", c.what, got)
		}
	}
	if got := list(ann(), api.JobsSchedulesBody{AllUsers: true, All: true}); !slices.Equal(got, []int{1, 2, 3, 4}) {
		t.Errorf("with those that ended: %v", got)
	}
	must(t, a.EndSchedules(t.Context(), ann(), api.JobsEndSchedulesBody{AllUsers: true}))
	if got := list(ann(), api.JobsSchedulesBody{AllUsers: true}); len(got) > 0 {
		t.Errorf("%v go on", got)
	}
}

// A run of a schedule is submitted once, at its time; if the database is away then, as
// soon as it is back. While the run before goes on it is left out.
func TestARunOfAScheduleIsSubmittedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		_, err := a.Submit(t.Context(), ann(), api.JobsLaunchBody{Task: "name: n\nschedule: {cron: '0 * * * *'}\nrun: x\n"})
		must(t, err)
		one := &failure{of: func(call string) bool { return call == "Fire" || call == "List" }}
		db := a.store
		schedule := func() api.JobsSchedule {
			t.Helper()
			list, err := a.Schedules(t.Context(), ann(), api.JobsSchedulesBody{})
			must(t, err)
			return list[0]
		}
		a.submitDue(t.Context())
		if s := schedule(); s.Runs != 0 {
			t.Errorf("before its time: %+v", s)
		}
		time.Sleep(time.Hour)
		a.store = failing{db, one}
		a.submitDue(t.Context())
		a.store = db
		if s := schedule(); s.Runs != 0 || one.failed() == nil {
			t.Errorf("the database is away: %+v", s)
		}
		for range 2 {
			a.submitDue(t.Context())
		}
		s := schedule()
		if s.Runs != 1 || s.LeftOut != 0 || *s.LastJob != 1 || *s.LastAt != float64(time.Now().Unix()) || *s.NextAt != *s.LastAt+3600 {
			t.Errorf("%+v", s)
		}
		j, err := a.db.ManagedJobs().Get(t.Context(), 1)
		if err != nil || j.ScheduleID != 1 || !j.SubmittedAt.Equal(time.Now()) || j.Schedule != api.ScheduleWaiting {
			t.Errorf("%+v, %v", j, err)
		}
		time.Sleep(time.Hour)
		one.left, one.hit = 0, nil
		a.store = failing{db, one}
		a.submitDue(t.Context()) // whether its job goes on cannot be read
		a.store = db
		if s := schedule(); s.Runs != 1 || s.LeftOut != 0 || one.failed() == nil {
			t.Errorf("nobody knows whether its job goes on: %+v", s)
		}
		a.submitDue(t.Context())
		if s := schedule(); s.Runs != 1 || s.LeftOut != 1 {
			t.Errorf("its job goes on: %+v", s)
		}
		must(t, a.Cancel(t.Context(), ann(), api.JobsCancelBody{JobIDs: []int{1}}))
		time.Sleep(time.Hour)
		a.submitDue(t.Context())
		if s := schedule(); s.Runs != 2 || s.LeftOut != 1 || *s.LastJob != 2 {
			t.Errorf("its job has ended: %+v", s)
		}
	})
}
