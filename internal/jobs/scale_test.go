//go:build unix

package jobs

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/model"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/notify"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/state/statetest"
)

// BenchmarkManyRunningJobs lets many jobs run at once under one manager on the
// real database and a cloud in memory, and measures what that costs.
//
//	SKY_BENCH_JOBS=10000 go test -run '^$' -bench 'ManyRunningJobs$' -benchtime 1x -timeout 0 ./internal/jobs
//	SKY_BENCH_PROFILE=cancel.pprof …    # and where the time of cancelling them all goes
func BenchmarkManyRunningJobs(b *testing.B) {
	for range b.N {
		db, err := state.Open(b.Context(), filepath.Join(b.TempDir(), "sky.db"))
		if err != nil {
			b.Fatal(err)
		}
		many(b, db)
		db.Close()
	}
}

// BenchmarkManyRunningJobsOnThreeServers lets them run under three managers on one
// PostgreSQL, of which one dies in the end.
//
//	SKY_TEST_POSTGRES=postgres://… SKY_BENCH_JOBS=10000 go test -run '^$' -bench OnThreeServers -benchtime 1x -timeout 0 ./internal/jobs
func BenchmarkManyRunningJobsOnThreeServers(b *testing.B) {
	for range b.N {
		address := statetest.Postgres(b)
		var dbs []*state.Store
		for range 3 {
			db, err := state.OpenPostgres(b.Context(), address)
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			dbs = append(dbs, db)
		}
		many(b, dbs...)
	}
}

type quiet struct{ io.Writer }

func (quiet) Spin(string) {}
func (quiet) StopSpin()   {}

// many measures what many jobs cost on servers with these databases, which are one.
func many(b *testing.B, dbs ...*state.Store) {
	jobs := 1000
	if s := os.Getenv("SKY_BENCH_JOBS"); s != "" {
		var err error
		if jobs, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	c, provider, offers, err := newCloud(1, 4*jobs)
	if err != nil {
		b.Fatal(err)
	}
	c.Remove("bad-day")
	c.SetDelays(model.Delay{}, model.Delay{})
	o := &outside{
		steady: true, cloud: c, provider: provider, offers: offers, plans: map[int]*plan{},
		records: map[string]*row{}, machines: map[string]*gang{}, lastLost: map[attemptTask]loss{},
	}
	for id := 1; id <= jobs; id++ {
		o.plans[id] = &plan{nodes: 1, work: 1000 * time.Hour, left: 1000 * time.Hour, results: []int{0}}
	}
	ctx, stop := context.WithCancel(context.Background())
	changes := make([]*notify.Keyed[string], len(dbs))
	o.listen = func() []*notify.Keyed[string] { return changes }
	var lives []*life
	var servers []*Manager
	var ended sync.WaitGroup
	for n, db := range dbs {
		changes[n] = new(notify.Keyed[string])
		sctx, end := context.WithCancel(ctx)
		l := newLife(end)
		lives = append(lives, l)
		m := newManager(crashingDatabase{managedJobs: db.ManagedJobs(), d: stored{db}, l: l}, &fakeEnvironment{outside: o, life: l, changes: changes[n]},
			slog.New(slog.DiscardHandler), serverName(n), b.TempDir(), 256)
		m.check = func(context.Context, string) error { return nil }
		servers = append(servers, m)
		ended.Go(func() { m.Run(sctx) })
	}
	defer func() { stop(); ended.Wait() }()
	call := func(n int) cluster.Call {
		return cluster.Call{RequestID: fmt.Sprint("request-", n), User: state.User{ID: "u", Name: "u"}, Out: quiet{io.Discard}}
	}

	start := time.Now()
	var wg sync.WaitGroup
	const callers = 16
	for caller := range callers {
		wg.Go(func() {
			for n := caller; n < jobs; n += callers {
				if _, err := servers[n%len(servers)].Submit(ctx, call(n), api.JobsLaunchBody{Task: fmt.Sprintf("name: j%d\nresources: {use_spot: false}\nrun: work\n", n)}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(jobs)/time.Since(start).Seconds(), "submits/s")

	asked := servers[len(servers)-1]
	count := func(s api.ManagedStatus) int {
		page, err := asked.Queue(ctx, call(0), api.JobsQueueBody{AllUsers: true, Limit: new(1)})
		if err != nil {
			b.Fatal(err)
		}
		return page.StatusCounts[string(s)]
	}
	for count(api.ManagedRunning) < jobs {
		time.Sleep(time.Second)
	}
	b.ReportMetric(time.Since(start).Seconds(), "s-until-all-run")

	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	b.ReportMetric(float64(mem.Sys-mem.HeapReleased)/(1<<20), "MiB")
	b.ReportMetric(float64(runtime.NumGoroutine())/float64(jobs), "goroutines/job")

	const steady = time.Minute
	before := cpu()
	time.Sleep(steady)
	b.ReportMetric(100*(cpu()-before).Seconds()/steady.Seconds(), "%core")

	var pages []time.Duration
	for range 50 {
		at := time.Now()
		if _, err := asked.Queue(ctx, call(0), api.JobsQueueBody{AllUsers: true, Limit: new(50)}); err != nil {
			b.Fatal(err)
		}
		pages = append(pages, time.Since(at))
	}
	slices.Sort(pages)
	b.ReportMetric(float64(pages[len(pages)/2].Microseconds())/1000, "ms/page")

	if len(servers) > 1 {
		b.ReportMetric(takeOver(servers, lives, jobs).Seconds(), "s-to-take-over")
	}

	if f := os.Getenv("SKY_BENCH_PROFILE"); f != "" {
		out, err := os.Create(f)
		if err != nil {
			b.Fatal(err)
		}
		defer out.Close()
		if err := pprof.StartCPUProfile(out); err != nil {
			b.Fatal(err)
		}
		defer pprof.StopCPUProfile()
	}
	start, before = time.Now(), cpu()
	if err := asked.Cancel(ctx, call(0), api.JobsCancelBody{AllUsers: true}); err != nil {
		b.Fatal(err)
	}
	for count(api.ManagedCancelled) < jobs {
		time.Sleep(100 * time.Millisecond)
	}
	b.ReportMetric(time.Since(start).Seconds(), "s-to-cancel")
	b.ReportMetric((cpu() - before).Seconds(), "cpu-s-to-cancel")
	for _, v := range o.violations {
		b.Error(v)
	}
}

// takeOver is how long it takes until all jobs have a controller again after the
// first of several servers has died.
func takeOver(servers []*Manager, lives []*life, jobs int) time.Duration {
	lives[0].light(0)
	_ = lives[0].breath()
	died := time.Now()
	for {
		held := 0
		for _, m := range servers[1:] {
			held += m.held.Len()
		}
		if held == jobs {
			return time.Since(died)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// cpu is what this process has used so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
