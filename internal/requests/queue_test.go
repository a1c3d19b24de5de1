package requests

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

func TestQueueTakesTurns(t *testing.T) {
	var q queue
	for _, id := range strings.Fields("a1 a2 a3 b1 c1 a4 b2") {
		q.push(&state.Request{ID: id, UserID: id[:1]})
	}
	q.push(&state.Request{ID: "a1", UserID: "a"}) // in already
	q.remove("b1")
	var got []string
	for r := q.pop(); r != nil; r = q.pop() {
		got = append(got, r.ID)
	}
	if s := strings.Join(got, " "); s != "a1 b2 c1 a2 a3 a4" {
		t.Error(s)
	}
}

// Whatever happens: each user's requests keep their order, nothing is lost or
// doubled, and nobody waits for more than one request of each other user.
func TestQueueProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		waiting := map[string][]string{} // by user
		passed := map[string]map[string]int{}
		n := 0
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				user := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "user")
				n++
				id := fmt.Sprint(user, n)
				if len(waiting[user]) == 0 {
					passed[user] = map[string]int{}
				}
				waiting[user] = append(waiting[user], id)
				q.push(&state.Request{ID: id, UserID: user})
			},
			"pop": func(t *rapid.T) {
				r := q.pop()
				if r == nil {
					for user, ids := range waiting {
						if len(ids) > 0 {
							t.Fatalf("%s waits for ever: %v", user, ids)
						}
					}
					return
				}
				ids := waiting[r.UserID]
				if len(ids) == 0 || ids[0] != r.ID {
					t.Fatalf("popped %s, waiting %v", r.ID, ids)
				}
				waiting[r.UserID] = ids[1:]
				passed[r.UserID] = map[string]int{}
				for user, ids := range waiting {
					if user != r.UserID && len(ids) > 0 {
						if passed[user][r.UserID]++; passed[user][r.UserID] > 1 {
							t.Fatalf("%s was passed twice by %s", user, r.UserID)
						}
					}
				}
			},
			"remove": func(t *rapid.T) {
				user := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "user")
				if ids := waiting[user]; len(ids) > 0 {
					i := rapid.IntRange(0, len(ids)-1).Draw(t, "which")
					q.remove(ids[i])
					waiting[user] = slices.Delete(slices.Clone(ids), i, i+1)
				}
			},
			"": func(t *rapid.T) {
				sum := 0
				for _, ids := range waiting {
					sum += len(ids)
				}
				if q.len() != sum {
					t.Fatalf("length %d, want %d", q.len(), sum)
				}
			},
		})
	})
}

// A long request that only waits lets the next one run, and takes its slot back
// afterwards; a short one has no slot that it could give away.
func TestARequestThatRestsGivesItsSlotAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t)
		e := env.server("s", func(o *Options) { o.LongWorkers = 1 })
		begin, rested, restsEnd, worksEnd := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
		rests := func(_ context.Context, c *Call) (any, error) {
			<-begin
			c.Rest(func() { <-rested })
			<-restsEnd
			return nil, nil
		}
		e.Handle("sky.rests", api.ScheduleLong, rests)
		e.Handle("sky.short", api.ScheduleShort, rests)
		e.Handle("sky.works", api.ScheduleLong, func(context.Context, *Call) (any, error) { <-worksEnd; return nil, nil })
		env.start(e)
		var ids []string
		check := func(name string, want ...api.RequestStatus) {
			t.Helper()
			if name != "" {
				ids = append(ids, submit(t, e, name, "").ID)
			}
			synctest.Wait()
			var got []api.RequestStatus
			for _, id := range ids {
				r, err := env.store.Requests().Get(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, r.Status)
			}
			if !slices.Equal(got, want) {
				t.Errorf("after %q: %v, want %v", name, got, want)
			}
		}
		const runs, waits, done = api.RequestRunning, api.RequestPending, api.RequestSucceeded
		check("sky.rests", runs)
		check("sky.works", runs, waits)
		close(begin)
		check("", runs, runs)
		check("sky.works", runs, runs, waits)
		check("sky.short", runs, runs, waits, runs)
		close(rested)
		check("", runs, runs, waits, runs)
		close(restsEnd)
		check("", done, runs, waits, done)
		close(worksEnd)
		check("", done, done, done, done)
	})
}
