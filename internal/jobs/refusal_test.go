package jobs

import (
	"errors"
	"fmt"
	"testing"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/provision"
)

// What a failed launch means for a task that has not run, and for one that has: what
// worked once is given more credit.
func TestWhatAFailedLaunchMeans(t *testing.T) {
	typed := func(name string) error { return &api.Error{Type: name} }
	unplaced := func(errs ...error) error {
		u := &provision.UnplacedError{Cluster: "c"}
		for _, err := range errs {
			u.Attempts = append(u.Attempts, &provision.AttemptError{Err: err})
		}
		return u
	}
	invalid, auth, denied := &cloud.InvalidError{Err: errors.New("x")}, &cloud.AuthError{Err: errors.New("x")}, &cloud.PermissionError{Err: errors.New("x")}
	for _, c := range []struct {
		name         string
		err          error
		first, again verdict // before it ran, and after
	}{
		{"the cluster was gone while the job was sent", &lostError{"gone"}, lostIt, lostIt},
		{"machines were lost while it was set up", &provision.LostError{Err: &provision.GangError{}}, lostIt, lostIt},
		{"the files do not fit on the disk", fmt.Errorf("copying: %w", &filesync.NoSpaceError{Path: "/data"}), badSetup, badSetup},
		{"the configuration is wrong", &config.Error{Head: "x"}, never, never},
		{"no place was asked", unplaced(), tryLater, tryLater},
		{"the request is invalid everywhere", unplaced(invalid, invalid), never, tryLater},
		{"no place lets us in", unplaced(auth), never, tryLater},
		{"every place denies it", unplaced(denied, auth, invalid), never, tryLater},
		{"one place has no room", unplaced(invalid, errors.New("no room"), denied), tryLater, tryLater},
		{"no offer fits", typed(api.ErrResourcesUnavailable), never, never},
		{"no cloud is set up", typed(api.ErrNoCloudAccess), never, tryLater},
		{"the task is wrong", typed(api.ErrValue), never, never},
		{"it is not supported", typed(api.ErrNotSupported), never, never},
		{"the policy says no", typed("UserRequestRejectedByPolicy"), never, never},
		{"it may not be", fmt.Errorf("x: %w", typed(api.ErrPermissionDenied)), never, never},
		{"something broke here", typed(api.ErrRuntime), tryLater, tryLater},
		{"something broke", errors.New("x"), tryLater, tryLater},
	} {
		if got := judge(c.err, false); got != c.first {
			t.Errorf("%s, at first: %v, want %v", c.name, got, c.first)
		}
		if got := judge(c.err, true); got != c.again {
			t.Errorf("%s, after it ran: %v, want %v", c.name, got, c.again)
		}
	}
}
