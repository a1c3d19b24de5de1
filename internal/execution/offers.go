package execution

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/optimizer"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// rentable is what machines may be rented from.
type rentable struct {
	tiers [][]cloud.Offer
	// Bounds of what an offer may cost whose price has risen, as in [provision.Request].
	most   func(cloud.Offer) float64
	agreed *float64
	extra  func(cloud.Offer) float64 // as in [provision.Request]
}

// exactly is one offer and no other.
func exactly(o cloud.Offer) rentable { return rentable{tiers: provision.Exactly(o)} }

// offers are what can run the task, in tiers, best first; the plan is shown.
func (l *launch) offers(ctx context.Context) (rentable, error) {
	_, plan, err := l.plan(ctx)
	if err != nil {
		return rentable{}, err
	}
	planned := plan.Tasks[0].Candidates
	fitting := slices.DeleteFunc(slices.Clone(planned), func(c optimizer.Candidate) bool { return !takesItsTask(c) })
	if len(fitting) == 0 {
		return rentable{}, &api.Error{Type: api.ErrResourcesMismatch,
			Message: fmt.Sprintf("The machines of the plan (%s) have none of the accelerators that the task asks for. Nothing was rented.", planned[0].Offer.InstanceType),
			Hint:    "Name the accelerators. Which there are: sky gpus list"}
	}
	plan.Tasks[0].Candidates = fitting
	r := rentable{tiers: l.held.order(ranked(plan)), most: mostOf(fitting), agreed: l.body.AgreedPrice, extra: extraOf(&plan.Tasks[0])}
	if best := r.tiers[0][0]; r.agreed != nil && cloud.Dearer(*r.agreed, best.HourlyPrice) {
		return rentable{}, mustAsk(&provision.RoseError{Offer: best, Planned: *r.agreed, Nodes: max(l.task.NumNodes, 1)})
	}
	return r, nil
}

// mostOf is what a node of an offer may cost an hour by the requests that it is a candidate
// for; 0: anything.
func mostOf(candidates []optimizer.Candidate) func(cloud.Offer) float64 {
	return func(o cloud.Offer) float64 {
		exactly := cloud.BlockOffer(o)
		var bounds []float64
		for i := range candidates {
			if c := &candidates[i]; exactly.Matches(&c.Offer) {
				bounds = append(bounds, c.Resources.MaxHourlyCost)
			}
		}
		return highest(bounds)
	}
}

// highest is what all requests together allow; 0 is no bound.
func highest(bounds []float64) float64 {
	if len(bounds) == 0 || slices.Contains(bounds, 0) {
		return 0
	}
	return slices.Max(bounds)
}

// existing is what a cluster that was up before has. What it may cost is what the requests
// of the task say that fit it, else what that of its launch said.
func (l *launch) existing(c *state.Cluster) rentable {
	var bounds []float64
	for _, r := range l.task.Resources {
		if mismatch(c, l.task, r, false) == "" {
			bounds = append(bounds, r.MaxHourlyCost)
		}
	}
	o := c.Offer
	o.MaxHourlyCost = cmp.Or(highest(bounds), o.MaxHourlyCost)
	return exactly(o)
}

func (l *launch) plan(ctx context.Context) (optimizer.Problem, *optimizer.Plan, error) {
	l.call.Out.Spin("Optimizing")
	use, err := l.x.bindVolumes(ctx, l.call, l.task, l.name, l.body.PlanOptions)
	if err != nil {
		return optimizer.Problem{}, nil, err
	}
	l.volumes = use
	p, plan, err := l.best(ctx)
	if err != nil {
		return p, nil, err
	}
	l.call.Out.StopSpin()
	if !l.body.QuietOptimizer {
		plan.Table(l.call.Out, false, l.body.Columns)
		if len(l.body.AssumeEnabled) == 0 {
			if err := l.x.announceCredentials(ctx, l.call, l.task, plan.Tasks[0].Chosen.Offer.Place, l.name); err != nil {
				return p, nil, err
			}
		}
	}
	if l.body.Explain {
		explain(l.call.Out, p, plan, l.body.Columns)
	}
	return p, plan, nil
}

// best is the best plan of the task: the one that fits the other tasks of its job, if it
// has any.
func (l *launch) best(ctx context.Context) (optimizer.Problem, *optimizer.Plan, error) {
	of := planning{minimize: l.body.OptimizeTarget, options: l.body.PlanOptions, replica: l.held.replica(), clone: l.clone}
	if job := l.held.job(); job != nil {
		of.dag, of.placed = job.with(l.task), job.Placed
		if p, plan, err := l.x.plan(ctx, l.call, of); err == nil {
			plan.Tasks = plan.Tasks[job.Index : job.Index+1]
			return p, plan, nil
		}
		// That another task fits nowhere now is no reason not to run this one.
	}
	of.dag, of.placed = &task.Dag{Name: l.task.Name, Tasks: []*task.Task{l.task}}, nil
	return l.x.plan(ctx, l.call, of)
}

// ranked is a plan's candidates in the tiers in which they may be tried: entries
// of ordered resources stay apart, and so do what has no known price, the machine
// sky runs on and, in a plan that minimizes it, times.
func ranked(plan *optimizer.Plan) [][]cloud.Offer {
	t := &plan.Tasks[0]
	ordered := t.Task.Preference == task.Ordered
	var tiers [][]cloud.Offer
	for i := range t.Candidates {
		c := &t.Candidates[i]
		if i == 0 || apart(&t.Candidates[i-1], c) || ordered && c.Resources != t.Candidates[i-1].Resources ||
			plan.Minimize == optimizer.Time && c.Time+c.MovedFor != t.Candidates[i-1].Time+t.Candidates[i-1].MovedFor {
			tiers = append(tiers, nil)
		}
		tiers[len(tiers)-1] = append(tiers[len(tiers)-1], c.Offer)
	}
	return tiers
}

// apart reports whether the one candidate is never tried before the other.
func apart(a, b *optimizer.Candidate) bool {
	return a.Unpriced != b.Unpriced || a.LastResort != b.LastResort
}

// extraOf is what a node of an offer costs an hour by the plan beside its price: data that
// moves there, and the longer time that it takes. nil: all cost their price.
func extraOf(t *optimizer.TaskPlan) func(cloud.Offer) float64 {
	type machine struct {
		cloud.Place
		instanceType string
		spot         bool
	}
	hours := t.Chosen.Time / 3600 * float64(max(t.Chosen.NumNodes, 1))
	extra := map[machine]float64{}
	for i := range t.Candidates {
		c := &t.Candidates[i]
		m := machine{c.Offer.Place, c.Offer.InstanceType, c.Offer.Spot}
		more := (c.Cost+c.Moved)/hours - c.Offer.HourlyPrice*(1-c.Offer.PaidShare)
		if _, seen := extra[m]; !seen && math.Abs(more) > 1e-6 { // less is rounding
			extra[m] = more
		}
	}
	if len(extra) == 0 {
		return nil
	}
	return func(o cloud.Offer) float64 { return extra[machine{o.Place, o.InstanceType, o.Spot}] }
}
