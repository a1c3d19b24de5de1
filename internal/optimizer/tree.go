package optimizer

import (
	"cmp"
	"slices"
)

// In a forest, where no task has two parents (or none has two children), the
// time until all is done can be planned exactly: below a task in a given state
// only its cloud matters to its parent, so each branch shrinks to the ways in
// which money buys time there.

// bargain is one such way for a branch: done within time for total. sub says
// how its own branches were chosen.
type bargain struct {
	time  int64
	total value
	state int
	sub   []choice
}

// choice is a bargain of a branch.
type choice struct {
	node int
	b    *bargain
}

// forest is a Dag seen as trees: the roots, the edges that lead from each node
// to its branches, and an order with branches before what they hang on.
type forest struct {
	roots    []int
	branches [][]int
	order    []int
}

// forest reports whether the Dag is one.
func (g *graph) forest() (f forest, ok bool) {
	down, up := true, true
	for i := range g.nodes {
		down = down && len(g.nodes[i].in) <= 1
		up = up && len(g.nodes[i].out) <= 1
	}
	if !down && !up {
		return f, false
	}
	f.branches, f.order = make([][]int, len(g.nodes)), slices.Clone(g.order)
	if down {
		slices.Reverse(f.order)
	}
	for i := range g.nodes {
		toRoot, away := g.nodes[i].in, g.nodes[i].out
		if !down {
			toRoot, away = away, toRoot
		}
		f.branches[i] = away
		if len(toRoot) == 0 {
			f.roots = append(f.roots, i)
		}
	}
	return f, true
}

// planForest lists the bargains for everything, soonest first; ok is false if
// there are too many.
func (g *graph) planForest(f forest, limit int64) (all []bargain, ok bool) {
	memo := make([][][]bargain, len(g.nodes)) // by node and state
	for _, i := range f.order {
		memo[i] = make([][]bargain, len(g.nodes[i].states))
		for s := range g.nodes[i].states {
			st := &g.nodes[i].states[s]
			mine := []bargain{{}}
			for _, at := range f.branches[i] {
				e := &g.edges[at]
				other := e.from + e.to - i
				mine = mergeBargains(mine, g.branch(e, i, other, st.cloud, memo[other], limit), other)
			}
			kept := mine[:0]
			for _, b := range mine {
				b.time, b.total, b.state = b.time+st.time, b.total.plus(value{st.cost, st.time}), s
				if b.time <= limit {
					kept = append(kept, b)
				}
			}
			if memo[i][s] = kept; len(kept) > maxPartial {
				return nil, false
			}
		}
	}
	all = []bargain{{}}
	for _, r := range f.roots {
		var mine []bargain
		for _, list := range memo[r] {
			mine = append(mine, list...)
		}
		if all = mergeBargains(all, undominatedBargains(mine), r); len(all) > maxPartial {
			return nil, false
		}
	}
	return all, true
}

// branch lists the bargains of a branch as seen from a node on a cloud.
func (g *graph) branch(e *edge, node, other int, cloud int32, memo [][]bargain, limit int64) []bargain {
	var out []bargain
	for s, list := range memo {
		from, to := cloud, g.nodes[other].states[s].cloud
		if e.to == node {
			from, to = to, from
		}
		extra := value{}
		if e.moves(from, to) {
			extra = value{e.cost[from], e.time}
		}
		for k := range list {
			b := list[k]
			if b.time, b.total = b.time+extra.time, b.total.plus(extra); b.time <= limit {
				out = append(out, b)
			}
		}
	}
	return undominatedBargains(out)
}

// undominatedBargains keeps those that are cheaper than all that are sooner.
func undominatedBargains(list []bargain) []bargain {
	slices.SortStableFunc(list, func(a, b bargain) int { return cmp.Or(cmp.Compare(a.time, b.time), compareValues(a.total, b.total)) })
	kept := list[:0]
	for _, b := range list {
		if len(kept) == 0 || b.total.less(kept[len(kept)-1].total) {
			kept = append(kept, b)
		}
	}
	return kept
}

// mergeBargains joins what is done side by side: the time is the later one's, the
// cost is the sum. Both lists are sorted by time.
func mergeBargains(a, b []bargain, node int) []bargain {
	var out []bargain
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		// The best of each that is done by the later of the two.
		at := max(a[i].time, b[j].time)
		for i+1 < len(a) && a[i+1].time <= at {
			i++
		}
		for j+1 < len(b) && b[j+1].time <= at {
			j++
		}
		out = append(out, bargain{time: at, total: a[i].total.plus(b[j].total), sub: append(slices.Clip(slices.Clone(a[i].sub)), choice{node, &b[j]})})
		switch {
		case i+1 < len(a) && (j+1 == len(b) || a[i+1].time <= b[j+1].time):
			i++
		default:
			j++
		}
	}
	return out
}

// read writes the states that a bargain stands for into picked.
func (b *bargain) read(picked []int) {
	for _, c := range b.sub {
		picked[c.node] = c.b.state
		c.b.read(picked)
	}
}
