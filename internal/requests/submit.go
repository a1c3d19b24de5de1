package requests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// Submission is a request as it arrives.
type Submission struct {
	ID          string // a UUID that nothing else has; "": a new one
	Name        string // "sky.launch"
	User        state.User
	ClusterName string
	Workspace   string             // where it belongs; "": the default one
	Scope       *state.Scope       // what the caller may touch; nil: everything
	Files       state.RequestFiles // that its tasks may bring to nodes
	Body        []byte             // JSON
	ClientAPI   int                // the caller's API version
}

// UnknownError means that no function has the request's name.
type UnknownError struct{ Name string }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("this API server does not know requests called %q", e.Name)
}

// Submit records a request and starts it, or lines it up if it is a long one
// and all slots are taken. It is on disk when Submit returns; ctx does not end
// it afterwards. [ErrShutdown] means that it was not recorded because the
// server is about to stop. A call that was recorded before, under the same id,
// is that request: clients repeat a call whose answer was lost.
func (e *Engine) Submit(ctx context.Context, sub Submission) (*state.Request, error) {
	h := e.handlers[sub.Name]
	if h.f == nil {
		return nil, &UnknownError{sub.Name}
	}
	err := e.admit(ctx, sub.User, h.schedule)
	if err == nil && e.o.Admit != nil {
		err = e.o.Admit(sub.Name)
	}
	if err != nil {
		if row, _ := e.again(ctx, sub); row != nil {
			return row, nil
		}
		return nil, err
	}
	row := e.newRow(sub, h.schedule)
	r, err := e.beginNew(row)
	if errors.Is(err, state.ErrConflict) {
		return e.soon(ctx, sub)
	}
	if err != nil {
		return nil, err
	}
	if r != nil && h.reads {
		return e.submitRead(ctx, sub, r, row)
	}
	if err := e.create(ctx, row); err != nil {
		if r != nil {
			e.end(r)
		}
		if errors.Is(err, state.ErrConflict) {
			return e.again(ctx, sub)
		}
		return nil, err
	}
	told := *row
	if r == nil {
		e.enqueue(row)
	} else {
		go e.execute(r, row)
	}
	return &told, nil
}

// beginNew begins a request that can run at once, which is then born running:
// one write instead of two. A long one that has to wait for a slot is nil.
func (e *Engine) beginNew(row *state.Request) (*run, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kind := short
	if row.Schedule != api.ScheduleShort {
		kind = long
		if !e.closed && (e.queue.len() > 0 || e.longs >= e.o.LongWorkers) {
			return nil, nil
		}
	}
	e.own(row)
	return e.beginLocked(context.Background(), row, kind)
}

// again is the request that an earlier try of the same call recorded;
// [state.ErrNotFound] if there is none.
func (e *Engine) again(ctx context.Context, sub Submission) (*state.Request, error) {
	row, err := e.store.Requests().Get(ctx, sub.ID)
	switch {
	case err != nil:
		return nil, err
	case row.Name != sub.Name || row.UserID != sub.User.ID || row.ClusterName != sub.ClusterName:
		return nil, IDTaken(sub.ID)
	}
	return row, nil
}

// IDTaken refuses a call under an id that another call has; it is a
// [state.ErrConflict].
func IDTaken(id string) error {
	return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("The id %s is that of another call: give this one an id of its own.", id), Err: state.ErrConflict}
}

// ErrRecording means that the same call came before and is not recorded yet, as the
// database takes its time. The client repeats it.
var ErrRecording = errors.New("the same call is being recorded already: try again in a moment")

// soonTime bounds how long a call waits for the same one, which is begun already,
// to be recorded: a little longer than a read keeps its record back.
const soonTime = readPatience + 2*time.Second

// soon is again for a request that is run here, but may not be recorded yet.
func (e *Engine) soon(ctx context.Context, sub Submission) (*state.Request, error) {
	for began := time.Now(); ; {
		row, err := e.again(ctx, sub)
		if !errors.Is(err, state.ErrNotFound) {
			return row, err
		}
		if time.Since(began) >= soonTime {
			return nil, ErrRecording
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (e *Engine) newRow(sub Submission, schedule api.ScheduleType) *state.Request {
	return &state.Request{
		ID:          cmp.Or(sub.ID, uuid.NewString()),
		Name:        sub.Name,
		Status:      api.RequestPending,
		Schedule:    schedule,
		UserID:      sub.User.ID,
		UserName:    sub.User.Name,
		ClusterName: sub.ClusterName,
		Workspace:   sub.Workspace,
		Scope:       sub.Scope,
		Files:       &sub.Files,
		Body:        sub.Body,
		CreatedAt:   e.store.Now(),
		ClientAPI:   sub.ClientAPI,
	}
}

// own makes a new row one that this server runs.
func (e *Engine) own(row *state.Request) {
	row.Status = api.RequestRunning
	row.OwnerID = e.o.ServerID
	row.Attempt = 1
	row.StartedAt = row.CreatedAt
	row.Heartbeat = row.CreatedAt
}

func (e *Engine) create(ctx context.Context, row *state.Request) error {
	if err := e.store.Requests().Create(ctx, row); err != nil {
		return fmt.Errorf("recording the request: %w", err)
	}
	return nil
}
