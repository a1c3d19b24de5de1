package requests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// jobLog prints the log of a job whose number its first run found out.
func jobLog(ctx context.Context, c *Call, w io.Writer) (any, error) {
	if c.State() == nil {
		if err := c.SetState(ctx, []byte("7")); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(w, "job %s\n", c.State())
	c.Log.Spin("tailing")
	fmt.Fprintf(w, "last\n")
	c.Log.StopSpin()
	return 100, nil
}

func runLog(ctx context.Context, e *Engine, name string, w io.Writer) (id string, err error) {
	err = e.RunLog(ctx, Submission{Name: name, User: alice}, w, func(got string) { id = got })
	return id, err
}

func TestRunLogAndReplay(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("s")
	e.HandleLog("sky.logs", jobLog)
	env.start(e)
	var out bytes.Buffer
	var id string
	err := e.RunLog(t.Context(), Submission{Name: "sky.logs", User: alice}, &out, func(got string) {
		id = got
		if out.Len() > 0 {
			t.Error("bytes before the id")
		}
		if r, err := e.Resolve(t.Context(), id); err != nil || r.Status != api.RequestRunning {
			t.Errorf("not recorded before the id is told: %v %v", r, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "job 7\n" + string(spinInit.line("tailing")) + string(spinStart.line("")) + "last\n" + string(spinExit.line(""))
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
	if r := wait(t, e, id); r.Status != api.RequestSucceeded || string(r.ReturnValue) != "100" {
		t.Errorf("%v %s", r, r.ReturnValue)
	}
	for _, c := range []struct {
		o    StreamOptions
		want string
	}{
		{StreamOptions{Follow: true}, want},
		{StreamOptions{}, want},
		{StreamOptions{Plain: true}, "job 7\nlast\n"},
		{StreamOptions{Plain: true, Tail: 1}, "last\n"},
	} {
		if got := stream(t, e, id, c.o); got != c.want {
			t.Errorf("replay %+v: %q", c.o, got)
		}
	}
}

func TestRunLogEndings(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("s")
	e.HandleLog("sky.block", func(ctx context.Context, c *Call, w io.Writer) (any, error) {
		fmt.Fprintln(w, "begun")
		<-ctx.Done()
		return nil, ctx.Err()
	})
	e.HandleLog("sky.fails", func(ctx context.Context, c *Call, w io.Writer) (any, error) {
		return nil, &api.Error{Type: api.ErrClusterNotUp, Message: "no"}
	})
	e.HandleLog("sky.panics", func(ctx context.Context, c *Call, w io.Writer) (any, error) { panic("oh") })
	e.HandleLog("sky.writes", func(ctx context.Context, c *Call, w io.Writer) (any, error) {
		_, err := io.WriteString(w, "a line\n")
		return nil, err
	})
	env.start(e)

	t.Run("the client leaves", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		id, err := runLog(ctx, e, "sky.block", io.Discard)
		if r := wait(t, e, id); err != nil || r.Status != api.RequestCancelled {
			t.Errorf("%v %v", r, err)
		}
	})
	t.Run("the connection breaks", func(t *testing.T) {
		id, err := runLog(t.Context(), e, "sky.writes", &failing{})
		if r := wait(t, e, id); err != nil || r.Status != api.RequestCancelled {
			t.Errorf("%v %v", r, err)
		}
	})
	t.Run("it is cancelled", func(t *testing.T) {
		var out bytes.Buffer
		var id string
		err := e.RunLog(t.Context(), Submission{Name: "sky.block", User: alice}, &out, func(got string) {
			id = got
			time.AfterFunc(10*time.Millisecond, func() { e.Cancel(context.Background(), []string{got}) })
		})
		if r := wait(t, e, id); err != nil || r.Status != api.RequestCancelled || out.String() != "begun\nRequest "+id+" was cancelled.\n" {
			t.Errorf("%v %v %q", r, err, out.String())
		}
		if got := stream(t, e, id, StreamOptions{Follow: true}); got != "Request "+id+" was cancelled.\n" {
			t.Errorf("replay: %q", got)
		}
	})
	for _, name := range []string{"sky.fails", "sky.panics"} {
		id, err := runLog(t.Context(), e, name, io.Discard)
		if r := wait(t, e, id); err != nil || r.Status != api.RequestFailed || len(r.Error) == 0 {
			t.Errorf("%s: %v %v", name, r, err)
		}
	}
	called := false
	err := e.RunLog(t.Context(), Submission{Name: "sky.nothing"}, io.Discard, func(string) { called = true })
	if _, unknown := errors.AsType[*UnknownError](err); !unknown || called {
		t.Errorf("%v, id told: %v", err, called)
	}
}

func TestRunLogHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		e := env.server("s")
		e.HandleLog("sky.logs", func(ctx context.Context, c *Call, w io.Writer) (any, error) {
			time.Sleep(35 * time.Second)
			io.WriteString(w, "half")
			time.Sleep(40 * time.Second) // no heartbeat within a line
			io.WriteString(w, " whole\n")
			time.Sleep(31 * time.Second)
			return nil, nil
		})
		env.start(e)
		out := newTape()
		if _, err := runLog(t.Context(), e, "sky.logs", out); err != nil {
			t.Fatal(err)
		}
		want := "30s \"<heartbeat></heartbeat>\"\n35s half\n1m15s  whole\n1m45s \"<heartbeat></heartbeat>\"\n"
		if got := out.String(); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

// An inline call that a shutdown cuts off tells its client to ask again; one that
// succeeds nevertheless is answered.
func TestAnInlineCallDuringAShutdownIsAnsweredOrAskedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		err    error
		status api.RequestStatus
		out    string
	}{
		"it fails":    {errors.New("cut off"), api.RequestCancelled, "last\n" + string(retry.line(""))},
		"it succeeds": {nil, api.RequestSucceeded, "last\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				env := newTestEnv(t)
				e := env.server("s")
				e.HandleLog("sky.logs", func(ctx context.Context, c *Call, w io.Writer) (any, error) {
					<-ctx.Done()
					io.WriteString(w, "last\n")
					return 100, tt.err
				})
				if err := e.Start(context.Background()); err != nil {
					t.Fatal(err)
				}
				var out bytes.Buffer
				var id string
				done := make(chan error, 1)
				go func() {
					var err error
					id, err = runLog(context.Background(), e, "sky.logs", &out)
					done <- err
				}()
				synctest.Wait()
				if err := e.Shutdown(context.Background()); err != nil {
					t.Error(err)
				}
				if err := <-done; err != nil || out.String() != tt.out {
					t.Errorf("%v, %q", err, out.String())
				}
				r, err := env.store.Requests().Get(t.Context(), id)
				if err != nil || r.Status != tt.status || tt.err == nil && string(r.ReturnValue) != "100" {
					t.Errorf("%+v, %v", r, err)
				}
			})
		})
	}
}

// A call that lost what it held to another server did not fail: the client asks again.
func TestAnInlineCallThatLostItsLockIsAskedAgain(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("s")
	e.HandleLog("sky.logs", func(context.Context, *Call, io.Writer) (any, error) { return nil, state.ErrHandover })
	env.start(e)
	var out bytes.Buffer
	id, err := runLog(t.Context(), e, "sky.logs", &out)
	if r := wait(t, e, id); err != nil || r.Status != api.RequestCancelled || out.String() != string(retry.line("")) {
		t.Errorf("%v, %v, %q", r, err, out.String())
	}
}

// A client that leaves while a call's log is replayed, or cannot be written to, gets an error.
func TestAReplayThatDoesNotReachItsReaderFails(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("s")
	e.HandleLog("sky.logs", func(ctx context.Context, c *Call, w io.Writer) (any, error) {
		if c.State() != nil {
			io.WriteString(w, "again\n")
			if string(c.State()) == "2" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, nil
		}
		return nil, c.SetState(ctx, c.Body)
	})
	env.start(e)
	call := func(body string) (id string) {
		if err := e.RunLog(t.Context(), Submission{Name: "sky.logs", User: alice, Body: []byte(body)}, io.Discard, func(got string) { id = got }); err != nil {
			t.Fatal(err)
		}
		return id
	}
	if err := e.Stream(t.Context(), call("1"), StreamOptions{Follow: true}, &failing{}); err == nil || err.Error() != "disk full" {
		t.Errorf("a broken connection: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the reader is gone")
	if err := e.Stream(ctx, call("2"), StreamOptions{Follow: true}, writes(func() { cancel(gone) })); !errors.Is(err, gone) {
		t.Errorf("a reader who goes: %v", err)
	}
}

// writes is a reader who does something whenever it gets bytes.
type writes func()

func (f writes) Write(p []byte) (int, error) { f(); return len(p), nil }
