package optimizer

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/table"
	"github.com/skypilot-go/sky/task"
)

// No line of a plan is wider than the terminal that shows it, and instance types and
// places are whole.
func TestPlansFitTheTerminal(t *testing.T) {
	gpus := map[string]float64{"RTX6000-Ada-Generation": 8}
	sources := []Source{
		OffersSource("primeintellect", "Prime Intellect", []cloud.Offer{offer("primeintellect", "northamerica-northeast1", "", "recA75DjBbrFwoD8bT3GBZDCa__SECURE", 252, 1440.5, gpus, 1042.28)}, nil),
		OffersSource("azure", "Azure", []cloud.Offer{offer("azure", "germanywestcentral", "", "Standard_NC96ads_A100_v4", 96, 880, gpus, 1098.32)}, nil),
	}
	wanted := want("RTX6000-Ada-Generation", 8)
	timed := wanted
	timed.EstimatedRuntime = 90
	train := &task.Task{Name: "train-resnet50-imagenet-2026-11-28", NumNodes: 16, Resources: []task.Resources{wanted}}
	eval := &task.Task{Name: "evaluate-resnet50-imagenet-2026-11-28", NumNodes: 1, Resources: []task.Resources{wanted}}
	for name, dag := range map[string]*task.Dag{
		"one task":      one(wanted),
		"a timed task":  one(timed),
		"several tasks": {Tasks: []*task.Task{train, eval}},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := Optimize(Problem{Dag: dag, Sources: sources})
			if err != nil {
				t.Fatal(err)
			}
			if len(dag.Tasks) > 1 {
				plan.Transfers = append(plan.Transfers, Transfer{From: train.Name, To: eval.Name, GB: 12345, Cost: 1234.5})
			}
			var b, whole strings.Builder
			plan.Table(&b, true, 80)
			for line := range strings.Lines(b.String()) {
				if w := table.Width(strings.TrimSuffix(line, "\n")); w > 80 && !strings.HasPrefix(line, "Considered resources") {
					t.Errorf("a line takes %d columns:\n%s", w, b.String())
					break
				}
			}
			for _, want := range []string{"Standard_NC96ads", "Azure", "✔"} {
				if !strings.Contains(b.String(), want) {
					t.Errorf("%q is missing in\n%s", want, b.String())
				}
			}
			if !strings.Contains(b.String(), "No room for vCPUs, Mem(GB); all of them: | cat\n") {
				t.Errorf("it does not say what is missing:\n%s", b.String())
			}
			plan.Table(&whole, true, 0)
			if strings.Contains(whole.String(), "No room") || !strings.Contains(whole.String(), "Mem(GB)") || !strings.Contains(whole.String(), "recA75DjBbrFwoD8bT3GBZDCa__SECURE") {
				t.Errorf("without a terminal it is\n%s", whole.String())
			}
		})
	}
}

// The example that README.md begins with goes to this machine, whichever clouds are
// enabled and whatever they cost, and the plan shows it.
func TestTheFirstExampleStaysOnThisMachine(t *testing.T) {
	dag, err := task.Load("../../examples/hello.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sources := append([]Source{OffersSource("fluffycloud", "FluffyCloud", []cloud.Offer{offer("fluffycloud", "east", "", "puff", 8, 32, nil, 0)}, nil)}, market()...)
	plan, err := Optimize(Problem{Dag: dag, Sources: sources})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	plan.Table(&b, false, 0)
	if chosen := plan.Tasks[0].Chosen.Offer; chosen.Cloud != "local" || !strings.Contains(b.String(), "\n Local ") || strings.Contains(b.String(), "FluffyCloud") {
		t.Errorf("it goes to %v:\n%s", chosen.Place, b.String())
	}
}
