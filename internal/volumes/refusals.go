package volumes

import (
	"errors"
	"fmt"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// refusedOutright reports whether a cloud's refusal to make a volume proves that it
// has made nothing.
func refusedOutright(err error) bool {
	return is[*cloud.InvalidError](err) || is[*cloud.PermissionError](err) || is[*cloud.AuthError](err) ||
		is[*cloud.QuotaError](err) || is[*cloud.CapacityError](err)
}

func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// words are what a cloud said, without what the message around them says already.
func words(err error) string {
	if e, ok := errors.AsType[*cloud.InvalidError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// failed is the error of a step that a cloud did not do.
func failed(what string, v *state.Volume, err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	e := &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf(what+": %s", v.Name, words(err)), Err: err}
	switch {
	case is[*cloud.InvalidError](err):
		e.Type = api.ErrValue
	case is[*cloud.AuthError](err):
		e.Type, e.Hint = api.ErrNoCloudAccess, "See what is wrong with the credentials with: sky check "+v.Is.Place.Cloud
		if a, _ := errors.AsType[*cloud.AuthError](err); a.Fix != "" {
			e.Hint = a.Fix
		}
	case is[*cloud.InUseError](err):
		e.Type = api.ErrValue
	}
	return e
}
