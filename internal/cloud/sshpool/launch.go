package sshpool

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/sshpool/folder"
	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Launch claims machines of the pool, or shares of them, until the cluster has its
// nodes: those that are its own already stay, machines with room are added,
// each for one node.
func (p *Provider) Launch(ctx context.Context, spec cloud.LaunchSpec) ([]cloud.Node, error) {
	place := spec.Offer.Place
	invalid := func(err error) error { return &cloud.InvalidError{Place: place, Err: err} }
	if err := validName(spec.ID.Name); err != nil {
		return nil, invalid(err)
	}
	want, err := parseRequest(spec.Offer.InstanceType)
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
	want.ports = spec.Listens
	l := &launch{p: p, spec: spec, want: want}
	if err := l.look(ctx); err != nil {
		return nil, err
	}
	if err := l.claim(ctx); err != nil {
		return nil, err
	}
	nodes := nodesOf(l.mine(), spec.ID)
	return nodes, ctx.Err()
}

// launch is one run of Launch.
type launch struct {
	p    *Provider
	spec cloud.LaunchSpec
	want request

	pool *pool
	seen []*seen // that answer
	down []*seen // that do not, or cannot be used
	// accounts are those that new nodes run as; "": as the login.
	accounts map[*host]string
}

// look finds out what belongs to whom.
func (l *launch) look(ctx context.Context) error {
	pools, err := l.p.pools()
	if err != nil {
		return err
	}
	intents, err := l.p.intents(ctx, l.spec.ID)
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
		default:
			l.seen = append(l.seen, s)
		}
	}
	if len(lost) > 0 { // they may have nodes of this cluster
		return l.p.failure(lost, l.spec.Offer.Place)
	}
	for _, s := range l.mine() {
		if s.host.pool != l.pool.name {
			return &cloud.InvalidError{Place: l.spec.Offer.Place, Err: fmt.Errorf("the cluster has machines of pool %s", s.host.pool)}
		}
	}
	if bad := unasked(l.seen, l.spec.ID); len(bad) > 0 {
		return l.p.failure(bad, l.spec.Offer.Place)
	}
	if err := l.withdraw(ctx); err != nil {
		return err
	}
	if err := l.admit(ctx); err != nil {
		return err
	}
	if len(l.down) == len(looks) {
		return l.p.failure(l.down, l.spec.Offer.Place)
	}
	return nil
}

// withdraw removes claims of this cluster that were never settled, as of a process
// that ended before it knew. They are made again if there is room.
func (l *launch) withdraw(ctx context.Context) error {
	for i, s := range l.seen {
		for _, n := range s.of(l.spec.ID) {
			if n.ready || n.leaving {
				continue
			}
			after := l.p.giveBack(ctx, s.host, n)
			if after.err != nil {
				return l.p.failure([]*seen{after}, l.spec.Offer.Place)
			}
			after.size = s.size
			l.seen[i] = after
		}
	}
	return nil
}

// mine are the machines with a node of the cluster.
func (l *launch) mine() []*seen {
	return slices.DeleteFunc(slices.Clone(l.seen), func(s *seen) bool { return len(l.nodes(s)) == 0 })
}

func (l *launch) nodes(s *seen) []held {
	return slices.DeleteFunc(s.of(l.spec.ID), func(n held) bool { return n.leaving || !n.ready })
}

// missing are the ranks without a machine.
func (l *launch) missing() []int {
	var ranks []int
	for rank := range l.spec.Nodes {
		if !slices.ContainsFunc(l.seen, func(s *seen) bool {
			return slices.ContainsFunc(l.nodes(s), func(n held) bool { return n.record.Rank == rank })
		}) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// assignment is a machine for a rank, and the share that it gets of it.
type assignment struct {
	machine int // index of its room
	rank    int
	share   *folder.Share
}

// assign finds a machine for each rank, none of them twice; ok is false if there
// are too few, and found says how many there are. It is pure.
func assign(rooms []room, want request, ranks []int) (out []assignment, found int, ok bool) {
	order := make([]int, len(rooms))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return rooms[a].compare(&rooms[b]) })
	for _, i := range order {
		share, fits := rooms[i].fit(want)
		if !fits {
			continue
		}
		if found++; len(out) < len(ranks) {
			out = append(out, assignment{i, ranks[len(out)], share})
		}
	}
	return out, found, len(out) == len(ranks)
}

// candidates are machines that may get a node: those of the pool without one.
func (l *launch) candidates() []*seen {
	return slices.DeleteFunc(slices.Clone(l.seen), func(s *seen) bool {
		return s.host.pool != l.pool.name || len(s.of(l.spec.ID)) > 0
	})
}

func rooms(machines []*seen, settled bool) []room {
	out := make([]room, len(machines))
	for i, s := range machines {
		out[i] = s.room(settled)
	}
	return out
}

const (
	// claimRounds bounds how often claims are planned again because of others'.
	claimRounds = 60
	// claimPause is how long it is waited at most before the next round, so that two who
	// withdraw because of each other do not meet for ever.
	claimPause = 400 * time.Millisecond
)

// claim takes machines for the missing ranks, in rounds: others may be
// quicker. The intent is stored before the first claim, and says in the end
// exactly which machines there are.
func (l *launch) claim(ctx context.Context) error {
	var tried []leased
	for round := 1; ; round++ {
		ranks := l.missing()
		if len(ranks) == 0 {
			return l.p.writeIntent(ctx, newIntent(l.spec.ID, l.leases()))
		}
		machines := l.candidates()
		plan, found, ok := assign(rooms(machines, false), l.want, ranks)
		if !ok {
			// Another launch that is about to claim the rest may yet withdraw.
			if _, _, maybe := assign(rooms(machines, true), l.want, ranks); !maybe || round == claimRounds {
				return l.full(len(ranks), found)
			}
			if err := l.again(ctx, machines); err != nil {
				return err
			}
			continue
		}
		for _, a := range plan {
			tried = append(tried, leased{machines[a.machine].host, a.rank, a.share})
		}
		if err := l.p.writeIntent(ctx, newIntent(l.spec.ID, append(l.leases(), tried...))); err != nil {
			return err
		}
		got := parallel(plan, func(a assignment) *seen {
			s := machines[a.machine]
			out := make(chan *seen, 1)
			err := cloud.Settled(ctx, func(ctx context.Context) error {
				out <- l.p.claim(ctx, s.host, l.record(a, s.host), s.held)
				return nil
			})
			if err != nil {
				return &seen{host: s.host, err: err}
			}
			return <-out
		})
		if bad := failed(got); len(bad) > 0 {
			return l.p.failure(bad, l.spec.Offer.Place)
		}
		late := false
		for _, s := range got {
			l.replace(s)
			late = late || len(l.nodes(s)) == 0
		}
		if late && round < claimRounds {
			if err := l.pause(ctx); err != nil {
				return err
			}
		} else if late {
			return l.full(len(l.missing()), 0)
		}
	}
}

// record is that of a new node.
func (l *launch) record(a assignment, h *host) record {
	r := record{
		Installation: l.spec.ID.Installation, Cluster: l.spec.ID.Name, Hash: l.spec.ID.Hash,
		Rank: a.rank, Created: time.Now().UTC(), Share: a.share, RunAs: l.accounts[h],
	}
	if r.RunAs != "" {
		r.Owner, r.OwnerName = l.spec.UserID, l.spec.User
	}
	return r
}

// leases are what the cluster has.
func (l *launch) leases() []leased {
	var out []leased
	for _, s := range l.mine() {
		for _, n := range l.nodes(s) {
			out = append(out, leased{s.host, n.record.Rank, n.record.Share})
		}
	}
	return out
}

func (l *launch) replace(s *seen) {
	for i := range l.seen {
		if l.seen[i].host == s.host {
			l.seen[i] = s
		}
	}
}

// again looks at machines once more, after a while.
func (l *launch) again(ctx context.Context, machines []*seen) error {
	if err := l.pause(ctx); err != nil {
		return err
	}
	for _, s := range l.p.lookAt(ctx, hostsOf(machines)) {
		if s.err != nil {
			return l.p.failure([]*seen{s}, l.spec.Offer.Place)
		}
		l.replace(s)
	}
	return nil
}

func (l *launch) pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(rand.N(claimPause)):
		return nil
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
func (l *launch) full(missing, found int) error {
	var why []string
	small := 0
	for _, s := range l.candidates() {
		switch r := s.room(false); {
		case !s.size.holds(l.want.size):
			small++
		case len(s.held) > 0:
			text := s.host.name + " has " + strings.Join(l.owners(s), ", ")
			if !r.taken && !l.want.whole {
				text += " (" + r.free()
				if port := r.meets(l.want.ports); port != "" {
					text += "; one of them listens on port " + port
				}
				text += ")"
			}
			why = append(why, text)
		}
	}
	for _, s := range l.down {
		why = append(why, fmt.Sprintf("%s cannot be used: %v", s.host.name, s.err))
	}
	if small > 0 {
		why = append(why, fmt.Sprintf("%d smaller than %s", small, l.want.size.name()))
	}
	what := "machines are"
	if !l.want.whole {
		what = "shares of " + l.want.size.name() + " are"
	}
	return &cloud.CapacityError{Place: l.spec.Offer.Place, Err: fmt.Errorf("%d more %s needed, %d of the %d machines in pool %s are free (%s)",
		missing, what, found, len(l.pool.hosts), l.pool.name, strings.Join(why, "; "))}
}

func (l *launch) owners(s *seen) []string {
	var out []string
	for _, n := range s.held {
		who := "cluster " + n.record.Cluster
		if n.record.Installation != l.spec.ID.Installation {
			who += " of another installation of sky"
		}
		if n.leaving {
			who += ", which is leaving"
		}
		out = append(out, who)
	}
	slices.Sort(out)
	return out
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
