package requests

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

func TestQuickReadsAreRecordedOnceWithTheirResult(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("a")
	var row *state.Request
	var err error
	e.HandleRead("read", func(ctx context.Context, c *Call) (any, error) {
		row, err = env.store.Requests().Get(ctx, c.ID)
		c.Log.Printf("reading")
		if string(c.Body) == `{"fail":1}` {
			return nil, &api.Error{Type: api.ErrValue, Message: "bad"}
		}
		return 7, nil
	})
	env.start(e)
	for body, want := range map[string]api.RequestStatus{`{}`: api.RequestSucceeded, `{"fail":1}`: api.RequestFailed} {
		var r *state.Request
		// On a busy machine the function may come too late to be recorded once.
		for range 100 {
			if r = submit(t, e, "read", body); r.Status.Terminal() {
				break
			}
			wait(t, e, r.ID)
		}
		if r.Status != want {
			t.Fatalf("the request is %s when its id is told, not %s", r.Status, want)
		}
		if row != nil || !errors.Is(err, state.ErrNotFound) {
			t.Errorf("it was recorded before it had ended: %v, %v", row, err)
		}
		kept, err := env.store.Requests().Get(t.Context(), r.ID)
		if err != nil || kept.Status != want || string(kept.ReturnValue) != string(r.ReturnValue) || kept.FinishedAt.IsZero() || kept.StartedAt.IsZero() {
			t.Errorf("it is not on disk as told: %v, %v", kept, err)
		}
		found, err := e.Resolve(t.Context(), r.ID)
		if err != nil || found.Status != want || string(found.ReturnValue) != string(kept.ReturnValue) || string(found.Error) != string(kept.Error) {
			t.Errorf("it is found as %v, %v", found, err)
		}
		if got := stream(t, e, r.ID, StreamOptions{Follow: true}); got != "reading\n" {
			t.Errorf("its log is %q", got)
		}
	}
}

func TestSlowReadsAreRecordedBeforeTheyEnd(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("a")
	block := make(chan struct{})
	e.HandleRead("read", func(ctx context.Context, c *Call) (any, error) {
		select {
		case <-block:
			return 7, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
	env.start(e)
	one, two := submit(t, e, "read", "{}"), submit(t, e, "read", "{}")
	for _, r := range []*state.Request{one, two} {
		if kept, err := env.store.Requests().Get(t.Context(), r.ID); err != nil || kept.Status != api.RequestRunning || r.Status != api.RequestRunning {
			t.Fatalf("it is not on disk when its id is told: %v, %v", kept, err)
		}
	}
	if _, err := e.Cancel(t.Context(), []string{one.ID}); err != nil {
		t.Fatal(err)
	}
	if r := wait(t, e, one.ID); r.Status != api.RequestCancelled {
		t.Errorf("cancelled, it is %s", r.Status)
	}
	close(block)
	if r := wait(t, e, two.ID); r.Status != api.RequestSucceeded || string(r.ReturnValue) != "7" {
		t.Errorf("it ended as %s with %s", r.Status, r.ReturnValue)
	}
}

func TestAReadThatIsAskedForAgainIsTheSame(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("a")
	var calls atomic.Int64
	e.HandleRead("read", func(context.Context, *Call) (any, error) { return calls.Add(1), nil })
	env.start(e)
	sub := Submission{ID: uuid.NewString(), Name: "read", User: alice, Body: []byte("{}")}
	var ids, values []string
	for range 3 {
		r, err := e.Submit(t.Context(), sub)
		if err != nil {
			t.Fatal(err)
		}
		r = wait(t, e, r.ID)
		ids, values = append(ids, r.ID), append(values, string(r.ReturnValue))
	}
	if values[0] != values[1] || values[1] != values[2] || ids[0] != ids[2] {
		t.Errorf("one call has the results %v under %v", values, ids)
	}
}

func TestWhatEndedIsForgotten(t *testing.T) {
	var k recent
	now := time.Now()
	big := make([]byte, recentSize/8)
	for i := range 20 {
		k.add(&state.Request{ID: fmt.Sprint(i), ReturnValue: big}, now)
	}
	k.add(&state.Request{ID: "huge", ReturnValue: make([]byte, recentSize/2)}, now)
	k.add(&state.Request{ID: "19"}, now)
	if k.get("0", now) != nil || k.get("huge", now) != nil || k.get("19", now) == nil || k.size > recentSize {
		t.Errorf("%d bytes are kept in %d rows", k.size, len(k.rows))
	}
	if k.get("19", now.Add(recentTime+1)) != nil || len(k.rows) != 0 || k.size != 0 || k.order != nil {
		t.Errorf("kept for too long: %+v", k)
	}
	for i := range recentRows + 10 {
		k.add(&state.Request{ID: fmt.Sprint(i)}, now)
	}
	if len(k.rows) != recentRows || k.get(fmt.Sprint(recentRows+9), now) == nil {
		t.Errorf("%d rows are kept", len(k.rows))
	}
}
