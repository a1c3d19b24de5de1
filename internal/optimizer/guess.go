package optimizer

import "cmp"

// guesses are quick plans to start from: all tasks on one cloud as far as it
// can take them, and each task by itself.
func (g *graph) guesses(better func(a, b *state) bool) [][]int {
	var out [][]int
	for c := int32(-1); c < int32(g.clouds()); c++ {
		picked := make([]int, len(g.nodes))
		for i := range g.nodes {
			states := g.nodes[i].states
			for k := range states {
				here, there := states[k].cloud == c, states[picked[i]].cloud == c
				if here != there && here || here == there && better(&states[k], &states[picked[i]]) {
					picked[i] = k
				}
			}
		}
		out = append(out, picked)
	}
	return out
}

// polish changes one task at a time while that makes the plan better.
func (g *graph) polish(picked []int, less func(a, b []int) bool) {
	trial := append([]int(nil), picked...)
	for range 20 {
		changed := false
		for i := range g.nodes {
			for s := range g.nodes[i].states {
				if trial[i] = s; s != picked[i] && less(trial, picked) {
					picked[i], changed = s, true
				}
			}
			trial[i] = picked[i]
		}
		if !changed {
			return
		}
	}
}

// local is what node i and its edges cost in a state, given the others.
func (g *graph) local(picked []int, i, s int) value {
	st := &g.nodes[i].states[s]
	v := value{st.cost, st.time}
	for _, at := range g.nodes[i].out {
		if e := &g.edges[at]; e.moves(st.cloud, g.nodes[e.to].states[picked[e.to]].cloud) {
			v = v.plus(value{e.cost[st.cloud], e.time})
		}
	}
	for _, at := range g.nodes[i].in {
		e := &g.edges[at]
		if from := g.nodes[e.from].states[picked[e.from]].cloud; e.moves(from, st.cloud) {
			v = v.plus(value{e.cost[from], e.time})
		}
	}
	return v
}

// cheapGuess is a good plan found quickly, to measure others against.
func (g *graph) cheapGuess() []int {
	var best []int
	low := worst
	for _, p := range g.guesses(func(a, b *state) bool { return value{a.cost, a.time}.less(value{b.cost, b.time}) }) {
		for changed, rounds := true, 0; changed && rounds < 50; rounds++ {
			changed = false
			for i := range g.nodes {
				for s := range g.nodes[i].states {
					if g.local(p, i, s).less(g.local(p, i, p[i])) {
						p[i], changed = s, true
					}
				}
			}
		}
		if v := g.total(p); v.less(low) {
			best, low = p, v
		}
	}
	return best
}

// total is what a plan costs, and its time of work and transfers.
func (g *graph) total(picked []int) value {
	var v value
	for i, s := range picked {
		v = v.plus(value{g.nodes[i].states[s].cost, g.nodes[i].states[s].time})
	}
	for k := range g.edges {
		e := &g.edges[k]
		if a, b := g.nodes[e.from].states[picked[e.from]].cloud, g.nodes[e.to].states[picked[e.to]].cloud; e.moves(a, b) {
			v = v.plus(value{e.cost[a], e.time})
		}
	}
	return v
}

// fastGuess is a plan that is done soon, found quickly.
func (g *graph) fastGuess() []int {
	var best []int
	for _, p := range g.guesses(func(a, b *state) bool {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.cost, b.cost)) < 0
	}) {
		if best == nil || g.sooner(p, best) {
			best = p
		}
	}
	if len(g.nodes) <= 200 {
		g.polish(best, g.sooner)
	}
	return best
}

// sooner orders plans by when all is done, then by cost.
func (g *graph) sooner(a, b []int) bool {
	x, y := g.makespan(a), g.makespan(b)
	return x < y || x == y && g.total(a).less(g.total(b))
}
