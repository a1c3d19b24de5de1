package optimizer

import (
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

// inOrder lists where the candidates of a task are, best first.
func inOrder(t *testing.T, p Problem) string {
	t.Helper()
	plan, err := Optimize(p)
	if err != nil {
		t.Fatal(err)
	}
	return clouds(plan.Tasks[0].Candidates)
}

func clouds(list []Candidate) string {
	var names []string
	for _, c := range list {
		names = append(names, c.Offer.Cloud)
	}
	return strings.Join(names, " ")
}

// What a plan minimizes orders the candidates; the other of time and cost decides
// between equals.
func TestCandidatesAreInTheOrderOfTheTarget(t *testing.T) {
	var sources []Source
	tk := &task.Task{NumNodes: 1}
	for _, s := range []struct {
		name         string
		price, hours float64
	}{{"dear", 9, 1}, {"slow", 1, 4}, {"even", 2, 2}, {"fast", 8, 1}} { // for the task: 9, 4, 4 and 8 dollars
		sources = append(sources, OffersSource(s.name, s.name, []cloud.Offer{{
			Place: cloud.Place{Cloud: s.name, Region: "r"}, InstanceType: "m", CPUs: 8, MemoryGiB: 32, HourlyPrice: s.price,
		}}, nil))
		tk.Resources = append(tk.Resources, task.Resources{Cloud: s.name, EstimatedRuntime: s.hours * 60})
	}
	for target, want := range map[Target]string{Cost: "even slow fast dear", Time: "fast dear even slow"} {
		if got := inOrder(t, Problem{Dag: &task.Dag{Tasks: []*task.Task{tk}}, Sources: sources, Minimize: target}); got != want {
			t.Errorf("by %s: %s, want %s", target, got, want)
		}
	}
}

// Data that moves counts in the order of all candidates, not only in which one is chosen:
// the others are what is tried next.
func TestDataThatMovesOrdersCandidates(t *testing.T) {
	offers := func(name string, price float64) Source {
		return OffersSource(name, name, []cloud.Offer{{Place: cloud.Place{Cloud: name, Region: "r"}, InstanceType: "m", CPUs: 8, MemoryGiB: 32, HourlyPrice: price}}, nil)
	}
	// 100 GB cost $8.91 to take out of AWS, and $12 out of Google Cloud.
	sources := []Source{offers("lambda", 1), offers("gcp", 2), offers("aws", 3), offers("azure", 4)}
	prepare := func() *task.Task {
		return &task.Task{Name: "prepare", NumNodes: 1, Resources: []task.Resources{{Cloud: "aws"}}, Outputs: &task.DataSize{GB: 100}}
	}
	train := func() *task.Task {
		return &task.Task{Name: "train", NumNodes: 1, Resources: []task.Resources{{}}}
	}
	reading := train()
	reading.Inputs = &task.DataSize{URI: "gs://data", GB: 100}
	// 300 GB cost $26.91 to take out of AWS, $36 out of Google Cloud, and nothing out of Lambda.
	writing := func() *task.Task {
		return &task.Task{Name: "write", NumNodes: 1, Resources: []task.Resources{{}}, Outputs: &task.DataSize{GB: 300}}
	}
	onAzure := func() *task.Task {
		return &task.Task{Name: "read", NumNodes: 1, Resources: []task.Resources{{Cloud: "azure"}}}
	}
	second := train()
	second.Name, second.DependsOn = "second", []string{"prepare"}
	for name, tt := range map[string]struct {
		tasks  []*task.Task
		placed map[int]cloud.Place
		at     int
		want   string
	}{
		"by itself":             {tasks: []*task.Task{train()}, want: "lambda gcp aws azure"},
		"its input":             {tasks: []*task.Task{reading}, want: "gcp lambda aws azure"},
		"what it reads":         {tasks: []*task.Task{prepare(), train()}, at: 1, want: "aws lambda gcp azure"},
		"what it reads, placed": {tasks: []*task.Task{prepare(), train()}, placed: map[int]cloud.Place{0: {Cloud: "gcp", Region: "r"}}, at: 1, want: "gcp lambda aws azure"},
		"placed where nothing is enabled now": {tasks: []*task.Task{prepare(), train()}, placed: map[int]cloud.Place{0: {Cloud: "oci", Region: "r"}}, at: 1,
			want: "lambda gcp aws azure"},
		"what reads it":    {tasks: []*task.Task{writing(), onAzure()}, want: "lambda azure aws gcp"},
		"of two that read": {tasks: []*task.Task{prepare(), train(), second}, at: 2, want: "aws lambda gcp azure"},
	} {
		p := Problem{Dag: &task.Dag{Execution: task.Serial, Tasks: tt.tasks}, Sources: sources, Placed: tt.placed}
		plan, err := Optimize(p)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := clouds(plan.Tasks[tt.at].Candidates)
		if chosen := &plan.Tasks[tt.at].Chosen; got != tt.want || chosen.Offer.Cloud != plan.Tasks[tt.at].Candidates[0].Offer.Cloud {
			t.Errorf("%s: %s, and %s is chosen; want %s", name, got, chosen.Offer.Cloud, tt.want)
		}
		var table strings.Builder
		plan.Table(&table, false, 0)
		if says := strings.Contains(table.String(), "Decided by the whole plan: cost with the data that moves.\n"); says != !strings.HasPrefix(tt.want, "lambda") {
			t.Errorf("%s: the plan says\n%s", name, &table)
		}
	}
}

// The shortest plan spends money only where that makes it shorter: a task beside a longer
// one need not run on the fastest machine of a cloud.
func TestTasksBesideALongerOneRunCheaply(t *testing.T) {
	offer := func(kind string, price float64) cloud.Offer {
		return cloud.Offer{Place: cloud.Place{Cloud: "a", Region: "r"}, InstanceType: kind, CPUs: 8, MemoryGiB: 32, HourlyPrice: price}
	}
	source := OffersSource("a", "A", []cloud.Offer{offer("slow", 1), offer("fast", 8)}, nil)
	both := func(name string, slow, fast float64) *task.Task {
		return &task.Task{Name: name, NumNodes: 1, DependsOn: []string{}, Resources: []task.Resources{
			{InstanceType: "slow", EstimatedRuntime: slow * 60}, {InstanceType: "fast", EstimatedRuntime: fast * 60},
		}}
	}
	dag := &task.Dag{Execution: task.Serial, Tasks: []*task.Task{both("long", 20, 10), both("short", 4, 1)}}
	for target, want := range map[Target]string{Time: "fast slow", Cost: "slow slow"} {
		plan, err := Optimize(Problem{Dag: dag, Sources: []Source{source}, Minimize: target})
		if err != nil {
			t.Fatal(err)
		}
		if got := plan.Tasks[0].Chosen.Offer.InstanceType + " " + plan.Tasks[1].Chosen.Offer.InstanceType; got != want {
			t.Errorf("by %s: %s, want %s", target, got, want)
		}
		if first := plan.Tasks[1].Candidates[0].Offer.InstanceType; first != "slow" {
			t.Errorf("by %s: %s is tried first", target, first)
		}
	}
}

// An image belongs to a cloud. A container image, and a task that names its cloud,
// have no need to say so.
func TestImagesNeedACloud(t *testing.T) {
	source := OffersSource("fluffycloud", "FluffyCloud", []cloud.Offer{{
		Place: cloud.Place{Cloud: "fluffycloud", Region: "r"}, InstanceType: "m", CPUs: 8, MemoryGiB: 32, HourlyPrice: 1,
	}}, nil)
	for text, refused := range map[string]bool{
		"resources: {image_id: 'machine-1'}":                      true,
		"resources: {infra: fluffycloud, image_id: 'machine-1'}":  false,
		"resources: {image_id: 'docker:ubuntu:22.04'}":            false,
		"resources: {infra: fluffycloud}":                         false,
		"resources: {infra: fluffycloud, image_id: {r: 'one-2'}}": false,
	} {
		dag, err := task.Parse("t", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		_, err = Optimize(Problem{Dag: dag, Sources: []Source{source}})
		if got := err != nil && strings.Contains(err.Error(), "say which with infra"); got != refused {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The refusal names the few nearest requests that would fit, the nearest first.
func TestTheNearestRequestsComeFirst(t *testing.T) {
	exclusion := func(change string, gap, price float64, unpriced bool) Exclusion {
		return Exclusion{DisplayName: "Cloud", Change: change, gap: gap, unpriced: unpriced,
			Nearest: &cloud.Offer{InstanceType: "m-" + change, HourlyPrice: price}}
	}
	e := &NoFeasibleError{Nodes: 1, Requests: []string{"x"}, Clouds: []Exclusion{
		exclusion("far", 3, 1, false), exclusion("unpriced", 0, 0, true), exclusion("near", 1, 5, false),
		exclusion("near", 1, 4, false), exclusion("cheap", 2, 1, false), {DisplayName: "None"},
	}}
	var got []string
	for _, x := range e.nearest() {
		got = append(got, x.Change)
		if x.Change == "near" && x.Nearest.HourlyPrice != 4 {
			t.Errorf("of two equal ones, the one for $%v is named", x.Nearest.HourlyPrice)
		}
	}
	if s := strings.Join(got, " "); s != "near cheap far" {
		t.Errorf("named: %s", s)
	}
	text := e.Error()
	if !strings.HasPrefix(text, "no enabled infrastructure can run 1x x") || strings.Contains(text, "Similar") || !strings.Contains(text, "These would fit:\n  near (m-near") {
		t.Errorf("said: %s", text)
	}
	if e.Nodes = 0; !strings.Contains(e.Error(), "run 1x x") {
		t.Errorf("without a number of nodes: %s", e.Error())
	}
}
