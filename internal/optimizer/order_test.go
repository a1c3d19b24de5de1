package optimizer

import (
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/task"
)

// inOrder lists where the candidates of a task are, best first.
func inOrder(t *testing.T, p Problem, text string) string {
	t.Helper()
	dag, err := task.Parse("t", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p.Dag = dag
	plan, err := Optimize(p)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range plan.Tasks[0].Candidates {
		got = append(got, c.Offer.Cloud)
	}
	return strings.Join(got, " ")
}

// What a plan minimizes orders the candidates; the other of time and cost decides
// between equals.
func TestCandidatesAreInTheOrderOfTheTarget(t *testing.T) {
	hours := map[string]time.Duration{"slow": 4, "fast": 1, "dear": 1, "even": 2}
	var sources []Source
	for _, s := range []struct {
		name  string
		price float64
	}{{"dear", 9}, {"slow", 1}, {"even", 2}, {"fast", 8}} { // for the task: 9, 4, 4 and 8 dollars
		sources = append(sources, OffersSource(s.name, s.name, []cloud.Offer{{
			Place: cloud.Place{Cloud: s.name, Region: "r"}, InstanceType: "m", CPUs: 8, MemoryGiB: 32, HourlyPrice: s.price,
		}}, nil))
	}
	p := Problem{Sources: sources, Runtime: func(_ *task.Task, c *Candidate) time.Duration { return hours[c.Offer.Cloud] * time.Hour }}
	for target, want := range map[Target]string{Cost: "even slow fast dear", Time: "fast dear even slow"} {
		p.Minimize = target
		if got := inOrder(t, p, "run: x"); got != want {
			t.Errorf("by %s: %s, want %s", target, got, want)
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
	dag, err := task.Parse("t", []byte("name: long\nrun: x\n---\nname: short\nrun: x\n"))
	if err != nil {
		t.Fatal(err)
	}
	hours := map[string]time.Duration{"long slow": 20, "long fast": 10, "short slow": 4, "short fast": 1}
	runtime := func(t *task.Task, c *Candidate) time.Duration {
		return hours[t.Name+" "+c.Offer.InstanceType] * time.Hour
	}
	for _, tt := range []struct {
		target   Target
		deadline time.Duration
		want     string
	}{
		{Time, 0, "fast slow"},
		{Time, 12 * time.Hour, "fast slow"},
		{Cost, 0, "slow slow"},
		{Cost, 12 * time.Hour, "fast slow"},
		{Cost, 24 * time.Hour, "slow slow"},
	} {
		plan, err := Optimize(Problem{Dag: dag, Edges: [][2]int{}, Sources: []Source{source}, Minimize: tt.target, Deadline: tt.deadline, Runtime: runtime})
		if err != nil {
			t.Fatal(err)
		}
		if got := plan.Tasks[0].Chosen.Offer.InstanceType + " " + plan.Tasks[1].Chosen.Offer.InstanceType; got != tt.want {
			t.Errorf("by %s within %v: %s, want %s", tt.target, tt.deadline, got, tt.want)
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
