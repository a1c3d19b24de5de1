package optimizer

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/skypilot-go/sky/task"
)

// choose picks one candidate per task so that the whole Dag is cheapest (or
// done first), transfers included.
func choose(p *Problem, plan *Plan) error {
	if p.Dag.Execution == task.Parallel {
		chooseGroup(plan)
		return finish(p, plan, nil)
	}
	g, err := newGraph(p, plan)
	if err != nil {
		return err
	}
	var picked []int
	if p.Minimize == Time {
		picked, plan.Exact = g.fastest()
	} else {
		picked, plan.Exact = g.cheapest()
	}
	for i, s := range picked {
		if t := &plan.Tasks[i]; t.Candidates != nil {
			t.Chosen = t.Candidates[g.nodes[i].states[s].candidate]
			t.reorder(g.moved(picked, i))
		}
	}
	return finish(p, plan, g)
}

// graph is a Dag reduced to what choosing depends on.
type graph struct {
	names []string // of clouds
	nodes []node
	edges []edge
	order []int // topological
}

// node is a task. Its states are the candidates worth choosing: all that the
// rest of the Dag sees of a candidate is its cloud, cost and time.
type node struct {
	states  []state
	in, out []int   // edges
	input   []value // what its own input costs to move, by cloud; nil: it has none
}

// state is one choice for a node, what it costs and how long it takes, the
// transfer of its input included. In billionths of a $ and of a second.
type state struct {
	cloud      int32
	candidate  int32
	cost, time int64
}

// edge is an order between two tasks and the data that flows there.
type edge struct {
	from, to int
	gb       float64
	cost     []int64 // if the clouds differ, by the cloud it leaves
	time     int64   // if the clouds differ
}

// unpriced stands for the cost of what has no known price: more than anything
// has that has one.
const unpriced = int64(1e15)

func newGraph(p *Problem, plan *Plan) (*graph, error) {
	g := &graph{nodes: make([]node, len(plan.Tasks))}
	for _, s := range p.Sources {
		g.names = append(g.names, s.Name())
	}
	for _, at := range p.Placed {
		if !slices.Contains(g.names, at.Cloud) {
			g.names = append(g.names, at.Cloud)
		}
	}
	for i := range plan.Tasks {
		t := &plan.Tasks[i]
		if at, ok := p.Placed[i]; ok {
			t.Chosen.source = int32(slices.Index(g.names, at.Cloud))
			g.nodes[i].states = []state{{cloud: t.Chosen.source}}
			continue
		}
		var err error
		if g.nodes[i].input, err = inputOf(t.Task, g.names); err != nil {
			return nil, err
		}
		g.nodes[i].states = reduce(t, g.nodes[i].input, p.Minimize == Time)
	}
	for to, parents := range p.Dag.After() {
		for _, from := range parents {
			g.connect(p, from, to)
		}
	}
	if g.order = topological(g); g.order == nil {
		return nil, fmt.Errorf("the tasks wait for each other in a circle")
	}
	return g, nil
}

// connect adds the edge from a task to one that waits for it.
func (g *graph) connect(p *Problem, from, to int) {
	e := edge{from: from, to: to}
	if out := p.Dag.Tasks[from].Outputs; out != nil && out.GB > 0 {
		e.gb, e.time = out.GB, nano(egressSeconds(out.GB))
		e.cost = make([]int64, len(g.names))
		for c, name := range g.names {
			e.cost[c] = nano(egressCost(name, e.gb))
		}
	}
	g.nodes[from].out = append(g.nodes[from].out, len(g.edges))
	g.nodes[to].in = append(g.nodes[to].in, len(g.edges))
	g.edges = append(g.edges, e)
}

// topological orders the nodes so that parents come first; nil if there is a
// cycle.
func topological(g *graph) []int {
	waiting := make([]int, len(g.nodes))
	var order []int
	for i := range g.nodes {
		if waiting[i] = len(g.nodes[i].in); waiting[i] == 0 {
			order = append(order, i)
		}
	}
	for at := 0; at < len(order); at++ {
		for _, e := range g.nodes[order[at]].out {
			to := g.edges[e].to
			if waiting[to]--; waiting[to] == 0 {
				order = append(order, to)
			}
		}
	}
	if len(order) < len(g.nodes) {
		return nil
	}
	return order
}

// inputOf is what it takes to move a task's input to each cloud; nil if it has none.
func inputOf(t *task.Task, clouds []string) ([]value, error) {
	in := t.Inputs
	if in == nil || in.GB <= 0 {
		return nil, nil
	}
	from, ok := storeCloud(in.URI)
	if !ok {
		return nil, &InvalidError{Task: t.Name, Field: "inputs", Value: in.URI, What: "where this data is kept cannot be told; use s3://, gs://, r2://, cos://, oci://, nebius:// or https://ACCOUNT.blob.core.windows.net/"}
	}
	moved := make([]value, len(clouds))
	for c, name := range clouds {
		if name != from {
			moved[c] = value{nano(egressCost(from, in.GB)), nano(egressSeconds(in.GB))}
		}
	}
	return moved, nil
}

// reduce keeps, per cloud, the candidates that no other one of the cloud beats
// in cost or, if both count, in time. input is as in [inputOf].
func reduce(t *TaskPlan, input []value, both bool) []state {
	// Candidates are sorted, by cost or by time: of each cloud the first one is
	// worth keeping, and every later one that is better than those before in the
	// other respect.
	kept := map[int32]int64{} // least time (or cost) so far, by cloud
	var states []state
	for i := range t.Candidates {
		c := &t.Candidates[i]
		if t.ordered && c.entry != t.Candidates[0].entry {
			break
		}
		other := nano(c.Time)
		if t.target == Time {
			other = paidCost(c)
		}
		if least, seen := kept[c.source]; seen && (!both || other >= least) {
			continue
		}
		kept[c.source] = other
		s := state{cloud: c.source, candidate: int32(i), cost: paidCost(c), time: nano(c.Time)}
		if input != nil {
			s.cost, s.time = s.cost+input[c.source].cost, s.time+input[c.source].time
		}
		states = append(states, s)
	}
	return states
}

// moved is what it takes to move the data of a task if it went to each cloud and the
// other tasks to where they are picked; nil if it has none.
func (g *graph) moved(picked []int, i int) []value {
	n := &g.nodes[i]
	out, moves := slices.Clone(n.input), n.input != nil
	if out == nil {
		out = make([]value, len(g.names))
	}
	for _, at := range slices.Concat(n.in, n.out) {
		e := &g.edges[at]
		moves = moves || e.gb > 0
		for c := range out {
			from, to := int32(c), int32(c)
			if e.to == i {
				from = g.nodes[e.from].states[picked[e.from]].cloud
			} else {
				to = g.nodes[e.to].states[picked[e.to]].cloud
			}
			if e.moves(from, to) {
				out[c] = out[c].plus(value{e.cost[from], e.time})
			}
		}
	}
	if !moves {
		return nil
	}
	return out
}

// reorder ranks the candidates anew with the data that would move, by source, and puts
// the chosen one first.
func (t *TaskPlan) reorder(moved []value) {
	if moved != nil {
		for i := range t.Candidates {
			c := &t.Candidates[i]
			c.Moved, c.MovedFor = float64(moved[c.source].cost)/1e9, float64(moved[c.source].time)/1e9
		}
		rank(t.Candidates, t.target, t.ordered)
	}
	t.first(func(c *Candidate) bool { return c.rank == t.Chosen.rank })
}

// first moves the candidates that f picks before the others; the first of all is chosen.
func (t *TaskPlan) first(f func(c *Candidate) bool) {
	n := slices.IndexFunc(t.Candidates, func(c Candidate) bool { return !f(&c) })
	if n >= 0 && slices.ContainsFunc(t.Candidates[n:], func(c Candidate) bool { return f(&c) }) {
		picked := make([]Candidate, 0, len(t.Candidates))
		for _, want := range []bool{true, false} {
			for i := range t.Candidates {
				if c := &t.Candidates[i]; f(c) == want {
					picked = append(picked, *c)
				}
			}
		}
		t.Candidates = picked
	}
	setRanks(t.Candidates)
	t.Chosen = t.Candidates[0]
}

func paidCost(c *Candidate) int64 {
	cost := nano(c.Cost)
	if c.Unpriced || c.LastResort {
		cost += unpriced
	}
	return cost
}

// moves reports whether data changes clouds on an edge.
func (e *edge) moves(from, to int32) bool { return e.gb > 0 && from != to }

// makespan is when the last task is done.
func (g *graph) makespan(picked []int) int64 {
	done := make([]int64, len(g.nodes))
	last := int64(0)
	for _, i := range g.order {
		s := &g.nodes[i].states[picked[i]]
		start := int64(0)
		for _, at := range g.nodes[i].in {
			e := &g.edges[at]
			arrive := done[e.from]
			if e.moves(g.nodes[e.from].states[picked[e.from]].cloud, s.cloud) {
				arrive += e.time
			}
			start = max(start, arrive)
		}
		done[i] = start + s.time
		last = max(last, done[i])
	}
	return last
}

// chooseGroup puts jobs that run side by side into one region if a region can
// take them all, the cheapest such; else each takes its own best.
func chooseGroup(plan *Plan) {
	if at, ok := together(plan); ok {
		for i := range plan.Tasks {
			plan.Tasks[i].first(func(c *Candidate) bool { return c.Offer.Cloud == at.cloud && c.Offer.Region == at.name })
		}
	}
}

type region struct{ cloud, name string }

// together is the region where all tasks cost the least together; ok is false if none can
// take them all.
func together(plan *Plan) (best region, ok bool) {
	total, count := map[region]int64{}, map[region]int{}
	var order []region
	for i := range plan.Tasks {
		seen := map[region]bool{}
		for j := range plan.Tasks[i].Candidates {
			c := &plan.Tasks[i].Candidates[j]
			at := region{c.Offer.Cloud, c.Offer.Region}
			if seen[at] {
				continue
			}
			seen[at] = true
			if count[at] == 0 {
				order = append(order, at)
			}
			count[at]++
			total[at] += paidCost(c)
		}
	}
	order = slices.DeleteFunc(order, func(r region) bool { return count[r] < len(plan.Tasks) })
	if len(order) == 0 || len(plan.Tasks) == 1 {
		return best, false
	}
	return slices.MinFunc(order, func(a, b region) int { return cmp.Compare(total[a], total[b]) }), true
}

// finish adds up what the chosen candidates cost and lists the transfers. g is
// nil for jobs side by side.
func finish(p *Problem, plan *Plan, g *graph) error {
	for i := range plan.Tasks {
		t := &plan.Tasks[i]
		plan.Cost += t.Chosen.Cost
		if g == nil {
			plan.Time = max(plan.Time, t.Chosen.Time)
		}
		if in := t.Task.Inputs; in != nil && in.GB > 0 {
			from, _ := storeCloud(in.URI)
			if t.Chosen.Offer.Cloud != from {
				plan.addTransfer(Transfer{From: in.URI, FromTask: -1, To: taskName(t.Task, i), ToTask: i, GB: in.GB}, from)
			}
		}
	}
	if g == nil {
		return nil
	}
	done := make([]float64, len(plan.Tasks))
	for _, i := range g.order {
		start := 0.0
		for _, at := range g.nodes[i].in {
			e := &g.edges[at]
			arrive := done[e.from]
			from := &plan.Tasks[e.from].Chosen
			if e.moves(from.source, plan.Tasks[i].Chosen.source) {
				arrive += egressSeconds(e.gb)
				plan.addTransfer(Transfer{From: taskName(p.Dag.Tasks[e.from], e.from), FromTask: e.from, To: taskName(p.Dag.Tasks[i], i), ToTask: i, GB: e.gb}, from.Offer.Cloud)
			}
			start = max(start, arrive)
		}
		done[i] = start + plan.Tasks[i].Chosen.Time
		if in := p.Dag.Tasks[i].Inputs; in != nil && in.GB > 0 {
			if from, _ := storeCloud(in.URI); from != plan.Tasks[i].Chosen.Offer.Cloud {
				done[i] += egressSeconds(in.GB)
			}
		}
		plan.Time = max(plan.Time, done[i])
	}
	plan.Cost, plan.Time = round9(plan.Cost), round9(plan.Time)
	return nil
}

func (p *Plan) addTransfer(t Transfer, from string) {
	t.Cost, t.Time = egressCost(from, t.GB), egressSeconds(t.GB)
	p.Cost += t.Cost
	p.Transfers = append(p.Transfers, t)
}

func round9(x float64) float64 { return math.Round(x*1e9) / 1e9 }

func taskName(t *task.Task, i int) string { return cmp.Or(t.Name, fmt.Sprint("task ", i)) }
