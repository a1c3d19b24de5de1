package sshpool

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
)

// sizes are the machines of pools as planning sees them.
type sizes struct{ pools []poolSizes }

type poolSizes struct {
	name     string
	machines []size // every size once, small ones first
}

// Tailored looks at the machines of the pools that ssh.allowed_node_pools allows. A
// machine that does not answer is left out, and not asked again for a while.
func (p *Provider) Tailored(ctx context.Context, sections catalog.Sections) (catalog.Tailored, error) {
	pools, err := p.sizes(ctx)
	if err != nil {
		return nil, err
	}
	if list, ok := sections("")["allowed_node_pools"].([]any); ok {
		pools = slices.DeleteFunc(pools, func(s poolSizes) bool { return !slices.Contains(list, any(s.name)) })
	}
	return &sizes{pools}, nil
}

// Offers lists the machines of each pool as a whole. [Provider.Tailored] knows shares
// of them.
func (p *Provider) Offers(ctx context.Context) ([]cloud.Offer, error) {
	pools, err := p.sizes(ctx)
	if err != nil {
		return nil, err
	}
	offers := []cloud.Offer{}
	for _, pool := range pools {
		for _, m := range pool.machines {
			offers = append(offers, request{size: m, whole: true}.offer(pool.name))
		}
	}
	return offers, nil
}

func (p *Provider) sizes(ctx context.Context) ([]poolSizes, error) {
	pools, err := p.pools()
	if err != nil {
		return nil, err
	}
	qctx, cancel := context.WithTimeout(ctx, offerPatience)
	defer cancel()
	var unknown []*host
	for _, h := range all(pools) {
		if _, ok := p.facts.get(h); !ok && !p.facts.silent(h) {
			unknown = append(unknown, h)
		}
	}
	for _, s := range p.lookAt(qctx, unknown) {
		if s.err != nil && ctx.Err() == nil {
			p.facts.noAnswer(s.host)
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var out []poolSizes
	for _, pool := range pools {
		bySize := map[string]size{}
		for _, h := range pool.hosts {
			if s, ok := p.facts.get(h); ok {
				bySize[s.name()] = s
			}
		}
		out = append(out, poolSizes{pool.name, slices.SortedFunc(maps.Values(bySize), size.compare)})
	}
	return out, nil
}

// Find lists what answers a query: machines as a whole if it names no size, else
// shares of that size.
func (s *sizes) Find(q catalog.Query) []cloud.Offer {
	var out []cloud.Offer
	if q.Spot || len(q.Zones) > 0 {
		return nil
	}
	exact := slices.ContainsFunc(s.pools, func(p poolSizes) bool {
		return slices.ContainsFunc(p.machines, func(m size) bool { return oneOf(q.Regions, region(p.name)) && m.name() == q.InstanceType })
	})
	for _, pool := range s.pools {
		if !oneOf(q.Regions, region(pool.name)) {
			continue
		}
		for _, want := range pool.requests(q, exact) {
			o := want.offer(pool.name)
			if !slices.ContainsFunc(out, func(h cloud.Offer) bool { return h.Place == o.Place && h.InstanceType == o.InstanceType }) {
				out = append(out, o)
			}
		}
	}
	return out
}

func oneOf(allowed []string, v string) bool {
	return len(allowed) == 0 || slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, v) })
}

// requests are what could be asked of the pool's machines for a query, small ones first.
// With exact a machine of some pool is just what the query names as its type; else
// that is the size of a share.
func (s *poolSizes) requests(q catalog.Query, exact bool) []request {
	var out []request
	named := request{whole: true}
	if q.InstanceType != "" {
		var err error
		if named, err = parseRequest(q.InstanceType); err != nil {
			return nil
		}
	}
	sizeless := q.CPUs.N == 0 && q.Memory.N == 0 && q.Accelerator == ""
	for _, m := range s.machines {
		var want request
		ok := true
		switch {
		case exact:
			want, ok = named, named.size.name() == m.name()
		case q.InstanceType != "":
			want, ok = request{size: named.size}, m.holds(named.size)
		case sizeless:
			want = request{size: m, whole: true}
		case q.Accelerator != "" && !strings.EqualFold(q.Accelerator, m.accelerator):
			ok = false
		default:
			n := 0.0
			if q.Accelerator != "" {
				n = max(1, math.Ceil(q.Count-0.01))
			}
			want.size, ok = sized(m, q.CPUs.N, q.Memory.N, n, q.Memory.PerCPU)
		}
		if ok && want.accelerator != "" {
			want.accelerator = m.accelerator // as the machine spells it
		}
		if ok && q.CPUs.Least(want.cpus, want.cpus) && q.Memory.Least(want.memoryGiB, want.cpus) &&
			(q.Accelerator == "" || strings.EqualFold(q.Accelerator, want.accelerator) && want.accelerators >= q.Count-0.01) {
			out = append(out, want)
		}
	}
	slices.SortStableFunc(out, func(a, b request) int { return a.size.compare(b.size) })
	return out
}

// Names lists pools, machines and accelerators.
func (s *sizes) Names(k catalog.NameKind) []string {
	var out []string
	add := func(n string) {
		if n != "" && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	for _, pool := range s.pools {
		if k == catalog.RegionNames {
			add(region(pool.name))
		}
		for _, m := range pool.machines {
			switch {
			case k == catalog.InstanceNames:
				add(m.name())
			case m.accelerator == "":
			case k == catalog.AcceleratorNames:
				add(m.accelerator)
			case k == catalog.AcceleratorOffers:
				for _, n := range counts(m.accelerators) {
					add(catalog.FormatCount(m.accelerator, n))
				}
			}
		}
	}
	return out
}

// counts are the numbers of devices that people ask of a machine: powers of two and
// all of them.
func counts(most float64) []float64 {
	var out []float64
	for n := 1.0; n < most; n *= 2 {
		out = append(out, n)
	}
	if most >= 1 {
		out = append(out, most)
	}
	return out
}

// WhyNot says what the largest machines are, where none holds the query.
func (s *sizes) WhyNot(q catalog.Query) string {
	var have []string
	for _, pool := range s.pools {
		if !oneOf(q.Regions, region(pool.name)) || len(pool.machines) == 0 {
			continue
		}
		var names []string
		for _, m := range pool.machines {
			names = append(names, m.name())
		}
		have = append(have, fmt.Sprintf("pool %s has machines of %s", pool.name, strings.Join(names, ", ")))
	}
	switch {
	case len(q.Zones) > 0:
		return "pools have no zones"
	case len(have) == 0:
		return "no machine of a pool that may be used answers"
	}
	return strings.Join(have, "; ")
}
