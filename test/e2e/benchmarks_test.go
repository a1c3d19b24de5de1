//go:build e2e && linux

package e2e

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
)

// A benchmark of two candidates runs, counts its steps in shell, outlives the server that
// recorded it, and keeps its results when its clusters are gone.
func TestBenchmark(t *testing.T) {
	t.Parallel()
	w := newWorkstation(t)
	task := w.write("task.yaml", `name: train
resources:
  infra: local
  candidates: [{cpus: 1+}, {memory: 1+}]
run: |
  . "$SKY_CALLBACK"
  sky_callback_init 3
  for i in 1 2 3; do sky_callback_step; done
`)
	show := func() (b api.Benchmark) {
		t.Helper()
		if err := json.Unmarshal([]byte(w.stdout("bench", "show", "b", "-o", "json")), &b); err != nil || len(b.Candidates) != 2 {
			t.Fatal(b, err)
		}
		return b
	}
	finished := func(b api.Benchmark) bool {
		for _, c := range b.Candidates {
			if c.Status != api.BenchmarkFinished || c.Report == nil || c.Report.Duration == nil || c.Report.Steps == nil || *c.Report.Steps != 3 || c.Report.SecondsPerStep == nil {
				return false
			}
		}
		return true
	}
	wants(t, w.sky("bench", "launch", task, "-b", "b", "-y"), "sky-bench-b-0...done", "sky-bench-b-1...done")
	eventually(t, "both candidates finish", time.Minute, func() bool { return finished(show()) })
	w.fails(1, []string{"still has clusters: sky-bench-b-0, sky-bench-b-1"}, "bench", "delete", "b", "-y")
	w.killServer()
	wants(t, w.sky("bench", "down", "b", "-y"), "sky-bench-b-0...done", "sky-bench-b-1...done")
	if b := show(); !finished(b) || b.Candidates[0].ClusterExists {
		t.Errorf("after the clusters are gone: %+v", b)
	}
	w.sky("bench", "delete", "b", "-y")
	wants(t, w.sky("bench", "ls"), "No benchmarks.")
}
