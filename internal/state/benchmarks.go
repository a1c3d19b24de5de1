package state

import (
	"context"
	"time"

	"github.com/skypilot-go/sky/api"
)

// Benchmark is one task on several resources. It is written before the first of its
// clusters is launched.
type Benchmark struct {
	Name      string
	RequestID string // that made it
	Version   int64  // grows with every change; Save compares it

	UserHash, UserName string
	Workspace          string

	Task       string // its name
	LaunchedAt time.Time
	Candidates []api.BenchmarkCandidate // as they were read last, without reports
}

// Benchmarks is the store of benchmarks.
type Benchmarks struct{ named[Benchmark] }

// Benchmarks is the store of benchmarks.
func (s *Store) Benchmarks() *Benchmarks { return &Benchmarks{named[Benchmark]{s, benchmarkTable}} }

var benchmarkTable = newTable("benchmarks", "request_id", columns{"name", "request_id", "version", "user_hash", "user_name", "workspace", "task", "launched_at", "candidates"},
	benchmarkFields, func(b *Benchmark) (name, incarnation string, version *int64) { return b.Name, b.RequestID, &b.Version })

func benchmarkFields(b *Benchmark) []any {
	return []any{text(&b.Name), text(&b.RequestID), number(&b.Version), text(&b.UserHash), text(&b.UserName), text(&b.Workspace), text(&b.Task),
		instant(&b.LaunchedAt), nested(&b.Candidates)}
}

// List is the benchmarks in workspaces that the scope sees, the newest first.
func (t *Benchmarks) List(ctx context.Context, scope *Scope) ([]*Benchmark, error) {
	var w where
	within(&w, "workspace", scope)
	list, err := all(t.s.read(ctx).varying(), t.fields, t.find+w.String()+" ORDER BY launched_at DESC, name", w.args...)
	return list, t.s.explain(err)
}
