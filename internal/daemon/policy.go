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
	"github.com/skypilot-go/sky/internal/execution"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// policyTimeout bounds one question to a policy service.
const policyTimeout = 30 * time.Second

// applyPolicy asks the administrator's policy about the tasks of a request, which were sent
// as dag, and returns them, as the policy wants them, with the configuration to go on with.
// env says which client asks.
func (d *daemon) applyPolicy(ctx context.Context, c *config.Config, name, dag string, o *api.RequestOptions, user state.User, env api.Envelope, out io.Writer) (string, *config.Config, error) {
	p, err := policy.New(c, &http.Client{Timeout: policyTimeout})
	if err != nil || p == nil {
		return dag, c, err
	}
	if out != nil {
		fmt.Fprintf(out, "Applying server admin policy: %s\n", p)
	}
	r := policy.Request{Name: name, User: &policy.User{ID: user.ID, Name: user.Name}, ClientAPIVersion: env.ClientAPIVersion, ClientVersion: env.ClientVersion}
	if o != nil {
		r.Options = &policy.Options{ClusterName: o.ClusterName, IdleMinutesToAutostop: o.IdleMinutesAutostop, Down: o.Down, DryRun: o.Dryrun}
	}
	tasks, err := task.ParseSent("task", []byte(dag))
	if err != nil {
		return "", nil, execution.TaskError(err)
	}
	return p.ApplyDag(ctx, c, r, tasks)
}
