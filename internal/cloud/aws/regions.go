package aws

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/vm"
)

// memory remembers in which regions clusters were seen.
type memory struct {
	mu sync.Mutex
	in map[cloud.ClusterID]place
}

type place struct {
	region string
	at     time.Time
}

// remembered is how long a place is believed: another server may launch the
// cluster elsewhere.
const remembered = 10 * time.Minute

func (m *memory) learn(id cloud.ClusterID, region string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.in == nil {
		m.in = map[cloud.ClusterID]place{}
	}
	m.in[id] = place{region, time.Now()}
}

func (m *memory) forget(id cloud.ClusterID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.in, id)
}

func (m *memory) region(id cloud.ClusterID) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.in[id]
	return r.region, ok && time.Since(r.at) < remembered
}

// atOnce is how many regions are asked at the same time.
const atOnce = 20

// find lists what exists of a cluster, wherever it is. A region that is
// remembered is asked alone, and all of them when nothing is there.
func (p *Provider) find(ctx context.Context, id cloud.ClusterID) ([]vm.Machine, error) {
	if region, ok := p.regions.region(id); ok {
		list, err := p.describe(ctx, region, id)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(list, exists) {
			return list, nil
		}
		p.regions.forget(id)
	}
	return p.findEverywhere(ctx, id)
}

func (p *Provider) findEverywhere(ctx context.Context, id cloud.ClusterID) ([]vm.Machine, error) {
	regions, err := p.allRegions(ctx)
	if err != nil {
		return nil, err
	}
	found := make([][]vm.Machine, len(regions))
	errs := make([]error, len(regions))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, region := range regions {
		g.Go(func() error {
			found[i], errs[i] = p.describe(ctx, region, id)
			return nil
		})
	}
	g.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	// A region that did not answer may hold the machines: no list then.
	if err := p.access.answers(regions, errs); err != nil {
		return nil, err
	}
	if id.Name != "" {
		for i, list := range found {
			if slices.ContainsFunc(list, exists) {
				p.regions.learn(id, regions[i])
			}
		}
	}
	return slices.Concat(found...), nil
}
