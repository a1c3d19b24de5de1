package jobs

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
)

// told is an environment and a database of which only what callbacks need is there.
type told struct {
	environment
	database
	managedJobs

	mu      sync.Mutex
	events  []state.ManagedEvent // the oldest first
	keys    []string
	envs    []map[string]string
	answers func() (*agentapi.CallbackResult, error)
}

func (w *told) ManagedJobs() managedJobs { return w }

func (w *told) Events(context.Context, int, int, int) ([]state.ManagedEvent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	newest := slices.Clone(w.events)
	slices.Reverse(newest)
	return newest, nil
}

func (w *told) Note(_ context.Context, e state.ManagedEvent) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
	return nil
}

func (w *told) Callback(_ context.Context, _ *state.ManagedAttempt, key string, r agentapi.CallbackRequest) (*agentapi.CallbackResult, error) {
	w.mu.Lock()
	w.keys, w.envs = append(w.keys, key), append(w.envs, r.Env)
	w.mu.Unlock()
	if w.answers != nil {
		return w.answers()
	}
	return &agentapi.CallbackResult{Output: "hi\n"}, nil
}

// noted is how the callbacks so far ended.
func (w *told) noted() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.Code == callbackCode {
			out = append(out, strings.TrimPrefix(e.Reason, "callback for "))
		}
	}
	return out
}

func (w *told) happens(codes ...string) (last state.ManagedEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, code := range codes {
		last = state.ManagedEvent{JobID: 7, Code: code, Status: api.ManagedRunning}
		w.events = append(w.events, last)
	}
	return last
}

// life is a controller of job 7, whose first attempt runs, and its callbacks.
func (w *told) life(t *testing.T, script string, place CallbackPlace) (*controller, state.ManagedAdopted) {
	t.Helper()
	m := &Manager{store: w, env: w, log: slog.New(slog.DiscardHandler), dir: t.TempDir(), room: func(int, int64) error { return nil },
		told: func(context.Context, state.User) CallbackPlace { return place }}
	m.kept = logstore.Folder(m.dir)
	j := &state.ManagedJob{ID: 7, Name: "n", UserHash: "u", Tasks: []*state.ManagedTask{{JobID: 7, Name: "n", Attempt: 1}},
		Dag: []byte("name: n\n---\nname: n\nenvs: {A: b}\nsecrets: {S: hush}\nrun: 'true'\nevent_callback: |\n  " + script + "\n")}
	graph, err := graphOf(j)
	if err != nil {
		t.Fatal(err)
	}
	c := &controller{m: m, id: 7, graph: graph, out: logstore.NewJournal(m.kept, controlLogName(7), func() {})}
	return c, state.ManagedAdopted{Job: j, Attempts: []*state.ManagedAttempt{{JobID: 7, Number: 1, ClusterName: "n-7", ClusterJob: 1}}}
}

func (w *told) begins(t *testing.T, c *controller, now state.ManagedAdopted) {
	t.Helper()
	if err := c.callbacks.begin(t.Context(), c, now); err != nil {
		t.Fatal(err)
	}
}

func TestCallbacksThatAServerLeftAreRunByTheNext(t *testing.T) {
	w := &told{}
	w.happens("SUBMITTED", "STARTING", "STARTED")
	w.events = append(w.events, state.ManagedEvent{Code: callbackCode, Reason: "callback for SUBMITTED not run: no node"})
	c, now := w.life(t, "true", CallbackPlace{})
	w.begins(t, c, now)
	c.callbacks.add(now.Job, now.Attempts[0], w.happens("SUCCEEDED"))
	c.callbacks.end(false)
	want := []string{"SUBMITTED not run: no node", "STARTING not run: no node", "STARTED ran on cluster n-7", "SUCCEEDED ran on cluster n-7"}
	if got := w.noted(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	// The number is the key: what the node has run, it does not run again.
	if !slices.Equal(w.keys, []string{"7-0-2", "7-0-3"}) {
		t.Error(w.keys)
	}
	var names []string
	for k := range w.envs[1] {
		names = append(names, k)
	}
	slices.Sort(names)
	if got, want := strings.Join(names, " "), "A CLUSTER_NAME EVENT_TYPE JOB_ID JOB_STATUS S SKYPILOT_TASK_ID SKYPILOT_TASK_IDS TASK_ID TASK_NAME"; got != want {
		t.Errorf("environment %s, want %s", got, want)
	}
	again, now := w.life(t, "true", CallbackPlace{})
	w.begins(t, again, now)
	again.callbacks.end(false)
	if len(w.keys) != 2 || len(w.noted()) != 4 {
		t.Errorf("the life after that ran %v, noted %q", w.keys, w.noted())
	}
}

func TestALostClustersCallbacksAreNotWaitedFor(t *testing.T) {
	asked := make(chan struct{}, 100)
	w := &told{answers: func() (*agentapi.CallbackResult, error) {
		asked <- struct{}{}
		return nil, errors.New("no answer")
	}}
	c, now := w.life(t, "true", CallbackPlace{})
	w.begins(t, c, now)
	a := now.Attempts[0]
	c.callbacks.add(now.Job, a, w.happens("STARTED"))
	<-asked
	lost := *a
	lost.Outcome = string(outLost)
	c.callbacks.add(now.Job, &lost, w.happens("RECOVERING"))
	c.callbacks.leave(t.Context(), &lost)
	c.callbacks.end(false)
	if got := w.noted(); !slices.Equal(got, []string{"STARTED not seen to end: no node that answers", "RECOVERING not run: no node"}) {
		t.Errorf("%q", got)
	}
}

// What runs on the server's machine sees nothing of the server's environment.
func TestARunnerSeesTheCallbackAlone(t *testing.T) {
	t.Setenv("PLANTED", "pl4nted")
	out := filepath.Join(t.TempDir(), "out")
	runner := filepath.Join(t.TempDir(), "runner")
	if err := os.WriteFile(runner, []byte("#!/bin/sh\ntr '\\0' '\\n' </proc/self/environ >"+out+"\necho confined: $1 $(cat $2)\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	w := &told{}
	c, now := w.life(t, "echo mine", CallbackPlace{Runner: []string{runner, "--net=none"}})
	w.happens("SUBMITTED")
	w.begins(t, c, now)
	c.callbacks.end(false)
	if got := w.noted(); !slices.Equal(got, []string{"SUBMITTED ran"}) {
		t.Fatalf("%q", got)
	}
	env, err := os.ReadFile(out)
	if err != nil || strings.Contains(string(env), "pl4nted") || strings.Contains(string(env), "HOME=") || !strings.Contains(string(env), "JOB_STATUS=SUBMITTED") {
		t.Errorf("%s %v", env, err)
	}
	text, err := os.ReadFile(filepath.Join(c.m.dir, controlLogName(7)))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "(callback for SUBMITTED) confined: --net=none echo mine") {
		t.Errorf("%s", text)
	}
}
