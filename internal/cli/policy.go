package cli

import (
	"context"

	sky "github.com/skypilot-go/sky"
	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/config/policy"
	"github.com/skypilot-go/sky/task"
)

// applyPolicy asks the administrator's policy of this machine, if there is one,
// about what is going to be requested, and returns the Dag as the policy wants
// it.
func (a *app) applyPolicy(ctx context.Context, client *sky.Client, name string, dag *task.Dag, o *api.RequestOptions) (*task.Dag, error) {
	s, err := a.config()
	if err != nil {
		return nil, err
	}
	p, err := policy.New(s.all, nil)
	if err != nil || p == nil {
		return dag, err
	}
	a.t.Note("Applying client admin policy: %s", p)
	r := policy.Request{Name: name, AtClientSide: true}
	if o != nil {
		r.Options = &policy.Options{ClusterName: o.ClusterName, IdleMinutesToAutostop: o.IdleMinutesAutostop, Down: o.Down, DryRun: o.Dryrun}
	}
	changed, c, err := p.ApplyDag(ctx, s.all, r, dag)
	if err != nil {
		return nil, err
	}
	client.SetConfig(c.ForRequest())
	return task.Parse("the task as the policy changed it", []byte(changed))
}
