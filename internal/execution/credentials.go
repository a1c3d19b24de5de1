package execution

import (
	"context"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/trace"
	"github.com/skypilot-go/sky/task"
)

// announceCredentials says which of the server's credentials nodes in a place will have.
func (x *Executor) announceCredentials(ctx context.Context, call cluster.Call, t *task.Task, at cloud.Place, name string) error {
	if x.Credentials == nil {
		return nil
	}
	cfg, err := settings(call, t)
	if err != nil {
		return err
	}
	section := placed(cfg, &state.Cluster{Name: name, Workspace: cfg.ActiveWorkspace()})(at)
	return x.Credentials.Announce(ctx, call, cfg, section, name, at.Cloud)
}

// giveCredentials takes the server's credentials to nodes that are to have them.
func (l *launch) giveCredentials(ctx context.Context, c *state.Cluster) error {
	if l.x.Credentials == nil {
		return nil
	}
	cfg, err := settings(l.call, l.task)
	if err != nil {
		return err
	}
	return trace.Do(ctx, "take credentials to nodes", func(ctx context.Context) error {
		return l.x.Credentials.Give(ctx, l.call, cfg, placed(cfg, c)(c.Offer.Place), c)
	})
}
