package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
)

// growing is a job's log on its agent.
type growing struct {
	mu    sync.Mutex
	text  []byte
	ended bool
	more  chan struct{}

	streams, open, ends atomic.Int64 // that were followed, that still are, questions what became of the job
}

func newGrowing() *growing { return &growing{more: make(chan struct{})} }

func (g *growing) add(p []byte, ended bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.text = append(g.text, p...)
	g.ended = ended
	close(g.more)
	g.more = make(chan struct{})
}

func (g *growing) read(ctx context.Context, at LogPosition, lines int, follow bool, begin func(LogPosition) error, w io.Writer) (int64, error) {
	if follow {
		g.streams.Add(1)
		g.open.Add(1)
		defer g.open.Add(-1)
	}
	g.mu.Lock()
	if lines > 0 {
		at.Offset = int64(len(g.text))
		for n := 0; at.Offset > 0 && n <= lines; at.Offset-- {
			if g.text[at.Offset-1] == '\n' {
				if n++; n > lines {
					break
				}
			}
		}
	}
	g.mu.Unlock()
	if begin != nil {
		if err := begin(at); err != nil {
			return at.Offset, err
		}
	}
	for {
		g.mu.Lock()
		p, ended, more := g.text[at.Offset:], g.ended, g.more
		g.mu.Unlock()
		for len(p) > 0 {
			n, err := w.Write(p[:min(len(p), pourBuffer)])
			at.Offset += int64(n)
			if p = p[n:]; err != nil {
				return at.Offset, err
			}
		}
		if ended || !follow {
			return at.Offset, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return at.Offset, context.Cause(ctx)
		}
	}
}

func (g *growing) end(context.Context) (*agentapi.Job, error) {
	g.ends.Add(1)
	return &agentapi.Job{Status: api.JobSucceeded}, nil
}

// slow takes its time.
type slow struct {
	bytes.Buffer
	every time.Duration
}

func (s *slow) Write(p []byte) (int, error) {
	time.Sleep(s.every)
	return s.Buffer.Write(p)
}

// Whoever follows, from wherever, whenever, however slowly, gets every byte from
// there on once, and what is kept stays within bounds.
func TestEveryFollowerGetsEveryByteOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pieces := rapid.SliceOfN(rapid.IntRange(0, 60_000), 1, 12).Draw(rt, "pieces")
		type plan struct {
			From         float64 // of what is there
			Lines        int
			Joins, Every time.Duration
			Leaves       time.Duration // 0: at the end
		}
		plans := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) plan {
			return plan{
				From:   rapid.SampledFrom([]float64{0, 0, 0.5, 1}).Draw(rt, "from"),
				Lines:  rapid.SampledFrom([]int{0, 0, 0, 1, 5, 5000}).Draw(rt, "lines"),
				Joins:  time.Duration(rapid.IntRange(0, 12).Draw(rt, "joins")) * time.Second,
				Every:  time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 700, 5000}).Draw(rt, "every")) * time.Millisecond,
				Leaves: time.Duration(rapid.SampledFrom([]int{0, 0, 0, 3}).Draw(rt, "leaves")) * time.Second,
			}
		}), 1, 8).Draw(rt, "followers")
		synctest.Test(t, func(*testing.T) {
			g, s := newGrowing(), new(tails)
			var all sync.WaitGroup
			all.Go(func() {
				line := 0
				for i, size := range pieces {
					var p []byte
					for ; len(p) < size; line++ {
						p = fmt.Appendf(p, "line %d\n", line)
					}
					g.add(p[:size], i == len(pieces)-1)
					time.Sleep(time.Second)
				}
			})
			for i, p := range plans {
				all.Go(func() {
					time.Sleep(p.Joins + 10*time.Millisecond)
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					if p.Leaves > 0 {
						time.AfterFunc(p.Leaves, cancel)
					}
					g.mu.Lock()
					at := LogPosition{Hash: "h", JobID: 1, Offset: int64(p.From * float64(len(g.text)))}
					g.mu.Unlock()
					out, start := &slow{every: p.Every}, int64(-1)
					job, err := s.follow(ctx, at, p.Lines, func(p LogPosition) error {
						if start >= 0 || out.Len() > 0 {
							rt.Errorf("follower %d is told twice where it begins, or late", i)
						}
						start = p.Offset
						return nil
					}, out, g.read, g.end)
					if err != nil && !(p.Leaves > 0 && errors.Is(err, context.Canceled)) {
						rt.Errorf("follower %d: %v", i, err)
					}
					if start < 0 {
						if err == nil {
							rt.Errorf("follower %d was not told where it begins", i)
						}
						return
					}
					if p.Lines == 0 && start != at.Offset {
						rt.Errorf("follower %d begins at %d, not at %d", i, start, at.Offset)
					}
					g.mu.Lock()
					want := g.text[start:]
					g.mu.Unlock()
					if err == nil && (!bytes.Equal(out.Bytes(), want) || job == nil) || !bytes.HasPrefix(want, out.Bytes()) {
						rt.Errorf("follower %d got %d bytes from %d on, want %d: the same: %v", i, out.Len(), start, len(want), bytes.HasPrefix(want, out.Bytes()))
					}
				})
			}
			all.Wait()
			synctest.Wait()
			if len(s.by) > 0 || g.open.Load() > 0 {
				rt.Errorf("%d logs are followed by nobody, %d streams are open", len(s.by), g.open.Load())
			}
		})
	})
}

// Many who follow from the beginning share one stream, and one question what
// became of the job.
func TestFollowersShareOneStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := newGrowing(), new(tails)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				var out bytes.Buffer
				job, err := s.follow(t.Context(), LogPosition{Hash: "h", JobID: 1}, 0, nil, &out, g.read, g.end)
				if err != nil || job.Status != api.JobSucceeded || out.String() != "one\ntwo\n" {
					t.Errorf("%q, %v", out.String(), err)
				}
			})
		}
		g.add([]byte("one\n"), false)
		time.Sleep(time.Second)
		g.add([]byte("two\n"), true)
		all.Wait()
		if g.streams.Load() != 1 || g.ends.Load() != 1 {
			t.Errorf("%d streams, %d questions", g.streams.Load(), g.ends.Load())
		}
	})
}

// stalled takes nothing until it is let go.
type stalled struct {
	bytes.Buffer
	free chan struct{}
}

func (s *stalled) Write(p []byte) (int, error) {
	<-s.free
	return s.Buffer.Write(p)
}

// One who takes nothing neither holds the others up nor makes the server keep
// the log; it gets the rest from a stream of its own.
func TestAStalledFollowerHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := newGrowing(), new(tails)
		at := LogPosition{Hash: "h", JobID: 1}
		var all sync.WaitGroup
		lame := &stalled{free: make(chan struct{})}
		all.Go(func() {
			if _, err := s.follow(t.Context(), at, 0, nil, lame, g.read, g.end); err != nil {
				t.Error(err)
			}
		})
		var quick bytes.Buffer
		done := make(chan struct{})
		all.Go(func() {
			defer close(done)
			if _, err := s.follow(t.Context(), at, 0, nil, &quick, g.read, g.end); err != nil {
				t.Error(err)
			}
		})
		line := bytes.Repeat([]byte("0123456789abcdef"), 4096)
		began := time.Now()
		for i := range 64 {
			g.add(line, i == 63)
			synctest.Wait()
			s.mu.Lock()
			if tl := s.by[tailKey{"h", 1}]; tl != nil {
				tl.mu.Lock()
				if kept := tl.end - tl.base; kept > tailWindow {
					t.Errorf("%d bytes are kept", kept)
				}
				tl.mu.Unlock()
			}
			s.mu.Unlock()
		}
		<-done
		if took := time.Since(began); took > 3*tailWait {
			t.Errorf("the quick one waited %v", took)
		}
		close(lame.free)
		all.Wait()
		for name, got := range map[string][]byte{"quick": quick.Bytes(), "stalled": lame.Bytes()} {
			if !bytes.Equal(got, g.text) {
				t.Errorf("the %s one got %d bytes of %d", name, len(got), len(g.text))
			}
		}
		if g.streams.Load() != 2 {
			t.Errorf("%d streams", g.streams.Load())
		}
	})
}

// A stream that fails, or panics, fails for all who share it, and the next who
// come begin anew.
func TestAStreamThatFails(t *testing.T) {
	var s tails
	boom := errors.New("boom")
	at := LogPosition{Hash: "h", JobID: 1}
	for range 2 {
		_, err := s.follow(t.Context(), at, 3, nil, io.Discard, func(context.Context, LogPosition, int, bool, func(LogPosition) error, io.Writer) (int64, error) {
			return 0, boom
		}, nil)
		if !errors.Is(err, boom) {
			t.Error(err)
		}
	}
	_, err := s.follow(t.Context(), at, 0, nil, io.Discard, func(context.Context, LogPosition, int, bool, func(LogPosition) error, io.Writer) (int64, error) {
		panic("oh")
	}, nil)
	if err == nil {
		t.Error("a panic is no error")
	}
}

// Nobody is told what was so before they asked.
func TestCoalescer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g coalescer[string, int]
		calls := 0
		ask := func(ctx context.Context) (int, error) {
			return g.do(ctx, "k", func(ctx context.Context) (int, error) {
				calls++
				n := calls
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					return 0, context.Cause(ctx)
				}
				return n, nil
			})
		}
		var all sync.WaitGroup
		for i := range 11 {
			all.Go(func() {
				want := 2
				if i == 0 {
					want = 1
				} else {
					time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				}
				if n, err := ask(t.Context()); n != want || err != nil {
					t.Errorf("call %d: %d, %v, want %d", i, n, err, want)
				}
			})
		}
		all.Wait()
		gone, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := ask(gone); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		began := time.Now()
		if n, err := ask(t.Context()); n != 4 || err != nil || time.Since(began) != time.Second {
			t.Error(n, err, time.Since(began))
		}

		// Those for whom the next call was meant leave before it begins.
		all.Go(func() { _, _ = ask(t.Context()) })
		synctest.Wait()
		gone, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := ask(gone); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if _, err := ask(t.Context()); err != nil {
			t.Error(err)
		}
		all.Wait()
		synctest.Wait()
		if len(g.by) > 0 {
			t.Error("something is left")
		}
	})
}

// What one line costs that 1,000 follow, and the memory of each.
func BenchmarkFollowers(b *testing.B) {
	const followers = 1000
	g, s := newGrowing(), new(tails)
	var got, all sync.WaitGroup
	got.Add(followers)
	for range followers {
		all.Go(func() {
			_, _ = s.follow(b.Context(), LogPosition{Hash: "h", JobID: 1}, 0, nil, arrived{&got}, g.read, g.end)
		})
	}
	g.add([]byte("line\n"), false)
	got.Wait()
	for b.Loop() {
		got.Add(followers)
		g.add([]byte("line\n"), false)
		got.Wait()
	}
	g.add(nil, true)
	all.Wait()
}

// arrived counts writes.
type arrived struct{ got *sync.WaitGroup }

func (a arrived) Write(p []byte) (int, error) { a.got.Done(); return len(p), nil }
