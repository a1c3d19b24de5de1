package cluster

import (
	"context"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
)

// Clouds allow so many questions a second, and most clusters are fine. So the
// background look asks a cloud that has many of ours for all of their machines
// at once. That list only says for which clusters there is nothing to do; about
// every other one the cloud is asked again, under the cluster's lock.

// listFrom is from how many clusters on a cloud it is asked for all at once: a
// list of everything may take a call for each of its regions.
const listFrom = 20

// heardWithin is how recently the agents of a cluster must have been heard that is
// not asked about: they speak every ten seconds.
const heardWithin = 30 * time.Second

// fine is the hashes of clusters that run as their records say, as far as one list
// a cloud and their agents tell.
func (m *Manager) fine(ctx context.Context, clusters []*state.Cluster) map[string]bool {
	on := map[string][]*state.Cluster{}
	for _, c := range clusters {
		on[c.Offer.Cloud] = append(on[c.Offer.Cloud], c)
	}
	fine := map[string]bool{}
	for name, those := range on {
		p, ok := m.Providers.Get(name)
		if !ok || len(those) < listFrom {
			continue
		}
		pctx, cancel := context.WithTimeout(ctx, providerLimit)
		all, err := m.Provision.Listed(pctx, p)
		cancel()
		if err != nil {
			m.Log.InfoContext(ctx, "machines not listed at once; each cluster is looked at", "cloud", name, "err", err)
			continue
		}
		nodes := map[string][]cloud.Node{}
		for _, n := range all {
			nodes[n.Hash] = append(nodes[n.Hash], n)
		}
		for _, c := range those {
			if m.asRecorded(c, nodes[c.Hash]) {
				fine[c.Hash] = true
			}
		}
	}
	return fine
}

// asRecorded reports whether a cluster's machines all run, as its record says, and
// its agents are heard.
func (m *Manager) asRecorded(c *state.Cluster, nodes []cloud.Node) bool {
	if c.Status != api.ClusterUp || GivingBack(c) {
		return false
	}
	if !remote.Agentless(c) && !m.watcher.hears(c, now().Add(-heardWithin)) {
		return false
	}
	v := Decide(c, Observation{Nodes: nodes, Agent: &agentapi.Info{State: agentapi.AgentRunning}}, now())
	return v.Status == api.ClusterUp && !v.Gone && !v.Unknown
}
