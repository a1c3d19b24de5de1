package optimizer

import (
	"testing"

	"github.com/skypilot-go/sky/task"
)

func TestExplain(t *testing.T) {
	p := Problem{Dag: blocking(one(want("A100", 8)), task.BlockedResources{Cloud: "lambda"}), Sources: market()}
	plan, err := Optimize(p)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Why{}
	for _, a := range Explain(p, plan, 0) {
		got[a.Cloud] = a.Why
	}
	for c, why := range map[string]Why{"lambda": Blocked, "gcp": Chosen, "aws": Dearer} {
		if got[c] != why {
			t.Errorf("%s: %s, want %s", c, got[c], why)
		}
	}
}

func TestExplainClouds(t *testing.T) {
	first, second := want("A100", 4), want("A100", 8)
	dag := one(first, second)
	dag.Tasks[0].Preference = task.Ordered
	p := Problem{Dag: dag, Sources: market()}
	plan, err := Optimize(p)
	if err != nil {
		t.Fatal(err)
	}
	type key struct {
		cloud string
		why   Why
	}
	got := map[key]bool{}
	for _, a := range Explain(p, plan, 0) {
		got[key{a.Cloud, a.Why}] = true
	}
	for _, k := range []key{{"gcp", Chosen}, {"lambda", LaterChoice}, {"lambda", Excluded}, {"aws", Excluded}} {
		if !got[k] {
			t.Errorf("no account of %s as %s in %v", k.cloud, k.why, got)
		}
	}
}

func TestExplainWholePlan(t *testing.T) {
	train := &task.Task{Name: "train", NumNodes: 1, Resources: []task.Resources{want("A100", 8)}, Inputs: &task.DataSize{URI: "gs://data", GB: 100000}}
	p := Problem{Dag: pipeline(train), Sources: market()}
	plan, err := Optimize(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range Explain(p, plan, 0) {
		if a.Cloud == "lambda" && a.Why != WholePlan {
			t.Errorf("the cheapest machine was passed over because it is %s, want %s", a.Why, WholePlan)
		}
	}
}
