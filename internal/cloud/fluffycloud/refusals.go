package fluffycloud

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/fluffycloud/fluffyapi"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Refusal says in sky's words why a call about a place failed.
func (driver) Refusal(ctx context.Context, at cloud.Place, err error) error {
	return translate(ctx, at, err)
}

// Kind tells what changed since it was looked at, and what may have had an effect.
func (driver) Kind(err error) vm.Kind {
	switch codeOf(err) {
	case fluffyapi.NameTaken, fluffyapi.WrongState:
		return vm.Changed
	case fluffyapi.NotFound:
		return vm.Missing
	}
	var silent *rest.NoAnswerError
	if errors.As(err, &silent) {
		return vm.Lost
	}
	return vm.Refused
}

// translate is Refusal. What is no error of the API's, as the lack of credentials,
// stays what it is.
func translate(ctx context.Context, at cloud.Place, err error) error {
	var silent *rest.NoAnswerError
	if errors.As(err, &silent) {
		if ctx.Err() != nil {
			return fmt.Errorf("asking FluffyCloud: %w", ctx.Err())
		}
		return &cloud.UnreachableError{Err: err}
	}
	switch codeOf(err) {
	case fluffyapi.Unauthorized:
		return &cloud.AuthError{Cloud: Name, Fix: fix, Err: err}
	case fluffyapi.Forbidden:
		return &cloud.PermissionError{Place: cloud.Place{Cloud: Name}, Err: err} // the account's role is the same everywhere
	case fluffyapi.NoCapacity:
		return &cloud.CapacityError{Place: at, Err: err}
	case fluffyapi.QuotaExceeded:
		return &cloud.QuotaError{Place: cloud.Place{Cloud: Name, Region: at.Region}, Err: err}
	case fluffyapi.Invalid:
		return &cloud.InvalidError{Place: at, Err: err}
	case fluffyapi.Throttled:
		return &cloud.ThrottledError{Err: err}
	}
	if codeOf(err) == "" {
		return err
	}
	return fmt.Errorf("FluffyCloud refused: %w", err)
}

// codeOf is the cloud's own word for a refusal; "" for other errors.
func codeOf(err error) fluffyapi.Code {
	var e *fluffyapi.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func availability(free, nodes int, at cloud.Place, now time.Time) cloud.Availability {
	if free >= nodes {
		return cloud.Availability{Verdict: cloud.AvailableNow, At: now}
	}
	return cloud.Availability{Verdict: cloud.AvailableNone, Reason: fmt.Sprintf("%v has room for %d of %d", at, free, nodes), At: now}
}
