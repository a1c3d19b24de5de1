package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/bench"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
)

const (
	benchmarksEvery  = 30 * time.Second // a cluster may stop after a minute without work
	benchmarkTimeout = 30 * time.Second // for one cluster to tell
	benchmarksLimit  = 8                // clusters asked at once
)

// registerBenchmarks makes the verbs of benchmarks known to the engine. Launching and
// ending their clusters is what clients ask for as of any cluster.
func (d *daemon) registerBenchmarks() {
	d.engine.Handle("sky.bench.create", api.ScheduleShort, silent(d.createBenchmark))
	d.engine.HandleRead("sky.bench.list", verb(func(ctx context.Context, c cluster.Call, _ api.BenchListBody) (any, error) {
		list, err := d.store.Benchmarks().List(ctx, c.Scope)
		out := make([]api.Benchmark, len(list))
		for i, b := range list {
			out[i] = shownBenchmark(b)
		}
		return out, err
	}))
	d.engine.HandleRead("sky.bench.show", verb(func(ctx context.Context, c cluster.Call, b api.BenchShowBody) (any, error) {
		rec, err := d.benchmark(ctx, c, b.Name)
		if err != nil {
			return nil, err
		}
		if rec, err = d.readBenchmark(ctx, rec); err != nil {
			return nil, err
		}
		return shownBenchmark(rec), nil
	}))
	d.engine.Handle("sky.bench.delete", api.ScheduleShort, silent(d.deleteBenchmarks))
}

func shownBenchmark(b *state.Benchmark) api.Benchmark {
	out := api.Benchmark{Name: b.Name, Task: b.Task, LaunchedAt: float64(b.LaunchedAt.Unix()), UserHash: b.UserHash, UserName: b.UserName,
		Workspace: b.Workspace, Candidates: slices.Clone(b.Candidates)}
	now := time.Now()
	for i, c := range out.Candidates {
		out.Candidates[i].Report = bench.Report(c, now)
	}
	return out
}

// benchmark is the record of a benchmark that the caller may see.
func (d *daemon) benchmark(ctx context.Context, call cluster.Call, name string) (*state.Benchmark, error) {
	b, err := d.store.Benchmarks().Get(ctx, name)
	if errors.Is(err, state.ErrNotFound) || err == nil && !call.Scope.Sees(b.Workspace) {
		return nil, &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("Benchmark %q does not exist.", name), Hint: "List benchmarks with: sky bench ls"}
	}
	return b, err
}

// createBenchmark records a benchmark before its clusters are launched, so that they are
// known whenever the client that launches them dies.
func (d *daemon) createBenchmark(ctx context.Context, call cluster.Call, b api.BenchCreateBody) error {
	if err := d.configure(&call, b.Envelope); err != nil {
		return err
	}
	if err := bench.CheckName(b.Name); err != nil {
		return &api.Error{Type: api.ErrValue, Message: upperFirst(err.Error()) + "."}
	}
	if len(b.Candidates) == 0 {
		return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("Benchmark %q has no candidates.", b.Name)}
	}
	row := &state.Benchmark{Name: b.Name, RequestID: call.RequestID, UserHash: call.User.ID, UserName: call.User.Name,
		Workspace: call.Config.ActiveWorkspace(), Task: b.Task, LaunchedAt: d.store.Now()}
	names := bench.Clusters(b.Name, len(b.Candidates))
	for i, c := range b.Candidates {
		if c.ClusterName != names[i] {
			return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("Candidate %d of benchmark %q must be on cluster %s, not on %q.", i+1, b.Name, names[i], c.ClusterName)}
		}
		_, err := d.store.Clusters().Get(ctx, names[i])
		if err == nil {
			return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("There is a cluster %s already, and the candidates of a benchmark need new ones.", names[i]),
				Hint: "Choose another name with -b, or end it first: sky down " + names[i]}
		}
		if !errors.Is(err, state.ErrNotFound) {
			return err
		}
		row.Candidates = append(row.Candidates, api.BenchmarkCandidate{ClusterName: names[i], Requested: c.Resources, Status: api.BenchmarkInit})
	}
	err := d.store.Benchmarks().Create(ctx, row)
	if !errors.Is(err, state.ErrConflict) {
		return err
	}
	if there, gerr := d.store.Benchmarks().Get(ctx, b.Name); gerr == nil && there.RequestID == call.RequestID {
		return nil // made in an earlier life of this request
	}
	return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("There is a benchmark %q already.", b.Name),
		Hint: "Choose another name with -b, or remove it first: sky bench down " + b.Name + " && sky bench delete " + b.Name}
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// deleteBenchmarks forgets benchmarks whose clusters have all ended.
func (d *daemon) deleteBenchmarks(ctx context.Context, call cluster.Call, b api.BenchDeleteBody) error {
	var rows []*state.Benchmark
	for _, name := range b.Names {
		row, err := d.benchmark(ctx, call, name)
		if err != nil {
			if call.Attempt > 1 {
				continue // deleted in an earlier life of this request
			}
			return err
		}
		if !call.Scope.Owns(row.UserHash) {
			return &api.Error{Type: api.ErrPermissionDenied, Message: fmt.Sprintf("Benchmark %q belongs to %s: only they or an administrator may delete it.", name, row.UserName)}
		}
		var live []string
		for _, c := range row.Candidates {
			look, err := d.lookAt(ctx, row, c)
			if err != nil {
				return err
			}
			if bench.Judge(c, look).ClusterExists {
				live = append(live, c.ClusterName)
			}
		}
		if len(live) > 0 {
			return &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("Benchmark %q still has clusters: %s.", name, strings.Join(live, ", ")),
				Hint: "End them first: sky bench down " + name}
		}
		rows = append(rows, row)
	}
	for _, row := range rows {
		if err := d.store.Benchmarks().Delete(ctx, row.Name, row.RequestID); err != nil {
			return err
		}
		fmt.Fprintf(call.Out, "Benchmark %s deleted.\n", row.Name)
	}
	return nil
}

// lookAt is what the records say about a candidate.
func (d *daemon) lookAt(ctx context.Context, b *state.Benchmark, c api.BenchmarkCandidate) (bench.Look, error) {
	var l bench.Look
	asked, err := d.engine.List(ctx, state.RequestFilter{ClusterName: c.ClusterName, Names: []string{reqLaunch}, Limit: 1})
	if err != nil {
		return l, err
	}
	l.Launched = len(asked) > 0 && asked[0].CreatedAt.After(b.LaunchedAt) // not for an earlier benchmark of the name
	if l.Launching, err = d.launching(ctx, c.ClusterName); err != nil {
		return l, err
	}
	rec, err := d.store.Clusters().Get(ctx, c.ClusterName)
	if errors.Is(err, state.ErrNotFound) {
		return l, nil
	}
	if err != nil {
		return l, err
	}
	l.Exists, l.Hash, l.NumNodes = true, rec.Hash, rec.NumNodes
	l.Up = rec.Status == api.ClusterUp || rec.Status == api.ClusterAutostopping
	l.Resources, l.Price = cluster.Rented(rec)
	return l, nil
}

// readCandidate is a candidate as its cluster tells now.
func (d *daemon) readCandidate(ctx context.Context, b *state.Benchmark, c api.BenchmarkCandidate) (api.BenchmarkCandidate, error) {
	l, err := d.lookAt(ctx, b, c)
	if err != nil || !l.Up || c.Status == api.BenchmarkFinished || c.ClusterHash != "" && c.ClusterHash != l.Hash {
		return bench.Judge(c, l), err
	}
	actx, cancel := context.WithTimeout(ctx, benchmarkTimeout)
	defer cancel()
	// The job first: once it has ended, its files are complete.
	job, said, err := d.clusters.JobAnd(actx, c.ClusterName, bench.JobID, bench.ReadCommand)
	if err != nil {
		if ctx.Err() != nil {
			return c, ctx.Err()
		}
		l.Problem = err.Error()
		return bench.Judge(c, l), nil
	}
	l.Asked, l.Reading = true, bench.ParseReading(string(said))
	if job != nil {
		l.Job = &bench.Job{Status: job.Status}
		if job.StartedAt > 0 {
			l.Job.Start = &job.StartedAt
		}
		if job.EndedAt > 0 {
			l.Job.End = &job.EndedAt
		}
	}
	return bench.Judge(c, l), nil
}

// readBenchmark is a benchmark as its clusters tell now. What they told is kept: they may
// stop before anybody asks again.
func (d *daemon) readBenchmark(ctx context.Context, b *state.Benchmark) (*state.Benchmark, error) {
	row := *b
	row.Candidates = slices.Clone(b.Candidates)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(benchmarksLimit)
	for i, c := range b.Candidates {
		g.Go(func() (err error) {
			row.Candidates[i], err = d.readCandidate(gctx, b, c)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	err := d.store.Benchmarks().Save(ctx, &row)
	if errors.Is(err, state.ErrConflict) {
		err = nil // somebody else read it at the same time, or it was deleted
	}
	return &row, err
}

// readBenchmarks asks the clusters of benchmarks that have not ended.
func (d *daemon) readBenchmarks(ctx context.Context) {
	list, err := d.store.Benchmarks().List(ctx, nil)
	for _, b := range list {
		if err == nil && slices.ContainsFunc(b.Candidates, bench.Open) {
			_, err = d.readBenchmark(ctx, b)
		}
	}
	if err != nil && ctx.Err() == nil {
		d.log.WarnContext(ctx, "benchmarks not read", "err", err)
	}
}

// keepBenchmarks reads benchmarks again and again.
func (d *daemon) keepBenchmarks(ctx context.Context) {
	t := time.NewTicker(benchmarksEvery)
	defer t.Stop()
	for {
		d.oncePer(ctx, benchmarksEvery, "benchmarks", d.readBenchmarks)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
