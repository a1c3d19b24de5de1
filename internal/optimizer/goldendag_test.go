package optimizer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/catalog"
	"github.com/skypilot-go/sky/task"
)

type goldenDag struct {
	ID     string `json:"id"`
	Target string `json:"target"`
	Dag    struct {
		Tasks []struct {
			Name            string          `json:"name"`
			Resources       json.RawMessage `json:"resources"`
			NumNodes        int             `json:"num_nodes"`
			Inputs, Outputs *struct {
				URI string
				GB  float64
			}
			Runtime map[string]float64 `json:"runtime_s"`
		} `json:"tasks"`
		Edges [][2]int `json:"edges"`
	} `json:"dag"`
	Answer struct {
		Status, Method string
		Message        string  `json:"error_message"`
		Objective      float64 `json:"objective"`
		Cost           float64 `json:"total_cost"`
		Time           float64 `json:"total_time_s"`
		Plan           []struct {
			Task, Cloud, Region, Zone string
			InstanceType              string  `json:"instance_type"`
			UseSpot                   bool    `json:"use_spot"`
			Price                     float64 `json:"hourly_cost_per_node"`
		} `json:"plan"`
	} `json:"answer"`
	Tie struct {
		Plan bool `json:"plan_tie_sensitive"`
		Cost bool `json:"total_cost_tie_sensitive"`
		Time bool `json:"total_time_tie_sensitive"`
	} `json:"tie"`
}

func (g *goldenDag) problem(t *testing.T, sources []Source) Problem {
	t.Helper()
	p := Problem{Dag: &task.Dag{Execution: task.Serial}, Sources: sources, Minimize: Target(strings.ToLower(g.Target))}
	for i := range g.Dag.Tasks {
		spec := &g.Dag.Tasks[i]
		tk, err := goldenTask(&golden{Request: spec.Resources, NumNodes: spec.NumNodes})
		if err != nil {
			t.Fatal(err)
		}
		tk.Name, tk.DependsOn = spec.Name, []string{}
		for _, e := range g.Dag.Edges {
			if e[1] == i {
				tk.DependsOn = append(tk.DependsOn, g.Dag.Tasks[e[0]].Name)
			}
		}
		if spec.Inputs != nil {
			tk.Inputs = &task.DataSize{URI: spec.Inputs.URI, GB: spec.Inputs.GB}
		}
		if spec.Outputs != nil {
			tk.Outputs = &task.DataSize{URI: spec.Outputs.URI, GB: spec.Outputs.GB}
		}
		tk.Resources = estimated(tk.Resources, spec.Runtime)
		p.Dag.Tasks = append(p.Dag.Tasks, tk)
	}
	return p
}

// estimated are the requests of a task that takes so many seconds on an accelerator, or
// else by default: each accelerator is a request of its own.
func estimated(requests []task.Resources, runtime map[string]float64) []task.Resources {
	if runtime == nil {
		return requests
	}
	var out []task.Resources
	for _, r := range requests {
		r.EstimatedRuntime = cmp.Or(runtime["default"], 3600) / 60
		if len(r.Accelerators) == 0 {
			out = append(out, r)
		}
		for _, a := range r.Accelerators {
			one := r
			one.Accelerators = []task.Accelerator{a}
			if s, ok := runtime[a.Name]; ok {
				one.EstimatedRuntime = s / 60
			}
			out = append(out, one)
		}
	}
	return out
}

func TestGoldenDags(t *testing.T) {
	sources := goldenSources(t)
	s := score{t: t, known: readDifferences(t, "differences_dag.json")}
	for _, g := range readGolden[goldenDag](t, "SKY_OPTIMIZER_DAG_GOLDENS", "dag.jsonl") {
		diff := compareDag(t, sources, &g)
		s.add(g.ID, g.Target, diff)
		switch s.known.Cases[g.ID] {
		case "progressive-tiers":
			if strings.Contains(diff, " on ") || strings.Contains(diff, "takes") {
				t.Errorf("%s: more differs than the price of transfers: %s", g.ID, diff)
			}
		case "time-then-money":
			if plan, err := Optimize(g.problem(t, sources)); err != nil || plan.Cost >= g.Answer.Cost || plan.Time != g.Answer.Time {
				t.Errorf("%s: not as soon and cheaper: %s", g.ID, diff)
			}
		}
	}
	s.log("Dags")
}

func compareDag(t *testing.T, sources []Source, g *goldenDag) string {
	plan, err := Optimize(g.problem(t, sources))
	if g.Answer.Status != "ok" {
		if err == nil {
			return "should fail: " + g.Answer.Message
		}
		return ""
	}
	if err != nil {
		return "should work: " + err.Error()
	}
	var diffs []string
	if !g.Tie.Plan {
		for i, want := range g.Answer.Plan {
			got := &plan.Tasks[i].Chosen.Offer
			if catalog.DisplayName(got.Cloud) != want.Cloud || got.Region != want.Region || got.Zone != want.Zone || got.InstanceType != want.InstanceType || got.Spot != want.UseSpot {
				diffs = append(diffs, fmt.Sprintf("%s on %v %s, want %s/%s/%s %s", want.Task, got.Place, got.InstanceType, want.Cloud, want.Region, want.Zone, want.InstanceType))
			}
		}
	}
	far := func(a, b float64) bool { return math.Abs(a-b) > 1e-5*cmp.Or(max(a, b), 1) }
	if far(plan.Cost, g.Answer.Cost) && !(g.Tie.Cost && plan.Cost < g.Answer.Cost) {
		diffs = append(diffs, fmt.Sprintf("costs $%v, want $%v", plan.Cost, g.Answer.Cost))
	}
	if far(plan.Time, g.Answer.Time) && !g.Tie.Time {
		diffs = append(diffs, fmt.Sprintf("takes %vs, want %vs", plan.Time, g.Answer.Time))
	}
	return strings.Join(diffs, "; ")
}
