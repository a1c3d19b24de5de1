package sshpool

import (
	"errors"
	"fmt"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
)

// failure turns what went wrong on machines into an error of package cloud: a
// refused login is the user's to mend, everything else may be gone next time.
func (p *Provider) failure(bad []*seen, place cloud.Place) error {
	var errs []error
	refused, accounts := 0, 0
	for _, s := range bad {
		err := fmt.Errorf("%s: %w", s.host.id(), s.err)
		var auth *sshconn.AuthError
		if errors.As(err, &auth) {
			refused++
		}
		if isAccountRefusal(err) {
			accounts++
		}
		errs = append(errs, err)
	}
	err := shorten(errs)
	var full *sshconn.NoSpaceError
	switch {
	case refused == len(bad):
		return &cloud.AuthError{Cloud: Name, Region: place.Region, Err: err, Fix: "name the user and the identity_file or password of these machines in " + p.o.File}
	case accounts == len(bad) && place.Region != "": // of a launch: it is for the administrator to mend
		return &cloud.InvalidError{Place: place, Err: err}
	case errors.As(err, &full):
		return &cloud.CapacityError{Place: place, Err: err}
	}
	return &cloud.UnreachableError{Err: err}
}

// shorten keeps the first few of many errors that are much the same.
func shorten(errs []error) error {
	const most = 3
	if more := len(errs) - most; more > 0 {
		errs = append(errs[:most:most], fmt.Errorf("and %d more machines", more))
	}
	return errors.Join(errs...)
}
