package optimizer

import (
	"bytes"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

// A price that nobody knows is neither nothing nor the lowest.
func TestUnknownPricesComeLastInTheTable(t *testing.T) {
	one := &task.Task{Name: "t", NumNodes: 1, Resources: []task.Resources{{}}}
	source := func(name string) Source { return OffersSource(name, name, nil, nil) }
	of := func(name string, at int32, cost float64, unpriced bool) Candidate {
		return Candidate{Offer: cloud.Offer{Place: cloud.Place{Cloud: name}}, NumNodes: 1, Cost: cost, Unpriced: unpriced, source: at, rank: at}
	}
	tp := TaskPlan{Task: one, sources: []Source{source("dear"), source("unknown"), source("cheap")},
		Candidates: []Candidate{of("dear", 0, 9, false), of("unknown", 1, 0, true), of("cheap", 2, 1, false)}}
	tp.Chosen = tp.Candidates[2]
	var b bytes.Buffer
	tp.considered(&b, Cost, false, 0)
	var order []string
	for line := range strings.Lines(b.String()) {
		if f := strings.Fields(line); len(f) > 5 && f[0] != "INFRA" {
			order = append(order, f[0]+" "+f[5])
		}
	}
	if got := strings.Join(order, ", "); got != "cheap 1.00, dear 9.00, unknown -" {
		t.Errorf("%s\n%s", got, b.String())
	}
}
