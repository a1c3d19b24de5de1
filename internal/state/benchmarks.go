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
type Benchmarks struct{ s *Store }

// Benchmarks is the store of benchmarks.
func (s *Store) Benchmarks() *Benchmarks { return &Benchmarks{s} }

var (
	benchmarkColumns = columns{"name", "request_id", "version", "user_hash", "user_name", "workspace", "task", "launched_at", "candidates"}
	selectBenchmarks = "SELECT " + benchmarkColumns.list() + " FROM benchmarks "
	insertBenchmark  = "INSERT INTO benchmarks (" + benchmarkColumns.list() + ") VALUES (" + benchmarkColumns.marks() + ") ON CONFLICT DO NOTHING"
)

func benchmarkFields(b *Benchmark) []any {
	return []any{text(&b.Name), text(&b.RequestID), number(&b.Version), text(&b.UserHash), text(&b.UserName), text(&b.Workspace), text(&b.Task),
		instant(&b.LaunchedAt), nested(&b.Candidates)}
}

// Create writes a new benchmark with Version 1; [ErrConflict] if the name is taken.
func (t *Benchmarks) Create(ctx context.Context, b *Benchmark) error {
	row := *b
	row.Version = 1
	err := t.s.createOnce(ctx, func(s *session) error { return changed(s.exec(insertBenchmark, benchmarkFields(&row)...)) })
	if err == nil {
		b.Version = 1
	}
	return err
}

// Get is the benchmark of that name, or [ErrNotFound].
func (t *Benchmarks) Get(ctx context.Context, name string) (*Benchmark, error) {
	b := new(Benchmark)
	if err := t.s.read(ctx).one(benchmarkFields(b), selectBenchmarks+"WHERE name = ?", name); err != nil {
		return nil, t.s.explain(err)
	}
	return b, nil
}

// List is the benchmarks in workspaces that the scope sees, the newest first.
func (t *Benchmarks) List(ctx context.Context, scope *Scope) ([]*Benchmark, error) {
	var w where
	within(&w, "workspace", scope)
	list, err := all(t.s.read(ctx).varying(), benchmarkFields, selectBenchmarks+w.String()+" ORDER BY launched_at DESC, name", w.args...)
	return list, t.s.explain(err)
}

// Save writes the candidates if the benchmark's Version is still what is stored, and
// increments it in place; else [ErrConflict].
func (t *Benchmarks) Save(ctx context.Context, b *Benchmark) error {
	err := t.s.write(ctx, func(s *session) error {
		return changed(s.exec("UPDATE benchmarks SET candidates = ?, version = ? WHERE name = ? AND request_id = ? AND version = ?",
			nested(&b.Candidates), b.Version+1, b.Name, b.RequestID, b.Version))
	})
	if err == nil {
		b.Version++
	}
	return err
}

// Delete removes a benchmark that one request made; one that is gone is success.
func (t *Benchmarks) Delete(ctx context.Context, name, requestID string) error {
	return t.s.writeAgain(ctx, func(s *session) error {
		_, err := s.exec("DELETE FROM benchmarks WHERE name = ? AND request_id = ?", name, requestID)
		return err
	})
}
