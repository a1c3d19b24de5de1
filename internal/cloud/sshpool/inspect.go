package sshpool

import (
	"context"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Machine is what an inspection found.
type Machine struct {
	Pool, Host string
	Size       string // like 8CPU--32GB--H100:2; "" with Err
	// Cluster has it; the zero value: it is free. The name is that on the cloud.
	Cluster cloud.ClusterID
	Err     error // why it cannot be used; nil: it can
}

// Inspect looks at every machine of a pool, or with "" of all, in the order of
// the file. An [*api.Error] of [api.ErrFileNotFound] says that there is no such
// pool.
func (p *Provider) Inspect(ctx context.Context, pool string) ([]Machine, error) {
	pools, err := p.pools()
	if err != nil {
		return nil, err
	}
	var hosts []*host
	for _, one := range pools {
		if pool == "" || one.name == pool {
			hosts = append(hosts, one.hosts...)
		}
	}
	if len(hosts) == 0 {
		return nil, noPool(pool)
	}
	seen := p.lookAt(ctx, hosts)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	out := make([]Machine, len(seen))
	for i, s := range seen {
		m := Machine{Pool: s.host.pool, Host: s.host.name, Err: s.err}
		if s.err == nil {
			m.Size = s.shape.name()
		}
		if s.record != nil && !s.leaving {
			m.Cluster = cloud.ClusterID{Installation: s.record.Installation, Name: s.record.Cluster, Hash: s.record.Hash}
		}
		out[i] = m
	}
	return out, nil
}

// statusPatience bounds how long somebody waits who only wants to know.
const statusPatience = 20 * time.Second

// Ready tells whether every machine of a pool can be used, and if not, why.
func (p *Provider) Ready(ctx context.Context, pool string) (ready bool, why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	machines, err := p.Inspect(ctx, pool)
	if err != nil {
		return false, "", err
	}
	var bad []error
	for _, m := range machines {
		if m.Err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", m.Host, m.Err))
		}
	}
	if len(bad) == 0 {
		return true, "", nil
	}
	return false, fmt.Sprintf("%d of %d machines cannot be used: %v", len(bad), len(machines), shorten(bad)), nil
}
