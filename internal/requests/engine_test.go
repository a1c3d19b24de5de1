package requests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/upload"
)

// testEnv is a store and the engines that share it.
type testEnv struct {
	t     testing.TB
	dir   string
	store *state.Store
}

func newTestEnv(t testing.TB) *testEnv {
	t.Helper()
	dir := t.TempDir()
	store, err := state.Open(context.Background(), filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return &testEnv{t, dir, store}
}

// server is an engine on the environment's store; register starts nothing.
func (env *testEnv) server(id string, change ...func(*Options)) *Engine {
	o := Options{LogDir: filepath.Join(env.dir, "logs"), ServerID: id, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&o)
	}
	return New(env.store, o)
}

// start starts an engine and stops it with the test.
func (env *testEnv) start(e *Engine) *Engine {
	env.t.Helper()
	if err := e.Start(context.Background()); err != nil {
		env.t.Fatal(err)
	}
	env.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			env.t.Error(err)
		}
	})
	return e
}

var alice, bob = state.User{ID: "a11ce", Name: "alice"}, state.User{ID: "b0b", Name: "bob"}

func submit(t testing.TB, e *Engine, name string, body string) *state.Request {
	t.Helper()
	r, err := e.Submit(context.Background(), Submission{Name: name, User: alice, Body: []byte(body)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wait(t testing.TB, e *Engine, id string) *state.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := e.Wait(ctx, id)
	if err != nil {
		t.Fatalf("waiting for %s: %v", id, err)
	}
	return r
}

func stream(t testing.TB, e *Engine, id string, o StreamOptions) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var b bytes.Buffer
	if err := e.Stream(ctx, id, o, &b); err != nil {
		t.Fatalf("streaming %s: %v", id, err)
	}
	return b.String()
}

// block is a function that runs until its context ends.
func block(ctx context.Context, c *Call) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestOutcomes(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("s")
	outcomes := map[string]Func{
		"sky.value": func(ctx context.Context, c *Call) (any, error) { return map[string]int{"x": 1}, nil },
		"sky.none":  func(ctx context.Context, c *Call) (any, error) { return nil, nil },
		"sky.error": func(ctx context.Context, c *Call) (any, error) { return nil, errors.New("broken") },
		"sky.typed": func(ctx context.Context, c *Call) (any, error) {
			return nil, fmt.Errorf("up: %w", &api.Error{Type: "ClusterDoesNotExist", Message: "no c1", Hint: "sky status", Attributes: map[string]any{"a": 1}})
		},
		"sky.panic":  func(ctx context.Context, c *Call) (any, error) { panic("oh") },
		"sky.badval": func(ctx context.Context, c *Call) (any, error) { return make(chan int), nil },
		"sky.ctx":    func(ctx context.Context, c *Call) (any, error) { return nil, context.Canceled },
		"sky.body": func(ctx context.Context, c *Call) (any, error) {
			var v struct{ N int }
			err := c.Decode(&v)
			return v.N, err
		},
	}
	for name, f := range outcomes {
		e.Handle(name, api.ScheduleShort, f)
		e.Handle(strings.Replace(name, "sky", "long", 1), api.ScheduleLong, f)
	}
	env.start(e)
	for _, c := range []struct {
		name, body string
		status     api.RequestStatus
		value      string
		error      string
	}{
		{"value", "", api.RequestSucceeded, `{"x":1}`, ""},
		{"none", "", api.RequestSucceeded, "null", ""},
		{"error", "", api.RequestFailed, "", `"type":"RuntimeError","message":"broken"`},
		{"typed", "", api.RequestFailed, "", `"type":"ClusterDoesNotExist","message":"no c1","attributes":{"a":1},"hint":"sky status"`},
		{"panic", "", api.RequestFailed, "", `"type":"RuntimeError","message":"sky.panic crashed (oh)`},
		{"badval", "", api.RequestFailed, "", `"type":"RuntimeError","message":"the result cannot be encoded`},
		{"ctx", "", api.RequestFailed, "", `"type":"RuntimeError","message":"context canceled"`},
		{"body", `{"N":3}`, api.RequestSucceeded, "3", ""},
		{"body", `{"N":`, api.RequestFailed, "", `"type":"ValueError"`},
	} {
		for _, kind := range []string{"sky.", "long."} {
			r := wait(t, e, submit(t, e, kind+c.name, c.body).ID)
			want := strings.Replace(c.error, "sky.", kind, 1)
			if r.Status != c.status || string(r.ReturnValue) != c.value || !strings.Contains(string(r.Error), want) {
				t.Errorf("%s%s: %s value %q error %s", kind, c.name, r.Status, r.ReturnValue, r.Error)
			}
			if r.FinishedAt.IsZero() || r.StartedAt.IsZero() || r.UserID != alice.ID {
				t.Errorf("%s%s: %+v", kind, c.name, r)
			}
		}
	}
	if _, err := e.Submit(t.Context(), Submission{Name: "sky.nothing"}); err == nil {
		t.Error("an unknown name was accepted")
	}
}

func TestStreamIsTheLog(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("s")
	e.Handle("sky.print", api.ScheduleLong, func(ctx context.Context, c *Call) (any, error) {
		c.Log.Printf("one %d", 1)
		c.Log.Spin("[bold]Waiting[/] <x>")
		c.Log.Spin("Still")
		io.WriteString(c.Log, "two\nthr")
		io.WriteString(c.Log, "ee\n50%\r100%\r\nlast")
		return nil, nil
	})
	env.start(e)
	id := submit(t, e, "sky.print", "").ID
	want := "one 1\n" +
		`<sky-payload>"<rich_init>[bold]Waiting[/] \u003cx\u003e</rich_init>"</sky-payload>` + "\n" +
		`<sky-payload>"<rich_start></rich_start>"</sky-payload>` + "\n" +
		`<sky-payload>"<rich_update>Still</rich_update>"</sky-payload>` + "\n" +
		"two\nthree\n50%\r100%\r\nlast\n" +
		`<sky-payload>"<rich_exit></rich_exit>"</sky-payload>` + "\n"
	_ = stream(t, e, id, StreamOptions{Follow: true})
	for range 2 {
		if got := stream(t, e, id, StreamOptions{Follow: true}); got != want {
			t.Errorf("got\n%q\nwant\n%q", got, want)
		}
	}
	for _, c := range []struct {
		o    StreamOptions
		want string
	}{
		{StreamOptions{Plain: true}, "one 1\ntwo\nthree\n50%\r100%\r\nlast\n"},
		{StreamOptions{Plain: true, Tail: 2}, "50%\r100%\r\nlast\n"},
		{StreamOptions{Plain: true, Tail: 100}, "one 1\ntwo\nthree\n50%\r100%\r\nlast\n"},
		{StreamOptions{Tail: 1}, "last\n" + `<sky-payload>"<rich_exit></rich_exit>"</sky-payload>` + "\n"},
	} {
		if got := stream(t, e, id, c.o); got != c.want {
			t.Errorf("%+v: got %q want %q", c.o, got, c.want)
		}
	}
}

func TestCancel(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("s", func(o *Options) { o.LongWorkers = 1 })
	cause := make(chan error, 1)
	e.Handle("sky.block", api.ScheduleLong, func(ctx context.Context, c *Call) (any, error) {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil, fmt.Errorf("stopped: %w", ctx.Err())
	})
	e.Handle("sky.stubborn", api.ScheduleShort, func(ctx context.Context, c *Call) (any, error) { <-ctx.Done(); return "done", nil })
	env.start(e)
	running, pending, stubborn := submit(t, e, "sky.block", ""), submit(t, e, "sky.block", ""), submit(t, e, "sky.stubborn", "")
	got, err := e.Cancel(t.Context(), []string{pending.ID, running.ID[:30], stubborn.ID, "no-such"})
	if err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	if err := <-cause; err != ErrCancelled {
		t.Error(err)
	}
	for id, want := range map[string]api.RequestStatus{running.ID: api.RequestCancelled, pending.ID: api.RequestCancelled, stubborn.ID: api.RequestSucceeded} {
		if r := wait(t, e, id); r.Status != want {
			t.Errorf("%s: %s, want %s", r.Name, r.Status, want)
		}
	}
	if got := stream(t, e, pending.ID, StreamOptions{Follow: true}); got != "Request "+pending.ID+" was cancelled.\n" {
		t.Errorf("%q", got)
	}
	if got, err := e.Cancel(t.Context(), []string{running.ID}); err != nil || len(got) != 0 {
		t.Error("cancelled again", got, err)
	}
}

// A request whose files are not there fails, and its function is not called.
func TestARequestWithoutItsFilesFails(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("s", func(o *Options) {
		o.Files = func(context.Context, string, *state.RequestFiles) (upload.Files, error) {
			return upload.Files{}, &api.Error{Type: api.ErrFileNotFound, Message: "the upload is gone"}
		}
	})
	e.Handle("sky.launch", api.ScheduleLong, func(context.Context, *Call) (any, error) { return "launched", nil })
	env.start(e)
	r := wait(t, e, submit(t, e, "sky.launch", "").ID)
	if r.Status != api.RequestFailed || !strings.Contains(string(r.Error), "the upload is gone") || !strings.Contains(string(r.Error), api.ErrFileNotFound) {
		t.Errorf("%s, value %s, error %s", r.Status, r.ReturnValue, r.Error)
	}
}
