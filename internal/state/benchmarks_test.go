package state

import (
	"testing"

	"github.com/skypilot-go/sky/api"
)

func TestBenchmarkRoundTrip(t *testing.T) {
	backends(t, func(t *testing.T, s *Store) {
		ctx, bs := t.Context(), s.Benchmarks()
		steps := 7
		full := func() *Benchmark {
			return &Benchmark{Name: "b", RequestID: "r1", UserHash: "u1", UserName: "ann", Workspace: "team", Task: "train", LaunchedAt: day,
				Candidates: []api.BenchmarkCandidate{{ClusterName: "sky-bench-b-0", Requested: "T4", Status: api.BenchmarkInit,
					Summary: &api.BenchmarkSummary{NumSteps: steps, TimePerStep: new(1.5)}}, {ClusterName: "sky-bench-b-1"}}}
		}
		b := full()
		ok(t, bs.Create(ctx, b))
		is(t, bs.Create(ctx, full()), ErrConflict)
		same(t, "kept", must(bs.Get(ctx, "b"))(t), b)
		_, err := bs.Get(ctx, "other")
		is(t, err, ErrNotFound)
		stale := *b
		b.Candidates[0].Status = api.BenchmarkFinished
		ok(t, bs.Save(ctx, b))
		is(t, bs.Save(ctx, &stale), ErrConflict)
		same(t, "saved", must(bs.Get(ctx, "b"))(t), b)
		for what, n := range map[string]int{"team": 1, "other": 0} {
			if list := must(bs.List(ctx, &Scope{Workspaces: []string{what}}))(t); len(list) != n {
				t.Errorf("in workspace %s: %d benchmarks", what, len(list))
			}
		}
		ok(t, bs.Delete(ctx, "b", "another request"))
		must(bs.Get(ctx, "b"))(t)
		ok(t, bs.Delete(ctx, "b", "r1"))
		ok(t, bs.Delete(ctx, "b", "r1"))
		if list := must(bs.List(ctx, nil))(t); len(list) != 0 {
			t.Errorf("left: %v", list)
		}
	})
}
