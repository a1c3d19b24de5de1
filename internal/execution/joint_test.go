package execution

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/provision"
)

// priced is a cloud of one machine.
type priced struct {
	cloud.Provider
	name  string
	price float64
}

func (p priced) Name() string                                      { return p.name }
func (p priced) DisplayName() string                               { return strings.ToUpper(p.name) }
func (p priced) Features() cloud.Features                          { return cloud.Features{} }
func (p priced) Check(context.Context) (_ cloud.Identity, _ error) { return }

func (p priced) Offers(context.Context) ([]cloud.Offer, error) {
	return []cloud.Offer{{Place: cloud.Place{Cloud: p.name, Region: "r"}, InstanceType: "small", CPUs: 8, MemoryGiB: 32, HourlyPrice: p.price}}, nil
}

// The order in which places are tried is that of the plan that was shown: the price of a
// machine is not all that counts.
func TestPlacesAreTriedInTheOrderOfThePlan(t *testing.T) {
	const pipeline = "name: j\n---\nname: prepare\nresources: {infra: aws}\noutputs: {'s3://b': 100}\nrun: x\n---\nname: train\nrun: x\n"
	x := New(Deps{Log: slog.New(slog.DiscardHandler), Providers: cloud.NewRegistry(priced{name: "lambda", price: 1}, priced{name: "gcp", price: 2}, priced{name: "aws", price: 3})})
	dag, err := parse(pipeline)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		task string
		held *Held
		time bool
		want string
	}{
		"the cheapest":                     {task: "run: x", want: "lambda gcp aws"},
		"where its input is":               {task: "inputs: {'gs://b': 100}\nrun: x", want: "gcp lambda aws"},
		"on many nodes the input is cheap": {task: "num_nodes: 20\ninputs: {'gs://b': 100}\nrun: x", want: "lambda gcp aws"},
		"where it takes least in all": {
			task: "resources: {any_of: [{infra: lambda, estimated_runtime: 600}, {infra: aws, estimated_runtime: 60}, {infra: gcp, estimated_runtime: 120}]}\nrun: x", want: "aws gcp lambda"},
		"where it is done first": {time: true,
			task: "resources: {any_of: [{infra: lambda, estimated_runtime: 60}, {infra: aws, estimated_runtime: 15}, {infra: gcp, estimated_runtime: 59}]}\nrun: x", want: "aws gcp lambda"},
		"with the tasks of its job": {task: "run: x", held: &Held{Job: &Job{Dag: dag, Index: 1}}, want: "aws lambda gcp"},
		"where the task before it ran": {task: "run: x", held: &Held{Job: &Job{Dag: dag, Index: 1, Placed: map[int]cloud.Place{0: {Cloud: "gcp", Region: "r"}}}},
			want: "gcp lambda aws"},
	} {
		one, err := parse(c.task)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		l := &launch{x: x, call: cluster.Call{Out: spoken{new(bytes.Buffer)}}, task: one.Tasks[0], held: c.held}
		if c.time {
			l.body.OptimizeTarget = 1
		}
		_, plan, err := l.best(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []string
		for _, tier := range (provision.Ranking{}).Rank(ranked(plan), provision.NewChances(nil, time.Now(), 0), nil, extraOf(&plan.Tasks[0])) {
			for _, o := range tier {
				got = append(got, o.Cloud)
			}
		}
		if strings.Join(got, " ") != c.want || plan.Tasks[0].Chosen.Offer.Cloud != got[0] {
			t.Errorf("%s: %v after the plan %s, want %s", name, got, plan.Tasks[0].Chosen.Offer.Cloud, c.want)
		}
	}
}

// A task of a job runs although another one of it fits nowhere now.
func TestATaskRunsAlthoughAnotherFitsNowhere(t *testing.T) {
	x := New(Deps{Log: slog.New(slog.DiscardHandler), Providers: cloud.NewRegistry(priced{name: "lambda", price: 1})})
	dag, err := parse("name: j\n---\nname: prepare\noutputs: {'s3://b': 100}\nrun: x\n---\nname: train\nresources: {infra: aws}\nrun: x\n")
	if err != nil {
		t.Fatal(err)
	}
	l := &launch{x: x, call: cluster.Call{Out: spoken{new(bytes.Buffer)}}, task: dag.Tasks[0], held: &Held{Job: &Job{Dag: dag}}, body: api.LaunchBody{}}
	if _, plan, err := l.best(t.Context()); err != nil || plan.Tasks[0].Chosen.Offer.Cloud != "lambda" {
		t.Errorf("%+v, %v", plan, err)
	}
}
