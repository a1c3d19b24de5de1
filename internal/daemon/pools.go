package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/sshpool"
	"github.com/skypilot-go/sky/internal/cluster"
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
	ready, why, err := p.Ready(ctx, pool)
	if no, ok := errors.AsType[*cloud.AuthError](err); ok { // there is no such pool
		return s, &api.Error{Type: api.ErrFileNotFound, Message: no.Err.Error() + ".", Hint: no.Fix}
	}
	if !ready {
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
	var bad []string
	for _, m := range machines {
		switch {
		case m.Err != nil:
			fmt.Fprintf(call.Out, "✗ %s/%s: %v\n", m.Pool, m.Host, m.Err)
			bad = append(bad, m.Pool+"/"+m.Host)
		case m.Cluster != "":
			fmt.Fprintf(call.Out, "✓ %s/%s: %s, in use by cluster %s\n", m.Pool, m.Host, m.Size, m.Cluster)
		default:
			fmt.Fprintf(call.Out, "✓ %s/%s: %s\n", m.Pool, m.Host, m.Size)
		}
	}
	if len(bad) > 0 {
		hint := "Mend what is said above about them, and try again."
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
	var clusters, silent []string
	for _, m := range machines {
		switch {
		case m.Err != nil:
			fmt.Fprintf(call.Out, "✗ %s/%s: %v\n", m.Pool, m.Host, m.Err)
			silent = append(silent, m.Pool+"/"+m.Host)
		case m.Cluster != "":
			fmt.Fprintf(call.Out, "✗ %s/%s: in use by cluster %s\n", m.Pool, m.Host, m.Cluster)
			clusters = append(clusters, m.Cluster)
		}
	}
	slices.Sort(clusters)
	clusters = slices.Compact(clusters)
	switch {
	case len(clusters) > 0:
		return &api.Error{Type: api.ErrValue, Message: "Clusters are on these machines: " + strings.Join(clusters, ", ") + ".",
			Hint: "Give the machines back first: sky down " + strings.Join(clusters, " ")}
	case len(silent) > 0:
		return &api.Error{Type: api.ErrValue, Message: "Whether sky has left these machines could not be seen: " + strings.Join(silent, ", ") + "."}
	}
	fmt.Fprintf(call.Out, "No cluster is on the %d machines, and nothing of sky stays on a machine that was given back.\n", len(machines))
	return nil
}
