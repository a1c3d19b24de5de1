package state

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/fsm"
)

func newManaged(request string, tasks int) *ManagedJob {
	j := &ManagedJob{RequestID: request, Name: "train-" + request, UserHash: "u1", UserName: "ann", Workspace: "default", Priority: 3,
		PriorityClass: "high", Entrypoint: "sky jobs launch x", Dag: []byte("run: x\x00"), Config: []byte("{}"), UserYAML: "run: x\n", Files: []string{"f1"}, SubmittedAt: day}
	for i := range tasks {
		j.Tasks = append(j.Tasks, &ManagedTask{Name: fmt.Sprint("t", i), Resources: "1x(cpus=1)", UserYAML: "run: x", Metadata: map[string]any{"a": "b"}})
	}
	return j
}

func TestManagedJobRoundTrip(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, js := t.Context(), s.ManagedJobs()
		j := must(js.Submit(ctx, newManaged("r1", 2)))(t)
		if j.ID != 1 || j.Schedule != api.ScheduleWaiting || len(j.Tasks) != 2 || j.Tasks[1].Status != api.ManagedPending {
			t.Fatalf("%+v", j)
		}
		same(t, "the same request", must(js.Submit(ctx, newManaged("r1", 1)))(t), j)
		if k := must(js.Submit(ctx, newManaged("r2", 1)))(t); k.ID != 2 {
			t.Errorf("second id %d", k.ID)
		}
		lease, _, err := s.Leases().Acquire(ctx, ManagedLease+"1", "s1", time.Hour)
		ok(t, err)
		j = must(js.Adopt(ctx, 1, lease))(t)
		j.Schedule = api.ScheduleLaunching
		j.Tasks[0].Status, j.Tasks[0].Attempt, j.Tasks[0].SubmittedAt = api.ManagedStarting, 1, day
		a := &ManagedAttempt{JobID: 1, Number: 1, ClusterName: "c", Offer: cloud.Offer{Place: cloud.Place{Cloud: "local"}, HourlyPrice: 2},
			Nodes: 2, StartedAt: day, ExitCodes: []int{1, 2}, Progress: []byte("{}"), NodeNames: []string{"n"}}
		ok(t, js.Save(ctx, ManagedChange{Job: j, Attempt: a, Events: []ManagedEvent{{Task: 0, Status: api.ManagedStarting, Code: "STARTING", At: day}}}))
		same(t, "saved", must(js.Get(ctx, 1))(t), j)
		same(t, "attempt", must(js.Attempt(ctx, 1, 0, 1))(t), a)
		a.Outcome, a.ClosedAt = "lost", day
		ok(t, js.Save(ctx, ManagedChange{Job: j, Attempt: a}))
		same(t, "attempts", must(js.Attempts(ctx, 1))(t), []*ManagedAttempt{a})
		events := must(js.Events(ctx, 1, 0, 1))(t)
		if len(events) != 1 || events[0].Code != "STARTING" {
			t.Errorf("events %+v", events)
		}
		used := must(js.FilesInUse(ctx))(t)
		if !used["f1"] {
			t.Error("the files of a live job count as unused")
		}
	})
}

func TestManagedJobHasOneController(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, js := t.Context(), s.ManagedJobs()
		must(js.Submit(ctx, newManaged("r1", 1)))(t)
		old := must(js.Adopt(ctx, 1, Lease{Epoch: 1}))(t)
		fresh := must(js.Adopt(ctx, 1, Lease{Epoch: 2}))(t)
		_, err := js.Adopt(ctx, 1, Lease{Epoch: 1})
		is(t, err, ErrConflict)
		old.Schedule = api.ScheduleLaunching
		is(t, js.Save(ctx, ManagedChange{Job: old}), ErrConflict)
		fresh.Schedule = api.ScheduleLaunching
		ok(t, js.Save(ctx, ManagedChange{Job: fresh}))
		stale := *fresh
		stale.Version--
		is(t, js.Save(ctx, ManagedChange{Job: &stale}), ErrConflict)
	})
}

func TestManagedCancel(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, js := t.Context(), s.ManagedJobs()
		must(js.Submit(ctx, newManaged("r1", 2)))(t)
		must(js.Submit(ctx, newManaged("r2", 1)))(t)
		j := must(js.Adopt(ctx, 2, Lease{Epoch: 1}))(t)
		j.Schedule, j.Tasks[0].Status = api.ScheduleLaunching, api.ManagedStarting
		ok(t, js.Save(ctx, ManagedChange{Job: j}))
		same(t, "asked", must(js.AskCancel(ctx, []int{2, 1, 9}, 0))(t), []int{1, 2})
		waited := must(js.Get(ctx, 1))(t)
		if waited.Schedule != api.ScheduleDone || waited.Tasks[0].Status != api.ManagedCancelled || waited.Tasks[1].Status != api.ManagedCancelled || waited.EndedAt.IsZero() {
			t.Errorf("a waiting job: %+v %+v", waited, waited.Tasks[0])
		}
		is(t, js.Save(ctx, ManagedChange{Job: j}), ErrConflict) // its controller must look again
		if j = must(js.Get(ctx, 2))(t); !j.CancelAsked || j.Schedule != api.ScheduleLaunching {
			t.Errorf("a launching job: %+v", j)
		}
		same(t, "to end", must(js.Cancelled(ctx))(t), map[int]time.Time{2: {}})
		same(t, "asked again", must(js.AskCancel(ctx, []int{1}, 0))(t), []int{})
		if !j.CancelBy.IsZero() {
			t.Errorf("it may end by itself until %v", j.CancelBy)
		}
		must(js.AskCancel(ctx, []int{2}, time.Hour))(t)
		by := must(js.Get(ctx, 2))(t).CancelBy
		if by.Before(s.Now().Add(59 * time.Minute)) {
			t.Errorf("it may end by itself until %v", by)
		}
		if got := must(js.Cancelled(ctx))(t); len(got) != 1 || !got[2].Equal(by) {
			t.Errorf("to end: %v, want 2 by %v", got, by)
		}
		must(js.AskCancel(ctx, []int{2}, 0))(t)
		if by := must(js.Get(ctx, 2))(t).CancelBy; !by.IsZero() {
			t.Errorf("the latest call does not count: %v", by)
		}
	})
}

// More jobs than one transaction takes are all cancelled, waiting or not.
func TestManagedCancelOfMany(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, js := t.Context(), s.ManagedJobs()
		var ids []int
		for n := range 2*askedAtOnce + 3 {
			id := must(js.Submit(ctx, newManaged(fmt.Sprint("r", n), 1)))(t).ID
			if ids = append(ids, id, id); n%2 == 0 {
				j := must(js.Adopt(ctx, id, Lease{Epoch: 1}))(t)
				j.Schedule = api.ScheduleLaunching
				ok(t, js.Save(ctx, ManagedChange{Job: j}))
			}
		}
		asked := must(js.AskCancel(ctx, ids, 0))(t)
		same(t, "asked", asked, slices.Compact(ids))
		same(t, "under way", len(must(js.Cancelled(ctx))(t)), askedAtOnce+2)
		p := must(js.List(ctx, ManagedFilter{Limit: 1}))(t)
		same(t, "counts", p.Counts, map[api.ManagedStatus]int{api.ManagedCancelled: askedAtOnce + 1, api.ManagedPending: askedAtOnce + 2})
	})
}

// A lease on a job that is done would be renewed for ever.
func TestManagedLeaseGoesWithTheJob(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, js := t.Context(), s.ManagedJobs()
		var jobs []*ManagedJob
		for n := range 2 {
			id := must(js.Submit(ctx, newManaged(fmt.Sprint("r", n), 1)))(t).ID
			l, _, err := s.Leases().Acquire(ctx, ManagedLease+strconv.Itoa(id), "s1", time.Hour)
			ok(t, err)
			jobs = append(jobs, must(js.Adopt(ctx, id, l))(t))
		}
		jobs[0].Schedule, jobs[1].Schedule = api.ScheduleDone, api.ScheduleLaunching
		ok(t, js.Save(ctx, ManagedChange{Job: jobs[0]}))
		ok(t, js.Save(ctx, ManagedChange{Job: jobs[1]}))
		same(t, "held", must(s.Leases().Beat(ctx, ManagedLease, "s1", time.Hour))(t), map[string]int64{"job/2": 1})
	})
}

func TestManagedQueueOrder(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, js := t.Context(), s.ManagedJobs()
		_, _, err := js.Next(ctx)
		is(t, err, ErrNotFound)
		for i, p := range []int{0, 5, 5, -3} {
			j := newManaged(fmt.Sprint("r", i), 1)
			j.Priority = p
			must(js.Submit(ctx, j))(t)
		}
		var order []int
		for range 4 {
			id, _, err := js.Next(ctx)
			ok(t, err)
			order = append(order, id)
			j := must(js.Adopt(ctx, id, Lease{Epoch: 1}))(t)
			j.Schedule = api.ScheduleLaunching
			ok(t, js.Save(ctx, ManagedChange{Job: j}))
		}
		same(t, "order", order, []int{2, 3, 1, 4})
		same(t, "without a lease", must(js.Orphans(ctx, ""))(t), []int{1, 2, 3, 4})
		_, _, err = s.Leases().Acquire(ctx, ManagedLease+"2", "s1", time.Hour)
		ok(t, err)
		_, _, err = s.Leases().Acquire(ctx, ManagedLease+"3", "s1", time.Nanosecond)
		ok(t, err)
		time.Sleep(time.Millisecond)
		same(t, "lease ran out", must(js.Orphans(ctx, ""))(t), []int{1, 3, 4})
		same(t, "of an earlier life", must(js.Orphans(ctx, "s1"))(t), []int{1, 2, 3, 4})
		held := must(s.Leases().Beat(ctx, ManagedLease, "s1", time.Hour))(t)
		same(t, "held", held, map[string]int64{"job/2": 1, "job/3": 1})
		same(t, "after a heartbeat", must(js.Orphans(ctx, ""))(t), []int{1, 4})
	})
}

func TestManagedList(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, js := t.Context(), s.ManagedJobs()
		for i := range 4 {
			j := newManaged(fmt.Sprint("r", i), 1+i%2)
			j.UserName, j.UserHash = "Bob%", "u2"
			if i == 0 {
				j.UserName, j.UserHash, j.Name = "ann", "u1", "50%_off"
			}
			must(js.Submit(ctx, j))(t)
		}
		must(js.AskCancel(ctx, []int{3}, time.Minute))(t)
		for _, tt := range []struct {
			name  string
			f     ManagedFilter
			rows  string // job.task
			total int
		}{
			{"all", ManagedFilter{}, "4.0 4.1 3.0 2.0 2.1 1.0 ", 4},
			{"ascending", ManagedFilter{Ascending: true}, "1.0 2.0 2.1 3.0 4.0 4.1 ", 4},
			{"a page", ManagedFilter{Limit: 2, Skip: 1}, "3.0 2.0 2.1 ", 4},
			{"mine", ManagedFilter{UserHash: "u1"}, "1.0 ", 1},
			{"user", ManagedFilter{UserMatch: "bob"}, "4.0 4.1 3.0 2.0 2.1 ", 3},
			{"no wildcards", ManagedFilter{NameMatch: "%_O"}, "1.0 ", 1},
			{"ids", ManagedFilter{IDs: []int{3, 1}}, "3.0 1.0 ", 2},
			{"live", ManagedFilter{Live: true, UserHash: "u2"}, "4.0 4.1 2.0 2.1 ", 2},
			{"status", ManagedFilter{Statuses: []api.ManagedStatus{api.ManagedCancelled}}, "3.0 ", 1},
			{"sorted", ManagedFilter{SortBy: "job_name", Ascending: true, Limit: 2}, "1.0 2.0 2.1 ", 4},
		} {
			p := must(js.List(ctx, tt.f))(t)
			got := ""
			for _, r := range p.Rows {
				got += fmt.Sprintf("%d.%d ", r.Job.ID, r.Task.Index)
			}
			if got != tt.rows || p.Total != tt.total || p.All != 4 {
				t.Errorf("%s: %q total %d of %d, want %q %d", tt.name, got, p.Total, p.All, tt.rows, tt.total)
			}
		}
		p := must(js.List(ctx, ManagedFilter{Statuses: []api.ManagedStatus{api.ManagedRunning}}))(t)
		same(t, "counts", p.Counts, map[api.ManagedStatus]int{api.ManagedPending: 5, api.ManagedCancelled: 1})
		if _, err := js.List(ctx, ManagedFilter{SortBy: "dag"}); err == nil {
			t.Error("sorted by a secret")
		}
	})
}

// Whatever is asked for, a task moves only as its table says, and what has
// ended stays as it is.
func TestManagedTaskMovesAsItsTableSays(t *testing.T) {
	s := openTest(t)
	ctx, js := context.Background(), s.ManagedJobs()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		j, err := js.Submit(ctx, newManaged(fmt.Sprint("m", n), 1))
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			from := j.Tasks[0].Status
			to := rapid.SampledFrom(api.ManagedStatuses).Draw(t, "to")
			allowed := from == to
			for e := range fsm.ManagedJobs()[from] {
				allowed = allowed || fsm.ManagedJobs()[from][e] == to
			}
			j.Tasks[0].Status = to
			err := js.Save(ctx, ManagedChange{Job: j})
			var refused *ManagedTransitionError
			if allowed != (err == nil) || err != nil && !errors.As(err, &refused) {
				t.Fatalf("%s → %s: %v", from, to, err)
			}
			if j, err = js.Get(ctx, j.ID); err != nil {
				t.Fatal(err)
			}
			if want := map[bool]api.ManagedStatus{true: to, false: from}[allowed]; j.Tasks[0].Status != want {
				t.Fatalf("%s → %s left %s", from, to, j.Tasks[0].Status)
			}
		}
	})
}
