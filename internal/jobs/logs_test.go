package jobs

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/upload"
)

// archive is a server of an installation whose jobs nobody works on: tests write what
// there is of them.
type archive struct {
	*Manager
	t  *testing.T
	db *state.Store
}

func newArchive(t *testing.T) *archive {
	db, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
	must(t, err)
	t.Cleanup(func() { db.Close() })
	m := newManager(stored{db}, heard{}, slog.New(slog.DiscardHandler), "s", t.TempDir(), 1)
	m.check = func(context.Context, string) error { return nil }
	return &archive{m, t, db}
}

// ann is a call of Ann's, who may do everything.
func ann() cluster.Call {
	return cluster.Call{RequestID: rand.Text(), User: state.User{ID: "a", Name: "ann"}, Out: quiet{io.Discard}, Files: upload.OwnMachine()}
}

// submits makes a job of a task.
func (a *archive) submits(call cluster.Call, b api.JobsLaunchBody) []int {
	a.t.Helper()
	r, err := a.Submit(a.t.Context(), call, b)
	must(a.t, err)
	return r.JobID
}

// change writes what became of a job, with its attempts.
func (a *archive) change(id int, f func(j *state.ManagedJob), attempts ...*state.ManagedAttempt) {
	a.t.Helper()
	j, err := a.db.ManagedJobs().Get(a.t.Context(), id)
	must(a.t, err)
	for _, at := range attempts {
		at.JobID = id
		must(a.t, a.db.ManagedJobs().Save(a.t.Context(), state.ManagedChange{Job: j, Attempt: at}))
	}
	f(j)
	must(a.t, a.db.ManagedJobs().Save(a.t.Context(), state.ManagedChange{Job: j}))
}

// keeps writes to a log.
func (a *archive) keeps(name, text string) {
	a.t.Helper()
	l, err := a.kept.Append(name)
	must(a.t, err)
	_, err = io.WriteString(l, text)
	must(a.t, errors.Join(err, l.Close()))
}

// pipeline is a job that failed in the second of its tasks, which is the first in its
// file. The other one took two attempts.
func (a *archive) pipeline() int {
	a.t.Helper()
	id := a.submits(ann(), api.JobsLaunchBody{Task: "name: pipe\n---\nname: last\ndepends_on: [first]\nrun: x\n---\nname: first\nrun: x\n"})[0]
	a.change(id, func(j *state.ManagedJob) { j.Schedule = api.ScheduleLaunching })
	a.change(id, func(j *state.ManagedJob) {
		j.Schedule, j.EndedAt = api.ScheduleDone, time.Now().Add(-time.Hour)
		last, first := j.Tasks[0], j.Tasks[1]
		last.Status, last.Attempt, last.Failure, last.EndedAt = api.ManagedFailed, 1, "exit code 3", j.EndedAt
		first.Status, first.Attempt, first.EndedAt = api.ManagedSucceeded, 2, j.EndedAt
	},
		&state.ManagedAttempt{Task: 1, Number: 1, LogKept: true, Reason: "preempted"},
		&state.ManagedAttempt{Task: 1, Number: 2, LogKept: true},
		&state.ManagedAttempt{Task: 0, Number: 1, LogKept: true})
	a.keeps(attemptLogName(id, 1, 1), "a1\na2")
	a.keeps(attemptLogName(id, 1, 2), "a3\n")
	a.keeps(attemptLogName(id, 0, 1), "b1\nb2\n")
	a.keeps(controlLogName(id), "c1\nc2\n")
	return id
}

// reads is what following a job's log writes, its exit code and where it began.
func (a *archive) reads(body api.JobsLogsBody, at *Position) (string, int, Position) {
	a.t.Helper()
	var out bytes.Buffer
	var began Position
	code, err := a.Logs(a.t.Context(), ann(), body, at, func(p Position) error { began = p; return nil }, &out)
	must(a.t, err)
	return out.String(), code, began
}

func numbered(text string) *api.IntOrString {
	var v api.IntOrString
	if err := v.UnmarshalJSON([]byte(text)); err != nil {
		panic(err)
	}
	return &v
}

// The log of a job that has ended, whole or its last lines, of all tasks in the order
// in which they ran or of one; and each stream again from where it began.
func TestTheLogOfAJobIsThatOfItsTasksInTurn(t *testing.T) {
	a := newArchive(t)
	id := a.pipeline()
	const (
		first = "├── Task 1 of 2: first\n"
		last  = "├── Task 0 of 2: last\n"
		again = "↺ Attempt 1 ended: preempted. Starting again.\n"
		ended = "✗ exit code 3\n✗ Job finished (status: FAILED).\n"
	)
	failed := api.ManagedFailed.ExitCode()
	for name, c := range map[string]struct {
		body api.JobsLogsBody
		want string
		code int
	}{
		"all of it":                    {api.JobsLogsBody{}, first + "a1\na2\n" + again + "a3\n" + last + "b1\nb2\n" + ended, failed},
		"no tail":                      {api.JobsLogsBody{Tail: new(0)}, first + "a1\na2\n" + again + "a3\n" + last + "b1\nb2\n" + ended, failed},
		"all of it that there is":      {api.JobsLogsBody{Follow: new(false)}, first + "a1\na2\n" + again + "a3\n" + last + "b1\nb2\n✗ exit code 3\n", failed},
		"the last line":                {api.JobsLogsBody{Tail: new(1)}, "b2\n" + ended, failed},
		"the last task's lines":        {api.JobsLogsBody{Tail: new(2)}, last + "b1\nb2\n" + ended, failed},
		"one line of the task before":  {api.JobsLogsBody{Tail: new(3)}, "a3\n" + last + "b1\nb2\n" + ended, failed},
		"one of the attempt before":    {api.JobsLogsBody{Tail: new(4)}, "a2\n" + again + "a3\n" + last + "b1\nb2\n" + ended, failed},
		"just as much as there is":     {api.JobsLogsBody{Tail: new(5)}, first + "a1\na2\n" + again + "a3\n" + last + "b1\nb2\n" + ended, failed},
		"more than there is":           {api.JobsLogsBody{Tail: new(99)}, first + "a1\na2\n" + again + "a3\n" + last + "b1\nb2\n" + ended, failed},
		"a task by its number":         {api.JobsLogsBody{Task: numbered("1")}, "a1\na2\n" + again + "a3\n✓ Job finished (status: SUCCEEDED).\n", 0},
		"a task by its name":           {api.JobsLogsBody{Task: numbered(`"last"`)}, "b1\nb2\n" + ended, failed},
		"the last line of a task":      {api.JobsLogsBody{Task: numbered("1"), Tail: new(1)}, "a3\n✓ Job finished (status: SUCCEEDED).\n", 0},
		"the last two lines of a task": {api.JobsLogsBody{Task: numbered("1"), Tail: new(2)}, "a2\n" + again + "a3\n✓ Job finished (status: SUCCEEDED).\n", 0},
		"a page before the last line":  {api.JobsLogsBody{Tail: new(2), TailOffset: new(1)}, "a3\n" + last + "b1\n", 0},
		"the page before it":           {api.JobsLogsBody{Tail: new(2), TailOffset: new(3)}, first + "a1\na2\n", 0},
		"a page of fewer lines":        {api.JobsLogsBody{Tail: new(2), TailOffset: new(4)}, first + "a1\n", 0},
		"a page before the first line": {api.JobsLogsBody{Tail: new(2), TailOffset: new(5)}, "", 0},
		"an offset without a number":   {api.JobsLogsBody{Task: numbered("1"), TailOffset: new(5)}, "a1\na2\n" + again + "a3\n✓ Job finished (status: SUCCEEDED).\n", 0},
		"a page of the controller's":   {api.JobsLogsBody{Controller: true, Tail: new(1), TailOffset: new(1)}, "c1\n", 0},
		"the controller's":             {api.JobsLogsBody{Controller: true}, "c1\nc2\n", 0},
		"the controller's last line":   {api.JobsLogsBody{Controller: true, Tail: new(1)}, "c2\n", 0},
	} {
		c.body.JobID = &id
		got, code, began := a.reads(c.body, nil)
		if got != c.want || code != c.code {
			t.Errorf("%s: exit %d\n%swant %d\n%s", name, code, got, c.code, c.want)
		}
		c.body.JobID, c.body.Tail, c.body.TailOffset = nil, nil, nil
		kept, err := json.Marshal(began)
		must(t, err)
		if repeated, _, _ := a.reads(c.body, ParsePosition(kept)); repeated != got {
			t.Errorf("%s, again:\n%s", name, repeated)
		}
	}
	for _, kept := range []string{"", "x", "{"} {
		if at := ParsePosition([]byte(kept)); at != nil {
			t.Errorf("a stream began at %+v, by %q", at, kept)
		}
	}
}

// A job that never ran says why, with the exit code of its end, whether its log is
// followed or not.
func TestTheLogOfWhatNeverRanSaysWhy(t *testing.T) {
	a := newArchive(t)
	id := a.submits(ann(), api.JobsLaunchBody{Task: "name: pipe\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n"})[0]
	a.change(id, func(j *state.ManagedJob) { j.Schedule = api.ScheduleLaunching })
	a.change(id, func(j *state.ManagedJob) {
		j.Schedule = api.ScheduleDone
		j.Tasks[0].Status, j.Tasks[0].Failure = api.ManagedFailedResource, "nobody has such machines"
		j.Tasks[1].Status = api.ManagedCancelled
	})
	never := "✗ task 1 never ran: it was cancelled before it was launched, as task 0 (a) ended FAILED_NO_RESOURCE\n"
	for _, c := range []struct {
		task   *api.IntOrString
		follow bool
		want   string
		code   int
	}{
		{nil, false, "✗ nobody has such machines\n", api.ExitJobFailed},
		{nil, true, "✗ nobody has such machines\n✗ Job finished (status: FAILED_NO_RESOURCE).\n", api.ExitJobFailed},
		{numbered("1"), false, never, api.ExitJobCancelled},
		{numbered("1"), true, never + "✗ Job finished (status: CANCELLED).\n", api.ExitJobCancelled},
	} {
		if got, code, _ := a.reads(api.JobsLogsBody{JobID: &id, Task: c.task, Follow: &c.follow}, nil); got != c.want || code != c.code {
			t.Errorf("follow %v: exit %d, %q; want %d, %q", c.follow, code, got, c.code, c.want)
		}
	}
}

// Last lines are found in logs that are longer than what is read at once.
func TestTheLastLinesOfALongLogAreFound(t *testing.T) {
	a := newArchive(t)
	for name, text := range map[string]string{
		"short lines": strings.Repeat("x\n", 100_000), "no end of line": strings.Repeat("x\n", 100_000) + "x", "one long line": strings.Repeat("x", 200_000),
		"lines as long as what is read at once": strings.Repeat(strings.Repeat("x", 64<<10-1)+"\n", 4), "empty lines": "\n\n\n", "nothing": "",
	} {
		a.keeps(name, text)
		all := strings.SplitAfter(text, "\n")
		if all[len(all)-1] == "" {
			all = all[:len(all)-1]
		}
		for _, n := range []int{1, 2, 3, 70_000, 99_999, 1_000_000} {
			offset, lines, err := logstore.LastLines(a.kept, name, n)
			want := strings.Join(all[max(0, len(all)-n):], "")
			if err != nil || lines != min(n, len(all)) || text[offset:] != want {
				t.Errorf("%s, the last %d: %d from byte %d of %d, %v", name, n, lines, offset, len(text), err)
			}
		}
	}
	if offset, lines, err := logstore.LastLines(a.kept, "none", 3); offset != 0 || lines != 0 || err != nil {
		t.Errorf("of no log: %d lines from %d, %v", lines, offset, err)
	}
}

// Without following, a job that has not ended shows what there is, and no task that
// has not begun.
func TestTheLogOfAJobThatGoesOnIsShownSoFar(t *testing.T) {
	a := newArchive(t)
	id := a.submits(ann(), api.JobsLaunchBody{Task: "name: pipe\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n"})[0]
	body := api.JobsLogsBody{JobID: &id, Follow: new(false)}
	if got, code, _ := a.reads(body, nil); got != "" || code != 0 {
		t.Errorf("before it began: exit %d: %q", code, got)
	}
	a.change(id, func(j *state.ManagedJob) { j.Schedule = api.ScheduleLaunching })
	a.change(id, func(j *state.ManagedJob) { j.Tasks[0].Status, j.Tasks[0].Attempt = api.ManagedRunning, 1 }, &state.ManagedAttempt{Number: 1})
	a.keeps(attemptLogName(id, 0, 1), "one\ntw")
	if got, code, _ := a.reads(body, nil); got != "├── Task 0 of 2: a\none\ntw\n" || code != 0 {
		t.Errorf("exit %d: %q", code, got)
	}
	body.Task = numbered("1")
	if got, code, _ := a.reads(body, nil); got != "" || code != 0 {
		t.Errorf("of the task behind: exit %d: %q", code, got)
	}
}

// terminal is a stream with what is waited for at its end.
type terminal struct {
	mu   sync.Mutex
	text bytes.Buffer
	spin string
}

func (o *terminal) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.spin != "" {
		return 0, fmt.Errorf("%q is written over %q", p, o.spin)
	}
	return o.text.Write(p)
}

func (o *terminal) Spin(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spin = text
}

func (o *terminal) StopSpin() { o.Spin("") }

func (o *terminal) shows() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String() + o.spin
}

// Whoever follows a log sees what is printed and what is waited for, until the end or
// until they go.
func TestWhoFollowsALogSeesWhatIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchive(t)
		id := a.submits(ann(), api.JobsLaunchBody{Task: "name: train\nrun: x\n"})[0]
		var o terminal
		ctx, leave := context.WithCancelCause(t.Context())
		ended := make(chan error, 2)
		follow := func(ctx context.Context, o *terminal, body api.JobsLogsBody) {
			call := ann()
			call.Out, body.JobID = o, &id
			_, err := a.Logs(ctx, call, body, nil, func(Position) error { return nil }, o)
			ended <- err
		}
		go follow(t.Context(), &o, api.JobsLogsBody{})
		shows := func(want string) {
			t.Helper()
			a.rows.Notify(id)
			a.logs.Notify(id)
			synctest.Wait()
			if got := o.shows(); got != want {
				t.Errorf("it shows\n%s\nwant\n%s", got, want)
			}
		}
		shows("Managed job 1 is PENDING: waits for other jobs to launch")
		a.change(id, func(j *state.ManagedJob) { j.Schedule = api.ScheduleLaunching })
		a.change(id, func(j *state.ManagedJob) { j.Tasks[0].Status, j.Tasks[0].Attempt = api.ManagedStarting, 1 }, &state.ManagedAttempt{Number: 1})
		shows("Managed job 1 is STARTING")
		a.change(id, func(j *state.ManagedJob) { j.Tasks[0].Status, j.Schedule = api.ManagedRunning, api.ScheduleAlive }, &state.ManagedAttempt{Number: 1, ClusterJob: 1})
		shows("")
		a.keeps(attemptLogName(id, 0, 1), "one\n")
		shows("one\n")
		a.change(id, func(*state.ManagedJob) {}, &state.ManagedAttempt{Number: 1, ClusterJob: 1, Outcome: "lost", Reason: "preempted"})
		shows("one\nManaged job 1 is RUNNING")
		a.change(id, func(j *state.ManagedJob) { j.Tasks[0].Status, j.Tasks[0].Details = api.ManagedRecovering, "preempted" },
			&state.ManagedAttempt{Number: 1, ClusterJob: 1, Outcome: "lost", Reason: "preempted", LogKept: true})
		shows("one\nManaged job 1 is RECOVERING: preempted")
		a.change(id, func(j *state.ManagedJob) { j.Tasks[0].Attempt = 2 }, &state.ManagedAttempt{Number: 2})
		shows("one\n↺ Attempt 1 ended: preempted. Starting again.\nManaged job 1 is RECOVERING: preempted")

		var gone, control terminal
		a.keeps(controlLogName(id), "lost\n")
		go follow(ctx, &gone, api.JobsLogsBody{})
		synctest.Wait()
		away := errors.New("the reader went away")
		leave(away)
		if err := <-ended; !errors.Is(err, away) {
			t.Errorf("who went away is told %v", err)
		}
		ctx, leave = context.WithCancelCause(t.Context())
		go follow(ctx, &control, api.JobsLogsBody{Controller: true})
		synctest.Wait()
		if got := control.shows(); got != "lost\n" {
			t.Errorf("the controller's log shows %q", got)
		}
		leave(away)
		if err := <-ended; !errors.Is(err, away) {
			t.Errorf("who went away from the controller's log is told %v", err)
		}

		a.change(id, func(j *state.ManagedJob) {
			j.Tasks[0].Status, j.Tasks[0].EndedAt, j.Schedule, j.EndedAt = api.ManagedSucceeded, time.Now(), api.ScheduleDone, time.Now()
		}, &state.ManagedAttempt{Number: 2, Outcome: "succeeded", LogKept: true})
		if err := <-ended; err != nil {
			t.Error(err)
		}
		shows("one\n↺ Attempt 1 ended: preempted. Starting again.\n✓ Job finished (status: SUCCEEDED).\n")
	})
}
