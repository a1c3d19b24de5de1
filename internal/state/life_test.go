package state

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/fsm"
)

// Two servers and a user do to one request whatever they like, with rows they
// read at any time. It only ever moves as its table says, and a server whose
// lease is gone changes nothing.
func TestRequestMovesAsItsTableSays(t *testing.T) {
	s := openTest(t)
	ctx := context.Background()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		id := fmt.Sprint("r", n)
		if err := s.Requests().Create(ctx, fullRequest(id)); err != nil {
			t.Fatal(err)
		}
		read := func() *Request {
			r, err := s.Requests().Get(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		known := []*Request{read()} // what somebody has read or claimed
		// does runs one operation and compares what happened with the table.
		does := func(event fsm.RequestEvent, legal bool, op func() error) {
			before := read()
			err := op()
			after := read()
			next, possible := fsm.Requests().Next(before.Status, event)
			switch {
			case err == nil && (!possible || !legal):
				t.Fatalf("%s happened to %v (%s, attempt %d)", event, before, before.OwnerID, before.Attempt)
			case err == nil && after.Status != next:
				t.Fatalf("%s made %s of %s", event, after.Status, before.Status)
			case errors.Is(err, ErrConflict) && (after.Status != before.Status || after.Attempt != before.Attempt || after.OwnerID != before.OwnerID):
				t.Fatalf("a refused %s changed the row", event)
			case err != nil && !errors.Is(err, ErrConflict):
				t.Fatal(err)
			case err != nil && possible && legal:
				t.Fatalf("%s was refused on %v", event, before)
			}
		}
		owner := rapid.SampledFrom([]string{"s1", "s2"})
		t.Repeat(map[string]func(*rapid.T){
			"read": func(t *rapid.T) { known = append(known, read()) },
			"beat": func(t *rapid.T) {
				if _, err := s.Requests().Beat(ctx, owner.Draw(t, "owner")); err != nil {
					t.Fatal(err)
				}
			},
			"claim": func(t *rapid.T) {
				r, me := rapid.SampledFrom(known).Draw(t, "row"), owner.Draw(t, "owner")
				event := fsm.RequestClaimed
				if r.Status == api.RequestRunning {
					event = fsm.RequestResumed
				}
				now := read()
				legal := r.Status == now.Status && r.OwnerID == now.OwnerID && r.Attempt == now.Attempt && (r.OwnerID == me || r.Heartbeat.Equal(now.Heartbeat))
				does(event, legal, func() error {
					claimed, err := s.Requests().Claim(ctx, r, me)
					if err == nil {
						known = append(known, claimed)
					}
					return err
				})
			},
			"finish": func(t *rapid.T) {
				r := *rapid.SampledFrom(known).Draw(t, "row")
				now := read()
				legal := r.OwnerID == now.OwnerID && r.Attempt == now.Attempt
				event := rapid.SampledFrom([]fsm.RequestEvent{fsm.RequestSucceeded, fsm.RequestFailed}).Draw(t, "end")
				r.Status, _ = fsm.Requests().Next(api.RequestRunning, event)
				does(event, legal, func() error { return s.Requests().Finish(ctx, &r) })
			},
			"cancel": func(t *rapid.T) {
				before := read()
				after, err := s.Requests().Cancel(ctx, id)
				switch {
				case before.Status.Terminal() != errors.Is(err, ErrConflict):
					t.Fatalf("cancel of %v: %v", before, err)
				case err == nil && before.Status == api.RequestPending && after.Status != api.RequestCancelled,
					err == nil && before.Status == api.RequestRunning && (after.Status != before.Status || !after.CancelAsked):
					t.Fatalf("cancel of %v gives %v", before, after)
				}
			},
		})
	})
}
