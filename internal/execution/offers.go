package execution

import (
	"cmp"
	"context"
	"fmt"
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
	r := rentable{tiers: l.held.order(ranked(plan)), most: mostOf(fitting), agreed: l.body.AgreedPrice}
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
	p, plan, err := l.x.plan(ctx, l.call, &task.Dag{Name: l.task.Name, Tasks: []*task.Task{l.task}}, l.body.OptimizeTarget, l.body.PlanOptions, l.held.replica(), l.clone)
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

// ranked is a plan's candidates in the tiers in which they may be tried: entries
// of ordered resources stay apart, and so do what has no known price and the machine
// sky runs on.
func ranked(plan *optimizer.Plan) [][]cloud.Offer {
	t := &plan.Tasks[0]
	ordered := t.Task.Preference == task.Ordered
	var tiers [][]cloud.Offer
	for i, c := range t.Candidates {
		if i == 0 || c.Unpriced != t.Candidates[i-1].Unpriced || c.LastResort != t.Candidates[i-1].LastResort || ordered && c.Resources != t.Candidates[i-1].Resources {
			tiers = append(tiers, nil)
		}
		tiers[len(tiers)-1] = append(tiers[len(tiers)-1], c.Offer)
	}
	return tiers
}
