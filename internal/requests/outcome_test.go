package requests

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

func TestDecide(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name       string
		value      any
		err, cause error
		want       api.RequestStatus
	}{
		{"a value", 1, nil, nil, api.RequestSucceeded},
		{"nothing", nil, nil, nil, api.RequestSucceeded},
		{"an error", nil, boom, nil, api.RequestFailed},
		{"a value that does not encode", func() {}, nil, nil, api.RequestFailed},
		{"cancelled", nil, context.Canceled, ErrCancelled, api.RequestCancelled},
		{"cancelled, told in other words", nil, boom, ErrCancelled, api.RequestCancelled},
		{"cancelled when it had finished", 1, nil, ErrCancelled, api.RequestSucceeded},
		{"the client is gone", nil, boom, context.Canceled, api.RequestCancelled},
		{"nobody cancelled it", nil, context.Canceled, nil, api.RequestFailed},
		{"a deadline of its own", nil, context.DeadlineExceeded, nil, api.RequestFailed},
		{"shutdown", nil, context.Canceled, ErrShutdown, ""},
		{"shutdown when it had finished", 1, nil, ErrShutdown, api.RequestSucceeded},
		{"a lock was lost to another server", nil, fmt.Errorf("launching: %w", state.ErrHandover), nil, ""},
		{"a lock was lost when somebody cancelled it", nil, state.ErrHandover, ErrCancelled, api.RequestCancelled},
		{"lease lost", nil, boom, ErrLeaseLost, ""},
		{"lease lost when it had finished", 1, nil, ErrLeaseLost, ""},
	} {
		o := decide(c.value, c.err, c.cause)
		if o.status != c.want || (o.err != nil) != (c.want == api.RequestFailed) || (o.value != nil) != (c.want == api.RequestSucceeded) {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
	e := record(fmt.Errorf("launching: %w", &api.Error{Type: "T", Message: "m", Hint: "h", Attributes: map[string]any{"a": 1}, Err: boom}))
	if e.Type != "T" || e.Message != "m" || e.Hint != "h" || e.Attributes["a"] != 1 {
		t.Errorf("%+v", e)
	}
}
