package optimizer

import (
	"errors"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

func TestBlockedResourcesMatchInAllTheirFields(t *testing.T) {
	no := false
	o := offer("gcp", "us-central1", "us-central1-a", "a2-highgpu-8g", 96, 680, a100(8), 29.387)
	for _, c := range []struct {
		pattern task.BlockedResources
		matches bool
	}{
		{task.BlockedResources{Cloud: "gcp"}, true},
		{task.BlockedResources{Cloud: "aws"}, false},
		{task.BlockedResources{Cloud: "gcp", Region: "US-central1", Zone: "us-central1-a", InstanceType: "A2-highgpu-8g", Accelerator: "a100", AcceleratorCount: 8, UseSpot: &no}, true},
		{task.BlockedResources{Cloud: "gcp", Region: "us-west1"}, false},
		{task.BlockedResources{Zone: "us-central1-b"}, false},
		{task.BlockedResources{InstanceType: "a2-highgpu-4g"}, false},
		{task.BlockedResources{Accelerator: "A100"}, true},
		{task.BlockedResources{Accelerator: "A100", AcceleratorCount: 4}, false},
		{task.BlockedResources{Accelerator: "T4"}, false},
		{task.BlockedResources{UseSpot: yes()}, false},
		{task.BlockedResources{Cloud: "gcp", UseSpot: yes()}, false},
	} {
		if got := BlockedBy([]task.BlockedResources{c.pattern}, &o) == 0; got != c.matches {
			t.Errorf("%v: matches %t", c.pattern, got)
		}
	}
}

func TestBlockedResourcesAreNotCandidates(t *testing.T) {
	dag := one(want("A100", 8))
	dag.Tasks[0].BlockedResources = []task.BlockedResources{{Cloud: "lambda"}, {Cloud: "aws", Region: "us-east-1"}, {Cloud: "vast"}}
	p := Problem{Dag: dag, Sources: market()}
	plan, err := Optimize(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range plan.Tasks[0].Candidates { // what failover tries
		if c.Offer.Cloud != "gcp" {
			t.Errorf("candidate %+v", c.Offer)
		}
	}
	var b strings.Builder
	plan.Table(&b, false, 0)
	for _, line := range []string{"Excluded by blocked_resources: lambda (1 that would fit)\n", "aws/us-east-1 (1 that would fit)\n", "vast (nothing that would fit)\n"} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no %q in\n%s", line, b.String())
		}
	}
	found := false
	for _, a := range Explain(p, plan, 0) {
		found = found || a.Cloud == "lambda" && a.Why == Blocked && strings.Contains(a.Reason, "blocked_resources of the task: lambda")
	}
	if !found {
		t.Error("the explanation does not name what is blocked")
	}

	dag.Tasks[0].BlockedResources = []task.BlockedResources{{Accelerator: "A100"}}
	_, err = Optimize(p)
	if none, ok := errors.AsType[*NoFeasibleError](err); !ok || none.Clouds[0].Constraint != RuledOut || !strings.Contains(err.Error(), "excluded by blocked_resources") {
		t.Errorf("with everything blocked: %v", err)
	}
}

// The cloud would pick any zone of the region, also a blocked one.
func TestABlockedZoneLeavesTheOthersOfItsRegion(t *testing.T) {
	const list = `InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone
m6i.2xlarge,,,8,32,,0.384,,us-east-1,us-east-1a
m6i.2xlarge,,,8,32,,0.384,,us-east-1,us-east-1b
`
	table, err := catalog.Load("aws", []byte(list), catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dag := one(task.Resources{})
	dag.Tasks[0].BlockedResources = []task.BlockedResources{{Cloud: "aws", Zone: "us-east-1a"}}
	plan, err := Optimize(Problem{Dag: dag, Sources: []Source{CatalogSource(table, nil)}})
	if err != nil {
		t.Fatal(err)
	}
	if all := plan.Tasks[0].Candidates; len(all) != 1 || all[0].Offer.Zone != "us-east-1b" {
		t.Errorf("candidates: %+v", all)
	}
}

func TestEstimatedRuntimesDecide(t *testing.T) {
	sources := []Source{OffersSource("gcp", "GCP", []cloud.Offer{
		offer("gcp", "us-central1", "us-central1-a", "slow", 8, 32, map[string]float64{"T4": 1}, 1),
		offer("gcp", "us-central1", "us-central1-a", "fast", 8, 32, a100(1), 4),
	}, nil)}
	fast, slow := want("A100", 1), want("T4", 1)
	fast.EstimatedRuntime = 30
	for _, c := range []struct {
		target           Target
		minutes          float64 // of the task, and so of the slow machine
		chosen, decision string
		cost, seconds    float64
	}{
		{Cost, 0, "slow", "Decided by cost.", 1, 3600},
		{Time, 0, "fast", "Decided by time.", 2, 1800},
		{Cost, 180, "fast", "Decided by cost.", 2, 1800},
		{Cost, 120, "fast", "Decided by time: several have the least cost.", 2, 1800},
		{Time, 30, "slow", "Decided by cost: several have the least time.", 0.5, 1800},
	} {
		dag := one(fast, slow)
		dag.Tasks[0].EstimatedRuntime = c.minutes
		plan, err := Optimize(Problem{Dag: dag, Sources: sources, Minimize: c.target})
		if err != nil {
			t.Fatal(err)
		}
		got := plan.Tasks[0].Chosen
		if got.Offer.InstanceType != c.chosen || got.Cost != c.cost || got.Time != c.seconds {
			t.Errorf("%s, %v minutes: chose %s for $%v and %v s", c.target, c.minutes, got.Offer.InstanceType, got.Cost, got.Time)
		}
		var b strings.Builder
		plan.Table(&b, false, 0)
		if !strings.Contains(b.String(), "COST ($)   TIME (hr)   CHOSEN") || !strings.Contains(b.String(), c.decision+"\n") {
			t.Errorf("%s, %v minutes: no %q in\n%s", c.target, c.minutes, c.decision, b.String())
		}
	}
}
