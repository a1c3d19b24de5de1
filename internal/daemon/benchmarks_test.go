//go:build unix

package daemon

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/bench"
	"github.com/skypilot-go/sky/internal/requests"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/testbed"
)

func (b *bed) benchmark(names ...string) error {
	body := api.BenchCreateBody{Name: "b", Task: "train"}
	for _, name := range names {
		body.Candidates = append(body.Candidates, api.BenchCandidate{ClusterName: name, Resources: "2 CPUs"})
	}
	return b.do("sky.bench.create", "", body, nil)
}

// read is the candidates of benchmark b, in order.
func (b *bed) read() []api.BenchmarkCandidate {
	b.t.Helper()
	var got api.Benchmark
	if err := b.do("sky.bench.show", "", api.BenchShowBody{Name: "b"}, &got); err != nil {
		b.t.Fatal(err)
	}
	return got.Candidates
}

func refusal(err error, says string) bool { return err != nil && strings.Contains(err.Error(), says) }

// A benchmark is read while its clusters are there, by whoever asks and in the
// background, and keeps what was read when they are gone.
func TestRequestsLeadABenchmarkThroughItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		if err := b.benchmark("sky-bench-b-0", "sky-bench-b-1"); err != nil {
			t.Fatal(err)
		}
		if err := b.benchmark("sky-bench-b"); !refusal(err, "already") {
			t.Errorf("a second one of the name: %v", err)
		}
		for _, c := range b.read() {
			if c.Status != api.BenchmarkInit || c.ClusterExists {
				t.Errorf("before the launches: %+v", c)
			}
		}
		b.launch("sky-bench-b-0", "sleep 1h")
		b.launch("sky-bench-b-1", "exit 3")
		start := time.Now().Unix()
		b.Head("sky-bench-b-0").Commands(func(command string) (string, int) {
			if command != bench.ReadCommand {
				t.Errorf("asked to run %q", command)
			}
			return fmt.Sprintf("%d.5\n\n{\"num_steps\": 5, \"warmup_steps\": 1, \"total_steps\": 10, \"time_per_step\": 2, \"estimated_total_time\": 20, \"last_step_time\": %d}", start, start+10), 0
		})
		b.Head("sky-bench-b-1").Commands(func(string) (string, int) { return "\n\n", 0 })
		synctest.Wait()
		list := b.read()
		if c, r := list[0], list[0].Report; c.Status != api.BenchmarkRunning || *r.Steps != 5 || *r.SecondsPerStep != 2 || *r.Duration != 9.5 || c.HourlyPrice <= 0 || *r.CostPerStep != c.HourlyPrice*2/3600 {
			t.Errorf("the first candidate: %+v, %+v", c, r)
		}
		if c := list[1]; c.Status != api.BenchmarkTerminated || c.JobStatus != "FAILED" {
			t.Errorf("the second candidate: %+v", c)
		}
		b.Head("sky-bench-b-0").Commands(func(string) (string, int) { return fmt.Sprintf("%d\n%d\n", start, start+30), 0 })
		b.d.readBenchmarks(b.ctx)
		if err := b.do("sky.bench.delete", "", api.BenchDeleteBody{Names: []string{"b"}}, nil); !refusal(err, "still has clusters: sky-bench-b-0, sky-bench-b-1") {
			t.Errorf("deleting it while its clusters live: %v", err)
		}
		for _, name := range []string{"sky-bench-b-0", "sky-bench-b-1"} {
			if err := b.do("sky.down", name, api.StopBody{ClusterName: name}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if c := b.read()[0]; c.Status != api.BenchmarkFinished || c.ClusterExists || *c.Report.Duration != 30 || *c.Report.Steps != 5 {
			t.Errorf("after its clusters are gone: %+v, %+v", c, c.Report)
		}
		if err := b.do("sky.bench.delete", "", api.BenchDeleteBody{Names: []string{"b"}}, nil); err != nil {
			t.Error(err)
		}
		if err := b.do("sky.bench.show", "", api.BenchShowBody{Name: "b"}, nil); !refusal(err, "does not exist") {
			t.Errorf("after it was deleted: %v", err)
		}
		if err := b.benchmark("sky-bench-b-0", "sky-bench-b-1"); err != nil {
			t.Error(err)
		}
		if c := b.read()[0]; c.Status != api.BenchmarkInit {
			t.Errorf("launches of the earlier benchmark count: %+v", c)
		}
	})
}

// What cannot be a benchmark is refused before anything is launched.
func TestBenchmarksThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		b.launch("sky-bench-b", "true")
		for says, err := range map[string]error{
			"has no candidates":             b.benchmark(),
			"must be on":                    b.benchmark("box"),
			"a cluster sky-bench-b already": b.benchmark("sky-bench-b"),
			"lower-case":                    b.do("sky.bench.create", "", api.BenchCreateBody{Name: "B", Candidates: []api.BenchCandidate{{ClusterName: "sky-bench-B"}}}, nil),
		} {
			if !refusal(err, says) {
				t.Errorf("%s: %v", says, err)
			}
		}
	})
}

// A benchmark is shown to those who see its workspace, and deleted by its owner.
func TestBenchmarksOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "")
		if err := b.benchmark("sky-bench-b"); err != nil {
			t.Fatal(err)
		}
		as := func(scope state.Scope, name, body string) error {
			r, err := b.d.engine.Submit(b.ctx, requests.Submission{Name: name, User: testbed.Ann, Scope: &scope, Body: []byte(body)})
			if err != nil {
				t.Fatal(err)
			}
			return b.wait(r.ID, nil)
		}
		colleague, stranger := state.Scope{User: "other", Workspaces: []string{"default"}}, state.Scope{User: "other", Workspaces: []string{"elsewhere"}}
		if err := as(colleague, "sky.bench.show", `{"name":"b"}`); err != nil {
			t.Errorf("shown to a colleague: %v", err)
		}
		var e *api.Error
		if err := as(colleague, "sky.bench.delete", `{"names":["b"]}`); !errors.As(err, &e) || e.Type != api.ErrPermissionDenied {
			t.Errorf("deleted by a colleague: %v", err)
		}
		for _, name := range []string{"sky.bench.show", "sky.bench.delete"} {
			if err := as(stranger, name, `{"name":"b","names":["b"]}`); !refusal(err, "does not exist") {
				t.Errorf("%s by a stranger: %v", name, err)
			}
		}
		var list []api.Benchmark
		if err := b.do("sky.bench.list", "", api.BenchListBody{}, &list); err != nil || len(list) != 1 || list[0].Task != "train" {
			t.Errorf("%+v, %v", list, err)
		}
	})
}
