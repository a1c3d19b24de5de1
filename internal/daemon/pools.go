package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cloud/sshpool"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/internal/state"
)

// registerPools makes known what is asked about machines of one's own. Nothing
// has to be installed on them: up looks whether they can be used, and down
// whether sky has left them.
func (d *daemon) registerPools() {
	d.engine.Handle("sky.ssh_node_pools.up", api.ScheduleLong, silent(d.poolsUp))
	d.engine.Handle("sky.ssh_node_pools.down", api.ScheduleLong, silent(d.poolsDown))
}

// ownMachines is what the HTTP server needs to know about them.
type ownMachines struct {
	sshpool.File
	d *daemon
}

func (o ownMachines) Status(ctx context.Context, pool string) (api.SSHPoolStatus, error) {
	s := api.SSHPoolStatus{PoolName: pool, ContextName: "ssh-" + pool, Status: "Ready"}
	p, err := o.d.poolProvider()
	if err != nil {
		return s, err
	}
	ready, why, free, err := p.Ready(ctx, pool)
	if no, ok := errors.AsType[*cloud.AuthError](err); ok { // there is no such pool
		return s, &api.Error{Type: api.ErrFileNotFound, Message: no.Err.Error() + ".", Hint: no.Fix}
	}
	if s.Free = free; !ready {
		s.Status, s.Reason = "Not Ready", why
	}
	return s, err
}

func (d *daemon) poolProvider() (*sshpool.Provider, error) {
	p, _ := d.providers.Get(sshpool.Name)
	pools, ok := cloud.As[*sshpool.Provider](p)
	if !ok {
		return nil, errors.New("this server was built without machines of one's own")
	}
	return pools, nil
}

func (d *daemon) inspect(ctx context.Context, call cluster.Call, b api.SSHPoolBody) ([]sshpool.Machine, error) {
	p, err := d.poolProvider()
	if err != nil {
		return nil, err
	}
	pool := ""
	if b.Infra != nil {
		pool = strings.TrimPrefix(strings.TrimPrefix(*b.Infra, sshpool.Name+"/"), "ssh-")
	}
	call.Out.Spin("Looking at the machines")
	machines, err := p.Inspect(ctx, pool)
	var no *cloud.AuthError
	if errors.As(err, &no) {
		return nil, &api.Error{Type: api.ErrValue, Message: no.Err.Error() + ".", Hint: no.Fix}
	}
	return machines, err
}

func (d *daemon) poolsUp(ctx context.Context, call cluster.Call, b api.SSHPoolBody) error {
	machines, err := d.inspect(ctx, call, b)
	if err != nil {
		return err
	}
	names, err := d.clusterNames(ctx)
	if err != nil {
		return err
	}
	var bad []string
	counted := false
	for _, m := range machines {
		switch {
		case m.Err != nil:
			fmt.Fprintf(call.Out, "✗ %s/%s: %v\n", m.Pool, m.Host, m.Err)
			bad = append(bad, m.Pool+"/"+m.Host)
		case len(m.Clusters) > 0:
			fmt.Fprintf(call.Out, "✓ %s/%s: %s, in use by %s; %s\n", m.Pool, m.Host, m.Size, users(m, names), m.Free)
		default:
			fmt.Fprintf(call.Out, "✓ %s/%s: %s\n", m.Pool, m.Host, m.Size)
		}
		counted = counted || m.Err == nil && !m.Limits
	}
	if counted {
		fmt.Fprintln(call.Out, "CPUs and memory of shares are counted, and not enforced, on machines without systemd or where the login may not use sudo without a password.")
	}
	if len(bad) > 0 {
		hint := "Fix the errors above, and try again."
		if len(bad) < len(machines) {
			hint += " The others can be used: sky launch --infra ssh"
		}
		return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("%d of %d machines cannot be used: %s.", len(bad), len(machines), strings.Join(bad, ", ")), Hint: hint}
	}
	fmt.Fprintf(call.Out, "All %d machines can be used: sky launch --infra ssh\n", len(machines))
	return nil
}

func (d *daemon) poolsDown(ctx context.Context, call cluster.Call, b api.SSHPoolBody) error {
	machines, err := d.inspect(ctx, call, b)
	if err != nil {
		return err
	}
	names, err := d.clusterNames(ctx)
	if err != nil {
		return err
	}
	var ids []cloud.ClusterID
	var silent []string
	for _, m := range machines {
		switch {
		case m.Err != nil:
			fmt.Fprintf(call.Out, "✗ %s/%s: %v\n", m.Pool, m.Host, m.Err)
			silent = append(silent, m.Pool+"/"+m.Host)
		case len(m.Clusters) > 0:
			fmt.Fprintf(call.Out, "✗ %s/%s: in use by %s\n", m.Pool, m.Host, users(m, names))
			ids = append(ids, m.Clusters...)
		}
	}
	switch {
	case len(ids) > 0:
		return held(ids, names, d.installation)
	case len(silent) > 0:
		return &api.Error{Type: api.ErrValue, Message: "Whether sky has left these machines could not be seen: " + strings.Join(silent, ", ") + "."}
	}
	fmt.Fprintf(call.Out, "No cluster is on the %d machines, and nothing of sky stays on a machine that was given back.\n", len(machines))
	return nil
}

// users says which clusters have a machine.
func users(m sshpool.Machine, names map[string]string) string {
	var out []string
	for _, id := range m.Clusters {
		out = append(out, cmp.Or(names[id.Hash], id.Name))
	}
	slices.Sort(out)
	if len(out) == 1 {
		return "cluster " + out[0]
	}
	return "clusters " + strings.Join(out, ", ")
}

// poolGPUs is what [daemon.kubernetesGPUs] answers about machines of one's own.
func (d *daemon) poolGPUs(ctx context.Context, call cluster.Call, b api.GPUAvailabilityBody) (any, error) {
	out := []api.ContextGPUs{}
	machines, err := d.poolMachines(ctx, call, b.Envelope, b.Context)
	if err != nil {
		return nil, err
	}
	name, quantity := "", 0.0
	if b.NameFilter != nil {
		name = *b.NameFilter
	}
	if b.QuantityFilter != nil {
		quantity = *b.QuantityFilter
	}
	for _, g := range sshpool.GPUsOf(machines, name, quantity) {
		if region := facts.PoolPrefix + g.Pool; len(out) == 0 || out[len(out)-1].Context != region {
			out = append(out, api.ContextGPUs{Context: region})
		}
		last := &out[len(out)-1]
		last.GPUs = append(last.GPUs, api.GPUAvailability{GPU: g.Name, Counts: g.Counts, Capacity: g.Capacity, Available: g.Available})
	}
	return out, nil
}

// poolNodes is what [daemon.kubernetesNodes] answers about a pool.
func (d *daemon) poolNodes(ctx context.Context, call cluster.Call, env api.Envelope, pool string) (any, error) {
	machines, err := d.poolMachines(ctx, call, env, &pool)
	if err != nil {
		return nil, err
	}
	out := api.KubernetesNodes{Nodes: map[string]api.KubernetesNode{}}
	for _, m := range machines {
		n := api.KubernetesNode{
			Name: m.Host, Address: m.Host, CPUs: &m.Has.CPUs, MemoryGB: &m.Has.MemoryGiB, CPUFree: &m.Left.CPUs, MemFree: &m.Left.MemoryGiB,
			Ready: new(m.Err == nil), Cordoned: new(false), Taints: []api.KubernetesTaint{},
		}
		if m.Has.Accelerator != "" {
			n.AcceleratorType = &m.Has.Accelerator
		}
		n.Total.Count, n.Free.Available = len(m.Has.GPUs), len(m.Left.GPUs)
		out.Nodes[m.Host] = n
	}
	return out, nil
}

// poolMachines looks at the machines of the pools that may be used, or of one.
func (d *daemon) poolMachines(ctx context.Context, call cluster.Call, env api.Envelope, pool *string) ([]sshpool.Machine, error) {
	if err := d.configure(&call, env); err != nil {
		return nil, err
	}
	p, err := d.poolProvider()
	if err != nil {
		return nil, err
	}
	name := ""
	if pool != nil {
		name = strings.TrimPrefix(*pool, facts.PoolPrefix)
	}
	machines, err := p.Inspect(ctx, name)
	if no, ok := errors.AsType[*cloud.AuthError](err); ok {
		return nil, &api.Error{Type: api.ErrValue, Message: no.Err.Error() + ".", Hint: no.Fix}
	}
	if list, ok := call.Config.Sections(config.Scope{Cloud: facts.SSH})("")["allowed_node_pools"].([]any); ok {
		machines = slices.DeleteFunc(machines, func(m sshpool.Machine) bool { return !slices.Contains(list, any(m.Pool)) })
	}
	return machines, err
}

// clusterNames are the names of clusters as users know them, by their hashes.
func (d *daemon) clusterNames(ctx context.Context) (map[string]string, error) {
	clusters, err := d.store.Clusters().List(ctx, state.ClusterFilter{})
	names := map[string]string{}
	for _, c := range clusters {
		names[c.Hash] = c.Name
	}
	return names, err
}

// held says which clusters have machines, and how they are given back. It is pure.
func held(ids []cloud.ClusterID, names map[string]string, installation string) *api.Error {
	var all, known []string
	var hints []string
	strays, foreign := false, false
	for _, id := range ids {
		name := names[id.Hash]
		switch {
		case name != "":
			known = append(known, name)
		case id.Installation == installation:
			strays = true
		default:
			foreign = true
		}
		all = append(all, cmp.Or(name, id.Name))
	}
	slices.Sort(all)
	slices.Sort(known)
	if len(known) > 0 {
		hints = append(hints, "Give the machines back first: sky down "+strings.Join(slices.Compact(known), " "))
	}
	if strays {
		hints = append(hints, "What no cluster here owns is found and ended with: sky sweep")
	}
	if foreign {
		hints = append(hints, "Clusters of another installation of sky are given back there.")
	}
	return &api.Error{Type: api.ErrValue, Message: "Clusters are on these machines: " + strings.Join(slices.Compact(all), ", ") + ".", Hint: strings.Join(hints, "\n")}
}
