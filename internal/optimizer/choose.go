package optimizer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/skypilot-go/sky/task"
)

// choose picks one candidate per task so that the whole Dag is cheapest (or
// done first), transfers included.
func choose(p *Problem, plan *Plan) error {
	if p.Edges == nil && p.Dag.Execution == task.Parallel {
		chooseGroup(plan)
		return finish(p, plan, nil)
	}
	g, err := newGraph(p, plan)
	if err != nil {
		return err
	}
	var picked []int
	switch {
	case p.Minimize == Time:
		picked, plan.Exact = g.fastest()
	case p.Deadline > 0:
		picked, plan.Exact = g.cheapestWithin(nano(p.Deadline.Seconds()))
	default:
		picked, plan.Exact = g.cheapest()
	}
	if picked == nil {
		return g.tooLate(p)
	}
	for i, s := range picked {
		t := &plan.Tasks[i]
		t.Chosen = t.Candidates[g.nodes[i].states[s].candidate]
	}
	return finish(p, plan, g)
}

// graph is a Dag reduced to what choosing depends on.
type graph struct {
	nodes []node
	edges []edge
	order []int // topological
}

// node is a task. Its states are the candidates worth choosing: all that the
// rest of the Dag sees of a candidate is its cloud, cost and time.
type node struct {
	states  []state
	in, out []int // edges
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
	clouds := make([]string, len(p.Sources))
	for i, s := range p.Sources {
		clouds[i] = s.Name()
	}
	frontier := p.Minimize == Time || p.Deadline > 0
	for i := range plan.Tasks {
		var err error
		if g.nodes[i].states, err = reduce(&plan.Tasks[i], clouds, frontier); err != nil {
			return nil, err
		}
	}
	pairs := p.Edges
	if pairs == nil {
		for i := 1; i < len(plan.Tasks); i++ {
			pairs = append(pairs, [2]int{i - 1, i})
		}
	}
	for _, pair := range pairs {
		e := edge{from: pair[0], to: pair[1]}
		if out := p.Dag.Tasks[e.from].Outputs; out != nil && out.GB > 0 {
			e.gb, e.time = out.GB, nano(egressSeconds(out.GB))
			e.cost = make([]int64, len(clouds))
			for c, name := range clouds {
				e.cost[c] = nano(egressCost(name, e.gb))
			}
		}
		g.nodes[e.from].out = append(g.nodes[e.from].out, len(g.edges))
		g.nodes[e.to].in = append(g.nodes[e.to].in, len(g.edges))
		g.edges = append(g.edges, e)
	}
	if g.order = topological(g); g.order == nil {
		return nil, fmt.Errorf("the tasks wait for each other in a circle")
	}
	return g, nil
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

// reduce keeps, per cloud, the candidates that no other one of the cloud beats
// in cost or, where time counts, in time.
func reduce(t *TaskPlan, clouds []string, frontier bool) ([]state, error) {
	from, gb := "", 0.0
	if in := t.Task.Inputs; in != nil && in.GB > 0 {
		var ok bool
		if from, ok = storeCloud(in.URI); !ok {
			return nil, &InvalidError{Task: t.Task.Name, Field: "inputs", Value: in.URI, What: "where this data is kept cannot be told; use s3://, gs://, r2://, cos://, oci://, nebius:// or https://ACCOUNT.blob.core.windows.net/"}
		}
		gb = in.GB
	}
	inCost, inTime := nano(egressCost(from, gb)), nano(egressSeconds(gb))
	// Candidates are sorted, by cost or by time: of each cloud the first one is
	// worth keeping, and every later one that is better than those before in the
	// other respect.
	kept := make([]int64, len(clouds)) // least time (or cost) so far
	for i := range kept {
		kept[i] = math.MaxInt64
	}
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
		if other >= kept[c.source] || !frontier && kept[c.source] != math.MaxInt64 {
			continue
		}
		kept[c.source] = other
		s := state{cloud: c.source, candidate: int32(i), cost: paidCost(c), time: nano(c.Time)}
		if from != "" && clouds[c.source] != from {
			s.cost, s.time = s.cost+inCost, s.time+inTime
		}
		states = append(states, s)
	}
	return states, nil
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

// tooLate says that no plan keeps the deadline.
func (g *graph) tooLate(p *Problem) error {
	picked, _ := g.fastest()
	soonest := time.Duration(g.makespan(picked))
	none := &NoFeasibleError{Nodes: 1}
	for _, t := range p.Dag.Tasks {
		none.Requests = append(none.Requests, Describe(&t.Resources[0]))
	}
	none.Task = p.Dag.Tasks[0].Name
	none.Clouds = []Exclusion{{DisplayName: "deadline", Request: none.Requests[0], Constraint: Deadline,
		Reason: fmt.Sprintf("everything is done after %v at the earliest, and %v are allowed", soonest.Round(time.Second), p.Deadline)}}
	return none
}

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
	type place struct {
		source int32
		region string
	}
	total, count := map[place]int64{}, map[place]int{}
	var order []place
	for i := range plan.Tasks {
		seen := map[place]bool{}
		for j := range plan.Tasks[i].Candidates {
			c := &plan.Tasks[i].Candidates[j]
			at := place{c.source, c.Offer.Region}
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
	order = slices.DeleteFunc(order, func(p place) bool { return count[p] < len(plan.Tasks) })
	if len(order) == 0 || len(plan.Tasks) == 1 {
		return
	}
	best := slices.MinFunc(order, func(a, b place) int { return cmp.Compare(total[a], total[b]) })
	for i := range plan.Tasks {
		t := &plan.Tasks[i]
		j := slices.IndexFunc(t.Candidates, func(c Candidate) bool { return c.source == best.source && c.Offer.Region == best.region })
		t.Chosen = t.Candidates[j]
	}
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
