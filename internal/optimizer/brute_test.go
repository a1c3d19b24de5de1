package optimizer

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

// randomGraph makes a Dag of up to maxNodes tasks with up to maxStates
// choices; product bounds the number of all plans.
func randomGraph(r *rand.Rand, maxNodes, maxStates int, product float64, density float64) *graph {
	n := 1 + r.IntN(maxNodes)
	g := &graph{nodes: make([]node, n)}
	clouds := 1 + r.IntN(5)
	left := product
	for i := range g.nodes {
		k := 1 + r.IntN(maxStates)
		for float64(k) > left && k > 1 {
			k--
		}
		left /= float64(k)
		for s := range k {
			g.nodes[i].states = append(g.nodes[i].states, state{cloud: int32(r.IntN(clouds)), candidate: int32(s), cost: int64(r.IntN(30)), time: int64(1 + r.IntN(12))})
		}
	}
	order := r.Perm(n)
	for a := range n {
		for b := a + 1; b < n; b++ {
			if r.Float64() > density {
				continue
			}
			e := edge{from: order[a], to: order[b]}
			if r.IntN(4) > 0 {
				e.gb, e.time = 1, int64(r.IntN(10))
				for range clouds {
					e.cost = append(e.cost, int64(r.IntN(15)))
				}
			}
			g.nodes[e.from].out = append(g.nodes[e.from].out, len(g.edges))
			g.nodes[e.to].in = append(g.nodes[e.to].in, len(g.edges))
			g.edges = append(g.edges, e)
		}
	}
	g.order = topological(g)
	return g
}

// everyPlan calls f with every plan.
func everyPlan(g *graph, f func(picked []int)) {
	picked := make([]int, len(g.nodes))
	for {
		f(picked)
		i := 0
		for ; i < len(picked); i++ {
			if picked[i]++; picked[i] < len(g.nodes[i].states) {
				break
			}
			picked[i] = 0
		}
		if i == len(picked) {
			return
		}
	}
}

// Every objective must equal trying all plans.
func TestAgainstEveryPlan(t *testing.T) {
	dags := 10500
	if testing.Short() {
		dags = 1500
	}
	for seed := range dags {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		product := 1000.0
		if seed%100 == 0 {
			product = 60000
		}
		g := randomGraph(r, 8, 12, product, r.Float64())
		checkAgainstEveryPlan(t, g, seed)
		if t.Failed() {
			return
		}
	}
}

func checkAgainstEveryPlan(t *testing.T, g *graph, seed int) {
	t.Helper()
	cheap, soon := worst, worst // soon: makespan, cost
	everyPlan(g, func(picked []int) {
		v, span := g.total(picked), g.makespan(picked)
		if v.less(cheap) {
			cheap = v
		}
		if s := (value{span, v.cost}); s.less(soon) {
			soon = s
		}
	})
	fail := func(what string, got, want any) {
		t.Errorf("seed %d, %d tasks: %s: got %v, every plan says %v", seed, len(g.nodes), what, got, want)
	}
	picked, exact := g.cheapest()
	if got := g.total(picked); got != cheap || !exact {
		fail("cheapest", fmt.Sprint(got, exact), cheap)
	}
	picked, exact = g.fastest()
	if got := (value{g.makespan(picked), g.total(picked).cost}); got != soon || !exact {
		fail("fastest", fmt.Sprint(got, exact), soon)
	}
}

// With a tiny limit for tables the search must branch, and still be right.
func TestBranching(t *testing.T) {
	for seed := range 300 {
		r := rand.New(rand.NewPCG(uint64(seed), 11))
		g := randomGraph(r, 7, 4, 5000, 0.9)
		want := worst
		everyPlan(g, func(picked []int) {
			if v := g.total(picked); v.less(want) {
				want = v
			}
		})
		e := newEliminator(g)
		e.tableLimit = 8
		if got := g.total(e.solve(make([]int, len(g.nodes)))); got != want {
			t.Fatalf("seed %d: got %v, want %v", seed, got, want)
		}
	}
}

func TestEgressCost(t *testing.T) {
	tests := []struct {
		cloud string
		gb    float64
		want  float64
	}{
		{"aws", 0.5, 0},
		{"aws", 100, 8.91},
		{"aws", 20480, 10239*0.09 + 10240*0.085},
		{"azure", 11, 0.875},
		{"gcp", 1000, 120},
		{"gcp", 5000, 1024*0.12 + 3976*0.11},
		{"ibm", 100, 50*0.09 + 50*0.07},
		{"oci", 5000, 0},
		{"lambda", 5000, 0},
	}
	for _, tt := range tests {
		if got := egressCost(tt.cloud, tt.gb); nano(got) != nano(tt.want) {
			t.Errorf("%v GB out of %s: got $%v, want $%v", tt.gb, tt.cloud, got, tt.want)
		}
	}
}

func TestStoreCloud(t *testing.T) {
	for uri, want := range map[string]string{
		"s3://b": "aws", "gs://b/x": "gcp", "https://acct.blob.core.windows.net/c": "azure", "cos://us/b": "ibm", "r2://b": "cloudflare",
		"https://example.com/x": "", "/data": "",
	} {
		if got, ok := storeCloud(uri); got != want || ok != (want != "") {
			t.Errorf("%s: got %q", uri, got)
		}
	}
}

func pipeline(tasks ...*task.Task) *task.Dag { return &task.Dag{Execution: task.Serial, Tasks: tasks} }

func TestDataKeepsTasksTogether(t *testing.T) {
	train := &task.Task{Name: "train", NumNodes: 1, Resources: []task.Resources{want("A100", 8)}, Outputs: &task.DataSize{URI: "CLOUD", GB: 5000}}
	eval := &task.Task{Name: "eval", NumNodes: 1, Resources: []task.Resources{{Cloud: "aws"}}}
	p := Problem{Dag: pipeline(train, eval), Sources: market()}
	plan, err := Optimize(p)
	if err != nil {
		t.Fatal(err)
	}
	if got := plan.Tasks[0].Chosen.Offer.Cloud; got != "lambda" {
		t.Errorf("training on %s: leaving Lambda costs nothing, so it stays the cheapest", got)
	}
	p.Minimize = Time
	if plan, err = Optimize(p); err != nil {
		t.Fatal(err)
	}
	if got := plan.Tasks[0].Chosen.Offer.Cloud; got != "aws" || plan.Time != 7200 {
		t.Errorf("training on %s, done after %vs: moving 5 TB takes longer than staying on AWS", got, plan.Time)
	}
}

func TestJobGroupStaysInOneRegion(t *testing.T) {
	gpu := &task.Task{Name: "gpu", NumNodes: 1, Resources: []task.Resources{want("A100", 8)}}
	cpu := &task.Task{Name: "cpu", NumNodes: 1, Resources: []task.Resources{{}}}
	plan, err := Optimize(Problem{Dag: &task.Dag{Execution: task.Parallel, Tasks: []*task.Task{gpu, cpu}}, Sources: market()})
	if err != nil {
		t.Fatal(err)
	}
	a, b := plan.Tasks[0].Chosen.Offer.Place, plan.Tasks[1].Chosen.Offer.Place
	if a.Cloud != b.Cloud || a.Region != b.Region {
		t.Errorf("the jobs are apart: %v and %v", a, b)
	}
	if plan.Time != 3600 {
		t.Errorf("jobs side by side take %vs", plan.Time)
	}
}

func TestReservedMachinesAreFree(t *testing.T) {
	p := Problem{Dag: one(want("A100", 8)), Sources: market(), Reservations: []cloud.Reservation{{Place: cloud.Place{Cloud: "aws", Region: "us-east-1"}, InstanceType: "p4d.24xlarge", Free: 1}}}
	plan, err := Optimize(p)
	if err != nil {
		t.Fatal(err)
	}
	if got := show(&plan.Tasks[0].Chosen); got != "aws/us-east-1 p4d.24xlarge" || plan.Cost != 0 {
		t.Errorf("chose %s for $%v", got, plan.Cost)
	}
	p.Dag.Tasks[0].NumNodes = 5 // four must be paid: 131 on AWS, 52 on Lambda
	if plan, err = Optimize(p); err != nil {
		t.Fatal(err)
	}
	if got := plan.Tasks[0].Chosen.Offer.Cloud; got != "lambda" {
		t.Errorf("chose %s", got)
	}
}
