package lambda

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// Refusal says in sky's words why a call failed.
func (driver) Refusal(ctx context.Context, at cloud.Place, err error) error {
	return translate(ctx, at, err)
}

// Kind tells what changed since it was looked at, and what may have had an effect.
func (driver) Kind(err error) vm.Kind {
	var refused *rest.Error
	switch {
	case !errors.As(err, &refused):
		return vm.Lost
	case refused.Code == "global/object-does-not-exist":
		return vm.Missing
	}
	return vm.Refused
}

func translate(ctx context.Context, at cloud.Place, err error) error {
	var lost *rest.NoAnswerError
	if errors.As(err, &lost) {
		if ctx.Err() != nil {
			return fmt.Errorf("asking Lambda: %w", context.Cause(ctx))
		}
		return &cloud.UnreachableError{Err: err}
	}
	var refused *rest.Error
	if !errors.As(err, &refused) {
		return err
	}
	everywhere, region := cloud.Place{Cloud: Name}, cloud.Place{Cloud: Name, Region: at.Region}
	switch refused.Code {
	case "instance-operations/launch/insufficient-capacity":
		return &cloud.CapacityError{Place: at, Err: err}
	case "global/quota-exceeded":
		return &cloud.QuotaError{Place: everywhere, Err: err}
	case "global/account-inactive", "global/invalid-address":
		return &cloud.AuthError{Cloud: Name, Fix: "complete the account at https://cloud.lambda.ai/settings, then: sky check lambda", Err: err}
	case "global/invalid-parameters", "global/object-does-not-exist":
		return &cloud.InvalidError{Place: region, Err: err}
	}
	switch refused.Status {
	case http.StatusUnauthorized:
		return &cloud.AuthError{Cloud: Name, Fix: fix, Err: err}
	case http.StatusForbidden:
		return &cloud.PermissionError{Place: everywhere, Err: err}
	case http.StatusTooManyRequests:
		return &cloud.ThrottledError{Err: err}
	}
	return fmt.Errorf("Lambda refused: %w", err)
}
