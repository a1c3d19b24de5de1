package jobs

import (
	"log/slog"
	"maps"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// A task is launched as the plan of the whole job says, where the data of the tasks before
// it is: what ran last there counts, and what was lost does not.
func TestATaskIsLaunchedAsThePlanOfItsJobSays(t *testing.T) {
	const prepare, train = "name: prepare\noutputs: {'s3://b': 100}\nrun: x\n", "name: train\nresources: {autostop: 5}\nrun: x\n"
	at := func(cloudName string) cloud.Place { return cloud.Place{Cloud: cloudName, Region: "r"} }
	type attempt struct {
		task, number int
		at           cloud.Place
		outcome      outcome
	}
	for name, c := range map[string]struct {
		dag      string
		attempts []attempt
		placed   map[int]cloud.Place // nil: the task is planned by itself
	}{
		"no data":         {dag: "name: j\n---\nname: prepare\nrun: x\n---\n" + train},
		"one task":        {dag: prepare},
		"nothing has run": {dag: "name: j\n---\n" + prepare + "---\n" + train, placed: map[int]cloud.Place{}},
		"the task before": {dag: "name: j\n---\n" + prepare + "---\n" + train, placed: map[int]cloud.Place{0: at("gcp")},
			attempts: []attempt{{0, 1, at("aws"), outLost}, {0, 2, at("gcp"), outSucceeded}, {1, 1, at("lambda"), ""}}},
		"it was lost": {dag: "name: j\n---\n" + prepare + "---\n" + train, placed: map[int]cloud.Place{},
			attempts: []attempt{{0, 1, at("aws"), outLost}}},
		"it has no place yet": {dag: "name: j\n---\n" + prepare + "---\n" + train, placed: map[int]cloud.Place{},
			attempts: []attempt{{0, 1, at("aws"), outLost}, {0, 2, cloud.Place{}, ""}}},
	} {
		dag, err := task.Parse("t", []byte(c.dag))
		if err != nil {
			t.Fatal(err)
		}
		j := &state.ManagedJob{ID: 1, Name: "j", Dag: []byte(c.dag)}
		for i := range dag.Tasks {
			j.Tasks = append(j.Tasks, &state.ManagedTask{JobID: 1, Index: i})
		}
		db := newMemory()
		db.jobs[1] = j
		for _, a := range c.attempts {
			j.Tasks[a.task].Attempt = max(j.Tasks[a.task].Attempt, a.number)
			db.attempts[attemptID{1, a.task, a.number}] = &state.ManagedAttempt{JobID: 1, Task: a.task, Number: a.number, Offer: cloud.Offer{Place: a.at}, Outcome: string(a.outcome)}
		}
		g, err := graphOf(j)
		if err != nil {
			t.Fatal(err)
		}
		m := newManager(db, nil, slog.New(slog.DiscardHandler), "s", t.TempDir(), 1)
		last := len(j.Tasks) - 1
		r := &runner{controller: &controller{m: m, id: 1, graph: g}, index: last}
		got, err := r.whole(t.Context(), situation{job: j, task: j.Tasks[last]})
		switch {
		case err != nil || (got == nil) != (c.placed == nil):
			t.Errorf("%s: %+v, %v", name, got, err)
		case got != nil && (!maps.Equal(got.Placed, c.placed) || got.Index != last || len(got.Dag.Tasks) != len(j.Tasks) || got.Dag.Tasks[last].Resources[0].Autostop != nil):
			t.Errorf("%s: %+v, want places %v", name, got, c.placed)
		}
	}
}
