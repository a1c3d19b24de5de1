package optimizer

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

// pods cuts a machine for every query, for nothing.
type pods struct{}

func (pods) Find(q catalog.Query) []cloud.Offer {
	return []cloud.Offer{{Place: cloud.Place{Cloud: "kubernetes", Region: "prod"}, InstanceType: "2CPU--2GB", CPUs: 2, MemoryGiB: 2}}
}
func (pods) Names(catalog.NameKind) []string { return nil }
func (pods) WhyNot(catalog.Query) string     { return "" }

// Pods that cost nothing win where nobody names a place, with what is rented
// behind them; what pods cannot do goes elsewhere.
func TestPodsTakePartUnnamed(t *testing.T) {
	rented := OffersSource("rented", "Rented", []cloud.Offer{{Place: cloud.Place{Region: "r1"}, InstanceType: "m1", CPUs: 2, MemoryGiB: 2, HourlyPrice: 0.1}}, nil)
	cut := TailoredSource("kubernetes", "Kubernetes", pods{}, map[cloud.Feature]string{cloud.FeatureImage: "pods run container images", cloud.FeatureStop: "pods cannot be stopped", cloud.FeatureAutostop: "pods cannot be stopped"})
	for _, tt := range []struct{ resources, want string }{
		{"{cpus: 2+}", "kubernetes rented"},
		{"{infra: kubernetes}", "kubernetes"},
		{"{image_id: 'docker:ubuntu:24.04'}", "kubernetes rented"},
		{"{autostop: 10}", "rented"},
		{"{autostop: {idle_minutes: 10, down: true}}", "kubernetes rented"},
		{"{autostop: false}", "kubernetes rented"},
	} {
		dag, err := task.Parse("task.yaml", []byte("resources: "+tt.resources+"\nrun: echo\n"))
		if err != nil {
			t.Fatal(err)
		}
		plan, err := Optimize(Problem{Dag: dag, Sources: []Source{rented, cut}, Minimize: Cost})
		if err != nil {
			t.Errorf("%s: %v", tt.resources, err)
			continue
		}
		var got []string
		for _, c := range plan.Tasks[0].Candidates {
			got = append(got, c.Offer.Cloud)
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s: %s, want %s", tt.resources, s, tt.want)
		}
	}
}
