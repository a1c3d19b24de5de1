package optimizer

import (
	"cmp"
	"slices"
)

// search minimizes a sum of factors over the nodes of one component.
type search struct {
	e      *eliminator
	nodes  []int
	best   value
	chosen []int // state by position in nodes, of the best found
}

// size is how many states a node has left.
func (s *search) size(node int) int { return len(s.e.domain[node]) }

// step remembers how a node's best choice follows from its neighbours'.
type step struct {
	node  int
	scope []int
	pick  []int32 // index into the node's domain, by the scope's indices
}

// startFrom takes the part of a plan that concerns the component for the best
// found so far, if its states are still allowed.
func (s *search) startFrom(plan []int, factors []factor) {
	at := map[int]int{} // index into domain
	for k, i := range s.nodes {
		at[i] = slices.Index(s.e.domain[i], plan[i])
		if at[i] < 0 {
			return
		}
		s.chosen[k] = plan[i]
	}
	s.best = value{}
	for _, f := range factors {
		index := 0
		for _, v := range f.vars {
			index = index*len(s.e.domain[v]) + at[v]
		}
		s.best = s.best.plus(f.table[index])
	}
}

// run eliminates nodes while the tables stay small; then it branches on the
// node with the most neighbours.
func (s *search) run(factors []factor) {
	s.descend(s.tighten(factors), map[int]bool{}, nil, value{})
}

// tighten moves what a pair of nodes costs at least, whatever the one chooses,
// to the cost of the other by itself. The sum stays the same, and the least of
// each factor says more about the least of the sum.
func (s *search) tighten(factors []factor) []factor {
	own := map[int]*factor{}
	out := make([]factor, 0, len(factors)+len(s.nodes))
	for _, f := range factors {
		if len(f.vars) <= 2 {
			f.table = slices.Clone(f.table)
		}
		out = append(out, f)
	}
	for k := range out {
		if f := &out[k]; len(f.vars) == 1 && own[f.vars[0]] == nil {
			own[f.vars[0]] = f
		}
	}
	for k := range out {
		f := &out[k]
		if len(f.vars) != 2 || own[f.vars[0]] == nil || own[f.vars[1]] == nil {
			continue
		}
		a, b := own[f.vars[0]], own[f.vars[1]]
		rows, columns := len(a.table), len(b.table)
		for x := range rows {
			row := f.table[x*columns : (x+1)*columns]
			low := slices.MinFunc(row, compareValues)
			a.table[x] = a.table[x].plus(low)
			for y := range row {
				row[y] = minus(row[y], low)
			}
		}
		for y := range columns {
			low := f.table[y]
			for x := 1; x < rows; x++ {
				if v := f.table[x*columns+y]; v.less(low) {
					low = v
				}
			}
			b.table[y] = b.table[y].plus(low)
			for x := range rows {
				f.table[x*columns+y] = minus(f.table[x*columns+y], low)
			}
		}
	}
	return out
}

func (s *search) descend(factors []factor, gone map[int]bool, steps []step, base value) {
	size := s.size
	for {
		// Constants leave; their sum with the least of each factor bounds the rest.
		factors = slices.DeleteFunc(factors, func(f factor) bool {
			if len(f.vars) == 0 {
				base = base.plus(f.table[0])
			}
			return len(f.vars) == 0
		})
		left := slices.DeleteFunc(slices.Clone(s.nodes), func(i int) bool { return gone[i] })
		if len(left) == 0 {
			if base.less(s.best) {
				s.best = base
				s.unwind(steps)
			}
			return
		}
		if bound := lowerBound(factors, base); !bound.less(s.best) {
			return
		}
		next, cost := s.smallest(factors, left, size)
		if cost <= s.e.tableLimit || len(left) == 1 {
			var st step
			factors, st = s.eliminate(factors, next, size)
			gone[next] = true
			steps = append(steps, st)
			defer delete(gone, next)
			continue
		}
		s.branch(factors, gone, steps, base, left)
		return
	}
}

func lowerBound(factors []factor, base value) value {
	for _, f := range factors {
		base = base.plus(slices.MinFunc(f.table, compareValues))
	}
	return base
}

func compareValues(a, b value) int {
	return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.time, b.time))
}

// smallest finds the node whose elimination makes the smallest table.
func (s *search) smallest(factors []factor, left []int, size func(int) int) (node, cost int) {
	node, cost = -1, 0
	for _, i := range left {
		n := size(i)
		for _, j := range scopeOf(factors, i) {
			if n *= size(j); n > 1<<40 {
				break
			}
		}
		if node < 0 || n < cost {
			node, cost = i, n
		}
	}
	return node, cost
}

// scopeOf lists the nodes that share a factor with node i.
func scopeOf(factors []factor, i int) []int {
	var scope []int
	for _, f := range factors {
		if slices.Contains(f.vars, i) {
			for _, v := range f.vars {
				if v != i && !slices.Contains(scope, v) {
					scope = append(scope, v)
				}
			}
		}
	}
	slices.Sort(scope)
	return scope
}

// eliminate replaces the factors of a node by their minimum over its states.
func (s *search) eliminate(factors []factor, node int, size func(int) int) ([]factor, step) {
	scope := scopeOf(factors, node)
	var mine, rest []factor
	for _, f := range factors {
		if slices.Contains(f.vars, node) {
			mine = append(mine, f)
		} else {
			rest = append(rest, f)
		}
	}
	n := 1
	for _, v := range scope {
		n *= size(v)
	}
	s.e.budget -= n * size(node)
	made := factor{vars: scope, table: make([]value, n)}
	st := step{node: node, scope: scope, pick: make([]int32, n)}
	// Every factor's table is walked with one stride per node of the scope.
	strides := make([][]int, len(mine))
	own := make([]int, len(mine))
	for k, f := range mine {
		strides[k] = make([]int, len(scope))
		stride := 1
		for at := len(f.vars) - 1; at >= 0; at-- {
			if v := f.vars[at]; v == node {
				own[k] = stride
			} else {
				strides[k][slices.Index(scope, v)] = stride
			}
			stride *= size(f.vars[at])
		}
	}
	index, offset := make([]int, len(scope)), make([]int, len(mine))
	for i := range n {
		best, pick := worst, int32(0)
		for x := range size(node) {
			sum := value{}
			for k := range mine {
				sum = sum.plus(mine[k].table[offset[k]+x*own[k]])
			}
			if sum.less(best) {
				best, pick = sum, int32(x)
			}
		}
		made.table[i], st.pick[i] = best, pick
		for at := len(scope) - 1; at >= 0; at-- {
			index[at]++
			for k := range mine {
				offset[k] += strides[k][at]
			}
			if index[at] < size(scope[at]) {
				break
			}
			for k := range mine {
				offset[k] -= index[at] * strides[k][at]
			}
			index[at] = 0
		}
	}
	return append(rest, made), st
}

// unwind reads the choices off the elimination steps, last eliminated first.
func (s *search) unwind(steps []step) {
	domain := s.e.domain
	at := map[int]int{} // index into domain
	for k := len(steps) - 1; k >= 0; k-- {
		st := &steps[k]
		i := 0
		for _, v := range st.scope {
			i = i*len(domain[v]) + at[v]
		}
		at[st.node] = int(st.pick[i])
	}
	for k, i := range s.nodes {
		s.chosen[k] = domain[i][at[i]]
	}
}

// branch fixes the node with the most neighbours to each of its states, the
// most promising first.
func (s *search) branch(factors []factor, gone map[int]bool, steps []step, base value, left []int) {
	size := s.size
	node := slices.MaxFunc(left, func(a, b int) int { return cmp.Compare(len(scopeOf(factors, a)), len(scopeOf(factors, b))) })
	type option struct {
		index   int
		bound   value
		factors []factor
	}
	var options []option
	for x := range size(node) {
		fixed := make([]factor, len(factors))
		for k, f := range factors {
			fixed[k] = f.fix(node, x, size)
		}
		fixed = s.tighten(fixed)
		options = append(options, option{x, lowerBound(fixed, base), fixed})
	}
	slices.SortStableFunc(options, func(a, b option) int { return compareValues(a.bound, b.bound) })
	for _, o := range options {
		if s.e.budget <= 0 && s.best != worst {
			return
		}
		gone[node] = true
		s.descend(slices.Clone(o.factors), gone, append(slices.Clone(steps), step{node: node, pick: []int32{int32(o.index)}}), base)
		delete(gone, node)
	}
}

// fix gives the factor with one of its nodes at a given state.
func (f factor) fix(node, x int, size func(int) int) factor {
	at := slices.Index(f.vars, node)
	if at < 0 {
		return f
	}
	inner := 1
	for _, v := range f.vars[at+1:] {
		inner *= size(v)
	}
	out := factor{vars: slices.Delete(slices.Clone(f.vars), at, at+1)}
	for from := x * inner; from < len(f.table); from += inner * size(node) {
		out.table = append(out.table, f.table[from:from+inner]...)
	}
	return out
}
