package jobs

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// drawGraph is tasks of which each may wait for some before it, in any order of
// the file.
func drawGraph(t *rapid.T) (*graph, *state.ManagedJob) {
	n := rapid.IntRange(1, 8).Draw(t, "tasks")
	place := rapid.Permutation(slices.Collect(func(yield func(int) bool) {
		for i := range n {
			yield(i)
		}
	})).Draw(t, "places")
	s, j := &graph{tasks: make([]traits, n)}, &state.ManagedJob{ID: 1}
	for i := range n {
		for k := range i {
			if rapid.IntRange(0, 2).Draw(t, "after") == 0 {
				s.tasks[place[i]].after = append(s.tasks[place[i]].after, place[k])
			}
		}
		j.Tasks = append(j.Tasks, &state.ManagedTask{Index: i, Status: api.ManagedPending})
	}
	return s, j
}

// TestEveryTaskEnds runs random Dags whose tasks end at random: a task begins
// only when all before it succeeded, and in the end each has ended, by itself
// or because one before it did not succeed.
func TestEveryTaskEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, j := drawGraph(t)
		now := time.Unix(0, 0)
		began := map[int]bool{}
		for range len(j.Tasks) + 1 {
			ready := s.ready(j, nil)
			if len(ready) == 0 {
				break
			}
			i := rapid.SampledFrom(ready).Draw(t, "task")
			for _, k := range s.tasks[i].after {
				if j.Tasks[k].Status != api.ManagedSucceeded {
					t.Fatalf("task %d began although %d is %s", i, k, j.Tasks[k].Status)
				}
			}
			began[i] = true
			j.Tasks[i].Status = rapid.SampledFrom([]api.ManagedStatus{api.ManagedSucceeded, api.ManagedSucceeded, api.ManagedFailed, api.ManagedCancelled}).Draw(t, "end")
			if _, err := s.drop(j, now); err != nil {
				t.Fatal(err)
			}
		}
		for i, task := range j.Tasks {
			bad := slices.ContainsFunc(s.tasks[i].after, func(k int) bool { return j.Tasks[k].Status != api.ManagedSucceeded })
			if !task.Status.Terminal() || began[i] == bad {
				t.Fatalf("task %d is %s, began: %v, something before it did not succeed: %v", i, task.Status, began[i], bad)
			}
		}
		turns := s.turns()
		for n, i := range turns {
			for _, k := range s.tasks[i].after {
				if !slices.Contains(turns[:n], k) {
					t.Fatalf("in %v, %d comes before %d", turns, i, k)
				}
			}
		}
	})
}

func TestEnd(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1000+int64(s), 0) }
	group := &graph{group: true, tasks: []traits{{primary: true}, {delay: 30 * time.Second}, {limit: 10 * time.Second}}}
	for _, c := range []struct {
		name    string
		s       *graph
		task    int
		primary state.ManagedTask
		started time.Time
		want    ending
	}{
		{"no limit", &graph{tasks: make([]traits, 3)}, 1, state.ManagedTask{}, at(0), ending{}},
		{"has not run", group, 2, state.ManagedTask{}, time.Time{}, ending{}},
		{"max_duration", group, 2, state.ManagedTask{}, at(5), ending{at(15), outOvertime, "max_duration of 10s is over"}},
		{"the primary task goes on", group, 1, state.ManagedTask{Status: api.ManagedRunning}, at(0), ending{}},
		{"the primary task has ended", group, 1, state.ManagedTask{Status: api.ManagedFailed, EndedAt: at(7)}, at(0),
			ending{at(37), outAborted, "the primary tasks of its group have ended"}},
		{"of two the sooner", group, 2, state.ManagedTask{Status: api.ManagedSucceeded, EndedAt: at(7)}, at(5),
			ending{at(7), outAborted, "the primary tasks of its group have ended"}},
	} {
		j := &state.ManagedJob{Tasks: []*state.ManagedTask{&c.primary, {Index: 1}, {Index: 2}}}
		if c.task > 0 {
			j.Tasks[c.task].StartedAt = c.started
		}
		if got := c.s.end(j, c.task); got != c.want {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestCombinedState(t *testing.T) {
	const w, l, a, b = api.ScheduleAliveWaiting, api.ScheduleLaunching, api.ScheduleAlive, api.ScheduleAliveBackoff
	for _, c := range []struct {
		runners []api.ScheduleState
		want    api.ScheduleState
	}{
		{nil, "is"}, {[]api.ScheduleState{b}, b}, {[]api.ScheduleState{b, a}, a}, {[]api.ScheduleState{a, w, b}, w}, {[]api.ScheduleState{w, l, a}, l},
	} {
		phases := map[int]api.ScheduleState{}
		for i, r := range c.runners {
			phases[i] = r
		}
		if got := combinedState("is", phases); got != c.want {
			t.Errorf("%v: %s", c.runners, got)
		}
	}
}

// TestSlotsAreServedInOrder: whoever waits is served by priority, then by id;
// nobody is served twice, and those who go away hold nobody up.
func TestSlotsAreServedInOrder(t *testing.T) {
	type job struct{ priority, id int }
	rapid.Check(t, func(t *rapid.T) {
		s := newSlots(0, func() {})
		var want []job
		served := make(chan job)
		n := rapid.IntRange(1, 12).Draw(t, "jobs")
		for id := range n {
			j := job{rapid.IntRange(-2, 2).Draw(t, "priority"), id}
			ctx, cancel := context.WithCancel(context.Background())
			if rapid.IntRange(0, 3).Draw(t, "leaves") == 0 {
				done := make(chan error)
				go func() { done <- s.acquire(ctx, j.priority, j.id) }()
				cancel()
				if <-done == nil {
					t.Fatal("a slot although there is none")
				}
				continue
			}
			want = append(want, j)
			go func() {
				if s.acquire(ctx, j.priority, j.id) == nil {
					served <- j
				}
			}()
			for waiting := 0; waiting < len(want); runtime.Gosched() {
				s.mu.Lock()
				waiting = len(s.waiting)
				s.mu.Unlock()
			}
			t.Cleanup(cancel)
		}
		slices.SortFunc(want, func(a, b job) int {
			if before(a.priority, a.id, b.priority, b.id) {
				return -1
			}
			return 1
		})
		for _, w := range want {
			s.release()
			if !s.grantFirst() {
				t.Fatal("nobody is served")
			}
			if got := <-served; got != w {
				t.Fatalf("%v before %v", got, w)
			}
		}
		if s.release(); s.grantFirst() {
			t.Fatal("somebody is served twice")
		}
	})
}
