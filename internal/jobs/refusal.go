package jobs

import (
	"errors"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/provision"
)

// A lostError means that the cluster to which a job was being submitted is
// gone: the job may have run there.
type lostError struct{ reason string }

func (e *lostError) Error() string { return e.reason }

// verdict is what a failed launch means.
type verdict int

const (
	tryLater verdict = iota // nothing to be had at the moment, or we cannot tell
	never                   // it can never work as it is
	badSetup                // the user's part of bringing it up failed
	lostIt                  // the job may have run and its cluster is gone
)

// judge says what the error of a launch means. ran reports that the task ran
// before: what worked once is given more credit.
func judge(err error, ran bool) verdict {
	if _, ok := errors.AsType[*lostError](err); ok {
		return lostIt
	}
	if _, ok := errors.AsType[*filesync.NoSpaceError](err); ok {
		return badSetup
	}
	if _, ok := errors.AsType[*config.Error](err); ok {
		return never
	}
	if u, ok := errors.AsType[*provision.UnplacedError](err); ok {
		return judgeAttempts(u, ran)
	}
	if _, ok := errors.AsType[*provision.LostError](err); ok { // of a cluster that was up
		return lostIt
	}
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		return tryLater
	}
	switch e.Type {
	case api.ErrResourcesUnavailable: // no offer fits at all
		return never
	case api.ErrNoCloudAccess: // credentials that worked before may be out of reach for a while
		if ran {
			return tryLater
		}
		return never
	case api.ErrValue, api.ErrNotSupported, api.ErrInvalidClusterName, api.ErrResourcesMismatch, api.ErrFileNotFound,
		api.ErrPermissionDenied, api.ErrInvalidConfig, api.ErrClusterOwnerMismatch, api.ErrVolumeNotFound, api.ErrVolumeTopology, "UserRequestRejectedByPolicy":
		return never
	}
	return tryLater
}

// judgeAttempts: if every place refused for a reason that time does not mend,
// trying again is pointless.
func judgeAttempts(u *provision.UnplacedError, ran bool) verdict {
	if ran || len(u.Attempts) == 0 {
		return tryLater
	}
	for _, a := range u.Attempts {
		_, invalid := errors.AsType[*cloud.InvalidError](a.Err)
		_, auth := errors.AsType[*cloud.AuthError](a.Err)
		_, denied := errors.AsType[*cloud.PermissionError](a.Err)
		if !invalid && !auth && !denied {
			return tryLater
		}
	}
	return never
}
