package optimizer

import (
	"testing"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/task"
)

// A price of 0 in a price list means that nobody knows it. Such machines come
// last, and are not the cheapest of all.
func TestAnUnknownPriceIsNotFree(t *testing.T) {
	const list = `InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone
p4de.24xlarge,A100,8,96,1152,,0,,us-east-1,us-east-1a
p4d.24xlarge,A100,8,96,1152,,32.77,,us-east-1,us-east-1a
`
	table, err := catalog.Load("aws", []byte(list), catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Optimize(Problem{Dag: one(task.Resources{InstanceType: "p4de.24xlarge"}, task.Resources{InstanceType: "p4d.24xlarge"}), Sources: []Source{CatalogSource(table, nil)}})
	if err != nil {
		t.Fatal(err)
	}
	all := plan.Tasks[0].Candidates
	if len(all) != 2 {
		t.Fatalf("candidates: %+v", all)
	}
	if got := plan.Tasks[0].Chosen.Offer.InstanceType; got != "p4d.24xlarge" || all[0].Unpriced || !all[1].Unpriced {
		t.Errorf("chose %s of %+v", got, all)
	}
}
