package cli

import (
	"errors"

	"github.com/skypilot-go/sky/api"
)

// asAPIError finds the server's error in err.
func asAPIError(err error) (*api.Error, bool) { return errors.AsType[*api.Error](err) }

// perCluster reports whether a failure concerns one cluster only, so that a
// command over several clusters goes on with the others.
func perCluster(err error) bool {
	e, ok := asAPIError(err)
	if !ok {
		return false
	}
	switch e.Type {
	case api.ErrNotSupported, api.ErrClusterNotUp, "CloudError", api.ErrClusterOwnerMismatch, api.ErrRuntime, api.ErrValue,
		api.ErrClusterDoesNotExist, api.ErrStatusFetching, api.ErrCommand, "NotImplementedError", "PermissionDeniedError":
		return true
	}
	return false
}
