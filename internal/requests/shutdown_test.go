package requests

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

func TestMain(m *testing.M) {
	if os.Getenv(crashDir) != "" {
		crashChild()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		e := env.server("s", func(o *Options) { o.LongWorkers = 1 })
		causes := make(chan error, 10)
		ends := func(ctx context.Context, c *Call) (any, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil, ctx.Err()
		}
		e.Handle("sky.long", api.ScheduleLong, ends)
		e.Handle("sky.short", api.ScheduleShort, func(ctx context.Context, c *Call) (any, error) {
			select {
			case <-time.After(5 * time.Second):
				return "ok", nil
			case <-ctx.Done():
				return nil, errors.New("stopped early")
			}
		})
		e.HandleLog("sky.logs", func(ctx context.Context, c *Call, w io.Writer) (any, error) {
			io.WriteString(w, "half")
			return ends(ctx, c)
		})
		if err := e.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		long, waits, shortOne := submit(t, e, "sky.long", ""), submit(t, e, "sky.long", ""), submit(t, e, "sky.short", "")
		var log, follower bytes.Buffer
		var logID string
		logDone := make(chan error, 1)
		go func() {
			var err error
			logID, err = runLog(context.Background(), e, "sky.logs", &log)
			logDone <- err
		}()
		followed := follow(context.Background(), e, long.ID, StreamOptions{}, &follower)
		waited := make(chan error, 1)
		go func() {
			_, err := e.Wait(context.Background(), long.ID)
			waited <- err
		}()
		synctest.Wait()

		start := time.Now()
		if err := e.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("took %v, the short one needs 5s", d)
		}
		for range 2 {
			if err := <-causes; err != ErrShutdown {
				t.Errorf("cause %v", err)
			}
		}
		if err := errors.Join(<-logDone, followed()); err != nil {
			t.Error(err)
		}
		if err := <-waited; err != ErrShutdown {
			t.Errorf("wait: %v", err)
		}
		again := string(retry.line(""))
		if log.String() != "half\n"+again || follower.String() != again {
			t.Errorf("log %q follower %q", log.String(), follower.String())
		}
		if _, err := e.Submit(t.Context(), Submission{Name: "sky.short"}); err != ErrShutdown {
			t.Errorf("short: %v", err)
		}
		if _, err := e.Submit(t.Context(), Submission{Name: "sky.long"}); err != ErrShutdown {
			t.Errorf("long: %v", err)
		}
		if err := e.RunLog(t.Context(), Submission{Name: "sky.logs"}, io.Discard, func(string) { t.Error("recorded") }); err != ErrShutdown {
			t.Errorf("log: %v", err)
		}
		for id, want := range map[string]api.RequestStatus{long.ID: api.RequestRunning, waits.ID: api.RequestPending, shortOne.ID: api.RequestSucceeded, logID: api.RequestCancelled} {
			if r, _ := env.store.Requests().Get(t.Context(), id); r.Status != want {
				t.Errorf("%v, want %s", r, want)
			}
		}
		if err := e.Shutdown(context.Background()); err != nil {
			t.Errorf("again: %v", err)
		}

		// Another server need not wait for the lease to expire.
		next := env.server("s2")
		next.Handle("sky.long", api.ScheduleLong, func(ctx context.Context, c *Call) (any, error) { return c.Attempt, nil })
		env.start(next)
		if r := wait(t, next, long.ID); string(r.ReturnValue) != "2" {
			t.Errorf("%s", r.ReturnValue)
		}
		if r := wait(t, next, waits.ID); string(r.ReturnValue) != "1" {
			t.Errorf("%s", r.ReturnValue)
		}
	})
}

func TestShutdownDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		e := env.server("s")
		deaf := make(chan struct{})
		e.Handle("sky.deaf", api.ScheduleShort, func(ctx context.Context, c *Call) (any, error) { <-deaf; return nil, nil })
		if err := e.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		id := submit(t, e, "sky.deaf", "").ID
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := e.Shutdown(ctx); err == nil || !strings.Contains(err.Error(), "1 requests have not stopped") {
			t.Errorf("%v", err)
		}
		if r, _ := env.store.Requests().Get(t.Context(), id); r.Status != api.RequestRunning || r.Heartbeat.IsZero() {
			t.Errorf("%v: a function that still runs gave its lease away", r)
		}
		close(deaf)
		synctest.Wait()
	})
}

func TestStartsContextEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		e := env.server("s")
		e.Handle("sky.block", api.ScheduleShort, block)
		ctx, cancel := context.WithCancel(context.Background())
		if err := e.Start(ctx); err != nil {
			t.Fatal(err)
		}
		id := submit(t, e, "sky.block", "").ID
		cancel()
		synctest.Wait()
		if r, _ := env.store.Requests().Get(t.Context(), id); r.Status != api.RequestRunning {
			t.Errorf("%v", r)
		}
		if _, err := e.Submit(t.Context(), Submission{Name: "sky.block"}); err != ErrShutdown {
			t.Error(err)
		}
	})
}

func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		seldom := func(o *Options) { o.HeartbeatEvery, o.LeaseTTL = 10*time.Minute, time.Hour } // each is a write, and hours pass
		e := env.server("s", seldom, func(o *Options) { o.Retention = 3 * time.Hour })
		keeper := env.server("k", seldom, func(o *Options) { o.Retention = -1 })
		e.Handle("sky.print", api.ScheduleShort, func(ctx context.Context, c *Call) (any, error) { c.Log.Printf("x"); return nil, nil })
		e.Handle("sky.block", api.ScheduleShort, block)
		env.start(e)
		env.start(keeper)
		old := wait(t, e, submit(t, e, "sky.print", "").ID)
		running := submit(t, e, "sky.block", "").ID
		time.Sleep(2*time.Hour + time.Minute)
		young := wait(t, e, submit(t, e, "sky.print", "").ID)
		time.Sleep(2 * time.Hour)
		if _, err := e.Resolve(t.Context(), old.ID); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("old: %v", err)
		}
		if _, err := os.Stat(e.logPath(old.ID)); !os.IsNotExist(err) {
			t.Errorf("old log: %v", err)
		}
		if _, err := e.Resolve(t.Context(), young.ID); err != nil {
			t.Errorf("young: %v", err)
		}
		if _, err := os.Stat(e.logPath(young.ID)); err != nil {
			t.Errorf("young log: %v", err)
		}
		if _, err := e.Cancel(t.Context(), []string{running}); err != nil {
			t.Error(err)
		}
	})
}

func TestTurnsBetweenUsers(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("s", func(o *Options) { o.LongWorkers = 1 })
	order := make(chan string, 10)
	first := make(chan struct{})
	e.Handle("sky.x", api.ScheduleLong, func(ctx context.Context, c *Call) (any, error) {
		order <- c.User.Name
		<-first
		return nil, nil
	})
	env.start(e)
	var last string
	for _, u := range []state.User{alice, alice, alice, bob, bob} {
		r, err := e.Submit(t.Context(), Submission{Name: "sky.x", User: u})
		if err != nil {
			t.Fatal(err)
		}
		last = r.ID
	}
	close(first)
	var got []string
	for range 5 {
		got = append(got, <-order)
	}
	if s := strings.Join(got, " "); s != "alice alice bob alice bob" {
		t.Error(s)
	}
	wait(t, e, last)
}
