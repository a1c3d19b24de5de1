package requests

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/state/statetest"
)

// Two servers with a connection each share one PostgreSQL database: every
// request is run once, by whoever has a slot, and what a dead one leaves is
// resumed by the other.
func TestServersOnPostgres(t *testing.T) {
	address := statetest.Postgres(t)
	var runs atomic.Int64
	server := func(id string) *Engine {
		store, err := state.OpenPostgres(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		e := New(store, Options{Logs: logstore.Stored{Store: store, Prefix: "requests/"}, ServerID: id, LongWorkers: 2, HeartbeatEvery: 100 * time.Millisecond, LeaseTTL: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		e.Handle("sky.x", api.ScheduleLong, func(ctx context.Context, c *Call) (any, error) {
			runs.Add(1)
			c.Log.Printf("by %s", id)
			time.Sleep(5 * time.Millisecond)
			return id, nil
		})
		e.Handle("sky.block", api.ScheduleLong, func(ctx context.Context, c *Call) (any, error) {
			if c.Attempt > 1 {
				return string(c.State()), nil
			}
			if err := c.SetState(ctx, []byte(`"kept"`)); err != nil {
				return nil, err
			}
			c.Log.Printf("blocked")
			return block(ctx, c)
		})
		(&testEnv{t: t}).start(e)
		return e
	}
	one, two := server("s1"), server("s2")
	by := map[string]int{}
	var ids []string
	for range 60 {
		ids = append(ids, submit(t, one, "sky.x", "{}").ID)
	}
	for _, id := range ids {
		r := wait(t, two, id) // runs on either, is seen from both
		by[string(r.ReturnValue)]++
		if got := stream(t, one, id, StreamOptions{Follow: true}); got != "by "+strings.Trim(string(r.ReturnValue), `"`)+"\n" && !strings.Contains(got, "by ") {
			t.Errorf("%q", got)
		}
	}
	if runs.Load() != 60 {
		t.Errorf("%d runs of 60 requests", runs.Load())
	}
	t.Logf("shared: %v", by)

	blocked := submit(t, one, "sky.block", "{}").ID
	if got, err := two.Cancel(t.Context(), []string{blocked}); err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if r := wait(t, two, blocked); r.Status != api.RequestCancelled {
		t.Errorf("%v", r)
	}
	orphan := submit(t, one, "sky.block", "{}").ID
	for stream(t, one, orphan, StreamOptions{Plain: true}) != "blocked\n" {
		time.Sleep(5 * time.Millisecond)
	}
	one.halt() // dies
	if r := wait(t, two, orphan); r.OwnerID != "s2" || r.Attempt != 2 || string(r.ReturnValue) != `"\"kept\""` {
		t.Errorf("%v of %s attempt %d: %s", r, r.OwnerID, r.Attempt, r.ReturnValue)
	}
}
