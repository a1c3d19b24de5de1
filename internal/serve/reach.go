package serve

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
	"github.com/skypilot-go/sky/internal/serve/probe"
	"github.com/skypilot-go/sky/internal/state"
)

// reachOf is where a port of a replica is reached, and in which network that address
// holds (see [balancerapi.Replica]). endpoint is where its cloud says that it is; "": it
// does not say.
//
// A private address may be another machine's in the network that this server is in, so
// it is dialled only where it is known to be the replica's.
func reachOf(c *state.Cluster, endpoint, port string) (address, network string) {
	if len(c.Nodes) == 0 {
		return "", ""
	}
	n := c.Nodes[0]
	host, at, err := net.SplitHostPort(endpoint)
	if err == nil {
		_, err = strconv.Atoi(at) // or it is a URL
	}
	inside := n.InternalIP
	if inside == "" {
		inside = "127.0.0.1"
	}
	inside = net.JoinHostPort(inside, port)
	known := err == nil && host != ""
	switch {
	case n.Reach.Method == "kubernetes" && (!known || host == n.InternalIP):
		kube, _, _ := strings.Cut(n.Reach.Host, "/")
		return inside, balancerapi.KubernetesNetwork(kube)
	case !known:
		return inside, balancerapi.AgentOnly
	case host != n.InternalIP || host == n.ExternalIP:
		return endpoint, ""
	case n.Reach.Method == "ssh" && (n.Reach.Host != host || n.Reach.ProxyJump != "" || n.Reach.ProxyCommand != ""):
		return inside, balancerapi.AgentOnly
	}
	// A machine whose host key was seen at that address, or one on this computer.
	return endpoint, ""
}

// dials reports whether this server dials addresses in a network itself.
func (m *Manager) dials(network string) bool {
	return network == "" || slices.Contains(m.Networks, network)
}

// target is a replica that a table names.
type target struct {
	service string
	replica int
}

// A site is where a replica is: its cluster and the address there.
type site struct{ cluster, hash, address string }

// Connect reaches a replica through the agent on its machine, for balancers that are
// not in its network. The connection outlives ctx.
func (m *Manager) Connect(ctx context.Context, service string, replica int) (net.Conn, error) {
	m.mu.Lock()
	s, ok := m.sites[target{service, replica}]
	m.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("service %q has no replica %d that takes requests", service, replica)
	}
	return m.dialAt(ctx, s)
}

// dialAt connects to an address as the head of a cluster sees it.
func (m *Manager) dialAt(ctx context.Context, s site) (net.Conn, error) {
	c, err := m.Store.Clusters().Get(ctx, s.cluster)
	if err != nil {
		return nil, err
	}
	if c.Hash != s.hash {
		return nil, fmt.Errorf("cluster %s is gone", s.cluster)
	}
	return m.Clusters.AgentDial(ctx, c, s.address)
}

// prober asks a replica through the agent, or by its address. connected, if given, is
// set once it answers there.
func (w *watcher) prober(through bool, connected *bool) probe.Prober {
	return probe.Prober{Dial: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		switch {
		case through:
			conn, err = w.c.m.dialAt(ctx, site{w.r.at.ClusterName, w.r.at.ClusterHash, address})
		case w.c.m.Dial != nil:
			conn, err = w.c.m.Dial(ctx, network, address)
		default:
			conn, err = probe.Dial(ctx, network, address)
		}
		if err == nil && connected != nil {
			*connected = true
		}
		return conn, err
	}}
}

// ask probes the replica once. One that takes no connections at its address, and
// answers through its agent, is reached so from then on: its port is closed to others.
func (w *watcher) ask(ctx context.Context) probe.Result {
	through := !w.c.m.dials(w.state.Network)
	connected := false
	result := w.prober(through, &connected).Probe(ctx, w.r.at.Endpoint, w.set)
	if result.OK || through || connected || ctx.Err() != nil {
		return result
	}
	if !w.prober(true, nil).Probe(ctx, w.r.at.Endpoint, w.set).OK {
		return result
	}
	// It may have begun to listen in between.
	if again := w.prober(false, nil).Probe(ctx, w.r.at.Endpoint, w.set); again.OK || ctx.Err() != nil {
		return again
	}
	w.c.out.Printf("Replica %d takes no connections at %s; it is reached through its agent", w.r.ID, w.r.at.Endpoint)
	w.state.Network = balancerapi.AgentOnly
	w.save(ctx)
	return probe.Result{OK: true}
}
