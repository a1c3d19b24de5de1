package sshpool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Launch claims machines of the pool until the cluster has its nodes: those
// that are its own already stay, free ones that are large enough are added,
// small ones first.
func (p *Provider) Launch(ctx context.Context, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	place := spec.Offer.Place
	invalid := func(err error) error { return &cloud.InvalidError{Place: place, Err: err} }
	if err := validName(spec.ID.Name); err != nil {
		return nil, invalid(err)
	}
	want, err := parseShape(spec.Offer.InstanceType)
	if err != nil {
		return nil, invalid(err)
	}
	if place.Zone != "" {
		return nil, invalid(fmt.Errorf("pools have no zones such as %q", place.Zone))
	}
	unlock, err := p.turns.Lock(ctx, spec.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	l := &launch{p: p, spec: spec, want: want}
	if err := l.look(ctx); err != nil {
		return nil, err
	}
	if err := l.claim(ctx); err != nil {
		return nil, err
	}
	nodes := nodesOf(l.mine, spec.ID)
	return nodes, ctx.Err()
}

// launch is one run of Launch.
type launch struct {
	p    *Provider
	spec cloud.LaunchSpec
	want shape

	pool *pool
	mine []*seen // that belong to the cluster already
	free []*seen
	busy []*seen // that others have
	down []*seen // that do not answer
}

// look finds out what belongs to whom.
func (l *launch) look(ctx context.Context) error {
	pools, err := l.p.pools()
	if err != nil {
		return err
	}
	intents, err := l.p.intents(l.spec.ID)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(pools, func(p *pool) bool { return region(p.name) == l.spec.Offer.Region })
	if i < 0 {
		name := strings.TrimPrefix(l.spec.Offer.Region, regionPrefix)
		return &cloud.InvalidError{Place: l.spec.Offer.Place, Err: fmt.Errorf("there is no pool %q in %s", name, l.p.o.File)}
	}
	l.pool = pools[i]
	hosts := slices.Clone(l.pool.hosts)
	known := map[string]bool{}
	for _, in := range intents {
		for _, h := range in.hosts(pools) {
			known[h.key()] = true
			hosts = append(hosts, h)
		}
	}
	looks := l.p.lookAt(ctx, unique(hosts))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var lost []*seen
	for _, s := range looks {
		switch {
		case s.err != nil && known[s.host.key()]:
			lost = append(lost, s)
		case s.err != nil:
			l.down = append(l.down, s)
		case s.record.of(l.spec.ID) && !s.leaving:
			l.mine = append(l.mine, s)
		case s.record != nil:
			l.busy = append(l.busy, s)
		case s.host.pool == l.pool.name && s.shape.holds(l.want):
			l.free = append(l.free, s)
		}
	}
	if len(lost) > 0 { // they may have nodes of this cluster
		return l.p.failure(lost, l.spec.Offer.Place)
	}
	for _, s := range l.mine {
		if s.host.pool != l.pool.name {
			return &cloud.InvalidError{Place: l.spec.Offer.Place, Err: fmt.Errorf("the cluster has machines of pool %s", s.host.pool)}
		}
	}
	if len(l.down) == len(looks) {
		return l.p.failure(l.down, l.spec.Offer.Place)
	}
	slices.SortStableFunc(l.free, func(a, b *seen) int { return a.shape.compare(b.shape) })
	return nil
}

// missing are the ranks without a machine.
func (l *launch) missing() []int {
	var ranks []int
	for rank := range l.spec.Nodes {
		if !slices.ContainsFunc(l.mine, func(s *seen) bool { return s.record.Rank == rank }) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// claim takes free machines for the missing ranks, in rounds: others may be
// quicker. The intent is on disk before the first claim, and says in the end
// exactly which machines there are.
func (l *launch) claim(ctx context.Context) error {
	tried := slices.Clone(l.mine)
	for {
		ranks := l.missing()
		if len(ranks) == 0 {
			return l.p.writeIntent(newIntent(l.spec.ID, hostsOf(l.mine)))
		}
		if len(ranks) > len(l.free) {
			return l.full(len(ranks))
		}
		take := l.free[:len(ranks)]
		l.free = l.free[len(ranks):]
		tried = append(tried, take...)
		if err := l.p.writeIntent(newIntent(l.spec.ID, hostsOf(tried))); err != nil {
			return err
		}
		type pair struct {
			s    *seen
			rank int
		}
		var pairs []pair
		for i, s := range take {
			pairs = append(pairs, pair{s, ranks[i]})
		}
		got := parallel(pairs, func(c pair) *seen {
			out := make(chan *seen, 1)
			err := cloud.Settled(ctx, func(ctx context.Context) error {
				out <- l.p.claim(ctx, c.s.host, record{
					Installation: l.spec.ID.Installation, Cluster: l.spec.ID.Name, Hash: l.spec.ID.Hash,
					Rank: c.rank, Created: time.Now().UTC(),
				})
				return nil
			})
			if err != nil {
				return &seen{host: c.s.host, err: err}
			}
			return <-out
		})
		if bad := failed(got); len(bad) > 0 {
			return l.p.failure(bad, l.spec.Offer.Place)
		}
		for _, s := range got {
			if s.record.of(l.spec.ID) && !s.leaving {
				l.mine = append(l.mine, s)
			} else {
				l.busy = append(l.busy, s)
			}
		}
	}
}

func hostsOf(looks []*seen) []*host {
	var hosts []*host
	for _, s := range looks {
		hosts = append(hosts, s.host)
	}
	return hosts
}

// full says who has the machines.
func (l *launch) full(missing int) error {
	var why []string
	for _, s := range l.busy {
		if s.host.pool != l.pool.name || s.record == nil {
			continue
		}
		who := "cluster " + s.record.Cluster
		if s.record.Installation != l.spec.ID.Installation {
			who += " of another installation of sky"
		}
		if s.leaving {
			who += ", which is leaving"
		}
		why = append(why, s.host.name+" has "+who)
	}
	for _, s := range l.down {
		why = append(why, fmt.Sprintf("%s cannot be used: %v", s.host.name, s.err))
	}
	small := len(l.pool.hosts) - len(l.mine) - len(l.free) - len(why)
	if small > 0 {
		why = append(why, fmt.Sprintf("%d smaller than %s", small, l.want.name()))
	}
	return &cloud.CapacityError{Place: l.spec.Offer.Place, Err: fmt.Errorf("%d more machines are needed, %d of the %d in pool %s are free (%s)",
		missing, len(l.free), len(l.pool.hosts), l.pool.name, strings.Join(why, "; "))}
}

// maxName is the longest name of a cluster.
const maxName = 200

var nameFormat = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`)

func validName(name string) error {
	if !nameFormat.MatchString(name) {
		return fmt.Errorf("%.50q cannot be a name here: it takes up to 200 letters, digits, dots, underscores and hyphens", name)
	}
	return nil
}
