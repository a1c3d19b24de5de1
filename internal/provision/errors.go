package provision

import (
	"errors"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// An AttemptError is one offer that could not be had.
type AttemptError struct {
	Offer   cloud.Offer
	Outcome string
	Took    time.Duration
	Err     error
}

func (e *AttemptError) Error() string {
	return fmt.Sprintf("%v (%s): %s: %v", e.Offer.Place, e.Offer.InstanceType, ClassOf(e.Outcome), e.Err)
}
func (e *AttemptError) Unwrap() error { return e.Err }

// An UnplacedError means that no offer could be had. It keeps every attempt.
type UnplacedError struct {
	Cluster  string
	Nodes    int
	Attempts []*AttemptError
	// Closed are offers that were never tried, because a refusal of another
	// ruled them out.
	Closed int
}

func (e *UnplacedError) Unwrap() []error {
	errs := make([]error, len(e.Attempts))
	for i, a := range e.Attempts {
		errs[i] = a
	}
	return errs
}

// Retryable reports whether trying again later makes sense without anybody
// changing anything.
func (e *UnplacedError) Retryable() bool {
	for _, a := range e.Attempts {
		if a.Outcome != Internal && ClassOf(a.Outcome).Retryable() {
			return true
		}
	}
	return false
}

// Expected is when a cloud says that there will be room, the earliest; zero: none
// says.
func (e *UnplacedError) Expected() time.Time {
	var first time.Time
	for _, a := range e.Attempts {
		full, ok := errors.AsType[*cloud.CapacityError](a.Err)
		if ok && !full.Expected.IsZero() && (first.IsZero() || full.Expected.Before(first)) {
			first = full.Expected
		}
	}
	return first
}

// A LeftoverError means that machines of a failed attempt may still exist and
// cost money. Their attempt stays open and is settled later.
type LeftoverError struct {
	Cluster string
	Place   cloud.Place
	Err     error // what went wrong when giving them back
	Cause   error // why the attempt failed
}

func (e *LeftoverError) Error() string {
	return fmt.Sprintf("launching cluster %s in %v failed (%v), and giving its machines back failed too: %v. They may still run and cost money. The server goes on trying; to try at once, run: sky down %s",
		e.Cluster, e.Place, e.Cause, e.Err, e.Cluster)
}
func (e *LeftoverError) Unwrap() []error { return []error{e.Err, e.Cause} }

// A RemainError means that a cloud still lists machines which it said it had
// ended.
type RemainError struct {
	Place    cloud.Place
	Left, Of int
}

func (e *RemainError) Error() string {
	return fmt.Sprintf("%s of %d still listed in %v, although the cloud said that they were ended", count(e.Left, "machine", "machines"), e.Of, e.Place)
}
