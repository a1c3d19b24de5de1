// Package sshpool rents out the user's own machines: pools of hosts with an
// sshd, listed in ~/.sky/ssh_node_pools.yaml. A pool is a region (ssh-<pool>), and costs
// nothing. A task that names CPUs, memory or accelerators gets a share of a machine
// beside other clusters; one that names none gets machines to itself.
//
// What is taken of a machine is recorded on the machine itself, in the home of the user who
// logs in there, so that several installations of sky can share a pool. One folder is one
// node, and no two share anything below it:
//
//	~/.sky/nodes/<machine's name>.d/<node>/node.json   the record, with its share; see package folder
//	~/.sky/nodes/<machine's name>.d/<node>/home/       the node's home: all that sky puts there
//
// With run_as: submitter the home is in another account, in a folder of the same name
// below that account's home, which has a copy of the record. The login's folder has the
// record that counts, and an empty home: so there is one list of who has what of a
// machine, which no account but the login can change.
//
// Giving a node back ends its processes and removes that folder. Nothing else
// on the machine is touched.
package sshpool

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/remote/sshconn"
)

// Name is what users write after "infra:".
const Name = "ssh"

// PoolsFile is the file's name below ~/.sky.
const PoolsFile = "ssh_node_pools.yaml"

// Options say where the files are.
type Options struct {
	File string        // the pools
	Dir  string        // where earlier versions remembered claims
	Home string        // of the user, for ~/.ssh/config and keys
	SSH  *sshconn.Pool // connections
	// Leases is where claims are remembered.
	Leases Leases
	// Submitter is who a user is, by the id, for hosts on which clusters run as their
	// users' accounts; nil: such hosts are refused.
	Submitter func(ctx context.Context, userID string) (Submitter, error)
}

// Provider rents out machines of pools.
type Provider struct {
	o     Options
	facts facts
	turns cloud.KeyedLock
}

// New returns the provider. It does no I/O.
func New(o Options) *Provider { return &Provider{o: o} }

// InSkyDir are the options for the usual places below ~/.sky.
func InSkyDir(home string, ssh *sshconn.Pool, leases Leases) Options {
	sky := filepath.Join(home, ".sky")
	return Options{File: filepath.Join(sky, PoolsFile), Dir: filepath.Join(sky, "ssh_node_pools_info"), Home: home, SSH: ssh, Leases: leases}
}

func (p *Provider) Name() string        { return Name }
func (p *Provider) DisplayName() string { return "SSH" }

// Pace is without bounds: the machines are the user's own.
func (p *Provider) Pace() (perSecond float64, burst int) { return 0, 0 }

// Features says what machines of one's own cannot be asked for.
func (p *Provider) Features() cloud.Features {
	const own = "the machines are the user's own"
	return cloud.Features{MaxNameLength: maxName, Lacks: map[cloud.Feature]string{
		cloud.FeatureStop:      own + " and stay on; sky down gives them back to the pool",
		cloud.FeatureAutostop:  own + " and stay on; use autodown (--down)",
		cloud.FeatureSpot:      own + ", which nobody sells as spot",
		cloud.FeatureImage:     own + " and use their operating system",
		cloud.FeatureDiskTier:  own + " and use their disks",
		cloud.FeatureNetTier:   own + " and use their network",
		cloud.FeatureLocalDisk: own + " and use their disks",
		cloud.FeaturePorts:     own + " and have their own firewalls",
		cloud.FeatureCloneDisk: own + " and have no disks to clone",
	}}
}

// Check succeeds when one machine lets us in; it waits for no other then.
func (p *Provider) Check(ctx context.Context) (cloud.Identity, error) {
	pools, err := p.pools()
	if err != nil {
		return nil, err
	}
	if err := p.reached(ctx, all(pools), cloud.Place{Cloud: Name}); err != nil {
		return nil, err
	}
	var names cloud.Identity
	for _, pool := range pools {
		names = append(names, "pool "+pool.name)
	}
	return names, nil
}

// CheckPlaces tries the machines of each pool that ssh.allowed_node_pools allows.
func (p *Provider) CheckPlaces(ctx context.Context, only string, settings func(string) map[string]any) ([]cloud.CheckedPlace, error) {
	pools, err := p.pools()
	if err != nil {
		return nil, err
	}
	list, some := settings("")["allowed_node_pools"].([]any)
	pools = slices.DeleteFunc(pools, func(of *pool) bool {
		return only != "" && only != region(of.name) || only == "" && some && !slices.Contains(list, any(of.name))
	})
	if only != "" && len(pools) == 0 {
		return nil, &cloud.InvalidError{Place: cloud.Place{Cloud: Name, Region: only}, Err: fmt.Errorf("%s lists no such pool", p.o.File)}
	}
	return parallel(pools, func(of *pool) cloud.CheckedPlace {
		at := region(of.name)
		return cloud.CheckedPlace{Region: at, Err: p.reached(ctx, of.hosts, cloud.Place{Cloud: Name, Region: at})}
	}), nil
}

// reached succeeds when one of the machines lets us in; it waits for no other then.
func (p *Provider) reached(ctx context.Context, hosts []*host, at cloud.Place) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan *seen, len(hosts))
	limit := make(chan struct{}, atOnce)
	for _, h := range hosts {
		go func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			results <- p.ask(ctx, h, where+tell)
		}()
	}
	var failed []*seen
	for range hosts {
		s := <-results
		if s.err == nil {
			return nil
		}
		failed = append(failed, s)
	}
	return p.failure(failed, at)
}

// pools reads the file; none is an [*cloud.AuthError].
func (p *Provider) pools() ([]*pool, error) {
	pools, err := load(p.o.File, p.o.Home)
	if err != nil {
		return nil, &cloud.AuthError{Cloud: Name, Err: err, Fix: "list your machines in " + p.o.File + ":\n      my-pool:\n        user: me\n        identity_file: ~/.ssh/id_ed25519\n        hosts: [10.0.0.1, 10.0.0.2]", NotSetUp: errors.Is(err, errNoPools)}
	}
	return pools, nil
}

func all(pools []*pool) []*host {
	var hosts []*host
	for _, p := range pools {
		hosts = append(hosts, p.hosts...)
	}
	return hosts
}

const (
	// atOnce bounds how many machines are asked in parallel.
	atOnce = 64
	// offerPatience bounds how long planning waits for machines that are slow
	// to answer.
	offerPatience = 8 * time.Second
)

// lookAt looks at machines in parallel; the results are in their order.
func (p *Provider) lookAt(ctx context.Context, hosts []*host) []*seen {
	return parallel(hosts, func(h *host) *seen { return p.look(ctx, h) })
}

func parallel[T, R any](in []T, f func(T) R) []R {
	out := make([]R, len(in))
	limit := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, v := range in {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			out[i] = f(v)
		})
	}
	wg.Wait()
	return out
}

// Prepare has nothing to do.
func (p *Provider) Prepare(context.Context, cloud.LaunchSpec) error { return nil }

// Nodes reads the records on the machines where the cluster is or may be. A
// machine that does not answer may have one of its nodes, so nothing is said
// then; only a list of everything leaves it out.
func (p *Provider) Nodes(ctx context.Context, id cloud.ClusterID) ([]cloud.Node, error) {
	intents, err := p.intents(ctx, id)
	if err != nil {
		return nil, err
	}
	pools, perr := p.pools()
	if perr != nil && len(intents) == 0 {
		return nil, noneConfigured(perr)
	}
	if id.Name == "" {
		return p.everything(ctx, id, pools, intents)
	}
	var hosts []*host
	for _, i := range intents {
		hosts = append(hosts, i.hosts(pools)...)
	}
	if len(intents) == 0 {
		if validName(id.Name) != nil {
			return nil, nil
		}
		hosts = all(pools)
	}
	looks := p.lookAt(ctx, unique(hosts))
	if bad := append(failed(looks), unasked(looks, id)...); len(bad) > 0 {
		return nil, p.failure(bad, cloud.Place{Cloud: Name})
	}
	return nodesOf(looks, id), nil
}

// noneConfigured: without pools there are no nodes; a file that cannot be read
// is another matter.
func noneConfigured(err error) error {
	if errors.Is(err, errNoPools) {
		return nil
	}
	return err
}

func (p *Provider) everything(ctx context.Context, id cloud.ClusterID, pools []*pool, intents []*intent) ([]cloud.Node, error) {
	hosts := all(pools)
	for _, i := range intents {
		hosts = append(hosts, i.hosts(pools)...)
	}
	looks := p.lookAt(ctx, unique(hosts))
	if bad := failed(looks); len(bad) > 0 && len(bad) == len(looks) {
		return nil, p.failure(bad, cloud.Place{Cloud: Name})
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nodesOf(looks, id), nil
}

func unique(hosts []*host) []*host {
	have := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(hosts), func(h *host) bool {
		twice := have[h.key()]
		have[h.key()] = true
		return twice
	})
}

func failed(looks []*seen) []*seen {
	return slices.DeleteFunc(slices.Clone(looks), func(s *seen) bool { return s.err == nil })
}

func nodesOf(looks []*seen, id cloud.ClusterID) []cloud.Node {
	var nodes []cloud.Node
	for _, s := range looks {
		if s.err != nil {
			continue
		}
		for _, n := range s.of(id) {
			if n.problem == nil {
				nodes = append(nodes, s.node(n))
			}
		}
	}
	slices.SortFunc(nodes, func(a, b cloud.Node) int {
		if a.Cluster != b.Cluster {
			return compareText(a.Cluster, b.Cluster)
		}
		return a.Rank - b.Rank
	})
	return nodes
}

func compareText(a, b string) int {
	if a < b {
		return -1
	}
	return 1
}

// Terminate gives the cluster's machines back to their pools: its processes end
// and what it left there is removed. The intent goes last.
func (p *Provider) Terminate(ctx context.Context, id cloud.ClusterID) error {
	if validName(id.Name) != nil {
		return nil // no such cluster can exist
	}
	unlock, err := p.turns.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	intents, err := p.intents(ctx, id)
	if err != nil {
		return err
	}
	pools, perr := p.pools()
	var hosts []*host
	for _, i := range intents {
		hosts = append(hosts, i.hosts(pools)...)
	}
	if len(intents) == 0 {
		if perr != nil {
			return noneConfigured(perr)
		}
		hosts = all(pools)
	}
	looks := p.lookAt(ctx, unique(hosts))
	bad := failed(looks)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Without an intent nothing was ever claimed from here: machines that do
	// not answer are no reason to fail, unless none does.
	if len(bad) > 0 && (len(intents) > 0 || len(bad) == len(looks)) {
		return p.failure(bad, cloud.Place{Cloud: Name})
	}
	if bad := unasked(looks, id); len(bad) > 0 {
		return p.failure(bad, cloud.Place{Cloud: Name})
	}
	type node struct {
		host *host
		held
	}
	var ours []node
	for _, s := range looks {
		if s.err == nil {
			for _, n := range s.of(id) {
				ours = append(ours, node{s.host, n})
			}
		}
	}
	after := parallel(ours, func(n node) *seen { return p.giveBack(ctx, n.host, n.held) })
	for i, s := range after {
		if s.err == nil && slices.ContainsFunc(s.held, func(h held) bool { return h.raw == ours[i].raw }) {
			s.err = fmt.Errorf("%s could not be cleared: %s is still there", s.host.name, ours[i].dir)
		}
	}
	if bad := failed(after); len(bad) > 0 {
		return p.failure(bad, cloud.Place{Cloud: Name})
	}
	for _, i := range intents {
		if err := p.removeIntent(ctx, i.id()); err != nil {
			return err
		}
	}
	return nil
}
