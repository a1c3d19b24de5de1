package optimizer

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// hardGraph is a Dag in which every choice matters to its neighbours: costs of
// clouds are close and data is dear to move.
func hardGraph(seed uint64, n, clouds, parents int) *graph {
	r := rand.New(rand.NewPCG(seed, 5))
	g := &graph{nodes: make([]node, n)}
	for i := range g.nodes {
		for c := range clouds {
			g.nodes[i].states = append(g.nodes[i].states, state{cloud: int32(c), candidate: int32(c), cost: int64(1000 + r.IntN(400)), time: int64(3600 + r.IntN(600))})
		}
	}
	for i := 1; i < n; i++ {
		for _, p := range r.Perm(i)[:min(i, parents)] {
			e := edge{from: p, to: i, gb: 1, time: int64(r.IntN(800))}
			for range clouds {
				e.cost = append(e.cost, int64(r.IntN(300)))
			}
			g.nodes[p].out = append(g.nodes[p].out, len(g.edges))
			g.nodes[i].in = append(g.nodes[i].in, len(g.edges))
			g.edges = append(g.edges, e)
		}
	}
	g.order = topological(g)
	return g
}

// However entangled a Dag is, planning it ends soon with a plan that is no
// worse than putting everything on one cloud.
func TestEntangledDagsEnd(t *testing.T) {
	for _, parents := range []int{1, 2, 4} {
		g := hardGraph(uint64(parents), 40, 6, parents)
		one := worst
		for c := range 6 {
			if v := g.total(same(g, c)); v.less(one) {
				one = v
			}
		}
		picked, exact := g.cheapest()
		if one.less(g.total(picked)) {
			t.Errorf("%d parents: costs %v, all on one cloud %v", parents, g.total(picked), one)
		}
		if parents == 1 && !exact {
			t.Error("a tree is solved without search, yet the plan is not proven")
		}
		picked, _ = g.fastest()
		if got, most := g.makespan(picked), g.makespan(g.fastGuess()); got > most {
			t.Errorf("%d parents: done after %d, a quick guess after %d", parents, got, most)
		}
	}
}

func same(g *graph, cloud int) []int {
	picked := make([]int, len(g.nodes))
	for i := range picked {
		picked[i] = cloud
	}
	return picked
}

func BenchmarkEntangled(b *testing.B) {
	for _, n := range []int{20, 50, 100} {
		for _, parents := range []int{1, 2, 3} {
			g := hardGraph(1, n, 8, parents)
			b.Run(fmt.Sprintf("cost/%d tasks/%d parents", n, parents), func(b *testing.B) {
				exact := false
				for b.Loop() {
					_, exact = g.cheapest()
				}
				b.ReportMetric(float64(b2f(exact)), "proven")
			})
			b.Run(fmt.Sprintf("time/%d tasks/%d parents", n, parents), func(b *testing.B) {
				exact := false
				for b.Loop() {
					_, exact = g.fastest()
				}
				b.ReportMetric(float64(b2f(exact)), "proven")
			})
		}
	}
}

func b2f(b bool) int {
	if b {
		return 1
	}
	return 0
}
