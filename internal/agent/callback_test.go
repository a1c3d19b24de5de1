//go:build unix

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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
