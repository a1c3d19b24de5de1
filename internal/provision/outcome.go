package provision

import (
	"errors"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Outcomes of attempts, as records and programs see them.
const (
	OK          = "ok"
	Capacity    = "capacity"    // the place is full
	Preempted   = "preempted"   // machines were taken back while they started
	Partial     = "partial"     // fewer machines than asked for
	Price       = "price"       // it costs more than was planned with
	Quota       = "quota"       // the account may not have more
	Credentials = "credentials" // missing, wrong or refused
	Permission  = "permission"  // the credentials may not do this
	Invalid     = "invalid"     // it can never work as asked
	Throttled   = "throttled"   // asked to slow down
	Unreachable = "unreachable" // no answer, or a broken one
	Timeout     = "timeout"     // it did not come about in time
	Cancelled   = "cancelled"   // somebody wanted it undone, or another attempt was quicker
	Internal    = "internal"    // a mistake of ours, or one that no cloud has named
)

// A TimeoutError means that a call was cut off at its deadline.
type TimeoutError struct {
	Step  string
	After time.Duration
	Err   error // what the call said when it was cut; nil if it never returned
}

func (e *TimeoutError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("the step %q did not end within %v", e.Step, e.After.Round(time.Second))
	}
	return fmt.Sprintf("the step %q did not end within %v: %v", e.Step, e.After.Round(time.Second), e.Err)
}
func (e *TimeoutError) Unwrap() error { return e.Err }

// A GangError means that a cloud said yes and gave something else: a cluster
// has all of its machines or none.
type GangError struct {
	Place                  cloud.Place
	Want, Running, Missing int
	Gone                   int    // taken back while they started
	Reason                 string // why, in the cloud's words
}

func (e *GangError) Error() string {
	s := fmt.Sprintf("%d of %d machines run in %v", e.Running, e.Want, e.Place)
	if e.Gone > 0 {
		s += fmt.Sprintf(", %d were taken back", e.Gone)
	}
	if e.Reason != "" {
		s += " (" + e.Reason + ")"
	}
	return s
}

// Outcome is the word for an error in records and reports.
func Outcome(err error) string {
	if err == nil {
		return OK
	}
	if e, ok := errors.AsType[*GangError](err); ok {
		if e.Gone > 0 {
			return Preempted
		}
		return Partial
	}
	switch {
	case is[*TimeoutError](err), is[*cloud.OverdueError](err):
		return Timeout
	case is[*cloud.AuthError](err):
		return Credentials
	case is[*cloud.PermissionError](err):
		return Permission
	case is[*cloud.PriceError](err):
		return Price
	case is[*cloud.QuotaError](err):
		return Quota
	case is[*cloud.CapacityError](err):
		return Capacity
	case is[*cloud.InvalidError](err):
		return Invalid
	case is[*cloud.ThrottledError](err):
		return Throttled
	case is[*cloud.UnreachableError](err):
		return Unreachable
	}
	return Internal
}

// UnknownCode is the code of a cloud's refusal that sky has no meaning for; false: the
// error is no such refusal.
func UnknownCode(err error) (string, bool) {
	e, ok := errors.AsType[*cloud.UnknownError](err)
	if !ok {
		return "", false
	}
	return e.Code, true
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// refusedOutright reports whether a cloud said no before it made a machine; after
// any other outcome machines may have come to be, or still will.
func refusedOutright(outcome string) bool {
	switch outcome {
	case Capacity, Price, Quota, Credentials, Permission, Invalid:
		return true
	}
	return false
}

// Class groups outcomes by what a user can do about them.
type Class string

const (
	NoCapacity     Class = "no capacity"
	TooDear        Class = "too dear"
	OverQuota      Class = "quota"
	BadCredentials Class = "credentials"
	YourRequest    Class = "your request"
	WeCouldNotTell Class = "we could not tell"
	CalledOff      Class = "called off"
)

// ClassOf is the class of an outcome.
func ClassOf(outcome string) Class {
	switch outcome {
	case Capacity, Preempted, Partial:
		return NoCapacity
	case Price:
		return TooDear
	case Quota:
		return OverQuota
	case Credentials, Permission:
		return BadCredentials
	case Invalid:
		return YourRequest
	case Cancelled:
		return CalledOff
	}
	return WeCouldNotTell
}

// Kind is the class as programs see it, in the details of errors.
func (c Class) Kind() string {
	switch c {
	case NoCapacity:
		return "no_capacity"
	case TooDear:
		return "price"
	case OverQuota:
		return "quota"
	case BadCredentials:
		return "credentials"
	case YourRequest:
		return "invalid_request"
	case CalledOff:
		return "cancelled"
	}
	return "unknown"
}

// Retryable reports whether the same request may succeed later without anybody
// changing anything.
func (c Class) Retryable() bool {
	return c == NoCapacity || c == TooDear || c == OverQuota || c == WeCouldNotTell
}
