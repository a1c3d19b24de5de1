package optimizer

import (
	"math"
	"slices"
)

// value is money first, then time; sums of values keep that order.
type value struct{ cost, time int64 }

func (a value) plus(b value) value { return value{a.cost + b.cost, a.time + b.time} }

func (a value) less(b value) bool {
	return a.cost < b.cost || a.cost == b.cost && a.time < b.time
}

func minus(a, b value) value { return value{a.cost - b.cost, a.time - b.time} }

var worst = value{math.MaxInt64 / 4, math.MaxInt64 / 4}

// cheapest picks a state per node with the least total cost, and among these
// the least total time of work and transfers. Only edges on which data flows
// couple the choices, so the Dag falls apart into the components of those; each
// is solved by eliminating one node after the other. Where that would need too
// much memory a node is fixed to each of its states in turn, with a bound.
//
// exact is false when the search was cut short.
func (g *graph) cheapest() (picked []int, exact bool) {
	e := newEliminator(g)
	guess := g.cheapGuess()
	if picked = e.solve(guess); e.budget <= 0 {
		// The search was cut short: a lucky guess may be better.
		if g.total(guess).less(g.total(picked)) {
			picked = guess
		}
		return picked, false
	}
	return picked, true
}

// eliminator holds the cost functions of the nodes still to be decided.
type eliminator struct {
	g      *graph
	domain [][]int // states left, by node
	// budget is how many table entries may still be computed.
	budget     int
	tableLimit int // entries of one table
}

const (
	maxTable     = 1 << 18
	searchBudget = 1 << 23
)

// factor is a function of the states of a few nodes.
type factor struct {
	vars  []int
	table []value // the last variable varies fastest
}

func newEliminator(g *graph) *eliminator {
	e := &eliminator{g: g, budget: searchBudget, tableLimit: maxTable, domain: make([][]int, len(g.nodes))}
	for i := range g.nodes {
		for s := range g.nodes[i].states {
			e.domain[i] = append(e.domain[i], s)
		}
	}
	return e
}

func (e *eliminator) own(i, s int) value {
	st := &e.g.nodes[i].states[s]
	return value{st.cost, st.time}
}

// between is what an edge adds for two states.
func (e *eliminator) between(ed *edge, from, to int) value {
	a, b := e.g.nodes[ed.from].states[from].cloud, e.g.nodes[ed.to].states[to].cloud
	if !ed.moves(a, b) {
		return value{}
	}
	return value{ed.cost[a], ed.time}
}

// solve decides every node; guess is a plan to start from.
func (e *eliminator) solve(guess []int) []int {
	picked := make([]int, len(e.g.nodes))
	e.prune()
	for _, nodes := range e.components() {
		e.component(nodes, guess, picked)
	}
	return picked
}

// prune removes states that another state of the same node beats whatever its
// neighbours choose.
func (e *eliminator) prune() {
	for changed := true; changed; {
		changed = false
		for i := range e.domain {
			for k := 0; k < len(e.domain[i]) && len(e.domain[i]) > 1; k++ {
				if e.beaten(i, e.domain[i][k]) {
					e.domain[i] = slices.Delete(slices.Clone(e.domain[i]), k, k+1)
					changed = true
					k--
				}
			}
		}
	}
}

// beaten reports whether some other state of node i is better than s in every
// surrounding.
func (e *eliminator) beaten(i, s int) bool {
	for _, other := range e.domain[i] {
		if other == s {
			continue
		}
		gain := minus(e.own(i, s), e.own(i, other))
		for _, at := range e.g.nodes[i].out {
			gain = gain.plus(e.least(&e.g.edges[at], true, s, other))
		}
		for _, at := range e.g.nodes[i].in {
			gain = gain.plus(e.least(&e.g.edges[at], false, s, other))
		}
		if (value{}).less(gain) || gain == (value{}) && other < s {
			return true
		}
	}
	return false
}

// least is the least that an edge can favour other over s.
func (e *eliminator) least(ed *edge, out bool, s, other int) value {
	if ed.gb == 0 {
		return value{}
	}
	far := ed.from
	if out {
		far = ed.to
	}
	low := worst
	for _, f := range e.domain[far] {
		var d value
		if out {
			d = minus(e.between(ed, s, f), e.between(ed, other, f))
		} else {
			d = minus(e.between(ed, f, s), e.between(ed, f, other))
		}
		if d.less(low) {
			low = d
		}
	}
	return low
}

// components groups nodes that data connects; decided nodes stand alone.
func (e *eliminator) components() [][]int {
	group := make([]int, len(e.g.nodes))
	for i := range group {
		group[i] = -1
	}
	var out [][]int
	for i := range e.g.nodes {
		if group[i] >= 0 {
			continue
		}
		nodes := []int{i}
		group[i] = len(out)
		for at := 0; at < len(nodes); at++ {
			if len(e.domain[nodes[at]]) == 1 {
				continue
			}
			e.neighbours(nodes[at], func(j int) {
				if group[j] < 0 && len(e.domain[j]) > 1 {
					group[j] = len(out)
					nodes = append(nodes, j)
				}
			})
		}
		out = append(out, nodes)
	}
	return out
}

func (e *eliminator) neighbours(i int, f func(j int)) {
	for _, at := range e.g.nodes[i].out {
		if ed := &e.g.edges[at]; ed.gb > 0 {
			f(ed.to)
		}
	}
	for _, at := range e.g.nodes[i].in {
		if ed := &e.g.edges[at]; ed.gb > 0 {
			f(ed.from)
		}
	}
}

// component decides the nodes of a component.
func (e *eliminator) component(nodes, guess, picked []int) {
	if len(nodes) == 1 && len(e.domain[nodes[0]]) == 1 {
		picked[nodes[0]] = e.domain[nodes[0]][0]
		return
	}
	s := search{e: e, nodes: nodes, best: worst, chosen: make([]int, len(nodes))}
	factors := e.factors(nodes)
	s.startFrom(guess, factors)
	s.run(factors)
	for k, i := range nodes {
		picked[i] = s.chosen[k]
	}
}

// factors are the cost functions of a component: one per node, with what its
// edges to decided nodes add, and one per edge inside.
func (e *eliminator) factors(nodes []int) []factor {
	var out []factor
	for _, i := range nodes {
		f := factor{vars: []int{i}, table: make([]value, len(e.domain[i]))}
		for k, s := range e.domain[i] {
			f.table[k] = e.own(i, s)
		}
		for _, at := range e.g.nodes[i].out {
			ed := &e.g.edges[at]
			switch {
			case ed.gb == 0:
			case len(e.domain[ed.to]) == 1:
				for k, s := range e.domain[i] {
					f.table[k] = f.table[k].plus(e.between(ed, s, e.domain[ed.to][0]))
				}
			default:
				pair := factor{vars: []int{i, ed.to}}
				for _, s := range e.domain[i] {
					for _, t := range e.domain[ed.to] {
						pair.table = append(pair.table, e.between(ed, s, t))
					}
				}
				out = append(out, pair)
			}
		}
		for _, at := range e.g.nodes[i].in {
			if ed := &e.g.edges[at]; ed.gb > 0 && len(e.domain[ed.from]) == 1 {
				for k, s := range e.domain[i] {
					f.table[k] = f.table[k].plus(e.between(ed, e.domain[ed.from][0], s))
				}
			}
		}
		out = append(out, f)
	}
	return out
}
