package agent

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
)

// patience is how long a job lets others overtake it. After that the nodes it
// will need take no new jobs, so that a big job starts at last.
const patience = 5 * time.Minute

// defaultCPUs is what a rank counts for that does not say what it needs.
const defaultCPUs = 0.5

// milli counts CPUs, GiB and accelerators in thousandths: sums are exact.
func milli(v float64) int64 { return int64(math.Round(v * 1000)) }

// demand is what a job needs on each of its nodes.
type demand struct {
	nodes    int
	cpu, mem int64  // thousandths of a CPU, of a GiB
	accel    string // lower case, "" for none
	gpu      int64  // thousandths of an accelerator
	nothing  bool   // setup only: starts at once and reserves nothing
}

// slot is what is free on one node.
type slot struct {
	cpu, mem int64 // math.MaxInt64: not counted
	accel    string
	gpu      []int64 // free thousandths of each device
}

// waiting is a queued job; the queue is in the order of submission.
type waiting struct {
	id     int
	demand demand
	since  time.Time
	kept   []int // nodes that an earlier plan kept for it
}

// grant says where a job starts: node indices in ascending order, by rank, and
// the devices reserved on each.
type grant struct {
	id    int
	nodes []int
	gpus  [][]int
}

// demandOf reads what a job asks for.
func demandOf(s *agentapi.JobSpec) demand {
	d := demand{nodes: max(s.NumNodes, 1), cpu: milli(s.CPUs), mem: milli(s.MemoryGiB), nothing: s.Run == ""}
	if d.cpu <= 0 {
		d.cpu = milli(defaultCPUs)
	}
	for name, n := range s.Accelerators {
		if n > 0 {
			d.accel, d.gpu = strings.ToLower(name), milli(n)
		}
	}
	if d.gpu > 1000 { // only a single device can be shared
		d.gpu = (d.gpu + 999) / 1000 * 1000
	}
	return d
}

// slices is the demand where so many machines are one slot.
func (d demand) slices(hosts int) demand {
	d.nodes = (d.nodes + hosts - 1) / hosts
	return d
}

// slotOf is an empty node.
func slotOf(c agentapi.Capacity) slot {
	s := slot{cpu: milli(c.CPUs), mem: milli(c.MemoryGiB)}
	if s.cpu <= 0 {
		s.cpu = math.MaxInt64
	}
	s.cpu = max(s.cpu, milli(defaultCPUs)) // the smallest of pods takes one job that does not say what it needs
	if s.mem <= 0 {
		s.mem = math.MaxInt64
	}
	for name, n := range c.Accelerators {
		if n > 0 {
			s.accel = strings.ToLower(name)
			for left := milli(n); left > 0; left -= 1000 { // a node may own a part of a device
				s.gpu = append(s.gpu, min(left, 1000))
			}
		}
	}
	return s
}

// fit returns the devices that d would get on s; ok is false if it has to wait.
func (s *slot) fit(d demand) (gpus []int, ok bool) {
	if d.nothing {
		return nil, true
	}
	if s.cpu < d.cpu || s.mem < d.mem {
		return nil, false
	}
	if d.gpu == 0 {
		return nil, true
	}
	if s.accel != d.accel {
		return nil, false
	}
	if d.gpu < 1000 { // the fullest device that still has room
		best := -1
		for i, free := range s.gpu {
			if free >= d.gpu && (best < 0 || free < s.gpu[best]) {
				best = i
			}
		}
		return []int{best}, best >= 0
	}
	for i, free := range s.gpu {
		if free == 1000 {
			if gpus = append(gpus, i); int64(len(gpus))*1000 == d.gpu {
				return gpus, true
			}
		}
	}
	return nil, false
}

// take reserves d on s; the devices are those of fit.
func (s *slot) take(d demand, gpus []int) {
	if d.nothing {
		return
	}
	if s.cpu != math.MaxInt64 {
		s.cpu -= d.cpu
	}
	if s.mem != math.MaxInt64 {
		s.mem -= d.mem
	}
	for _, i := range gpus {
		if i < len(s.gpu) {
			s.gpu[i] -= min(d.gpu, 1000)
		}
	}
}

func (s *slot) freeGPU() (sum int64) {
	for _, f := range s.gpu {
		sum += f
	}
	return sum
}

// freer orders nodes by what is free on them.
func (s *slot) freer(o *slot) int {
	return cmp.Or(cmp.Compare(s.freeGPU(), o.freeGPU()), cmp.Compare(s.cpu, o.cpu), cmp.Compare(s.mem, o.mem))
}

// impossible says why d can never start on nodes that are like empty; it
// returns "" if it can.
func impossible(d demand, nodes int, c agentapi.Capacity) string {
	if d.nodes > nodes {
		return fmt.Sprintf("the job needs %d nodes, but the cluster has %d", d.nodes, nodes)
	}
	s := slotOf(c)
	if _, ok := s.fit(d); ok {
		return ""
	}
	switch {
	case s.cpu < d.cpu:
		return fmt.Sprintf("the job needs %s CPUs on each node, but a node has %s", amount(d.cpu), amount(s.cpu))
	case s.mem < d.mem:
		return fmt.Sprintf("the job needs %s GiB of memory on each node, but a node has %s", amount(d.mem), amount(s.mem))
	case len(s.gpu) == 0:
		return fmt.Sprintf("the job needs %s:%s on each node, but the nodes have no accelerators", strings.ToUpper(d.accel), amount(d.gpu))
	case s.accel != d.accel:
		return fmt.Sprintf("the job needs %s:%s on each node, but a node has %s:%s",
			strings.ToUpper(d.accel), amount(d.gpu), strings.ToUpper(s.accel), amount(s.freeGPU()))
	}
	return fmt.Sprintf("the job needs %s:%s on each node, but a node has %s", strings.ToUpper(d.accel), amount(d.gpu), amount(s.freeGPU()))
}

// String tells people what a job needs.
func (d demand) String() string {
	per := ""
	if d.nodes > 1 {
		per = fmt.Sprintf("%d nodes, each with ", d.nodes)
	}
	s := per + amount(d.cpu) + " CPU"
	if d.cpu > 1000 {
		s += "s"
	}
	if d.mem > 0 {
		s += ", " + amount(d.mem) + " GiB of memory"
	}
	if d.gpu > 0 {
		s += ", " + strings.ToUpper(d.accel) + ":" + amount(d.gpu)
	}
	return s
}

func amount(thousandths int64) string {
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.3f", float64(thousandths)/1000), "0"), ".")
}

// plan decides which queued jobs start now on what is free. A job gets all its
// nodes at once or none. Jobs start in order; one that does not fit lets later
// ones pass until it has waited for patience: then nodes are kept for it, on
// which nothing else starts. Those nodes are returned by job, for its next plan.
func plan(free []slot, queue []waiting, now time.Time) (grants []grant, kept map[int][]int) {
	free = slices.Clone(free)
	for i := range free {
		free[i].gpu = slices.Clone(free[i].gpu)
	}
	closed := make([]bool, len(free)) // kept for a job that waited long enough
	blocked := map[demand]bool{}      // what did not fit does not fit a moment later
	for _, w := range queue {
		if blocked[w.demand] && w.kept == nil {
			continue
		}
		g, ok := choose(free, closed, w)
		if !ok {
			blocked[w.demand] = true
			if now.Sub(w.since) >= patience {
				if kept == nil {
					kept = map[int][]int{}
				}
				kept[w.id] = keep(free, closed, w)
			}
			continue
		}
		for rank, n := range g.nodes {
			free[n].take(w.demand, g.gpus[rank])
		}
		grants = append(grants, g)
	}
	return grants, kept
}

// choose finds nodes for one job, the fullest ones that fit, so that big gaps
// stay for big jobs.
func choose(free []slot, closed []bool, w waiting) (grant, bool) {
	type option struct {
		node int
		gpus []int
	}
	var options []option
	for i := range free {
		if closed[i] && !w.demand.nothing {
			continue
		}
		if gpus, ok := free[i].fit(w.demand); ok {
			options = append(options, option{i, gpus})
		}
	}
	if len(options) < w.demand.nodes {
		return grant{}, false
	}
	if !w.demand.nothing {
		slices.SortStableFunc(options, func(a, b option) int { return free[a.node].freer(&free[b.node]) })
	}
	options = options[:w.demand.nodes]
	slices.SortFunc(options, func(a, b option) int { return a.node - b.node })
	g := grant{id: w.id}
	for _, o := range options {
		g.nodes = append(g.nodes, o.node)
		g.gpus = append(g.gpus, o.gpus)
	}
	return g, true
}

// keep closes nodes for a job: those that were kept for it before, so that what
// is free there only grows until the job fits, or else those on which most is.
func keep(free []slot, closed []bool, w waiting) []int {
	taken := func(n int) bool { return n >= len(free) || closed[n] }
	nodes := w.kept
	if len(nodes) == 0 || slices.ContainsFunc(nodes, taken) {
		nodes = nil
		for i := range free {
			if !closed[i] {
				nodes = append(nodes, i)
			}
		}
		slices.SortStableFunc(nodes, func(a, b int) int { return free[b].freer(&free[a]) })
		nodes = nodes[:min(w.demand.nodes, len(nodes))]
	}
	for _, n := range nodes {
		closed[n] = true
	}
	return nodes
}
