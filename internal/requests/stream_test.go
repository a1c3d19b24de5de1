package requests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// tape records what is written, with the virtual second it was.
type tape struct {
	mu    sync.Mutex
	start time.Time
	b     strings.Builder
}

func newTape() *tape { return &tape{start: time.Now()} }

func (t *tape) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, line := range splitLines(string(p)) {
		line = strings.TrimSuffix(strings.TrimPrefix(strings.TrimRight(line, " \n"), payloadOpen), payloadClose)
		fmt.Fprintf(&t.b, "%v %s\n", time.Since(t.start).Round(100*time.Millisecond), line)
	}
	return len(p), nil
}

func (t *tape) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// follow streams a request in the background; the result waits for the end.
func follow(ctx context.Context, e *Engine, id string, o StreamOptions, w io.Writer) (done func() error) {
	o.Follow = true
	end := make(chan error, 1)
	go func() { end <- e.Stream(ctx, id, o, w) }()
	return func() error { return <-end }
}

func TestHeartbeatAfterSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		e := env.server("s")
		e.Handle("sky.slow", api.ScheduleLong, func(ctx context.Context, c *Call) (any, error) {
			time.Sleep(10 * time.Second)
			c.Log.Printf("hello")
			time.Sleep(65 * time.Second)
			return nil, nil
		})
		env.start(e)
		id := submit(t, e, "sky.slow", "").ID
		for _, plain := range []bool{false, true} {
			out := newTape()
			done := follow(t.Context(), e, id, StreamOptions{Plain: plain}, out)
			if !plain { // both watch the same run
				defer func() {
					if err := done(); err != nil {
						t.Error(err)
					}
					if got := out.String(); got != "10s hello\n40s \"<heartbeat></heartbeat>\"\n1m10s \"<heartbeat></heartbeat>\"\n" {
						t.Errorf("%s", got)
					}
				}()
				continue
			}
			if err := done(); err != nil {
				t.Error(err)
			}
			if got := out.String(); got != "10s hello\n40s \"<heartbeat></heartbeat>\"\n1m10s \"<heartbeat></heartbeat>\"\n" {
				t.Errorf("plain: %s", got)
			}
		}
	})
}

func TestSpinnerWhileALongRequestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		e := env.server("s", func(o *Options) { o.LongWorkers = 1 })
		e.Handle("sky.sleep", api.ScheduleLong, func(ctx context.Context, c *Call) (any, error) {
			time.Sleep(5 * time.Second)
			c.Log.Printf("done")
			return nil, nil
		})
		env.start(e)
		submit(t, e, "sky.sleep", "")
		synctest.Wait()
		id := submit(t, e, "sky.sleep", "").ID
		out, plain := newTape(), newTape()
		done, donePlain := follow(t.Context(), e, id, StreamOptions{}, out), follow(t.Context(), e, id, StreamOptions{Plain: true}, plain)
		if err := errors.Join(done(), donePlain()); err != nil {
			t.Error(err)
		}
		text := "Waiting for a free worker: sleep (request " + id + ")"
		if got, want := out.String(), "0s \"<rich_init>"+text+"</rich_init>\"\n0s \"<rich_start></rich_start>\"\n5s \"<rich_exit></rich_exit>\"\n10s done\n"; got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		if got, want := plain.String(), "0s "+text+"\n10s done\n"; got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

func TestSpinnerOfAShortRequestComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		row := &state.Request{ID: "r1", Name: "sky.status", Status: api.RequestPending, Schedule: api.ScheduleShort, CreatedAt: time.Now()}
		if err := env.store.Requests().Create(t.Context(), row); err != nil {
			t.Fatal(err)
		}
		e := env.server("s") // not started: it waits
		e.Handle("sky.status", api.ScheduleShort, func(ctx context.Context, c *Call) (any, error) { return nil, nil })
		out := newTape()
		done := follow(t.Context(), e, "r1", StreamOptions{}, out)
		time.Sleep(4500 * time.Millisecond)
		env.start(e)
		if err := done(); err != nil {
			t.Error(err)
		}
		lines := strings.Split(out.String(), "\n")
		if len(lines) != 4 || !strings.HasPrefix(lines[0], "2s \"<rich_init>Waiting") || !strings.HasPrefix(lines[2], "4.5s \"<rich_exit>") && !strings.HasPrefix(lines[2], "5s \"<rich_exit>") {
			t.Errorf("%s", out)
		}
	})
}

// What is read while a request runs here is as it is now, and the reader's own.
func TestResolveOfWhatRunsHere(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("s")
	begun, end := make(chan struct{}), make(chan struct{})
	e.Handle("sky.x", api.ScheduleShort, func(ctx context.Context, c *Call) (any, error) {
		c.SetStatus("Waiting for c1")
		close(begun)
		<-end
		return 1, nil
	})
	env.start(e)
	id := submit(t, e, "sky.x", `{"a":1}`).ID
	<-begun
	for range 2 {
		r, err := e.Resolve(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if r.Status != api.RequestRunning || r.StatusMsg != "Waiting for c1" || r.UserID != alice.ID || string(r.Body) != `{"a":1}` {
			t.Errorf("it runs: %+v", *r)
		}
		r.Status, r.UserID = api.RequestFailed, "nobody"
	}
	close(end)
	wait(t, e, id)
	if r, err := e.Resolve(t.Context(), id); err != nil || r.Status != api.RequestSucceeded || string(r.ReturnValue) != "1" {
		t.Errorf("it has ended: %v, %v", r, err)
	}
}

func TestStatusMessageIsASpinnerUntilThereIsOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		e := env.server("s")
		e.Handle("sky.exec", api.ScheduleLong, func(ctx context.Context, c *Call) (any, error) {
			time.Sleep(time.Second)
			c.SetStatus("Waiting for c1")
			c.SetStatus("Waiting for c1")
			time.Sleep(time.Second)
			c.SetStatus("Still waiting")
			time.Sleep(time.Second)
			c.Log.Printf("go")
			time.Sleep(time.Second) // readers have seen the line
			c.SetStatus("unseen")
			time.Sleep(time.Second)
			return nil, nil
		})
		env.start(e)
		id := submit(t, e, "sky.exec", "").ID
		out := newTape()
		done := follow(t.Context(), e, id, StreamOptions{}, out)
		time.Sleep(1500 * time.Millisecond)
		if r, _ := e.Resolve(t.Context(), id[:20]); r.StatusMsg != "Waiting for c1" {
			t.Errorf("status message %q", r.StatusMsg)
		}
		if err := done(); err != nil {
			t.Error(err)
		}
		want := "1s \"<rich_init>Waiting for c1</rich_init>\"\n1s \"<rich_start></rich_start>\"\n2s \"<rich_update>Still waiting</rich_update>\"\n3s \"<rich_exit></rich_exit>\"\n3s go\n"
		if got := out.String(); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		if r := wait(t, e, id); r.StatusMsg != "" {
			t.Errorf("status message stays: %q", r.StatusMsg)
		}
	})
}

func TestTailFollowsWhatComesAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		e := env.server("s")
		more := make(chan struct{})
		e.Handle("sky.x", api.ScheduleShort, func(ctx context.Context, c *Call) (any, error) {
			<-more
			io.WriteString(c.Log, "1\n2\n3\n")
			<-more
			io.WriteString(c.Log, "4\n5\n")
			return nil, nil
		})
		env.start(e)
		id := submit(t, e, "sky.x", "").ID
		var early, late bytes.Buffer
		doneEarly := follow(t.Context(), e, id, StreamOptions{Tail: 1}, &early)
		synctest.Wait()
		more <- struct{}{}
		synctest.Wait()
		doneLate := follow(t.Context(), e, id, StreamOptions{Tail: 1}, &late)
		synctest.Wait()
		if got := stream(t, e, id, StreamOptions{Tail: 2}); got != "2\n3\n" {
			t.Errorf("without following: %q", got)
		}
		more <- struct{}{}
		if err := errors.Join(doneEarly(), doneLate()); err != nil {
			t.Error(err)
		}
		if early.String() != "1\n2\n3\n4\n5\n" || late.String() != "3\n4\n5\n" {
			t.Errorf("early %q late %q", early.String(), late.String())
		}
	})
}

func TestStreamOfAnotherServersRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		owner, other := env.server("s1"), env.server("s2")
		f := func(ctx context.Context, c *Call) (any, error) {
			c.Log.Printf("one")
			time.Sleep(5 * time.Second)
			c.Log.Printf("two")
			return 1, nil
		}
		owner.Handle("sky.x", api.ScheduleLong, f)
		other.Handle("sky.x", api.ScheduleLong, f)
		env.start(owner)
		env.start(other)
		id := submit(t, owner, "sky.x", "").ID
		if got := stream(t, other, id, StreamOptions{Follow: true}); got != "one\ntwo\n" {
			t.Errorf("%q", got)
		}
	})
}

func TestStreamEndsWithItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		e := env.server("s")
		e.Handle("sky.block", api.ScheduleShort, block)
		env.start(e)
		id := submit(t, e, "sky.block", "").ID
		ctx, cancel := context.WithCancel(t.Context())
		done := follow(ctx, e, id, StreamOptions{}, io.Discard)
		synctest.Wait()
		cancel()
		if err := done(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if r, _ := e.Resolve(t.Context(), id); r.Status != api.RequestRunning {
			t.Errorf("a reader who left ended the request: %v", r)
		}
		if _, err := e.Cancel(t.Context(), []string{id}); err != nil {
			t.Error(err)
		}
		wait(t, e, id)
		synctest.Wait() // the run itself lets go of its feed
		if len(e.feeds) != 0 {
			t.Errorf("feeds left: %v", e.feeds)
		}
	})
}

func TestHalfLineOfADeadAttemptIsShownOnce(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("s")
	env.start(e)
	row := &state.Request{ID: "r1", Name: "sky.x", Status: api.RequestFailed, CreatedAt: time.Now(), FinishedAt: time.Now()}
	if err := env.store.Requests().Create(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	l := fileLog(e.logPath("r1"), nil)
	l.Printf("whole")
	l.w.Write([]byte("half"))
	l.abandon()
	for _, o := range []StreamOptions{{}, {Follow: true}, {Plain: true}} {
		if got := stream(t, e, "r1", o); got != "whole\nhalf\n" {
			t.Errorf("%+v: %q", o, got)
		}
	}
}

func TestUnknownAndAmbiguousIDs(t *testing.T) {
	env := newTestEnv(t)
	e := env.start(env.server("s"))
	for _, id := range []string{"abc-1", "abc-2", "abd"} {
		if err := env.store.Requests().Create(t.Context(), &state.Request{ID: id, Name: "sky.x", Status: api.RequestFailed, FinishedAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	for prefix, want := range map[string]string{"abd": "abd", "abc-1": "abc-1", "ab": "ambiguous", "abc": "ambiguous", "x": "not found", "": "not found", strings.Repeat("0", 36): "not found"} {
		r, err := e.Resolve(t.Context(), prefix)
		a, ambiguous := errors.AsType[*AmbiguousError](err)
		switch {
		case want == "ambiguous" && ambiguous && len(a.IDs) > 1:
		case want == "not found" && errors.Is(err, state.ErrNotFound):
		case err == nil && r.ID == want:
		default:
			t.Errorf("%q: %v %v, want %s", prefix, r, err, want)
		}
	}
	if _, err := e.Wait(t.Context(), "none"); !errors.Is(err, state.ErrNotFound) {
		t.Error(err)
	}
	if err := e.Stream(t.Context(), "none", StreamOptions{}, io.Discard); !errors.Is(err, state.ErrNotFound) {
		t.Error(err)
	}
	if _, err := e.Cancel(t.Context(), []string{"ab"}); err == nil {
		t.Error("an ambiguous prefix was cancelled")
	}
}

func TestManyFollowersSeeTheSame(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("s")
	start := make(chan struct{})
	e.Handle("sky.print", api.ScheduleShort, func(ctx context.Context, c *Call) (any, error) {
		<-start
		for i := range 3000 {
			c.Log.Printf("line %d", i)
			if i%500 == 0 {
				time.Sleep(2 * time.Millisecond)
			}
		}
		return nil, nil
	})
	env.start(e)
	id := submit(t, e, "sky.print", "").ID
	const followers = 200
	var out [followers]bytes.Buffer
	var wg sync.WaitGroup
	for i := range followers {
		wg.Go(func() {
			if err := e.Stream(t.Context(), id, StreamOptions{Follow: true}, &out[i]); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	want := readLog(t, e.logPath(id))
	if strings.Count(want, "\n") != 3000 {
		t.Fatalf("%d lines", strings.Count(want, "\n"))
	}
	for i := range out {
		if out[i].String() != want {
			t.Fatalf("follower %d saw %d bytes of %d", i, out[i].Len(), len(want))
		}
	}
}
