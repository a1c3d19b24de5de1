package requests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// outcome is how a run ended: a terminal status with its result or error, or
// nothing to write because another attempt follows.
type outcome struct {
	status api.RequestStatus // "": another attempt follows
	value  json.RawMessage
	err    *api.ErrorRecord
}

// decide says how a run ended whose function returned value and err, with a
// context that had ended for cause (nil: it had not).
func decide(value any, err, cause error) outcome {
	switch {
	case errors.Is(cause, ErrLeaseLost):
		return outcome{}
	case err == nil: // it had finished, whatever was asked meanwhile
		if b, ok := value.(Encoded); ok {
			return outcome{status: api.RequestSucceeded, value: json.RawMessage(b)}
		}
		b, err := json.Marshal(value)
		if err != nil {
			return failed(fmt.Errorf("the result cannot be encoded: %w", err))
		}
		return outcome{status: api.RequestSucceeded, value: b}
	case errors.Is(cause, ErrShutdown):
		return outcome{}
	case errors.Is(cause, ErrCancelled), errors.Is(cause, context.Canceled):
		return outcome{status: api.RequestCancelled}
	case errors.Is(err, state.ErrHandover): // it lost a lock that it held to another server
		return outcome{}
	}
	return failed(err)
}

func failed(err error) outcome {
	return outcome{status: api.RequestFailed, err: record(err)}
}

// record is an error as clients get it.
func record(err error) *api.ErrorRecord {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return &api.ErrorRecord{Type: e.Type, Message: e.Message, Attributes: e.Attributes, Hint: e.Hint, Details: e.Details}
	}
	return &api.ErrorRecord{Type: api.ErrRuntime, Message: err.Error()}
}
