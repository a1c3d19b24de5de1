// Package remote reaches the nodes of clusters: it brings the agent onto them,
// starts it, tells it which cluster it belongs to, and opens the connections
// everything else talks through. How a node is reached (on this machine, over
// ssh, through Kubernetes) is known here and nowhere above.
package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
	"github.com/skypilot-go/sky/internal/bounded"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/docker"
	"github.com/skypilot-go/sky/internal/cloud/kubernetes"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/pki"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
	"github.com/skypilot-go/sky/internal/state"
)

// Options say where the agent comes from.
type Options struct {
	Binary     string // the agent's executable; "" is the running one
	BuildID    string // its id
	RuntimeDir string // where copies for nodes on this machine are kept
	// Agents finds a small agent for a kind of machine, compressed with zstd; nil,
	// or false: Binary goes there.
	Agents func(goos, goarch string) (packed []byte, ok bool)
	// Mounts does the same for sky-mount.
	Mounts func(goos, goarch string) (packed []byte, ok bool)
	Logger *slog.Logger
	// StartTimeout bounds the start of one agent; 0 is 20 seconds.
	StartTimeout time.Duration
	// SSH holds the connections to machines with an sshd; nil: there are none.
	SSH *sshconn.Pool
	// Docker is the engine whose containers are nodes; nil: there is none.
	Docker *docker.Engine
	// Kubernetes are the clusters whose pods are nodes; nil: there are none.
	Kubernetes *kubernetes.Contexts
	// SkyDir is where users' keys are (~/.sky).
	SkyDir string
	// ShareKey returns the private key of a user that all servers use, which is the
	// given one if there is none yet; nil: this server is the only one.
	ShareKey func(user string, private []byte) ([]byte, error)
	// SSHConfig is the home folder whose ~/.ssh/config gets entries for
	// clusters; "": none does.
	SSHConfig string
	// SSHProxy is the ProxyCommand of those entries for nodes that have no sshd, less the
	// node and the cluster; "": such nodes get none.
	SSHProxy string
	// Transports replace, by the name of the method, how nodes are reached. Tests
	// whose nodes are no machines set it.
	Transports map[string]Transport
}

// Transport is a way to reach nodes.
type Transport interface {
	// Start makes an agent of this build run on the node and returns the address
	// it listens on. One that runs is left alone.
	Start(ctx context.Context, c *state.Cluster, n cloud.Node) (address string, err error)
	// Dial connects to the agent's address.
	Dial(ctx context.Context, n cloud.Node, address string) (net.Conn, error)
}

// given is a transport of the options.
type given struct{ Transport }

func (g given) start(ctx context.Context, c *state.Cluster, n cloud.Node, _ *spread, _ *Containers) (string, error) {
	return g.Start(ctx, c, n)
}

// Connector holds the connections to agents. Its methods may be called
// concurrently.
type Connector struct {
	o       Options
	bins    binaries
	uploads chan struct{} // as many as may go on at once

	mu      sync.Mutex
	clients map[clientKey]*agentclient.Client
	sems    map[string]bounded.Semaphore // by cluster hash

	keys sync.Map // keyPair by user
}

// clientKey tells clients apart: agents of different nodes may listen on the
// same address, each on its own network, and a node may move.
type clientKey struct {
	hash    string
	node    string
	address string
	host    string
}

// New returns a connector without connections.
func New(o Options) *Connector {
	if o.StartTimeout == 0 {
		o.StartTimeout = 20 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Connector{o: o, uploads: make(chan struct{}, uploadsAtOnce), clients: map[clientKey]*agentclient.Client{}, sems: map[string]bounded.Semaphore{}}
}

// A NodeError says which node could not be reached or set up, and in which
// step.
type NodeError struct {
	Node string // "head", "worker2"
	Step string
	Err  error
}

func (e *NodeError) Error() string { return fmt.Sprintf("%s: %s: %v", e.Node, e.Step, e.Err) }
func (e *NodeError) Unwrap() error { return e.Err }

// NodeName is how people call the node of that rank.
func NodeName(rank int) string {
	if rank == 0 {
		return "head"
	}
	return fmt.Sprintf("worker%d", rank)
}

// transport starts agents on nodes reached in one way.
type transport interface {
	// start makes an agent of this build run on the node and returns the
	// address it listens on. A running one is left alone. Whoever has the agent
	// already may bring it there. On a machine whose cluster has an image it runs
	// in a container of it; with made nil no container is made.
	start(ctx context.Context, c *state.Cluster, n cloud.Node, s *spread, made *Containers) (address string, err error)
}

func (r *Connector) transport(n cloud.Node) (transport, error) {
	if t, ok := r.o.Transports[n.Reach.Method]; ok {
		return given{t}, nil
	}
	switch n.Reach.Method {
	case "local":
		return (*localTransport)(r), nil
	case "ssh":
		return (*sshTransport)(r), nil
	case "docker":
		return (*dockerTransport)(r), nil
	case "kubernetes":
		return (*kubernetesTransport)(r), nil
	}
	return nil, fmt.Errorf("this version of sky cannot reach nodes by %q", n.Reach.Method)
}

var errNoNodes = errors.New("the cluster has no nodes")

// Ensure makes an agent run on every node of the cluster and know its place in
// it. The cluster's Nodes get the agents' addresses; the caller saves them. It
// is safe to repeat, and cheap when nothing is missing.
//
// Containers that the agents run in are started, and not made: see [Connector.Install].
func (r *Connector) Ensure(ctx context.Context, c *state.Cluster) error { return r.ensure(ctx, c, nil) }

// Install is Ensure for machines that may be new, or just switched on: they are
// given time to boot, and their containers are made. What is waited for is told
// with [cloud.ReportWait], of the first node that is waited for.
func (r *Connector) Install(ctx context.Context, c *state.Cluster, made Containers) error {
	return r.ensure(ctx, c, &made)
}

// ensureTries is how often an agent is started that ends before it could be
// configured.
const ensureTries = 3

func (r *Connector) ensure(ctx context.Context, c *state.Cluster, made *Containers) error {
	if len(c.Nodes) == 0 {
		return errNoNodes
	}
	if Agentless(c) {
		return nil
	}
	for try := 1; ; try++ {
		err := r.startAndConfigure(ctx, c, made)
		if _, gone := errors.AsType[*agentclient.UnreachableError](err); !gone || try == ensureTries || ctx.Err() != nil {
			if err == nil {
				r.offerSSH(ctx, c)
			}
			return err
		}
		r.o.Logger.Warn("an agent ended as it was configured; it is started again", "cluster", c.Name, "err", err)
	}
}

// startAndConfigure is one pass of Ensure over all nodes. An
// [*agentclient.UnreachableError] is an agent that was started and does not answer.
func (r *Connector) startAndConfigure(ctx context.Context, c *state.Cluster, made *Containers) error {
	g, gctx := errgroup.WithContext(ctx)
	s := newSpread(c.Nodes)
	w := &waiting{told: func(what string) { cloud.ReportWait(ctx, what) }, of: make([]string, len(c.Nodes))}
	for i := range c.Nodes {
		g.Go(func() error {
			defer w.hear(i, "")
			gctx := cloud.WithWaitReports(gctx, func(what string) { w.hear(i, what) })
			t, err := r.transport(c.Nodes[i])
			if err != nil {
				return &NodeError{NodeName(i), "reaching it", err}
			}
			address, err := t.start(gctx, c, c.Nodes[i], s, made)
			if err != nil {
				return &NodeError{NodeName(i), "starting the agent", err}
			}
			c.Nodes[i].Reach.Agent = address
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// Workers first: the head may drive them as soon as it knows of them.
	g, gctx = errgroup.WithContext(ctx)
	for i := 1; i < len(c.Nodes); i++ {
		g.Go(func() error { return r.configure(gctx, c, i) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return r.configure(ctx, c, 0)
}

// Agentless reports that the cluster's nodes are no machines, and have no agents.
func Agentless(c *state.Cluster) bool {
	return len(c.Nodes) > 0 && c.Nodes[0].Reach.Method == cloud.ReachNone
}

func (r *Connector) configure(ctx context.Context, c *state.Cluster, rank int) error {
	client, err := r.Node(c, rank)
	if err != nil {
		return &NodeError{NodeName(rank), "connecting", err}
	}
	if _, err := client.Configure(ctx, Spec(c, rank)); err != nil {
		return &NodeError{NodeName(rank), "configuring the agent", err}
	}
	return nil
}

// Spec is what the agent of that rank is told about its cluster.
func Spec(c *state.Cluster, rank int) agentapi.ClusterSpec {
	spec := agentapi.ClusterSpec{
		Name: c.Name, NameOnCloud: c.NameOnCloud, Hash: c.Hash, Epoch: c.Epoch,
		Cloud: c.Offer.Cloud, Region: c.Offer.Region, Zone: c.Offer.Zone,
		User: c.UserName, Self: rank,
		Capacity: agentapi.Capacity{
			CPUs: c.Offer.CPUs, MemoryGiB: c.Offer.MemoryGiB, Accelerators: c.Offer.Accelerators,
		},
		Hosts: c.Offer.Hosts,
	}
	for _, n := range c.Nodes {
		spec.Nodes = append(spec.Nodes, agentapi.Node{ID: n.ID, IP: n.InternalIP, Address: n.Reach.Agent})
	}
	return spec
}

// Head is the client of the cluster's head agent.
func (r *Connector) Head(c *state.Cluster) (*agentclient.Client, error) { return r.Node(c, 0) }

// Node is the client of the agent of that rank. It does no I/O.
func (r *Connector) Node(c *state.Cluster, rank int) (*agentclient.Client, error) {
	if rank < 0 || rank >= len(c.Nodes) {
		return nil, fmt.Errorf("cluster %s has %d nodes; there is no node %d", c.Name, len(c.Nodes), rank)
	}
	if c.Nodes[rank].Reach.Agent == "" {
		return nil, fmt.Errorf("no agent was started yet on %s of cluster %s", NodeName(rank), c.Name)
	}
	return r.client(c, c.Nodes[rank])
}

func (r *Connector) client(c *state.Cluster, n cloud.Node) (*agentclient.Client, error) {
	key := clientKey{c.Hash, n.ID, n.Reach.Agent, n.Reach.Host + ":" + strconv.Itoa(n.Reach.Port)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if client, ok := r.clients[key]; ok {
		return client, nil
	}
	certs, err := c.Certs.Open()
	if err != nil {
		return nil, err
	}
	tlsc, err := pki.ClientConfig(certs)
	if err != nil {
		return nil, err
	}
	var dial agentclient.Dialer
	if t, ok := r.o.Transports[n.Reach.Method]; ok {
		dial = func(ctx context.Context, address string) (net.Conn, error) { return t.Dial(ctx, n, address) }
	} else {
		dial = r.dialer(c, n)
	}
	client := agentclient.New(n.Reach.Agent, tlsc, dial)
	if r.sems[c.Hash] == nil {
		r.sems[c.Hash] = bounded.NewSemaphore()
	}
	client.Share(r.sems[c.Hash])
	r.clients[key] = client
	return client, nil
}

// dialer is how agents on such nodes are dialled; nil: by plain TCP.
func (r *Connector) dialer(c *state.Cluster, n cloud.Node) agentclient.Dialer {
	switch n.Reach.Method {
	case "ssh":
		return (*sshTransport)(r).dialer(&state.Cluster{Hash: c.Hash, UserHash: c.UserHash}, n)
	case "docker":
		return (*dockerTransport)(r).dialer(n)
	case "kubernetes":
		return (*kubernetesTransport)(r).dialer(n)
	}
	return nil
}

// issue makes the certificate of a node of the cluster.
func issue(c *state.Cluster, node string) (*pki.NodeFiles, error) {
	certs, err := c.Certs.Open()
	if err != nil {
		return nil, err
	}
	return pki.IssueNode(certs, node)
}

// Gone is Forget for a cluster whose machines will not come back: the keys of
// their hosts are forgotten, too.
func (r *Connector) Gone(hash string) {
	r.Forget(hash)
	if r.o.SSH != nil {
		if err := r.o.SSH.ForgetHosts(hash + "."); err != nil {
			r.o.Logger.Warn("host keys not forgotten", "err", err)
		}
	}
}

// Forget closes the connections to a cluster that is switched off, and removes
// its entry for the user's ssh.
func (r *Connector) Forget(hash string) {
	r.withdrawSSH(hash, "")
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, client := range r.clients {
		if key.hash == hash {
			client.Close()
			delete(r.clients, key)
		}
	}
	delete(r.sems, hash)
}

// Sync sends what o selects to every node at once. progress, if not nil, is called for
// each node now and then, never concurrently for the same one.
func (r *Connector) Sync(ctx context.Context, c *state.Cluster, o filesync.Options, progress func(rank int, p filesync.Progress)) (filesync.Stats, error) {
	if len(c.Nodes) == 0 {
		return filesync.Stats{}, errNoNodes
	}
	stats := make([]filesync.Stats, len(c.Nodes))
	g, gctx := errgroup.WithContext(ctx)
	for i := range c.Nodes {
		g.Go(func() error {
			own := o
			if progress != nil {
				own.Progress = func(p filesync.Progress) { progress(i, p) }
			}
			s, err := r.syncNode(gctx, c, i, own)
			stats[i] = s
			if err != nil {
				return &NodeError{NodeName(i), "copying " + o.Src.String(), err}
			}
			return nil
		})
	}
	err := g.Wait()
	return stats[0], err
}

// syncNode tries again when the connection breaks: what has arrived stays and
// is not sent twice.
func (r *Connector) syncNode(ctx context.Context, c *state.Cluster, rank int, o filesync.Options) (filesync.Stats, error) {
	client, err := r.Node(c, rank)
	if err != nil {
		return filesync.Stats{}, err
	}
	const tries = 4
	for try := 1; ; try++ {
		stats, err := func() (filesync.Stats, error) {
			conn, err := client.Sync(ctx)
			if err != nil {
				return filesync.Stats{}, &brokenConn{err}
			}
			defer conn.Close()
			return filesync.Send(ctx, conn, o)
		}()
		if filesync.NeedsVersion1(err) && o.Mirror != "" { // an agent of an earlier build: it removes nothing
			o.Mirror, try = "", try-1
			continue
		}
		if err == nil || try == tries || ctx.Err() != nil || !retryable(err) {
			return stats, err
		}
		r.o.Logger.WarnContext(ctx, "sync interrupted; resuming", "cluster", c.Name, "node", NodeName(rank), "try", try, "err", err)
		select {
		case <-ctx.Done():
			return stats, ctx.Err()
		case <-time.After(time.Duration(try) * 300 * time.Millisecond):
		}
	}
}
