package optimizer

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

// Machines of one's own may all be in use: the machine sky runs on is the next place
// of a task that names none. Beside what can be rented it is no place.
func TestTheMachineSkyRunsOnIsTheLastPlace(t *testing.T) {
	source := func(name string, price float64) Source {
		return OffersSource(name, name, []cloud.Offer{{Place: cloud.Place{Cloud: name, Region: "r"}, InstanceType: "m", CPUs: 8, MemoryGiB: 32, HourlyPrice: price}}, nil)
	}
	pools, here, rented := source("ssh", 0), source("local", 0), source("fluffycloud", 1)
	for _, c := range []struct {
		what, text string
		sources    []Source
		want       string
	}{
		{"pools, and here", "run: x", []Source{here, pools}, "ssh local"},
		{"nothing else", "run: x", []Source{here}, "local"},
		{"beside what is rented", "run: x", []Source{here, pools, rented}, "ssh fluffycloud"},
		{"a pool is named", "resources: {infra: ssh}", []Source{here, pools}, "ssh"},
		{"both are named", "resources: {ordered: [{infra: local}, {infra: ssh}]}", []Source{here, pools}, "local ssh"},
		{"here or what is rented", "resources: {any_of: [{infra: fluffycloud}, {infra: local}]}", []Source{here, rented}, "local fluffycloud"},
	} {
		dag, err := task.Parse("t", []byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		plan, err := Optimize(Problem{Dag: dag, Sources: c.sources})
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		var got []string
		for _, o := range plan.Tasks[0].Candidates {
			got = append(got, o.Offer.Cloud)
		}
		if strings.Join(got, " ") != c.want || plan.Tasks[0].Candidates[0].Offer.Cloud != got[0] {
			t.Errorf("%s: %v, want %s", c.what, got, c.want)
		}
	}
}
