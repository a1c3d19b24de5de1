package requests

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
)

func BenchmarkShortRoundTrip(b *testing.B) {
	env := newTestEnv(b)
	e := env.server("s")
	e.Handle("sky.x", api.ScheduleShort, func(ctx context.Context, c *Call) (any, error) { return 1, nil })
	env.start(e)
	for _, clients := range []int{1, 32} {
		b.Run(fmt.Sprint(clients, "_clients"), func(b *testing.B) {
			start := time.Now()
			var wg sync.WaitGroup
			for c := range clients {
				wg.Go(func() {
					for i := c; i < b.N; i += clients {
						r, err := e.Submit(context.Background(), Submission{Name: "sky.x", User: alice, Body: []byte("{}")})
						if err == nil {
							_, err = e.Wait(context.Background(), r.ID)
						}
						if err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "requests/s")
		})
	}
}

// BenchmarkResolve is what it costs to find a request that runs here.
func BenchmarkResolve(b *testing.B) {
	env := newTestEnv(b)
	e := env.server("s")
	end := make(chan struct{})
	e.Handle("sky.x", api.ScheduleShort, func(ctx context.Context, c *Call) (any, error) { <-end; return 1, nil })
	env.start(e)
	id := submit(b, e, "sky.x", "{}").ID
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Resolve(b.Context(), id); err != nil {
			b.Fatal(err)
		}
	}
	close(end)
}

// BenchmarkSubmitToStart is the time from the call of Submit, which waits for
// the disk, to the first line of the function.
func BenchmarkSubmitToStart(b *testing.B) {
	env := newTestEnv(b)
	e := env.server("s")
	begun := make(chan time.Time, 1)
	f := func(ctx context.Context, c *Call) (any, error) { begun <- time.Now(); return nil, nil }
	e.Handle("sky.short", api.ScheduleShort, f)
	e.Handle("sky.long", api.ScheduleLong, f)
	env.start(e)
	for _, kind := range []string{"short", "long"} {
		b.Run(kind, func(b *testing.B) {
			var sum, after time.Duration
			n := 0
			for b.Loop() {
				start := time.Now()
				r := submit(b, e, "sky."+kind, "{}")
				returned := time.Now()
				at := <-begun
				sum += at.Sub(start)
				after += max(0, at.Sub(returned))
				n++
				wait(b, e, r.ID)
			}
			b.ReportMetric(float64(sum.Microseconds())/float64(n), "µs/start")
			b.ReportMetric(float64(after.Microseconds())/float64(n), "µs/start-after-submit")
		})
	}
}

// BenchmarkFollowers is what 1,000 followers of one log cost: memory each, and
// the time until all have a new line.
func BenchmarkFollowers(b *testing.B) {
	const followers = 1000
	env := newTestEnv(b)
	e := env.server("s")
	next := make(chan struct{})
	e.Handle("sky.print", api.ScheduleShort, func(ctx context.Context, c *Call) (any, error) {
		for range next {
			c.Log.Printf("a line")
		}
		return nil, nil
	})
	env.start(e)
	id := submit(b, e, "sky.print", "").ID
	before := memory()
	var got, ended sync.WaitGroup
	got.Add(followers)
	for range followers {
		ended.Go(func() {
			if err := e.Stream(context.Background(), id, StreamOptions{Follow: true}, counter{&got}); err != nil {
				b.Error(err)
			}
		})
	}
	next <- struct{}{}
	got.Wait()
	each := float64(memory()-before) / followers
	for b.Loop() {
		got.Add(followers)
		next <- struct{}{}
		got.Wait()
	}
	b.ReportMetric(each/1024, "KiB/follower")
	close(next)
	ended.Wait()
}

// counter counts writes.
type counter struct{ got *sync.WaitGroup }

func (c counter) Write(p []byte) (int, error) { c.got.Done(); return len(p), nil }

func memory() int64 {
	for range 3 { // finalizers and pools take more than one
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func BenchmarkReplay(b *testing.B) {
	env := newTestEnv(b)
	e := env.server("s")
	const lines = 100_000
	e.Handle("sky.print", api.ScheduleShort, func(ctx context.Context, c *Call) (any, error) {
		for i := range lines {
			c.Log.Printf("line %d of the log of a job that prints a lot", i)
		}
		return nil, nil
	})
	env.start(e)
	id := wait(b, e, submit(b, e, "sky.print", "").ID).ID
	for _, o := range []StreamOptions{{}, {Plain: true}, {Tail: 100}} {
		b.Run(fmt.Sprintf("%+v", o), func(b *testing.B) {
			for b.Loop() {
				if err := e.Stream(context.Background(), id, o, io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
