package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/state"
)

// of is a call of somebody who sees what is in some workspaces and changes their own.
func of(user string, workspaces ...string) (cluster.Call, *bytes.Buffer) {
	var out bytes.Buffer
	call := ann()
	call.User, call.Scope, call.Out = state.User{ID: user, Name: user}, &state.Scope{User: user, Workspaces: workspaces}, quiet{&out}
	return call, &out
}

// in is a configuration with an active workspace.
func in(t *testing.T, workspace string) *config.Config {
	c, err := config.FromMap(config.Server, config.Origin{}, map[string]any{"active_workspace": workspace, "workspaces": map[string]any{workspace: map[string]any{}}})
	must(t, err)
	return c
}

func errorType(err error) string {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Type
	}
	return fmt.Sprint(err)
}

// ids are the jobs of a list, each once.
func ids(q *api.JobsQueueResult) []int {
	out := []int{}
	for _, r := range q.Jobs {
		out = append(out, *r.JobID)
	}
	return slices.Compact(out)
}

// What a request asks for is refused or fails with the database: nothing is made up,
// and the next one is served.
func TestARequestFailsWithTheFirstCallThatFails(t *testing.T) {
	a := newArchive(t)
	id := a.pipeline()
	live := a.submits(ann(), api.JobsLaunchBody{Task: "name: other\nrun: x\n"})[0]
	const nightly = "name: nightly\nschedule: {cron: '0 * * * *'}\nrun: x\n"
	for range 2 {
		_, err := a.Submit(t.Context(), ann(), api.JobsLaunchBody{Task: nightly})
		must(t, err)
	}
	name := "pipe"
	db, kept := a.store, a.kept
	for what, f := range map[string]func(f *failure) error{
		"a queue": func(*failure) error {
			_, err := a.Queue(t.Context(), ann(), api.JobsQueueBody{Attempts: true})
			return err
		},
		"an old queue":      func(*failure) error { _, err := a.OldQueue(t.Context(), ann(), api.JobsQueueBody{}); return err },
		"a cancel":          func(*failure) error { return a.Cancel(t.Context(), ann(), api.JobsCancelBody{JobIDs: []int{live}}) },
		"a wait":            func(*failure) error { _, err := a.Wait(t.Context(), ann(), api.JobsWaitBody{JobID: &id}); return err },
		"a wait for a name": func(*failure) error { _, err := a.Wait(t.Context(), ann(), api.JobsWaitBody{Name: &name}); return err },
		"a wait for a task": func(*failure) error {
			_, err := a.Wait(t.Context(), ann(), api.JobsWaitBody{JobID: &id, Task: numbered("0")})
			return err
		},
		"events": func(*failure) error {
			_, err := a.Events(t.Context(), ann(), api.JobsEventsBody{JobID: id, IncludeClusterEvents: true})
			return err
		},
		"schedules": func(*failure) error { _, err := a.Schedules(t.Context(), ann(), api.JobsSchedulesBody{}); return err },
		"the end of one": func(*failure) error {
			return a.EndSchedules(t.Context(), ann(), api.JobsEndSchedulesBody{ScheduleIDs: []int{1}})
		},
		"a submission": func(*failure) error {
			_, err := a.Submit(t.Context(), ann(), api.JobsLaunchBody{Task: "run: x\n"})
			return err
		},
		"a schedule": func(*failure) error {
			_, err := a.Submit(t.Context(), ann(), api.JobsLaunchBody{Task: nightly})
			return err
		},
		"a download": func(*failure) error {
			_, err := a.DownloadLogs(t.Context(), ann(), api.JobsDownloadLogsBody{JobID: &id}, t.TempDir(), nil)
			return err
		},
		"a log":                a.following(api.JobsLogsBody{JobID: &id}),
		"last lines":           a.following(api.JobsLogsBody{JobID: &id, Tail: new(3)}),
		"last lines of a task": a.following(api.JobsLogsBody{JobID: &id, Task: numbered("1"), Tail: new(3)}),
		"a controller's log":   a.following(api.JobsLogsBody{JobID: &id, Controller: true, Tail: new(1)}),
	} {
		for n, through := 0, false; !through; n++ {
			one := &failure{left: n}
			a.store, a.kept = failing{db, one}, failingLogs{kept, one}
			err := f(one)
			if through = one.failed() == nil; through && err != nil || !through && !errors.Is(err, one.failed()) {
				t.Errorf("%s, whose call %d failed with %v: %v", what, n, one.failed(), err)
			}
			if n > 100 {
				t.Fatalf("%s does not end", what)
			}
		}
	}
	a.store, a.kept = db, kept
	if q, err := a.Queue(t.Context(), ann(), api.JobsQueueBody{JobIDs: []int{live}, SkipFinished: true}); err != nil || len(q.Jobs) > 0 {
		t.Errorf("what was cancelled goes on: %v, %v", q, err)
	}
}

// following is a request for a log, whose reader may go away.
func (a *archive) following(body api.JobsLogsBody) func(f *failure) error {
	return func(f *failure) error {
		_, err := a.Logs(a.t.Context(), ann(), body, nil, func(Position) error { return f.pass("begin") }, failingWriter{io.Discard, f})
		return err
	}
}

func TestTheQueueIsFilteredSortedAndPaged(t *testing.T) {
	a := newArchive(t)
	bob, _ := of("bob", "default")
	for _, name := range []string{"train", "eval", "train-2"} {
		a.submits(ann(), api.JobsLaunchBody{Task: "name: " + name + "\nrun: x\n"})
	}
	a.submits(bob, api.JobsLaunchBody{Task: "name: bobs\nrun: x\n"})
	must(t, a.Cancel(t.Context(), ann(), api.JobsCancelBody{JobIDs: []int{2}}))
	for what, c := range map[string]struct {
		body  api.JobsQueueBody
		want  []int
		total int
	}{
		"theirs":           {api.JobsQueueBody{}, []int{3, 2, 1}, 3},
		"all":              {api.JobsQueueBody{AllUsers: true}, []int{4, 3, 2, 1}, 4},
		"of a user":        {api.JobsQueueBody{AllUsers: true, UserMatch: new("bo")}, []int{4}, 1},
		"of a name":        {api.JobsQueueBody{NameMatch: new("train")}, []int{3, 1}, 2},
		"of a workspace":   {api.JobsQueueBody{WorkspaceMatch: new("elsewhere")}, []int{}, 0},
		"by id":            {api.JobsQueueBody{JobIDs: []int{1, 2}}, []int{2, 1}, 2},
		"not ended":        {api.JobsQueueBody{SkipFinished: true}, []int{3, 1}, 2},
		"of a status":      {api.JobsQueueBody{Statuses: []string{"CANCELLED"}}, []int{2}, 1},
		"sorted":           {api.JobsQueueBody{SortBy: new("job_name")}, []int{3, 1, 2}, 3},
		"sorted, upwards":  {api.JobsQueueBody{SortBy: new("job_name"), SortOrder: new("asc")}, []int{2, 1, 3}, 3},
		"downwards":        {api.JobsQueueBody{SortOrder: new("desc")}, []int{3, 2, 1}, 3},
		"the first page":   {api.JobsQueueBody{Limit: new(2)}, []int{3, 2}, 3},
		"page one":         {api.JobsQueueBody{Limit: new(2), Page: new(1)}, []int{3, 2}, 3},
		"page two":         {api.JobsQueueBody{Limit: new(2), Page: new(2)}, []int{1}, 3},
		"page three":       {api.JobsQueueBody{Limit: new(1), Page: new(3)}, []int{1}, 3},
		"on a pool":        {api.JobsQueueBody{PoolMatch: new("p")}, []int{}, 0},
		"on no pool named": {api.JobsQueueBody{PoolMatch: new("")}, []int{3, 2, 1}, 3},
	} {
		q, err := a.Queue(t.Context(), ann(), c.body)
		if err != nil || !slices.Equal(ids(q), c.want) || q.Total != c.total || q.Jobs == nil || q.StatusCounts == nil {
			t.Errorf("%s: %v of %d, %v", what, ids(q), q.Total, err)
		}
	}
	q, err := a.Queue(t.Context(), ann(), api.JobsQueueBody{})
	if want := map[string]int{"PENDING": 2, "CANCELLED": 1}; err != nil || !reflect.DeepEqual(q.StatusCounts, want) || q.TotalNoFilter != 4 {
		t.Errorf("%v of %d, %v", q.StatusCounts, q.TotalNoFilter, err)
	}
	if _, err := a.Queue(t.Context(), ann(), api.JobsQueueBody{SortBy: new("shoe_size")}); errorType(err) != api.ErrValue {
		t.Errorf("sorted by what there is not: %v", err)
	}
}

func TestTheQueueListsTheAttemptsOfEachTask(t *testing.T) {
	a := newArchive(t)
	a.pipeline()
	a.pipeline()
	for _, all := range []bool{true, false} {
		q, err := a.Queue(t.Context(), ann(), api.JobsQueueBody{Attempts: all})
		must(t, err)
		var n []int
		for _, r := range q.Jobs {
			n = append(n, len(r.Attempts))
		}
		if want := []int{1, 2, 1, 2}; all && !slices.Equal(n, want) || !all && !slices.Equal(n, make([]int, 4)) {
			t.Errorf("%v attempts", n)
		}
	}
}

func TestWhatIsSubmittedIsWhatWasAskedFor(t *testing.T) {
	a := newArchive(t)
	get := func(id int) *state.ManagedJob {
		t.Helper()
		j, err := a.db.ManagedJobs().Get(t.Context(), id)
		must(t, err)
		return j
	}
	call := ann()
	call.Command, call.Config = "sky jobs launch x", in(t, "team")
	id := a.submits(call, api.JobsLaunchBody{
		Task: "name: old\nresources: {priority: 7, priority_class: high}\n_metadata: {k: v}\nrun: x\n", Name: new("renamed"), Envelope: api.Envelope{OverrideConfig: map[string]any{"a": 1.0}},
	})[0]
	j := get(id)
	if j.Name != "renamed" || j.Tasks[0].Name != "renamed" || j.UserHash != "a" || j.UserName != "ann" || j.Workspace != "team" || j.Entrypoint != call.Command ||
		j.Size != 0 || string(j.Config) != `{"a":1}` || j.Priority != 7 || j.PriorityClass != "high" || j.Tasks[0].Metadata["k"] != "v" ||
		!strings.Contains(j.UserYAML, "run: x") || j.Tasks[0].UserYAML == "" || j.Tasks[0].Resources != "1x[CPU:1+]" || time.Since(j.SubmittedAt) > time.Minute {
		t.Errorf("%+v, task %+v", j, j.Tasks[0])
	}
	if again, err := a.Submit(t.Context(), call, api.JobsLaunchBody{Task: "run: x\n"}); err != nil || again.JobID[0] != id {
		t.Errorf("the same request again: %+v, %v", again, err)
	}
	if j := get(a.submits(ann(), api.JobsLaunchBody{Task: "name: old\nrun: x\n", Name: new("")})[0]); j.Name != "old" || len(j.Config) > 0 || j.Workspace != "default" {
		t.Errorf("%+v", j)
	}
	pipe := get(a.submits(ann(), api.JobsLaunchBody{Task: "name: pipe\n---\nname: a\nrun: x\n---\nname: b\nresources: {priority: 3}\nrun: x\n", Name: new("renamed")})[0])
	if pipe.Name != "renamed" || pipe.Tasks[0].Name != "a" || pipe.Tasks[1].Name != "b" || pipe.Priority != 3 {
		t.Errorf("%+v", pipe)
	}
	call, out := of("bob", "default")
	if got := a.submits(call, api.JobsLaunchBody{Task: "name: t\nrun: x\n", NumJobs: new(3)}); !slices.Equal(got, []int{pipe.ID + 1, pipe.ID + 2, pipe.ID + 3}) ||
		out.String() != fmt.Sprintf("✓ Managed jobs submitted, IDs: %d to %d\n", got[0], got[2]) {
		t.Errorf("%v: %s", got, out)
	}
	if j := get(pipe.ID + 3); j.Rank != 2 || j.Size != 3 || j.Array != pipe.ID+1 {
		t.Errorf("%+v", j)
	}
	last := pipe.ID + 3
	for what, c := range map[string]struct {
		body api.JobsLaunchBody
		want string
	}{
		"no jobs":                     {api.JobsLaunchBody{Task: "run: x\n", NumJobs: new(0)}, api.ErrValue},
		"too many jobs":               {api.JobsLaunchBody{Task: "run: x\n", NumJobs: new(mostJobs + 1)}, api.ErrValue},
		"no task":                     {api.JobsLaunchBody{Task: "run: ["}, api.ErrValue},
		"a workspace not theirs":      {api.JobsLaunchBody{Task: "run: x\nconfig: {active_workspace: secret}\n"}, api.ErrPermissionDenied},
		"a file that is not there":    {api.JobsLaunchBody{Task: "run: x\nworkdir: /none/such\n"}, api.ErrFileNotFound},
		"a schedule that never comes": {api.JobsLaunchBody{Task: "run: x\nschedule: {cron: '0 0 31 2 *'}\n"}, api.ErrValue},
	} {
		if r, err := a.Submit(t.Context(), call, c.body); errorType(err) != c.want {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
	if _, err := a.db.ManagedJobs().Get(t.Context(), last+1); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("what was refused is stored: %v", err)
	}
	if err := notYet(api.JobsLaunchBody{NumJobs: new(mostJobs)}); err != nil {
		t.Errorf("as many as there may be: %v", err)
	}
}

func TestWhichJobsACancelMeans(t *testing.T) {
	a := newArchive(t)
	team := ann()
	team.Config = in(t, "team")
	bob, _ := of("bob", "default", "team")
	for _, c := range []struct {
		call cluster.Call
		body api.JobsLaunchBody
	}{
		{ann(), api.JobsLaunchBody{Task: "name: one\nrun: x\n"}},                                      // 1
		{ann(), api.JobsLaunchBody{Task: "name: two\nrun: x\n"}},                                      // 2
		{ann(), api.JobsLaunchBody{Task: "name: two\nrun: x\n"}},                                      // 3
		{ann(), api.JobsLaunchBody{Task: "name: array\nrun: x\n", NumJobs: new(2)}},                   // 4, 5
		{bob, api.JobsLaunchBody{Task: "name: one\nrun: x\n"}},                                        // 6
		{team, api.JobsLaunchBody{Task: "name: far\nrun: x\n"}},                                       // 7
		{ann(), api.JobsLaunchBody{Task: "name: pipe\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n"}}, // 8
	} {
		a.submits(c.call, c.body)
	}
	for _, c := range []struct {
		what string
		user string
		body api.JobsCancelBody
		said string // or the error's type
		left []int
	}{
		{"of nothing", "a", api.JobsCancelBody{}, api.ErrValue, []int{1, 2, 3, 4, 5, 6, 7, 8}},
		{"in two ways", "a", api.JobsCancelBody{JobIDs: []int{1}, Name: new("one")}, api.ErrValue, []int{1, 2, 3, 4, 5, 6, 7, 8}},
		{"within less than no time", "a", api.JobsCancelBody{JobIDs: []int{1}, GracefulTimeout: new(-1)}, api.ErrValue, []int{1, 2, 3, 4, 5, 6, 7, 8}},
		{"of two of a name", "a", api.JobsCancelBody{Name: new("two")}, api.ErrValue, []int{1, 2, 3, 4, 5, 6, 7, 8}},
		{"of somebody else's", "a", api.JobsCancelBody{JobIDs: []int{6}}, api.ErrPermissionDenied, []int{1, 2, 3, 4, 5, 6, 7, 8}},
		{"of everybody's", "a", api.JobsCancelBody{AllUsers: true}, api.ErrPermissionDenied, []int{1, 2, 3, 4, 5, 6, 7, 8}},
		{"of a name that others use", "bob", api.JobsCancelBody{Name: new("one")}, "Job with ID 6 is scheduled to be cancelled.\n", []int{1, 2, 3, 4, 5, 7, 8}},
		{"of what has ended", "bob", api.JobsCancelBody{JobIDs: []int{6, 99}}, "Managed job 6 has already ended.\nThere is no managed job 99 (see: sky jobs queue).\nNo job to cancel.\n", []int{1, 2, 3, 4, 5, 7, 8}},
		{"of an array", "a", api.JobsCancelBody{Name: new("array"), JobIDs: nil}, "Jobs with IDs 4, 5 are scheduled to be cancelled.\n", []int{1, 2, 3, 7, 8}},
		{"of a pipeline", "a", api.JobsCancelBody{Name: new("pipe"), Pool: new("")}, "Job with ID 8 is scheduled to be cancelled.\n", []int{1, 2, 3, 7}},
		{"of ids here and elsewhere", "a", api.JobsCancelBody{JobIDs: []int{2, 7}, Graceful: true, GracefulTimeout: new(0)},
			"Skipped, because they are not in the active workspace \"default\": 7\nJob with ID 2 is scheduled to be cancelled.\n", []int{1, 3, 7}},
		{"of one here and one that there is not", "a", api.JobsCancelBody{JobIDs: []int{1, 99}},
			"There is no managed job 99 (see: sky jobs queue).\nJob with ID 1 is scheduled to be cancelled.\n", []int{3, 7}},
		{"of all", "a", api.JobsCancelBody{All: true}, "Skipped, because they are not in the active workspace \"default\": 7\nJob with ID 3 is scheduled to be cancelled.\n", []int{7}},
	} {
		call, out := of(c.user, "default", "team")
		err := a.Cancel(t.Context(), call, c.body)
		if said := out.String(); err == nil && said != c.said || err != nil && errorType(err) != c.said {
			t.Errorf("%s: %q, %v", c.what, said, err)
		}
		q, err := a.Queue(t.Context(), ann(), api.JobsQueueBody{AllUsers: true, SkipFinished: true, SortOrder: new("asc")})
		if must(t, err); !slices.Equal(ids(q), c.left) {
			t.Errorf("%s: %v go on", c.what, ids(q))
		}
	}
	for _, c := range []struct {
		body api.JobsCancelBody
		want time.Duration
	}{
		{api.JobsCancelBody{}, proc.Grace}, {api.JobsCancelBody{GracefulTimeout: new(5)}, proc.Grace}, {api.JobsCancelBody{Graceful: true}, time.Hour}, {api.JobsCancelBody{Graceful: true, GracefulTimeout: new(90)}, 90 * time.Second},
	} {
		a := newArchive(t)
		id := a.submits(ann(), api.JobsLaunchBody{Task: "name: one\nrun: x\n"})[0]
		before := time.Now()
		c.body.All = true
		must(t, a.Cancel(t.Context(), ann(), c.body))
		j, err := a.store.ManagedJobs().Get(t.Context(), id)
		must(t, err)
		if got := j.CancelBy.Sub(before); got < c.want || got > c.want+time.Minute {
			t.Errorf("%+v: it has %v", c.body, got)
		}
	}
}

func TestWhichJobIsMeant(t *testing.T) {
	a := newArchive(t)
	bob, _ := of("bob", "default")
	a.submits(ann(), api.JobsLaunchBody{Task: "name: one\nrun: x\n"})
	a.submits(ann(), api.JobsLaunchBody{Task: "name: two\nrun: x\n"})
	a.submits(bob, api.JobsLaunchBody{Task: "name: one\nrun: x\n"})
	far, _ := of("bob", "elsewhere")
	eve, _ := of("eve", "default")
	for what, c := range map[string]struct {
		call cluster.Call
		id   *int
		name *string
		want int // 0: none
		err  string
	}{
		"an id":                       {ann(), new(1), nil, 1, "<nil>"},
		"an id and no name":           {ann(), new(1), new(""), 1, "<nil>"},
		"an id and a name":            {ann(), new(1), new("one"), 0, api.ErrValue},
		"an id that is none":          {ann(), new(9), nil, 0, "<nil>"},
		"an id they may not see":      {far, new(1), nil, 0, api.ErrPermissionDenied},
		"the latest of a name":        {ann(), nil, new("one"), 3, "<nil>"},
		"a name that is none":         {ann(), nil, new("six"), 0, "<nil>"},
		"a name they may not see":     {far, nil, new("two"), 0, "<nil>"},
		"their latest":                {ann(), nil, nil, 2, "<nil>"},
		"their latest, named nothing": {ann(), nil, new(""), 2, "<nil>"},
		"the latest of who has none":  {eve, nil, nil, 0, "<nil>"},
	} {
		j, err := a.find(t.Context(), c.call, c.id, c.name)
		got := 0
		if j != nil {
			got = j.ID
		}
		if got != c.want || errorType(err) != c.err {
			t.Errorf("%s: job %d, %v", what, got, err)
		}
	}
	for want, of := range map[string][]any{
		"There is no managed job 9 (see: sky jobs queue).":              {new(9), (*string)(nil)},
		"There is no managed job named \"six\" (see: sky jobs queue).":  {(*int)(nil), new("six")},
		"You have no managed job yet. Submit one with: sky jobs launch": {(*int)(nil), new("")},
	} {
		if got := notFound(of[0].(*int), of[1].(*string)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTheEventsOfAJobAreListedTheNewestFirst(t *testing.T) {
	a := newArchive(t)
	id := a.pipeline()
	for n := range 12 {
		must(t, a.db.ManagedJobs().Note(t.Context(), state.ManagedEvent{JobID: id, Task: n % 2, Code: "STARTED", Status: api.ManagedRunning, Reason: fmt.Sprint(n), At: noon.Add(time.Duration(n) * time.Second)}))
	}
	reasons := func(b api.JobsEventsBody) []string {
		t.Helper()
		b.JobID = id
		list, err := a.Events(t.Context(), ann(), b)
		must(t, err)
		out := []string{}
		for _, e := range list {
			out = append(out, e.Reason)
		}
		return out
	}
	for what, c := range map[string]struct {
		body api.JobsEventsBody
		want []string
	}{
		"ten":                     {api.JobsEventsBody{}, []string{"11", "10", "9", "8", "7", "6", "5", "4", "3", "2"}},
		"two":                     {api.JobsEventsBody{Limit: new(2)}, []string{"11", "10"}},
		"two, with those of none": {api.JobsEventsBody{Limit: new(2), IncludeClusterEvents: true}, []string{"11", "10"}},
		"of a task":               {api.JobsEventsBody{TaskID: new(1), Limit: new(3)}, []string{"11", "9", "7"}},
		"of the first task":       {api.JobsEventsBody{TaskID: new(0), Limit: new(3)}, []string{"10", "8", "6"}},
		"of a task that is none":  {api.JobsEventsBody{TaskID: new(7)}, []string{}},
	} {
		if got := reasons(c.body); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", what, got)
		}
	}
	list, err := a.Events(t.Context(), ann(), api.JobsEventsBody{JobID: id, Limit: new(1)})
	want := api.JobsEvent{JobID: id, TaskID: new(1), NewStatus: new(api.ManagedRunning), Code: "STARTED", Reason: "11", Timestamp: new(float64(noon.Unix() + 11))}
	if err != nil || !reflect.DeepEqual(list, []api.JobsEvent{want}) {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := a.Events(t.Context(), ann(), api.JobsEventsBody{JobID: 99}); err != nil || list == nil || len(list) > 0 {
		t.Errorf("of no job: %v, %v", list, err)
	}
}

func TestLogsAreDownloadedIntoAFolderOfTheirKind(t *testing.T) {
	a := newArchive(t)
	id := a.pipeline()
	for _, c := range []struct {
		body  api.JobsDownloadLogsBody
		kind  string
		files map[string]string
	}{
		{api.JobsDownloadLogsBody{JobID: &id}, "managed-job-1-", map[string]string{"task-0-attempt-1.log": "b1\nb2\n", "task-1-attempt-1.log": "a1\na2", "task-1-attempt-2.log": "a3\n"}},
		{api.JobsDownloadLogsBody{Name: new("pipe"), Controller: true}, "managed-job-controller-1-", map[string]string{"controller.log": "c1\nc2\n"}},
	} {
		dir := t.TempDir()
		got, err := a.DownloadLogs(t.Context(), ann(), c.body, dir, nil)
		must(t, err)
		if rel, err := filepath.Rel(filepath.Join(dir, "managed_jobs"), got["1"]); len(got) != 1 || err != nil || !strings.HasPrefix(rel, c.kind) {
			t.Errorf("%v, %v", got, err)
		}
		files := map[string]string{}
		must(t, fs.WalkDir(os.DirFS(got["1"]), ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				var b []byte
				b, err = os.ReadFile(filepath.Join(got["1"], name))
				files[name] = string(b)
			}
			return err
		}))
		if !reflect.DeepEqual(files, c.files) {
			t.Errorf("%q", files)
		}
	}
	if got, err := a.DownloadLogs(t.Context(), ann(), api.JobsDownloadLogsBody{JobID: new(9)}, t.TempDir(), nil); err != nil || got == nil || len(got) > 0 {
		t.Errorf("of no job: %v, %v", got, err)
	}
}

func TestLogsThatWereRemovedAreSaidToBe(t *testing.T) {
	a := newArchive(t)
	id := a.pipeline()
	const gone = "The logs of managed job 1 were removed"
	for _, c := range []struct {
		tasks, controllers time.Duration
		want               bool
	}{{-1, -1, false}, {0, -1, false}, {-1, 0, true}} {
		must(t, a.Forget(t.Context(), c.tasks, c.controllers))
		if got, _, _ := a.reads(api.JobsLogsBody{JobID: &id}, nil); strings.HasPrefix(got, gone) != c.want {
			t.Errorf("after %v and %v: %q", c.tasks, c.controllers, got)
		}
	}
	never := a.submits(ann(), api.JobsLaunchBody{Task: "run: x\n"})[0]
	must(t, a.Cancel(t.Context(), ann(), api.JobsCancelBody{JobIDs: []int{never}}))
	if got, code, _ := a.reads(api.JobsLogsBody{JobID: &never}, nil); got != "✗ the job never ran: it was cancelled before it was launched\n✗ Job finished (status: CANCELLED).\n" || code != api.ExitJobCancelled {
		t.Errorf("of a job that never ran: exit %d: %q", code, got)
	}
}

func TestAWaitEndsWithTheTaskOrTheTimeOrTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		id := a.submits(ann(), api.JobsLaunchBody{Task: "name: pipe\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n"})[0]
		a.change(id, func(j *state.ManagedJob) { j.Schedule = api.ScheduleLaunching })
		a.change(id, func(j *state.ManagedJob) { j.Tasks[0].Status = api.ManagedSucceeded })
		if code, err := a.Wait(t.Context(), ann(), api.JobsWaitBody{JobID: &id, Task: numbered("0")}); code != 0 || err != nil {
			t.Errorf("for the task that has ended: %d, %v", code, err)
		}
		began := time.Now()
		_, err := a.Wait(t.Context(), ann(), api.JobsWaitBody{JobID: &id, Timeout: new(1.5)})
		if took := time.Since(began); errorType(err) != "TimeoutError" || took != 1500*time.Millisecond || !strings.Contains(err.Error(), "still PENDING after 1.5 seconds") {
			t.Errorf("after %v: %v", took, err)
		}
		go func() { // through another server
			time.Sleep(10*time.Second + time.Millisecond)
			a.change(id, func(j *state.ManagedJob) { j.Tasks[1].Status = api.ManagedFailed })
		}()
		began = time.Now()
		code, err := a.Wait(t.Context(), ann(), api.JobsWaitBody{JobID: &id})
		if took := time.Since(began); code != api.ExitJobFailed || err != nil || took < 10*time.Second || took > 10*time.Second+seeAgain {
			t.Errorf("after %v: %d, %v", took, code, err)
		}
	})
}

// Logs of jobs that the database does not know are nobody's; what is no job's folder is
// left alone, and so is everything if it cannot be known.
func TestLogsOfUnknownJobsAreRemoved(t *testing.T) {
	a := newArchive(t)
	for _, name := range []string{"99/controller.log", "99/task-0-attempt-1.log", "other/controller.log"} {
		a.keeps(name, "x\n")
	}
	db := a.store
	one := &failure{of: func(call string) bool { return call == "Get" }}
	a.store = failing{db, one}
	if err := a.Forget(t.Context(), time.Hour, time.Hour); !errors.Is(err, one.failed()) || one.failed() == nil {
		t.Errorf("nobody knows whose they are: %v", err)
	}
	a.store = db
	if left, err := a.kept.List("*/*"); len(left) != 3 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	must(t, a.Forget(t.Context(), time.Hour, time.Hour))
	if left, err := a.kept.List("*/*"); !maps.Equal(left, map[string]int64{"other/controller.log": 2}) || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}
