//go:build e2e && linux

package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/trace/tracetest"
)

// TestALaunchIsTraced: what a launch does comes out as spans below the call that
// asked for it, which carries the request's id; so does a second one on the same
// cluster, without what it did not have to do.
func TestALaunchIsTraced(t *testing.T) {
	t.Parallel()
	r := tracetest.New(t)
	w := newWorkstation(t)
	w.env = append(w.env, "OTEL_BSP_SCHEDULE_DELAY=50")
	w.write(".sky/config.yaml", "tracing: {endpoint: "+r.URL+", sample: 1}\n")
	w.write("proj/hello", "hi\n")
	task := w.write("task.yaml", "resources: {infra: local}\nworkdir: "+w.home+"/proj\nrun: cat hello\n")
	w.sky("launch", "-y", "-c", "c1", task)

	call := r.Await("POST /launch", "")
	run := r.Await("sky.launch", call.ID)
	id := call.Attributes["sky.request.id"]
	if run.Attributes["sky.request.id"] != id || !regexp.MustCompile(`^[0-9a-f-]{36}$`).MatchString(id) {
		t.Errorf("the call is request %q, the work %q", id, run.Attributes["sky.request.id"])
	}
	if out := w.sky("api", "status", "-a", "-o", "json"); !strings.Contains(out, id) {
		t.Errorf("nobody knows request %s:\n%s", id, out)
	}
	for _, stage := range []string{"plan", "get machines", "start agents", "copy workdir", "submit the job"} {
		if s := r.Await(stage, ""); s.Trace != run.Trace || s.Failed {
			t.Errorf("%s is in trace %s, the launch in %s; failed: %v", stage, s.Trace, run.Trace, s.Failed)
		}
	}
	machines := r.Await("get machines", "")
	r.Await("local Launch", r.Await("attempt", machines.ID).ID)

	w.sky("exec", "c1", "--", "true")
	again := r.Await("sky.exec", r.Await("POST /exec", "").ID)
	if again.Trace == run.Trace {
		t.Error("two commands are one trace")
	}
	if s := r.Await("submit the job", again.ID); s.Trace != again.Trace {
		t.Errorf("the second job is in trace %s, its request in %s", s.Trace, again.Trace)
	}
}
