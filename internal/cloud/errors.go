package cloud

import (
	"fmt"
	"time"
)

// The errors of providers. A type exists because a caller branches on it: it
// says how much of the map a refusal closes. Err keeps the cloud's own words.

// CapacityError means the place is full at the moment. Expected is when there will
// be room, if the cloud tells.
type CapacityError struct {
	Place    Place
	Expected time.Time
	Err      error
}

// PriceError means that an offer can be had, and costs Now dollars an hour where Planned
// was planned with. Nothing was rented.
type PriceError struct {
	Place        Place
	Planned, Now float64 // of one node
	Err          error
}

// QuotaError means the account may not have more of this there.
type QuotaError struct {
	Place Place
	Err   error
}

// AuthError means the credentials are missing, wrong or refused. Fix is the
// command or step that mends it. Region is where they are for, on a cloud whose
// regions have their own, as clusters and pools have; "": they are for all of it.
type AuthError struct {
	Cloud  string
	Region string
	Fix    string
	Err    error
	// NotSetUp: there are none, and the cloud was not asked.
	NotSetUp bool
}

// PermissionError means the credentials are good and may not do this.
type PermissionError struct {
	Place Place
	Err   error
}

// InvalidError means the request can never work as it is.
type InvalidError struct {
	Place Place
	Err   error
}

// ImageError, in another error, means that the container image cannot be had as it is
// named: trying again does not help.
type ImageError struct{ Err error }

// UnknownError means that the cloud refused for a reason that its provider does not know.
// It closes the place that was asked for, and is counted. Code is the cloud's, which may
// be empty.
type UnknownError struct {
	Code string
	Err  error
}

// ThrottledError means the cloud asked us to slow down.
type ThrottledError struct{ Err error }

// UnreachableError means we could not tell: no answer, or a broken one.
type UnreachableError struct{ Err error }

// OverdueError, in an [UnreachableError], means that what a cloud began did not
// come about in all the time that the provider has for it: asking again would wait
// as long again.
type OverdueError struct{ Err error }

// Dearer reports whether a price is more than planned: prices are rounded, and a planned one
// of 0 is not known.
func Dearer(planned, now float64) bool { return planned > 0 && now > planned*1.005 }

func (e *CapacityError) Error() string { return fmt.Sprintf("no capacity in %v: %v", e.Place, e.Err) }
func (e *PriceError) Error() string    { return fmt.Sprintf("dearer in %v: %v", e.Place, e.Err) }
func (e *QuotaError) Error() string    { return fmt.Sprintf("quota reached in %v: %v", e.Place, e.Err) }
func (e *AuthError) Error() string {
	if e.NotSetUp {
		return fmt.Sprintf("%v is not set up: %v", Place{Cloud: e.Cloud, Region: e.Region}, e.Err)
	}
	return fmt.Sprintf("%v refused the credentials: %v", Place{Cloud: e.Cloud, Region: e.Region}, e.Err)
}
func (e *PermissionError) Error() string {
	return fmt.Sprintf("not permitted in %v: %v", e.Place, e.Err)
}
func (e *InvalidError) Error() string     { return fmt.Sprintf("%v cannot do this: %v", e.Place, e.Err) }
func (e *UnknownError) Error() string     { return e.Err.Error() }
func (e *ThrottledError) Error() string   { return fmt.Sprintf("throttled: %v", e.Err) }
func (e *UnreachableError) Error() string { return fmt.Sprintf("unreachable: %v", e.Err) }
func (e *OverdueError) Error() string     { return e.Err.Error() }

func (e *CapacityError) Unwrap() error   { return e.Err }
func (e *PriceError) Unwrap() error      { return e.Err }
func (e *QuotaError) Unwrap() error      { return e.Err }
func (e *AuthError) Unwrap() error       { return e.Err }
func (e *PermissionError) Unwrap() error { return e.Err }
func (e *InvalidError) Unwrap() error    { return e.Err }
func (e *ImageError) Error() string      { return e.Err.Error() }
func (e *ImageError) Unwrap() error      { return e.Err }

func (e *UnknownError) Unwrap() error     { return e.Err }
func (e *ThrottledError) Unwrap() error   { return e.Err }
func (e *UnreachableError) Unwrap() error { return e.Err }
func (e *OverdueError) Unwrap() error     { return e.Err }
