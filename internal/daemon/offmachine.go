package daemon

import (
	"context"
	"errors"
	"os"

	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/controller"
	"github.com/skypilot-go/sky/internal/state"
)

// offMachine is the configuration for those who are no administrators: nothing
// of theirs runs on the server's own machine, where it could read all that the
// server knows, unless allowed_clouds says so; and of the clusters that the server
// has credentials for they use those that its configuration lists.
func (d *daemon) offMachine(c *config.Config) *config.Config {
	c = c.Confined()
	for _, p := range d.providers.All() {
		if p.Features().OnServer {
			c = c.Withhold(p.Name(), "its nodes are on the API server's own machine, which only administrators may use, unless the server's configuration lists it in allowed_clouds")
		}
	}
	return c
}

// sender is whose configuration comes with a request that may touch what the
// scope says.
func sender(scope *state.Scope) config.Sender {
	if scope == nil {
		return config.Admin
	}
	return config.User
}

// senderOf is sender for what goes on after its request, such as a managed job.
func (d *daemon) senderOf(ctx context.Context, user state.User) config.Sender {
	if d.administers(ctx, user) {
		return config.Admin
	}
	return config.User
}

// administers reports whether a user may do everything here. Without logins
// everybody may. Where managed jobs are handed to, nobody uses the machine.
func (d *daemon) administers(ctx context.Context, user state.User) bool {
	if os.Getenv(controller.EnvFar) == "1" {
		return false
	}
	u, err := d.store.Users().Get(ctx, user.ID)
	if errors.Is(err, state.ErrNotFound) {
		return true // nobody who ever logged in
	}
	return err == nil && (u.Role == "" || u.Role == "admin")
}
