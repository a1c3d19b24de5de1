package execution

import (
	"fmt"
	"io"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/optimizer"
	"github.com/skypilot-go/sky/internal/table"
)

// shownAlternatives bounds what a person is told about one task; programs get all.
const shownAlternatives = 30

// alternatives accounts for everything that a task could have had.
func alternatives(p optimizer.Problem, plan *optimizer.Plan, at int) []api.PlanAlternative {
	nodes := max(plan.Tasks[at].Task.NumNodes, 1)
	var out []api.PlanAlternative
	for _, a := range optimizer.Explain(p, plan, at) {
		alt := api.PlanAlternative{Cloud: a.Cloud, Request: a.Request, Why: string(a.Why), Constraint: string(a.Constraint), Reason: a.Reason}
		if a.Offer != nil {
			o := planOffer(optimizer.Candidate{Offer: *a.Offer, NumNodes: nodes})
			alt.Offer = &o
		}
		out = append(out, alt)
	}
	return out
}

// explain prints why each alternative was not taken, at most that many columns wide; 0: as
// wide as it is.
func explain(w io.Writer, p optimizer.Problem, plan *optimizer.Plan, columns int) {
	for i, t := range plan.Tasks {
		name := t.Task.Name
		if name == "" {
			name = "the task"
		}
		fmt.Fprintf(w, "\nAlternatives for %s:\n", name)
		tab := table.New("INFRA", "INSTANCE", "$/HR", "WHY").Whole("INFRA", "INSTANCE").Prose("WHY")
		all := alternatives(p, plan, i)
		for _, a := range all[:min(len(all), shownAlternatives)] {
			infra, instance, price := a.Cloud, "-", "-"
			if a.Offer != nil && a.Why != string(optimizer.Excluded) {
				infra += "/" + a.Offer.Region
				if a.Offer.Zone != nil {
					infra += "/" + *a.Offer.Zone
				}
				instance, price = a.Offer.InstanceType, fmt.Sprintf("%.2f", a.Offer.TotalHourlyPrice)
				if a.Offer.Unpriced {
					price = "-"
				}
				if a.Offer.UseSpot {
					instance += "[Spot]"
				}
			}
			why := a.Why
			if a.Reason != "" {
				why += ": " + a.Reason
			}
			tab.Add(infra, instance, price, why)
		}
		fmt.Fprint(w, tab.Fit(columns))
		if hidden := len(all) - shownAlternatives; hidden > 0 {
			fmt.Fprintf(w, "… and %d more; all of them with: -o json\n", hidden)
		}
	}
}
