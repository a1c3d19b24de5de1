package sshpool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
)

// Machine is what an inspection found.
type Machine struct {
	Pool, Host string
	Size       string // like 8CPU--32GB--H100:2; "" with Err
	// Clusters have it, or shares of it. The names are those on the cloud.
	Clusters []cloud.ClusterID
	Free     string       // what no cluster has, for users; "" with Err, and while it is whole
	Has      folder.Share // all of it
	Left     folder.Share // what no cluster has
	Limits   bool         // CPUs and memory of shares are enforced there, and not only counted
	Err      error        // why it cannot be used; nil: it can
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
			r := s.room(false)
			m.Size, m.Limits = s.size.name(), s.size.limits
			m.Has = folder.Share{CPUs: r.size.cpus, MemoryGiB: r.size.memoryGiB, Accelerator: r.accelerator, GPUs: r.size.devices}
			m.Left = folder.Share{CPUs: round(r.cpus), MemoryGiB: round(r.memory), Accelerator: r.accelerator, GPUs: r.devices}
			if len(s.held) > 0 {
				m.Free = r.free()
			}
		}
		for _, n := range s.held {
			if !n.leaving {
				m.Clusters = append(m.Clusters, cloud.ClusterID{Installation: n.record.Installation, Name: n.record.Cluster, Hash: n.record.Hash})
			}
		}
		out[i] = m
	}
	return out, nil
}

// PoolGPUs is what a pool has of one accelerator, and what is free of it.
type PoolGPUs struct {
	Pool, Name          string
	Counts              []float64 // that one machine can give
	Capacity, Available float64
}

// GPUsOf counts accelerators by pool and name. name is a part of the name in any case,
// quantity what one machine must have; zero values select all. It is pure.
func GPUsOf(machines []Machine, name string, quantity float64) []PoolGPUs {
	var out []PoolGPUs
	for _, m := range machines {
		n := float64(len(m.Has.GPUs))
		if m.Err != nil || n == 0 || n < quantity || !strings.Contains(strings.ToLower(m.Has.Accelerator), strings.ToLower(name)) {
			continue
		}
		i := slices.IndexFunc(out, func(g PoolGPUs) bool { return g.Pool == m.Pool && g.Name == m.Has.Accelerator })
		if i < 0 {
			i, out = len(out), append(out, PoolGPUs{Pool: m.Pool, Name: m.Has.Accelerator})
		}
		out[i].Capacity += n
		out[i].Available += float64(len(m.Left.GPUs))
		for _, c := range counts(n) {
			if !slices.Contains(out[i].Counts, c) && (quantity == 0 || c == quantity) {
				out[i].Counts = append(out[i].Counts, c)
			}
		}
	}
	for i := range out {
		slices.Sort(out[i].Counts)
	}
	return out
}

// statusPatience bounds how long somebody waits who only wants to know.
const statusPatience = 20 * time.Second

// Ready reports whether every machine of a pool can be used, if not, why, and what is
// free of those that can.
func (p *Provider) Ready(ctx context.Context, pool string) (ready bool, why, free string, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	machines, err := p.Inspect(ctx, pool)
	if err != nil {
		return false, "", "", err
	}
	var bad []error
	for _, m := range machines {
		if m.Err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", m.Host, m.Err))
		}
	}
	free = FreeOf(machines)
	if len(bad) == 0 {
		return true, "", free, nil
	}
	return false, fmt.Sprintf("%d of %d machines cannot be used: %v", len(bad), len(machines), shorten(bad)), free, nil
}

// FreeOf sums up what is free of machines, for users; "": none can be used. It is pure.
func FreeOf(machines []Machine) string {
	var has, left folder.Share
	whole, usable := 0, 0
	for _, m := range machines {
		if m.Err != nil {
			continue
		}
		usable++
		if m.Free == "" {
			whole++
		}
		has.CPUs, has.MemoryGiB = has.CPUs+m.Has.CPUs, has.MemoryGiB+m.Has.MemoryGiB
		left.CPUs, left.MemoryGiB = left.CPUs+m.Left.CPUs, left.MemoryGiB+m.Left.MemoryGiB
	}
	if usable == 0 {
		return ""
	}
	text := fmt.Sprintf("%d of %d machines, %s of %s CPUs, %s of %s GB", whole, usable, number(round(left.CPUs)), number(round(has.CPUs)), number(round(left.MemoryGiB)), number(round(has.MemoryGiB)))
	for _, g := range GPUsOf(machines, "", 0) {
		text += fmt.Sprintf(", %s of %s %s", number(g.Available), number(g.Capacity), g.Name)
	}
	return text
}
