package requests

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/trace"
	"github.com/skypilot-go/sky/internal/upload"
)

// Call is one run of a request's function.
type Call struct {
	ID, Name, ClusterName string
	User                  state.User
	Scope                 *state.Scope // what the caller may touch; nil: everything
	Files                 upload.Files // that its tasks may bring to nodes
	Body                  json.RawMessage
	ClientAPI             int
	Attempt               int  // 1 the first time; > 1 when resumed after a crash
	Log                   *Log // the request's log

	engine *Engine
	row    *state.Request // as claimed
	replay bool           // of a log request: writes nothing to the row

	mu     sync.Mutex
	state  []byte
	status string
}

// call prepares a run of row, whose output goes to log.
func (e *Engine) call(row *state.Request, log *Log) *Call {
	return &Call{
		ID: row.ID, Name: row.Name, ClusterName: row.ClusterName,
		User:      state.User{ID: row.UserID, Name: row.UserName},
		Scope:     row.Scope,
		Body:      row.Body,
		ClientAPI: row.ClientAPI,
		Attempt:   row.Attempt,
		Log:       log,
		engine:    e,
		row:       row,
		state:     row.State,
		status:    row.StatusMsg,
	}
}

// Decode reads the body into v.
func (c *Call) Decode(v any) error {
	if len(c.Body) == 0 {
		return nil
	}
	if err := json.Unmarshal(c.Body, v); err != nil {
		return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("the body of %s is not as expected: %v", c.Name, err), Err: err}
	}
	return nil
}

// SetStatus shows what the request waits for, "" that it no longer waits.
func (c *Call) SetStatus(msg string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if msg == c.status || c.replay {
		return
	}
	ctx, cancel := context.WithTimeout(trace.WithRequest(context.Background(), c.ID), 10*time.Second)
	defer cancel()
	if err := c.engine.store.Requests().SetStatusMsg(ctx, c.row, msg); err != nil {
		c.engine.log.WarnContext(ctx, "status message not written", slog.Any("error", err))
		return
	}
	c.status = msg
	c.engine.feedOf(c.ID, func(f *feed) { f.status(msg) })
}

// State is what SetState kept last, in this attempt or an earlier one.
func (c *Call) State() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// SetState keeps b, JSON, for the next attempt. It is on disk when SetState
// returns; [state.ErrConflict] means that another server took the request over.
func (c *Call) SetState(ctx context.Context, b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.replay {
		return nil
	}
	if err := c.engine.store.Requests().SetState(ctx, c.row, b); err != nil {
		return fmt.Errorf("keeping the request's state: %w", err)
	}
	c.state = append([]byte(nil), b...)
	return nil
}

// Rest runs f, which only waits, without a slot: what else is long may run
// meanwhile. Afterwards the request goes on at once; for a moment there may be
// more of them than slots.
func (c *Call) Rest(f func()) {
	if !c.engine.leaveSlot(c.ID) {
		f()
		return
	}
	defer c.engine.takeSlot()
	f()
}

// leaveSlot gives the slot of a request to the next; false: it has none.
func (e *Engine) leaveSlot(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.runs[id]; r == nil || r.kind != long {
		return false
	}
	e.longs--
	e.dispatch()
	return true
}

func (e *Engine) takeSlot() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.longs++
}
