package optimizer

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// The time until a Dag is done does not fall apart into terms as its cost does:
// what counts is the longest path. Tasks are therefore decided in topological
// order, and partial plans are kept that no other one beats. Of a partial plan
// the rest of the Dag sees only its open tasks (decided, with children that are
// not): on which cloud they are and when they are done.

// maxPartial is how many partial plans are kept. Beyond that all but the few
// most promising ones are dropped, and the result is no longer proven.
const (
	maxPartial = 3000
	fewPartial = 100
)

// partial is a plan for the tasks decided so far.
type partial struct {
	done  []int64 // by position in the open tasks
	cloud []int32
	last  int64 // when the last task so far is done
	total value
	prev  *partial
	state int
}

// fastest picks the states with which everything is done soonest; among these
// the cheapest.
func (g *graph) fastest() (picked []int, exact bool) {
	guess := g.fastGuess()
	limit := g.makespan(guess)
	if f, ok := g.forest(); ok {
		if all, ok := g.planForest(f, limit); ok {
			picked = make([]int, len(g.nodes))
			all[0].read(picked)
			return picked, true
		}
	}
	picked, exact = g.walk(limit, func(a, b *partial) int {
		return cmp.Or(cmp.Compare(a.last, b.last), compareValues(a.total, b.total))
	})
	if exact {
		return picked, true
	}
	if picked == nil || g.sooner(guess, picked) {
		picked = guess
	}
	g.polish(picked, g.sooner)
	return picked, false
}

// clouds is one more than the highest index of a cloud.
func (g *graph) clouds() int {
	n := int32(0)
	for i := range g.nodes {
		for _, s := range g.nodes[i].states {
			n = max(n, s.cloud+1)
		}
	}
	return int(n)
}

// tails gives, by node, the least time from its end to the end of everything.
func (g *graph) tails() []int64 {
	tail := make([]int64, len(g.nodes))
	for k := len(g.order) - 1; k >= 0; k-- {
		i := g.order[k]
		for _, at := range g.nodes[i].out {
			to := g.edges[at].to
			least := slices.MinFunc(g.nodes[to].states, func(a, b state) int { return cmp.Compare(a.time, b.time) }).time
			tail[i] = max(tail[i], least+tail[to])
		}
	}
	return tail
}

// narrowOrder is a topological order that keeps few tasks open at a time.
func (g *graph) narrowOrder() []int {
	waiting, children := make([]int, len(g.nodes)), make([]int, len(g.nodes))
	var ready, order []int
	for i := range g.nodes {
		waiting[i], children[i] = len(g.nodes[i].in), len(g.nodes[i].out)
		if waiting[i] == 0 {
			ready = append(ready, i)
		}
	}
	closes := func(i int) int { // open tasks gained by deciding i
		n := min(1, len(g.nodes[i].out))
		for _, at := range g.nodes[i].in {
			if children[g.edges[at].from] == 1 {
				n--
			}
		}
		return n
	}
	for len(ready) > 0 {
		k := 0
		for j := range ready {
			if closes(ready[j]) < closes(ready[k]) {
				k = j
			}
		}
		i := ready[k]
		ready = slices.Delete(ready, k, k+1)
		order = append(order, i)
		for _, at := range g.nodes[i].in {
			children[g.edges[at].from]--
		}
		for _, at := range g.nodes[i].out {
			to := g.edges[at].to
			if waiting[to]--; waiting[to] == 0 {
				ready = append(ready, to)
			}
		}
	}
	return order
}

// walk decides the tasks in turn and returns the best complete plan by the
// given order, or nil.
func (g *graph) walk(limit int64, order func(a, b *partial) int) (picked []int, exact bool) {
	sequence, tail := g.narrowOrder(), g.tails()
	children := make([]int, len(g.nodes))
	for i := range g.nodes {
		children[i] = len(g.nodes[i].out)
	}
	var open []int
	plans, exact := []*partial{{}}, true
	for _, i := range sequence {
		for _, at := range g.nodes[i].in {
			children[g.edges[at].from]--
		}
		var next []int // positions in open that stay open
		for k, o := range open {
			if children[o] > 0 {
				next = append(next, k)
			}
		}
		stays := children[i] > 0
		plans = g.extend(plans, i, open, next, stays, limit, tail)
		kept := make([]int, 0, len(next)+1)
		for _, k := range next {
			kept = append(kept, open[k])
		}
		if stays {
			kept = append(kept, i)
		}
		open = kept
		plans = undominated(plans)
		if len(plans) > maxPartial || !exact && len(plans) > fewPartial {
			exact = false
			slices.SortFunc(plans, order)
			plans = plans[:fewPartial]
		}
	}
	if len(plans) == 0 {
		return nil, exact
	}
	best := slices.MinFunc(plans, order)
	picked = make([]int, len(g.nodes))
	for k := len(sequence) - 1; k >= 0; k-- {
		picked[sequence[k]] = best.state
		best = best.prev
	}
	return picked, exact
}

// extend decides node i in every way that can still keep the limit.
func (g *graph) extend(plans []*partial, i int, open, next []int, stays bool, limit int64, tail []int64) []*partial {
	var out []*partial
	position := make([]int, len(g.nodes[i].in))
	for k, at := range g.nodes[i].in {
		position[k] = slices.Index(open, g.edges[at].from)
	}
	for _, p := range plans {
		for s := range g.nodes[i].states {
			st := &g.nodes[i].states[s]
			start, total := int64(0), p.total.plus(value{st.cost, st.time})
			for k, at := range g.nodes[i].in {
				e, from := &g.edges[at], position[k]
				arrive := p.done[from]
				if e.moves(p.cloud[from], st.cloud) {
					arrive += e.time
					total = total.plus(value{e.cost[p.cloud[from]], e.time})
				}
				start = max(start, arrive)
			}
			done := start + st.time
			if done+tail[i] > limit {
				continue
			}
			q := &partial{last: max(p.last, done), total: total, prev: p, state: s}
			q.done, q.cloud = make([]int64, 0, len(next)+1), make([]int32, 0, len(next)+1)
			for _, k := range next {
				q.done, q.cloud = append(q.done, p.done[k]), append(q.cloud, p.cloud[k])
			}
			if stays {
				q.done, q.cloud = append(q.done, done), append(q.cloud, st.cloud)
			}
			out = append(out, q)
		}
	}
	return out
}

// undominated drops partial plans when another one with the same open clouds is
// as good in every way.
func undominated(plans []*partial) []*partial {
	slices.SortStableFunc(plans, func(a, b *partial) int {
		return cmp.Or(compareValues(a.total, b.total), cmp.Compare(a.last, b.last))
	})
	groups := map[string][]*partial{}
	var key []byte
	out := plans[:0]
	for _, p := range plans {
		key = key[:0]
		for _, c := range p.cloud {
			key = binary.AppendUvarint(key, uint64(c))
		}
		rivals := groups[string(key)]
		if slices.ContainsFunc(rivals, func(r *partial) bool { return r.last <= p.last && allLE(r.done, p.done) }) {
			continue
		}
		groups[string(key)] = append(rivals, p)
		out = append(out, p)
	}
	return out
}

func allLE(a, b []int64) bool {
	for i := range a {
		if a[i] > b[i] {
			return false
		}
	}
	return true
}
