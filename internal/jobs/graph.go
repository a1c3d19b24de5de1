package jobs

import (
	"fmt"
	"slices"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// graph is what a controller needs to know of its job's tasks all the time,
// without their texts.
type graph struct {
	group bool // its tasks run at the same time
	joint bool // data flows between its tasks: where one runs matters to the others
	tasks []traits
}

// traits are one task's.
type traits struct {
	after    []int // tasks that must have succeeded before it begins
	policy   policy
	empty    bool          // it has nothing to run
	callback bool          // it has an event_callback
	limit    time.Duration // from its first run to its end; 0: none
	primary  bool          // of a job group: its end counts
	delay    time.Duration // of a job group: how long it goes on after the primary tasks
}

// graphOf reads a job's tasks.
func graphOf(j *state.ManagedJob) (*graph, error) {
	dag, err := dagOf(j)
	if err != nil {
		return nil, err
	}
	if len(dag.Tasks) != len(j.Tasks) {
		return nil, fmt.Errorf("managed job %d has %d tasks, its record %d", j.ID, len(dag.Tasks), len(j.Tasks))
	}
	s := &graph{group: dag.Execution == task.Parallel, tasks: make([]traits, len(dag.Tasks))}
	s.joint = !s.group && len(dag.Tasks) > 1 && slices.ContainsFunc(dag.Tasks, func(t *task.Task) bool { return t.Outputs != nil && t.Outputs.GB > 0 })
	for i, after := range dag.After() {
		t := dag.Tasks[i]
		s.tasks[i] = traits{
			after: after, policy: policyOf(t), empty: t.Run == "", callback: t.EventCallback != "", limit: time.Duration(t.MaxDuration) * time.Second,
			primary: len(dag.PrimaryTasks) == 0 || slices.Contains(dag.PrimaryTasks, t.Name),
			delay:   delayOf(dag, t.Name),
		}
	}
	return s, nil
}

func delayOf(dag *task.Dag, name string) time.Duration {
	n, ok := dag.TerminationDelay[name]
	if !ok {
		n = dag.TerminationDelay["default"]
	}
	return time.Duration(n) * time.Second
}

// ready is the tasks that there is something to do for: those with an open
// attempt, and those whose turn has come.
func (s *graph) ready(j *state.ManagedJob, open map[int]bool) []int {
	var out []int
	for i, t := range j.Tasks {
		if open[i] || !t.Status.Terminal() && s.mayBegin(j, i) {
			out = append(out, i)
		}
	}
	return out
}

func (s *graph) mayBegin(j *state.ManagedJob, i int) bool {
	return !slices.ContainsFunc(s.tasks[i].after, func(k int) bool { return j.Tasks[k].Status != api.ManagedSucceeded })
}

// turns is the tasks in an order in which each comes after those that it waits
// for, else in the order of the file.
func (s *graph) turns() []int {
	out := make([]int, 0, len(s.tasks))
	for len(out) < len(s.tasks) {
		for i, t := range s.tasks { // there is no circle: one is found each time
			if !slices.Contains(out, i) && !slices.ContainsFunc(t.after, func(k int) bool { return !slices.Contains(out, k) }) {
				out = append(out, i)
				break
			}
		}
	}
	return out
}

// drop cancels the tasks that can never begin, because one before them ended
// otherwise than well.
func (s *graph) drop(j *state.ManagedJob, now time.Time) ([]state.ManagedEvent, error) {
	var events []state.ManagedEvent
	for again := true; again; {
		again = false
		for i, t := range j.Tasks {
			if t.Status.Terminal() {
				continue
			}
			for _, k := range s.tasks[i].after {
				if is := j.Tasks[k].Status; is.Terminal() && is != api.ManagedSucceeded {
					e, err := move(t, cancelled, fmt.Sprintf("task %d before it is %s", k, is), now)
					if err != nil {
						return nil, err
					}
					events, again = append(events, e), true
					break
				}
			}
		}
	}
	return events, nil
}

// ending is when a task that still goes on is ended, and why; the zero value is
// never.
type ending struct {
	at      time.Time
	outcome outcome
	reason  string
}

// event is what the end is for a task that has no attempt.
func (e ending) event() fsm.ManagedEvent {
	if e.outcome == outOvertime {
		return fsm.ManagedFailed
	}
	return cancelled
}

func (e ending) due(now time.Time) bool { return !e.at.IsZero() && !now.Before(e.at) }

// end is when a task is ended.
func (s *graph) end(j *state.ManagedJob, i int) ending {
	var e ending
	of := s.tasks[i]
	if started := j.Tasks[i].StartedAt; of.limit > 0 && !started.IsZero() {
		e = ending{started.Add(of.limit), outOvertime, fmt.Sprintf("max_duration of %v is over", of.limit)}
	}
	if !s.group || of.primary {
		return e
	}
	var over time.Time
	for k, t := range j.Tasks {
		if !s.tasks[k].primary {
			continue
		}
		if !t.Status.Terminal() {
			return e
		}
		if t.EndedAt.After(over) {
			over = t.EndedAt
		}
	}
	if at := over.Add(of.delay); e.at.IsZero() || at.Before(e.at) {
		e = ending{at, outAborted, "the primary tasks of its group have ended"}
	}
	return e
}

// combinedState is the place of a job in the schedule by what its runners do: one
// that launches counts most, one that pauses least.
func combinedState(is api.ScheduleState, runners map[int]api.ScheduleState) api.ScheduleState {
	for _, s := range []api.ScheduleState{api.ScheduleLaunching, api.ScheduleAliveWaiting, api.ScheduleAlive, api.ScheduleAliveBackoff} {
		for _, r := range runners {
			if r == s {
				return s
			}
		}
	}
	return is
}
