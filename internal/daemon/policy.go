package daemon

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/config/policy"
	"github.com/skypilot-go/sky/internal/state"
)

// policyTimeout bounds one question to a policy service.
const policyTimeout = 30 * time.Second

// applyPolicy asks the administrator's policy about the tasks of a request and
// returns them, as the policy wants them, with the configuration to go on with.
// dag is the wire form: documents, the first one a header.
func (d *daemon) applyPolicy(ctx context.Context, c *config.Config, name, dag string, o *api.RequestOptions, user state.User, out io.Writer) (string, *config.Config, error) {
	p, err := policy.New(c, &http.Client{Timeout: policyTimeout})
	if err != nil || p == nil {
		return dag, c, err
	}
	if out != nil {
		fmt.Fprintf(out, "Applying server admin policy: %s\n", p)
	}
	version := api.ProductVersion
	r := policy.Request{Name: name, User: &policy.User{ID: user.ID, Name: user.Name}, ClientVersion: &version}
	if o != nil {
		r.Options = &policy.Options{ClusterName: o.ClusterName, IdleMinutesToAutostop: o.IdleMinutesAutostop, Down: o.Down, DryRun: o.Dryrun}
	}
	return p.ApplyDag(ctx, c, r, dag)
}
