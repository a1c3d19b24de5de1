// Package optimizer finds the best place for every task of a Dag.
//
// It is pure: the same [Problem] gives the same [Plan]. What can be rented
// comes in as [Source]s, what has been ruled out as [Block]s. Every instance
// type in every place that satisfies a task is a [Candidate]; the plan keeps
// all of them in the order in which they should be tried.
package optimizer

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

// Source is what one cloud offers. A catalog table and a provider's own list
// ([OffersSource]) are Sources. Methods may be called concurrently.
type Source interface {
	// Name is the cloud's name in task files, such as "aws".
	Name() string
	// DisplayName is how tables show it, such as "AWS".
	DisplayName() string
	// Lacks lists what the cloud cannot do: the reason, by feature.
	Lacks() map[cloud.Feature]string
	// Find lists every offer that answers the query: the cheapest instance
	// type first, its places in the order to try them. Offers share their
	// accelerator maps: read only.
	Find(q catalog.Query) []cloud.Offer
	// Names lists what exists of a kind, to check names and suggest close ones.
	Names(k catalog.NameKind) []string
}

// Target is what a plan minimizes.
type Target string

const (
	Cost Target = "cost" // money, then time (the default)
	Time Target = "time" // time until the last task is done, then money
)

// Problem is all that a plan depends on. Only Dag and Sources are required.
type Problem struct {
	Dag *task.Dag
	// Placed are the places of tasks of the Dag that run, or ran, by index: they are
	// not planned, but their data is there.
	Placed map[int]cloud.Place
	// Sources are the enabled clouds, in order; ties go to the earlier one.
	Sources []Source
	// Refused says why clouds are not among them, by name.
	Refused  map[string]string
	Minimize Target
	// Replica means that the tasks run as replicas of a service, whose ports need not be
	// open: load balancers reach them also through their agents.
	Replica bool
	// Reservations are machines that are paid for already. Tasks that run at the same time
	// share them; those of a chain can use the same.
	Reservations []cloud.Reservation
	// Only are the regions that are used of clouds of which not all are, by name.
	Only map[string]Regions
}

// Regions are some of a cloud's.
type Regions struct {
	Names []string
	Why   string // not the others
}

// outside says why a region of a cloud is not used, "" if it is.
func (p *Problem) outside(cloudName, region string) string {
	only, some := p.Only[cloudName]
	if !some || slices.ContainsFunc(only.Names, func(name string) bool { return strings.EqualFold(name, region) }) {
		return ""
	}
	return only.Why
}

// Plan says where each task goes.
type Plan struct {
	Tasks    []TaskPlan
	Minimize Target
	Cost     float64 // $ for everything, transfers included
	Time     float64 // seconds until the last task is done, transfers included
	// Transfers are the movements of data between clouds that cost something.
	Transfers []Transfer
	// Exact is false when the Dag was too entangled to prove that no better
	// plan exists; the plan is then the best one found.
	Exact bool
}

// TaskPlan is one task's part of a plan.
type TaskPlan struct {
	Task   *task.Task
	Chosen Candidate
	// Candidates are all that would do, best first: Chosen, then by cost (or time),
	// that of the data that would move included, then by the order of sources. In a
	// task with ordered resources those of the first entry come first. There are none
	// of a task that has its place.
	Candidates []Candidate
	// Excluded says how many offers that fit each of the task's blocked resources
	// excluded.
	Excluded []int
	// reservations are those that the tasks before it leave.
	reservations []cloud.Reservation
	sources      []Source
	ordered      bool
	target       Target
}

// Candidate is an offer that satisfies one of a task's requests.
type Candidate struct {
	Offer cloud.Offer
	// Resources is the request that the offer satisfies. Shared: read only.
	Resources *task.Resources
	NumNodes  int
	Cost      float64 // $ for the whole task: all nodes, for Time
	Time      float64 // seconds that the task is estimated to take
	// Unpriced offers have no known price (Offer.HourlyPrice is 0); they come
	// after all others.
	Unpriced bool
	// LastResort is an offer of the machine sky runs on: it is taken if there is nothing
	// else.
	LastResort bool
	// Moved is what the data costs ($) that would move to or from the places of the
	// other tasks if the task went there, and MovedFor how long that takes in seconds.
	Moved, MovedFor float64
	wanted          string // accelerators that the request names, "A100:8"
	entry           int32  // index of Resources in the task
	source          int32  // index of the source in the problem
	rank            int32  // place in the stable order before sorting by cost
}

// Transfer is data that moves from one cloud to another.
type Transfer struct {
	From, To string // a task's name, or the URI of the input
	FromTask int    // index in the Dag; -1 for an input
	ToTask   int
	GB       float64
	Cost     float64 // $
	Time     float64 // seconds
}

const defaultRuntime = time.Hour

// Optimize plans every task of the Dag. It fails with a [*NoFeasibleError]
// when nothing that is enabled can run a task, and with an [*InvalidError]
// when a request names something that does not exist.
func Optimize(p Problem) (*Plan, error) {
	if p.Minimize == "" {
		p.Minimize = Cost
	}
	plan := &Plan{Minimize: p.Minimize, Exact: true, Tasks: make([]TaskPlan, len(p.Dag.Tasks))}
	beside := sideBySide(p.Dag)
	for i, t := range p.Dag.Tasks {
		if at, ok := p.Placed[i]; ok {
			plan.Tasks[i] = TaskPlan{Task: t, Chosen: Candidate{Offer: cloud.Offer{Place: at}}}
			continue
		}
		tp, err := planTask(&p, t)
		if err != nil {
			return nil, err
		}
		plan.Tasks[i] = tp
		if beside {
			p.Reservations = left(p.Reservations, tp.Candidates)
		}
	}
	if err := choose(&p, plan); err != nil {
		return nil, err
	}
	return plan, nil
}

// planTask lists and ranks the candidates of one task; the first one is
// provisionally chosen.
func planTask(p *Problem, t *task.Task) (TaskPlan, error) {
	f := finder{problem: p, task: t, nodes: max(t.NumNodes, 1)}
	cands, err := f.candidates()
	if err != nil {
		return TaskPlan{}, err
	}
	ordered := t.Preference == task.Ordered
	rank(cands, p.Minimize, ordered)
	setRanks(cands)
	return TaskPlan{Task: t, Chosen: cands[0], Candidates: cands, Excluded: f.matched, reservations: p.Reservations, sources: p.Sources, ordered: ordered, target: p.Minimize}, nil
}

// estimate fills in what a candidate costs and how long it takes.
func (p *Problem) estimate(t *task.Task, c *Candidate) {
	switch {
	case c.Resources.EstimatedRuntime > 0:
		c.Time = c.Resources.EstimatedRuntime * 60
	case t.EstimatedRuntime > 0:
		c.Time = t.EstimatedRuntime * 60
	default:
		c.Time = defaultRuntime.Seconds()
	}
	reserved := p.reserved(c)
	c.Offer.PaidShare = float64(reserved) / float64(c.NumNodes)
	c.Cost = c.Offer.HourlyPrice * c.Time / 3600 * float64(c.NumNodes-reserved)
}

// nano turns $ or seconds into whole billionths, so that sums do not depend on
// their order.
func nano(x float64) int64 { return int64(math.Round(x * 1e9)) }
