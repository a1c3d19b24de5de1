//go:build unix

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
)

func callbackLog(t *testing.T, home string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(home, "sky_logs", "managed_job_event", "cb.log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A callback is run once under its key, whoever asks and however often, beside the
// jobs and not as one of them.
func TestACallbackRunsOnceBesideTheJobs(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	r := agentapi.CallbackRequest{Script: "echo $WHAT from $HOME; exit 3", Env: map[string]string{"WHAT": "hello"}, Log: "cb.log", TimeoutSeconds: 30}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if out, err := c.head.Callback(t.Context(), "1-0-0", r); err != nil || out.Code != 3 {
				t.Errorf("%+v, %v", out, err)
			}
		})
	}
	wg.Wait()
	if got, want := callbackLog(t, c.nodes[0].home), "hello from "+c.nodes[0].home+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	jobs, err := c.head.Jobs(t.Context())
	if err != nil || len(jobs) != 0 {
		t.Errorf("jobs %v, %v", jobs, err)
	}
	out, err := c.head.Callback(t.Context(), "1-0-1", r)
	if err != nil || out.Output != "hello from "+c.nodes[0].home+"\n" || strings.Count(callbackLog(t, c.nodes[0].home), "hello") != 2 {
		t.Errorf("the next one: %+v, %v", out, err)
	}
	for _, log := range []string{"../cb.log", ".bashrc", "", "a/b"} {
		r.Log = log
		if _, err := c.head.Callback(t.Context(), "1-0-2", r); err == nil {
			t.Errorf("%q is the name of a log", log)
		}
	}
}

// A callback that runs for too long is ended with all that it started.
func TestACallbackIsEndedInTime(t *testing.T) {
	c := newCluster(t, 1, twoCPUs, true)
	out, err := c.head.Callback(t.Context(), "1-0-0", agentapi.CallbackRequest{Script: "echo begun; sleep 1000 & sleep 1001", Log: "cb.log", TimeoutSeconds: 1})
	if err != nil || !out.TimedOut || out.Code != codeHookTimeout || !strings.HasPrefix(out.Output, "begun\n") {
		t.Errorf("%+v, %v", out, err)
	}
}

// Two nodes on one machine may run the callback of jobs with the same number.
func TestCallbacksOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	one, two := newCluster(t, 1, twoCPUs, true), newCluster(t, 1, twoCPUs, true)
	out := make(chan error, 1)
	go func() {
		result, err := one.head.Callback(t.Context(), "1-0-0", agentapi.CallbackRequest{Script: "touch begun; until [ -e go ]; do sleep 0.02; done", Log: "cb.log", TimeoutSeconds: 60})
		if err == nil && (result.Code != 0 || result.TimedOut) {
			err = fmt.Errorf("%+v", result)
		}
		out <- err
	}()
	home := one.nodes[0].home
	var dir string
	for dir == "" {
		found, _ := filepath.Glob(filepath.Join(home, "begun"))
		more, _ := filepath.Glob(filepath.Join(home, "*", "begun"))
		if found = append(found, more...); len(found) > 0 {
			dir = filepath.Dir(found[0])
		}
		if t.Context().Err() != nil {
			t.Fatal("the callback does not begin")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if result, err := two.head.Callback(t.Context(), "1-0-0", agentapi.CallbackRequest{Script: "sleep 1000 & true", Log: "cb.log", TimeoutSeconds: 60}); err != nil || result.Code != 0 {
		t.Errorf("%+v, %v", result, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-out; err != nil {
		t.Error(err)
	}
}
