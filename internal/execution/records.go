package execution

import (
	"context"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
)

func (x *Executor) event(ctx context.Context, c *state.Cluster, kind string, from api.ClusterStatus, reason string) {
	err := x.Store.Clusters().AddEvent(ctx, state.ClusterEvent{
		ClusterHash: c.Hash, ClusterName: c.Name, Type: kind, Reason: reason, Starting: from, Ending: c.Status, At: time.Now(),
	})
	if err != nil {
		x.Log.WarnContext(ctx, "cluster event not stored", "cluster", c.Name, "err", err)
	}
}

func (x *Executor) usage(ctx context.Context, c *state.Cluster) {
	if err := x.Store.Clusters().OpenUsage(ctx, c.Hash, time.Now()); err != nil {
		x.Log.WarnContext(ctx, "usage not stored", "cluster", c.Name, "err", err)
	}
}

// account is whose the machines of a cluster are; nil where there are no
// accounts, or nobody can tell at the moment.
func (x *Executor) account(ctx context.Context, c *state.Cluster) []string {
	p, ok := x.Providers.Get(c.Offer.Cloud)
	if !ok {
		return nil
	}
	who, err := x.Clusters.Account(ctx, p)
	if err != nil {
		x.Log.WarnContext(ctx, "the owner of a cluster is not known", "cluster", c.Name, "err", err)
	}
	return who
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

func command(call cluster.Call, fallback string) string {
	if call.Command == "" {
		return fallback
	}
	return call.Command
}
