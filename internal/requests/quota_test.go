package requests

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

func TestWaitingLongRequestsAreCounted(t *testing.T) {
	env := newTestEnv(t)
	e := env.server("s", func(o *Options) { o.LongWorkers, o.QueuedPerUser = 1, 2 })
	e.Handle("sky.block", api.ScheduleLong, func(ctx context.Context, c *Call) (any, error) { return block(ctx, c) })
	e.Handle("sky.short", api.ScheduleShort, func(context.Context, *Call) (any, error) { return nil, nil })
	env.start(e)
	bob := state.User{ID: "b0b", Name: "bob"}
	send := func(u state.User, name, id string) error {
		_, err := e.Submit(t.Context(), Submission{ID: id, Name: name, User: u})
		return err
	}
	last := uuid.NewString()
	for i, id := range []string{"", "", last} { // one runs, two wait
		if err := send(alice, "sky.block", id); err != nil {
			t.Fatal(i, err)
		}
	}
	q, is := errors.AsType[*QuotaError](send(alice, "sky.block", ""))
	if !is || q.Waiting != 2 || q.Limit != 2 || q.User != alice.Name {
		t.Errorf("%+v", q)
	}
	if err := send(alice, "sky.block", last); err != nil {
		t.Errorf("a call that is repeated is no other one: %v", err)
	}
	if err := send(alice, "sky.short", ""); err != nil {
		t.Errorf("short ones do not count: %v", err)
	}
	if err := send(bob, "sky.block", ""); err != nil {
		t.Errorf("others are not kept out: %v", err)
	}
	if _, err := e.Cancel(t.Context(), []string{last}); err != nil {
		t.Fatal(err)
	}
	if err := send(alice, "sky.block", ""); err != nil {
		t.Errorf("one was cancelled: %v", err)
	}
}

func TestACallThatIsRepeatedRunsOnce(t *testing.T) {
	env := newTestEnv(t)
	runs := make(chan string, 10)
	engine := func(server string) *Engine {
		e := env.server(server)
		e.Handle("sky.x", api.ScheduleShort, func(_ context.Context, c *Call) (any, error) { runs <- server; return server, nil })
		return env.start(e)
	}
	one, two := engine("s1"), engine("s2")
	sub := Submission{ID: uuid.NewString(), Name: "sky.x", User: alice}
	first, err := one.Submit(t.Context(), sub)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []*Engine{one, two, two} {
		again, err := e.Submit(t.Context(), sub)
		if err != nil || again.ID != first.ID || again.OwnerID != "s1" {
			t.Errorf("%+v %v", again, err)
		}
	}
	wait(t, two, sub.ID)
	if len(runs) != 1 {
		t.Errorf("it ran %d times", len(runs))
	}
	sub.User = state.User{ID: "b0b", Name: "bob"}
	if _, err := two.Submit(t.Context(), sub); err == nil {
		t.Error("another user's call got the first one's result")
	}
}
