package jobs

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/state"
)

// controlLogOf is what the controller of job 7 told.
func controlLogOf(t *testing.T, c *controller) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.m.dir, controlLogName(7)))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

func TestHowACallbackEndedIsSaid(t *testing.T) {
	answer := func(r agentapi.CallbackResult, err error) func() (*agentapi.CallbackResult, error) {
		return func() (*agentapi.CallbackResult, error) { return &r, err }
	}
	for name, c := range map[string]struct {
		script  string
		place   CallbackPlace
		answers func() (*agentapi.CallbackResult, error)
		want    string
		log     string // contains; "": no output
	}{
		"it ran":                       {answers: answer(agentapi.CallbackResult{Output: "a\r\nb"}, nil), want: "ran on cluster n-7", log: "(callback for STARTED) a\n"},
		"it failed":                    {answers: answer(agentapi.CallbackResult{Code: 3}, nil), want: "failed with exit code 3 on cluster n-7"},
		"it took too long":             {answers: answer(agentapi.CallbackResult{TimedOut: true, Output: "x\n"}, nil), want: "ended: it ran for more than 5m0s on cluster n-7", log: "(callback for STARTED) x\n"},
		"its cluster is gone":          {answers: answer(agentapi.CallbackResult{}, errNoNode), want: "not run: no node"},
		"its agent refuses":            {answers: answer(agentapi.CallbackResult{}, &agentapi.Error{Message: "no bash"}), want: "not run: no bash"},
		"it ran here":                  {script: "echo $JOB_STATUS $HOME", place: CallbackPlace{Here: true}, want: "ran", log: "(callback for STARTED) STARTED " + os.Getenv("HOME") + "\n"},
		"it failed here":               {script: "echo oh; exit 4", place: CallbackPlace{Here: true}, want: "failed with exit code 4", log: "(callback for STARTED) oh\n"},
		"it printed too much here":     {script: "head -c 3000000 /dev/zero | tr '\\0' x; echo", place: CallbackPlace{Here: true}, want: "ran", log: "[1951425 bytes more were not kept.]\n"},
		"it left something here":       {script: "sleep 2 & echo $!", place: CallbackPlace{Here: true}, want: "ran", log: "(callback for STARTED) "},
		"a node comes before a runner": {place: CallbackPlace{Runner: []string{"/none/such"}}, want: "ran on cluster n-7", log: "(callback for STARTED) hi\n"},
	} {
		w := &told{answers: c.answers}
		ctl, now := w.life(t, cmp.Or(c.script, "true"), c.place)
		w.happens("STARTED")
		w.begins(t, ctl, now)
		ctl.callbacks.end(false)
		if got := w.noted(); !slices.Equal(got, []string{"STARTED " + c.want}) {
			t.Errorf("%s: %q", name, got)
		}
		text := controlLogOf(t, ctl)
		if !strings.Contains(text, "Task 0: callback for STARTED "+c.want+"\n") || !strings.Contains(text, c.log) || c.log == "" && strings.Contains(text, "(callback for") {
			t.Errorf("%s: %s", name, text)
		}
	}
	w := &told{}
	ctl, now := w.life(t, "true", CallbackPlace{Runner: []string{"/none/such"}})
	w.happens("SUBMITTED", "BACKOFF", "STARTING")
	w.begins(t, ctl, now)
	ctl.callbacks.end(false)
	if got := w.noted(); len(got) != 2 || !strings.HasPrefix(got[0], "SUBMITTED not run: ") || !strings.HasPrefix(got[1], "STARTING not run: ") {
		t.Errorf("without a runner that is there: %q", got)
	}
}

// Of what a callback prints on the server the end is shown.
func TestTheEndOfALongOutputOfACallbackIsShown(t *testing.T) {
	w := &told{}
	ctl, now := w.life(t, "echo begin; head -c 20000 /dev/zero | tr '\\0' 'x'; echo; echo end", CallbackPlace{Here: true})
	w.happens("SUBMITTED")
	w.begins(t, ctl, now)
	ctl.callbacks.end(false)
	text := controlLogOf(t, ctl)
	if strings.Contains(text, "begin") || !strings.Contains(text, ") end\n") || len(text) < callbackTail || len(text) > callbackTail+500 {
		t.Errorf("%d bytes are shown", len(text))
	}
	whole, err := os.ReadFile(filepath.Join(ctl.m.jobDir(7), "callback-0.log"))
	if err != nil || len(whole) != len("begin\n\nend\n")+20000 {
		t.Errorf("%d bytes are kept, %v", len(whole), err)
	}
	ctl.callbacks = callbacks{}
	w.events = nil
	w.happens("SUCCEEDED")
	w.begins(t, ctl, now) // adds to the file
	ctl.callbacks.end(false)
	if text := controlLogOf(t, ctl)[len(text):]; !strings.Contains(text, ") begin\n") && !strings.Contains(text, ") end\n") {
		t.Errorf("the second time: %d bytes are shown", len(text))
	}
}

func TestACallbackIsToldOfItsEvent(t *testing.T) {
	w := &told{}
	ctl, now := w.life(t, "true", CallbackPlace{})
	now.Job.Tasks = append(now.Job.Tasks, &state.ManagedTask{JobID: 7, Index: 1, Name: "m", Attempt: 1})
	now.Job.Dag = append(now.Job.Dag, "---\nname: m\nrun: 'true'\nevent_callback: 'true'\n"...)
	now.Job.SubmittedAt = noon
	graph, err := graphOf(now.Job)
	must(t, err)
	ctl.graph = graph
	w.happens("STARTED", "STARTED")
	w.events = append(w.events, state.ManagedEvent{JobID: 7, Task: 1, Code: "CANCELLED", Status: api.ManagedCancelled})
	w.begins(t, ctl, now)
	ctl.callbacks.add(now.Job, now.Attempts[0], state.ManagedEvent{JobID: 7, Task: 1, Code: "FAILED"}) // not its attempt
	ctl.callbacks.end(false)
	got := w.noted()
	slices.Sort(got)
	if want := []string{"CANCELLED not run: no node", "FAILED not run: no node", "RECOVERED ran on cluster n-7", "STARTED ran on cluster n-7"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	ids := "sky-managed-2026-03-01-12-00-00-000000_n_n_7-0"
	if want := map[string]string{
		"A": "b", "S": "hush", "CLUSTER_NAME": "n-7", "EVENT_TYPE": "Spot", "JOB_ID": "7", "JOB_STATUS": "RECOVERED", "TASK_ID": "0", "TASK_NAME": "n",
		"SKYPILOT_TASK_ID": ids, "SKYPILOT_TASK_IDS": ids + "\nsky-managed-2026-03-01-12-00-00-000000_n_m_7-1",
	}; !maps.Equal(w.envs[1], want) {
		t.Errorf("%q", w.envs[1])
	}
}

// A cluster is kept for the callbacks that are due on it, for so long; one that is lost
// or a job that is left to the next server is not waited for.
func TestForHowLongAClusterIsKeptForItsCallbacks(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers time.Duration // after which its agent does
		change  func(a *state.ManagedAttempt)
		place   CallbackPlace
		leaves  time.Duration // after which the caller goes; 0: it does not
		took    time.Duration
		want    []string
	}{
		{name: "its agent answers at once", took: 10 * time.Second, want: []string{"STARTED ran on cluster n-7", "SUCCEEDED ran on cluster n-7"}},
		{name: "its agent answers late", answers: 2 * time.Minute, took: 2 * time.Minute, want: []string{"STARTED ran on cluster n-7", "SUCCEEDED ran on cluster n-7"}},
		{name: "its agent does not answer", answers: time.Hour, took: 10*time.Second + callbackLimit,
			want: []string{"STARTED not seen to end: no node that answers", "SUCCEEDED not seen to end: no node that answers"}},
		{name: "it is lost", answers: time.Hour, took: 10 * time.Second, change: func(a *state.ManagedAttempt) { a.Outcome = string(outLost) },
			want: []string{"STARTED not seen to end: no node that answers", "SUCCEEDED not run: no node"}},
		{name: "the server goes", answers: 2 * time.Minute, leaves: time.Minute, took: 70 * time.Second, want: []string{"STARTED ran on cluster n-7", "SUCCEEDED ran on cluster n-7"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			w := &told{answers: func() (*agentapi.CallbackResult, error) {
				if time.Since(began) < c.answers {
					return nil, errors.New("no answer")
				}
				return &agentapi.CallbackResult{}, nil
			}}
			ctl, now := w.life(t, "true", c.place)
			w.happens("STARTED")
			w.begins(t, ctl, now)
			a := now.Attempts[0]
			ctl.callbacks.add(now.Job, a, w.happens("SUCCEEDED"))
			time.Sleep(10 * time.Second) // its program ends, and it is to be given back
			if c.change != nil {
				c.change(a)
			}
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if c.leaves > 0 {
				ctx, cancel = context.WithTimeout(ctx, c.leaves)
			}
			defer cancel()
			ctl.callbacks.leave(ctx, a)
			if took := time.Since(began); took < c.took || took > c.took+callbackAgain {
				t.Errorf("%s: kept for %v, want %v", c.name, took, c.took)
			}
			ctl.callbacks.rest(t.Context(), 0)
			if got := w.noted(); !slices.Equal(got, c.want) {
				t.Errorf("%s: %q", c.name, got)
			}
			ctl.callbacks.rest(t.Context(), 0) // nothing is left to wait for
			ctl.callbacks.leave(t.Context(), a)
			ctl.callbacks.end(true)
		})
	}
}

// A server that goes leaves what is due to the next one, and the end of a callback is
// written down as soon as that is possible.
func TestNoCallbackIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &told{answers: func() (*agentapi.CallbackResult, error) { return nil, errors.New("no answer") }}
		ctl, now := w.life(t, "true", CallbackPlace{})
		w.happens("STARTED")
		w.begins(t, ctl, now)
		time.Sleep(time.Minute)
		ctl.callbacks.end(true)
		if got := w.noted(); len(got) > 0 {
			t.Errorf("of what is left to the next server it is said %q", got)
		}
		w.answers = nil
		one := &failure{of: func(call string) bool { return call == "Events" || call == "Note" }}
		next, now := w.life(t, "true", CallbackPlace{})
		next.m.store = failing{w, one}
		if err := next.callbacks.begin(t.Context(), next, now); !errors.Is(err, one.failed()) || err == nil {
			t.Errorf("its events cannot be read: %v", err)
		}
		one.left, one.hit = 1, nil // the second: the first reads the events
		w.begins(t, next, now)
		began := time.Now()
		next.callbacks.rest(t.Context(), 0)
		if got := w.noted(); !slices.Equal(got, []string{"STARTED ran on cluster n-7"}) || time.Since(began) != failAgain {
			t.Errorf("after %v: %q, %v", time.Since(began), got, one.failed())
		}
		next.callbacks.end(false)
	})
	var none callbacks // of a job without any
	none.end(true)
	none.end(false)
	none.rest(t.Context(), 0)
	none.leave(t.Context(), &state.ManagedAttempt{})
}
