package optimizer

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/skypilot-go/sky/task"
)

func benchmarkDag(b *testing.B, p Problem) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		plan, err := Optimize(p)
		if err != nil {
			b.Fatal(err)
		}
		if !plan.Exact {
			b.Fatal("the plan is not proven")
		}
	}
}

func BenchmarkOneTask(b *testing.B) {
	sources := goldenSources(b)
	for _, c := range []struct {
		name string
		r    task.Resources
	}{
		{"default", task.Resources{}},
		{"cpus", task.Resources{CPUs: "4+"}},
		{"A100x8", want("A100", 8)},
		{"T4", want("T4", 1)},
		{"T4 spot", task.Resources{Accelerators: []task.Accelerator{{Name: "T4", Count: 1}}, UseSpot: yes()}},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkDag(b, Problem{Dag: one(c.r), Sources: sources}) })
	}
}

func someTask(r *rand.Rand, i int) *task.Task {
	res := []task.Resources{{CPUs: "8"}, want("A100", 8), want("V100", 1), want("T4", 1)}[r.IntN(4)]
	return &task.Task{Name: fmt.Sprint("t", i), NumNodes: 1 + r.IntN(2), Resources: []task.Resources{res}, Outputs: &task.DataSize{URI: "CLOUD", GB: float64(r.IntN(300))}}
}

func BenchmarkChain10(b *testing.B) {
	sources := goldenSources(b)
	r := rand.New(rand.NewPCG(1, 2))
	dag := &task.Dag{Execution: task.Serial}
	for i := range 10 {
		dag.Tasks = append(dag.Tasks, someTask(r, i))
	}
	benchmarkDag(b, Problem{Dag: dag, Sources: sources})
}

// depend makes every task but the first wait for up to three earlier ones.
func depend(r *rand.Rand, tasks []*task.Task) {
	tasks[0].DependsOn = []string{}
	for i := 1; i < len(tasks); i++ {
		for _, p := range r.Perm(i)[:min(i, 1+r.IntN(3))] {
			tasks[i].DependsOn = append(tasks[i].DependsOn, tasks[p].Name)
		}
	}
}

func BenchmarkRandomDag100(b *testing.B) {
	sources := goldenSources(b)
	for seed := range 3 {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		dag := &task.Dag{Execution: task.Serial}
		for i := range 100 {
			dag.Tasks = append(dag.Tasks, someTask(r, i))
		}
		depend(r, dag.Tasks)
		p := Problem{Dag: dag, Sources: sources}
		b.Run(fmt.Sprint("seed", seed), func(b *testing.B) { benchmarkDag(b, p) })
	}
}
