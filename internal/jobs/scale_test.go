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
	"github.com/skypilot-go/sky/internal/state"
)

// BenchmarkManyRunningJobs lets many jobs run at once under one manager on the
// real database and a cloud in memory, and measures what that costs.
//
//	SKY_BENCH_JOBS=10000 go test -run '^$' -bench ManyRunningJobs -benchtime 1x -timeout 0 ./internal/jobs
//	SKY_BENCH_PROFILE=cancel.pprof …    # and where the time of cancelling them all goes
func BenchmarkManyRunningJobs(b *testing.B) {
	jobs := 1000
	if s := os.Getenv("SKY_BENCH_JOBS"); s != "" {
		var err error
		if jobs, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	for range b.N {
		many(b, jobs)
	}
}

type quiet struct{ io.Writer }

func (quiet) Spin(string) {}
func (quiet) StopSpin()   {}

func many(b *testing.B, jobs int) {
	db, err := state.Open(b.Context(), filepath.Join(b.TempDir(), "sky.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	c, provider, offers, err := newCloud(1, 4*jobs)
	if err != nil {
		b.Fatal(err)
	}
	c.Remove("bad-day")
	c.SetDelays(model.Delay{}, model.Delay{})
	o := &outside{
		calm: true, cloud: c, provider: provider, offers: offers, plans: map[int]*plan{},
		records: map[string]*row{}, machines: map[string]*gang{}, lastLost: map[attemptTask]loss{},
	}
	for id := 1; id <= jobs; id++ {
		o.plans[id] = &plan{nodes: 1, work: 1000 * time.Hour, left: 1000 * time.Hour, results: []int{0}}
	}
	ctx, stop := context.WithCancel(context.Background())
	bells := new(cluster.Bells[string])
	o.listen = func() []*cluster.Bells[string] { return []*cluster.Bells[string]{bells} }
	m := newManager(stored{db}, &hands{outside: o, life: newLife(stop), bells: bells}, slog.New(slog.DiscardHandler), "bench", b.TempDir(), 256)
	m.check = func(context.Context, string) error { return nil }
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	defer func() { stop(); <-done }()
	call := func(n int) cluster.Call {
		return cluster.Call{RequestID: fmt.Sprint("request-", n), User: state.User{ID: "u", Name: "u"}, Out: quiet{io.Discard}}
	}

	start := time.Now()
	var wg sync.WaitGroup
	const callers = 16
	for caller := range callers {
		wg.Go(func() {
			for n := caller; n < jobs; n += callers {
				if _, err := m.Submit(ctx, call(n), api.JobsLaunchBody{Task: fmt.Sprintf("name: j%d\nresources: {use_spot: false}\nrun: work\n", n)}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(jobs)/time.Since(start).Seconds(), "submits/s")

	count := func(s api.ManagedStatus) int {
		page, err := m.Queue(ctx, call(0), api.JobsQueueBody{AllUsers: true, Limit: new(1)})
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
		if _, err := m.Queue(ctx, call(0), api.JobsQueueBody{AllUsers: true, Limit: new(50)}); err != nil {
			b.Fatal(err)
		}
		pages = append(pages, time.Since(at))
	}
	slices.Sort(pages)
	b.ReportMetric(float64(pages[len(pages)/2].Microseconds())/1000, "ms/page")

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
	if err := m.Cancel(ctx, call(0), api.JobsCancelBody{AllUsers: true}); err != nil {
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

// cpu is what this process has used so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
