package policy

import (
	"fmt"

	"github.com/skypilot-go/sky/api"
)

// RejectedError is a refusal by the policy. To errors.As it is also an
// [*api.Error] of class UserRequestRejectedByPolicy.
type RejectedError struct {
	Policy string
	Reason string // the policy's own words
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("rejected by the admin policy %s: %s", e.Policy, e.Reason)
}

// As lets the error travel under the class name that clients know.
func (e *RejectedError) As(target any) bool {
	return asAPI(target, "UserRequestRejectedByPolicy", e)
}

// CallError is a policy that could not be asked, or whose answer makes no
// sense. To errors.As it is also an [*api.Error] of class RestfulPolicyError.
type CallError struct {
	Policy string
	Err    error
}

func (e *CallError) Error() string {
	return fmt.Sprintf("asking the admin policy %s: %v", e.Policy, e.Err)
}

func (e *CallError) Unwrap() error { return e.Err }

// As lets the error travel under the class name that clients know.
func (e *CallError) As(target any) bool { return asAPI(target, "RestfulPolicyError", e) }

func asAPI(target any, class string, err error) bool {
	t, ok := target.(**api.Error)
	if ok {
		*t = &api.Error{Type: class, Message: err.Error(), Err: err}
	}
	return ok
}
