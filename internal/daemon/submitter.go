package daemon

import (
	"context"
	"errors"
	"fmt"
	"os/user"

	"github.com/skypilot-go/sky/internal/auth"
	"github.com/skypilot-go/sky/internal/cloud/sshpool"
	"github.com/skypilot-go/sky/internal/state"
)

// submitter is the user whose clusters run as an account of their own on own machines. No
// name that a client sends counts: with logins it is the one that the login proved, and
// without them everybody is the account that this server runs as.
func (d *daemon) submitter(ctx context.Context, id string) (sshpool.Submitter, error) {
	if !d.logins || id == d.self.ID {
		own, err := user.Current()
		if err != nil {
			return sshpool.Submitter{}, fmt.Errorf("finding out as which account this server runs: %w", err)
		}
		return sshpool.Submitter{Name: own.Username}, nil
	}
	if auth.IsAccount(id) { // whoever makes a service account chooses its name
		return sshpool.Submitter{Name: id, Listed: true}, nil
	}
	u, err := d.store.Users().Get(ctx, id)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return sshpool.Submitter{}, err
	}
	if err != nil || auth.UserID(u.Name) != id {
		return sshpool.Submitter{}, fmt.Errorf("no login has shown who the user %s is: log in and launch again", id)
	}
	return sshpool.Submitter{Name: u.Name}, nil
}
