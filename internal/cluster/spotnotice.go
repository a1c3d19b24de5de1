package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
)

// noticePeriod is how often clouds that announce to their customers alone, and not to the
// machine, that they take it back are asked.
const noticePeriod = 20 * time.Second

// passNotices tells agents what those clouds announce about their machines.
func (m *Manager) passNotices(ctx context.Context) {
	all, err := m.Store.Clusters().List(ctx, state.ClusterFilter{Statuses: []api.ClusterStatus{api.ClusterUp}})
	if err != nil {
		m.Log.WarnContext(ctx, "clusters not listed", "err", err)
		return
	}
	on := map[string][]*state.Cluster{}
	for _, c := range all {
		if c.Offer.Spot && m.Here(c) == nil && !remote.Agentless(c) {
			on[c.Offer.Cloud] = append(on[c.Offer.Cloud], c)
		}
	}
	for name, clusters := range on {
		p, _ := m.Providers.Get(name)
		announces, ok := cloud.As[cloud.SpotNotices](p)
		if !ok {
			continue
		}
		pctx, cancel := context.WithTimeout(ctx, providerLimit)
		notices, err := m.Provision.Noticed(pctx, announces)
		cancel()
		if err != nil {
			m.Log.InfoContext(ctx, "it is not known which machines are taken back", "cloud", name, "err", err)
		}
		for _, n := range notices {
			m.passNotice(ctx, clusters, n)
		}
	}
}

func (m *Manager) passNotice(ctx context.Context, clusters []*state.Cluster, n cloud.SpotNotice) {
	for _, c := range clusters {
		rank := slices.IndexFunc(c.Nodes, func(node cloud.Node) bool { return node.ID == n.NodeID })
		if rank < 0 {
			continue
		}
		client, err := m.Remote.Node(c, rank)
		if err == nil {
			actx, cancel := context.WithTimeout(ctx, agentTimeout)
			_, err = client.Notice(actx, agentapi.Notice{Action: "terminate", At: float64(n.At.UnixMilli()) / 1000})
			cancel()
		}
		if err != nil {
			m.Log.InfoContext(ctx, "an agent does not know that its machine is taken back", "cluster", c.Name, "node", rank, "err", err)
		}
	}
}
