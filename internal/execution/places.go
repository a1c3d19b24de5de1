package execution

import (
	"context"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/task"
)

// Place is a machine on which a task can run, and the chance that it can be had now,
// from what launches of this installation have learned; 0: not known.
type Place struct {
	Offer  cloud.Offer
	Chance float64
}

// Places lists the machines of the best plans for a task, cheapest first, without
// renting or printing anything.
func (x *Executor) Places(ctx context.Context, call cluster.Call, t *task.Task) ([]Place, error) {
	_, plan, err := x.plan(ctx, call, planning{dag: &task.Dag{Name: t.Name, Tasks: []*task.Task{t}}, replica: true})
	if err != nil {
		return nil, err
	}
	var out []Place
	for _, c := range plan.Tasks[0].Candidates {
		out = append(out, Place{Offer: c.Offer})
	}
	type machine struct {
		cloud.Place
		instanceType string
		spot         bool
	}
	known := map[machine]float64{}
	for _, a := range x.Provision.Availability(ctx, provision.AvailabilityFilter{}, 0) {
		known[machine{a.Place, a.InstanceType, a.Spot}] = a.Chance
	}
	for i := range out {
		out[i].Chance = known[machine{out[i].Offer.Place, out[i].Offer.InstanceType, out[i].Offer.Spot}]
	}
	return out, nil
}
