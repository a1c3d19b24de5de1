package vm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// Launch is one call of [Provider.Launch], for the driver.
type Launch struct {
	Spec cloud.LaunchSpec
	// Machines are those that existed when it was looked last.
	Machines []Machine
	// Memory is the driver's own, for as long as the launch lasts.
	Memory any

	mine    map[string]bool // machines that it started or made, by key
	since   map[string]seen // the states that machines are in
	lacking int             // calls in a row for which something was missing
}

// seen is a state, and since when a machine is in it.
type seen struct {
	said string
	at   time.Time
}

// mostLacking is how often a call is made that lacks something: what was made a moment
// ago may not be known yet, and what is missing for good costs calls each time.
const mostLacking = 3

// Prepare makes what the machines need.
func (p *Provider) Prepare(ctx context.Context, spec cloud.LaunchSpec) error {
	if err := p.valid(spec); err != nil {
		return err
	}
	done, err := p.turns.Lock(ctx, spec.ID)
	if err != nil {
		return err
	}
	defer done()
	return p.refusal(ctx, spec.Offer.Place, p.d.Connect(ctx, spec))
}

func (p *Provider) valid(spec cloud.LaunchSpec) error {
	if p.o.Valid == nil {
		return nil
	}
	if err := p.o.Valid(spec); err != nil {
		return &cloud.InvalidError{Place: spec.Offer.Place, Err: err}
	}
	return nil
}

// Launch looks, decides and acts until every rank runs.
func (p *Provider) Launch(ctx context.Context, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	if err := p.valid(spec); err != nil {
		return nil, err
	}
	if spec.Nodes < 1 || spec.Token == "" || spec.ID.Hash == "" || spec.ID.Installation == "" {
		return nil, errors.New("a launch needs nodes, a token and a whole cluster id")
	}
	done, err := p.turns.Lock(ctx, spec.ID)
	if err != nil {
		return nil, err
	}
	defer done()
	if p.o.NoTokens {
		p.recent.begin(spec.ID, spec.Resumed)
	}
	l := &Launch{Spec: spec, mine: map[string]bool{}, since: map[string]seen{}}
	var nodes []cloud.Node
	where := ListScope{} // at first wherever the cluster may be
	w := &wait{what: "the machines to run", most: p.limit(spec)}
	err = p.until(ctx, w, func(ctx context.Context) (bool, error) {
		list, err := p.list(ctx, spec.ID, where)
		if err != nil {
			return false, err
		}
		where.Region = spec.Offer.Region
		l.Machines = slices.DeleteFunc(slices.Clone(list), func(m Machine) bool { return !m.State.exists() })
		if err := p.stuck(ctx, l); err != nil {
			return false, err
		}
		s, err := p.o.next(spec, list, l.mine)
		w.what = p.waitsFor(spec, list)
		switch lost := (*lostError)(nil); {
		case errors.As(err, &lost):
			return false, p.notStarted(spec.Offer.Place, lost)
		case err != nil:
			return false, err
		case s.done:
			nodes = slices.DeleteFunc(p.nodes(list), func(n cloud.Node) bool { return n.State == cloud.NodeGone })
			if len(nodes) > 1 && slices.ContainsFunc(nodes, func(n cloud.Node) bool { return n.InternalIP == "" }) {
				return false, &cloud.InvalidError{Place: spec.Offer.Place, Err: fmt.Errorf("%s gives machines no address there under which others reach them; clusters have one node there", p.o.DisplayName)}
			}
			return true, nil
		case len(s.create) > 0 && p.o.NoTokens && p.recent.Made(spec.ID).unsure():
			w.what = p.o.DisplayName + " to list what it may have made when its answer was lost"
			return false, nil
		}
		return false, p.act(ctx, l, s)
	})
	return nodes, err
}

// stuck is why a machine will not run: the cloud says so, or it has been in a state for
// too long.
func (p *Provider) stuck(ctx context.Context, l *Launch) error {
	at := l.Spec.Offer.Place
	for _, m := range l.Machines {
		if m.Failure != nil {
			return p.refusal(ctx, at, m.Failure)
		}
		was, now := l.since[m.key()], time.Now()
		if was.said != m.RawState {
			l.since[m.key()] = seen{m.RawState, now}
			continue
		}
		if limit, ok := p.o.Limits[m.RawState]; ok && now.Sub(was.at) >= limit {
			return &cloud.CapacityError{Place: at, Err: fmt.Errorf("%s has been %q for %v, which is longer than those that come to run", m.ID, m.RawState, limit)}
		}
	}
	return nil
}

// waitsFor says what a launch waits for, for people.
func (p *Provider) waitsFor(spec cloud.LaunchSpec, list []Machine) string {
	running := func(m Machine) bool { return m.State == Running }
	on := 0
	for _, m := range list {
		if running(m) {
			on++
		}
	}
	if on == spec.Nodes {
		return p.o.DisplayName + " to list the ranks of the machines"
	}
	return p.machinesTo("run", spec.Nodes, list, running)
}

// notStarted says why a machine that was made ended before it ran: there was no
// room, unless the driver knows better.
func (p *Provider) notStarted(at cloud.Place, lost *lostError) error {
	if d, ok := p.d.(interface {
		NotStarted(at cloud.Place, m Machine, err error) error
	}); ok {
		return d.NotStarted(at, lost.m, lost)
	}
	return &cloud.CapacityError{Place: at, Err: lost}
}

// act does a step. After a refusal nothing more is begun, and what is in flight is
// waited for, so that no machine comes to be after Launch returns.
func (p *Provider) act(ctx context.Context, l *Launch, s step) error {
	at := l.Spec.Offer.Place
	if len(s.start) > 0 {
		d, ok := p.d.(Switch)
		if !ok {
			return &cloud.InvalidError{Place: at, Err: fmt.Errorf("%s is off, and %s cannot switch machines on", s.start[0].ID, p.o.DisplayName)}
		}
		err := cloud.Settled(ctx, func(ctx context.Context) error { return d.Start(ctx, l.Spec, s.start) })
		if err != nil && !l.again(kind(p.d, err)) {
			return p.refusal(ctx, at, err)
		}
		for _, m := range s.start {
			l.mine[m.key()] = err == nil
			delete(l.since, m.key())
		}
	}
	for _, m := range l.Machines {
		rank, ok := s.write[m.ID]
		if !ok {
			continue
		}
		d, ok := p.d.(Ranker)
		if !ok {
			return fmt.Errorf("%s carries the cluster's tags, but its rank is %q; terminate it in %s", m.ID, m.Tags[cloud.TagRank], p.o.DisplayName)
		}
		if err := d.WriteRank(ctx, l.Spec, m, rank); err != nil {
			return p.refusal(ctx, at, err)
		}
	}
	if len(s.create) == 0 {
		return nil
	}
	ids, err := p.d.Create(ctx, l, s.create)
	p.recent.machines(l.Spec.ID, l.Spec.Offer.Region, ids)
	for _, id := range ids {
		l.mine[id] = true
	}
	if err == nil {
		l.lacking = 0
		return nil
	}
	switch k := kind(p.d, err); {
	case l.again(k):
		return nil
	case k == Lost:
		p.recent.Lost(l.Spec.ID)
	}
	return p.refusal(ctx, at, err)
}

// again reports whether a call that failed is worth another look.
func (l *Launch) again(k Kind) bool {
	if k == Missing {
		l.lacking++
	}
	return k.changed() && l.lacking < mostLacking
}
