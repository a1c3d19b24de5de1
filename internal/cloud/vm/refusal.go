package vm

import (
	"context"
	"errors"

	"github.com/skypilot-go/sky/internal/cloud"
)

// refusal is the meaning of a driver's error in the words of package cloud.
func (p *Provider) refusal(ctx context.Context, at cloud.Place, err error) error {
	return refusal(ctx, p.d.Refusal, at, err)
}

func refusal(ctx context.Context, means func(context.Context, cloud.Place, error) error, at cloud.Place, err error) error {
	var unknown *cloud.UnknownError
	if err == nil || meant(err) != meantNothing || errors.As(err, &unknown) {
		return err
	}
	return means(ctx, at, err)
}

// kind is what a driver's error says of the thing that the call was about.
func kind(d Driver, err error) Kind {
	switch meant(err) {
	case meantRefused:
		return Refused
	case meantLost:
		return Lost
	}
	return d.Kind(err)
}

type meaning int

const (
	meantNothing meaning = iota // it is no error of package cloud
	meantRefused
	meantLost
)

// meant reports whether an error is one of package cloud, and which.
func meant(err error) meaning {
	var (
		full        *cloud.CapacityError
		dearer      *cloud.PriceError
		quota       *cloud.QuotaError
		auth        *cloud.AuthError
		forbidden   *cloud.PermissionError
		invalid     *cloud.InvalidError
		throttled   *cloud.ThrottledError
		unreachable *cloud.UnreachableError
	)
	switch {
	case errors.As(err, &full), errors.As(err, &dearer), errors.As(err, &quota), errors.As(err, &auth), errors.As(err, &forbidden), errors.As(err, &invalid), errors.As(err, &throttled):
		return meantRefused
	case errors.As(err, &unreachable):
		return meantLost
	}
	return meantNothing
}

// says reports whether a refusal to end something reports that it is not ending: the
// credentials, or no answer. Others may be how a cloud refuses to end it twice.
func says(err error) bool {
	var (
		auth        *cloud.AuthError
		forbidden   *cloud.PermissionError
		throttled   *cloud.ThrottledError
		unreachable *cloud.UnreachableError
	)
	return errors.As(err, &auth) || errors.As(err, &forbidden) || errors.As(err, &throttled) || errors.As(err, &unreachable)
}
