//go:build unix

package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
)

// queued reads demands such as "2n 1c 0.5g", oldest first. A leading number
// with "m" is how many minutes it has waited.
func queued(t *testing.T, now time.Time, jobs ...string) (q []waiting) {
	t.Helper()
	for i, text := range jobs {
		spec := agentapi.JobSpec{Run: "x"}
		w := waiting{id: i + 1, since: now}
		for _, f := range strings.Fields(text) {
			var v float64
			var unit string
			if _, err := fmt.Sscanf(f, "%g%s", &v, &unit); err != nil {
				t.Fatalf("%q: %v", f, err)
			}
			switch unit {
			case "n":
				spec.NumNodes = int(v)
			case "c":
				spec.CPUs = v
			case "gib":
				spec.MemoryGiB = v
			case "g":
				spec.Accelerators = map[string]float64{"A100": v}
			case "setup":
				spec.Run = ""
			case "m":
				w.since = now.Add(-time.Duration(v * float64(time.Minute)))
			}
		}
		w.demand = demandOf(&spec)
		q = append(q, w)
	}
	return q
}

func TestPlan(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, test := range []struct {
		name  string
		nodes int
		used  map[int]float64 // CPUs that are taken, by node
		queue []string
		want  string // id@nodes[devices]
	}{
		{"empty queue", 1, nil, nil, ""},
		{"half a CPU unless told otherwise", 1, map[int]float64{0: 3}, []string{"1n", "1n", "1n"}, "1@0 2@0"},
		{"in order", 1, nil, []string{"2c", "2c", "2c"}, "1@0 2@0"},
		{"a gang gets all its nodes", 2, nil, []string{"2n 1c"}, "1@0,1"},
		{"or none", 2, map[int]float64{1: 4}, []string{"2n 1c"}, ""},
		{"what fits passes what does not", 2, map[int]float64{1: 4}, []string{"2n 1c", "1c"}, "2@0"},
		{"until that has waited too long", 2, map[int]float64{0: 1, 1: 4}, []string{"6m 4c", "1c"}, ""},
		{"it keeps only the nodes that it needs", 3, map[int]float64{0: 2, 1: 1, 2: 3}, []string{"6m 4c", "1c", "1c"}, "2@2 3@0"},
		{"fullest node first", 3, map[int]float64{1: 2}, []string{"1c", "4c", "4c"}, "1@1 2@0 3@2"},
		{"setup only needs nothing", 2, map[int]float64{0: 4, 1: 4}, []string{"6m 1c", "2n 0setup", "1c"}, "2@0,1"},
		{"devices", 1, nil, []string{"2g", "1g", "2g", "1g"}, "1@0[0 1] 2@0[2] 4@0[3]"},
		{"a gang gets devices on each node", 2, nil, []string{"2n 4g 1c", "1c"}, "1@0,1[0 1 2 3|0 1 2 3] 2@0"},
		{"parts share a device", 1, nil, []string{"0.5g", "0.6g", "0.4g", "3g", "2g"}, "1@0[0] 2@0[1] 3@0[1] 5@0[2 3]"},
		{"memory", 1, nil, []string{"5gib", "5gib", "3gib"}, "1@0 3@0"},
		{"the oldest waits for the node that is freest", 2, map[int]float64{0: 3, 1: 2}, []string{"6m 4c", "2c", "1c"}, "3@0"},
		{"two that waited too long keep two nodes", 2, map[int]float64{0: 1, 1: 1}, []string{"6m 4c", "6m 3.5c", "1c"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			free := make([]slot, test.nodes)
			for i := range free {
				free[i] = slotOf(agentapi.Capacity{CPUs: 4, MemoryGiB: 8, Accelerators: map[string]float64{"A100": 4}})
				free[i].cpu -= milli(test.used[i])
			}
			var got []string
			grants, _ := plan(free, queued(t, now, test.queue...), now)
			for _, g := range grants {
				s := fmt.Sprintf("%d@%s", g.id, strings.Trim(strings.ReplaceAll(fmt.Sprint(g.nodes), " ", ","), "[]"))
				if slices.ContainsFunc(g.gpus, func(d []int) bool { return len(d) > 0 }) {
					s += strings.ReplaceAll(strings.ReplaceAll(fmt.Sprint(g.gpus), "] [", "|"), "[[", "[")
					s = strings.Replace(s, "]]", "]", 1)
				}
				got = append(got, s)
			}
			if s := strings.Join(got, " "); s != test.want {
				t.Errorf("got %q, want %q", s, test.want)
			}
		})
	}
}

// simulation runs random jobs of random length through plan.
type simulation struct {
	nodes    int
	capacity agentapi.Capacity
	now      time.Time
	queue    []waiting
	running  []simulated
}

type simulated struct {
	grant  grant
	demand demand
	until  time.Time
}

// free is what the running jobs leave; it fails if they have more than there is.
func (s *simulation) free(t *rapid.T) []slot {
	free := make([]slot, s.nodes)
	for i := range free {
		free[i] = slotOf(s.capacity)
	}
	for _, r := range s.running {
		for rank, n := range r.grant.nodes {
			free[n].take(r.demand, r.grant.gpus[rank])
		}
	}
	for i, f := range free {
		if f.cpu < 0 || f.mem < 0 || slices.ContainsFunc(f.gpu, func(g int64) bool { return g < 0 }) {
			t.Fatalf("node %d is overbooked: %+v", i, f)
		}
	}
	return free
}

// Whatever comes, nodes are never overbooked, gangs stand on distinct nodes, and
// a job that can run at all runs at last although new ones come for ever.
func TestPlanNeverOverbooksAndNeverStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &simulation{
			nodes:    rapid.IntRange(1, 4).Draw(t, "nodes"),
			capacity: agentapi.Capacity{CPUs: 4, MemoryGiB: 8, Accelerators: map[string]float64{"A100": 2}},
			now:      time.Unix(1e9, 0),
		}
		const longest = 10 // minutes that a job runs
		id, oldest := 0, time.Duration(0)
		arrive := func() {
			spec := agentapi.JobSpec{
				Run: "x", NumNodes: rapid.IntRange(1, s.nodes).Draw(t, "gang"),
				CPUs: rapid.SampledFrom([]float64{0, 0.5, 1, 2, 4}).Draw(t, "cpus"),
			}
			if rapid.Bool().Draw(t, "gpu") {
				spec.Accelerators = map[string]float64{"A100": rapid.SampledFrom([]float64{0.3, 0.5, 1, 2}).Draw(t, "gpus")}
			}
			d := demandOf(&spec)
			if why := impossible(d, s.nodes, s.capacity); why != "" {
				t.Fatalf("%+v: %s", d, why)
			}
			id++
			s.queue = append(s.queue, waiting{id: id, demand: d, since: s.now})
		}
		for range rapid.IntRange(20, 120).Draw(t, "steps") {
			if len(s.queue) < 6 {
				arrive()
			}
			grants, kept := plan(s.free(t), s.queue, s.now)
			for i := range s.queue {
				s.queue[i].kept = kept[s.queue[i].id]
			}
			for _, g := range grants {
				i := slices.IndexFunc(s.queue, func(w waiting) bool { return w.id == g.id })
				w := s.queue[i]
				s.queue = slices.Delete(s.queue, i, i+1)
				if len(g.nodes) != w.demand.nodes || len(slices.Compact(slices.Clone(g.nodes))) != len(g.nodes) || !slices.IsSorted(g.nodes) {
					t.Fatalf("gang of %d on nodes %v", w.demand.nodes, g.nodes)
				}
				length := time.Duration(rapid.IntRange(1, longest).Draw(t, "minutes")) * time.Minute
				s.running = append(s.running, simulated{g, w.demand, s.now.Add(length)})
			}
			s.free(t)
			if len(s.running) == 0 && len(s.queue) > 0 {
				t.Fatalf("an idle cluster starts nothing of %+v", s.queue)
			}
			s.now = s.now.Add(time.Minute)
			s.running = slices.DeleteFunc(s.running, func(r simulated) bool { return !r.until.After(s.now) })
			for _, w := range s.queue {
				oldest = max(oldest, s.now.Sub(w.since))
			}
		}
		// Behind at most five older jobs, each of which keeps its nodes within
		// patience and gets them when what runs there has ended.
		if limit := patience + 7*(longest+1)*time.Minute; oldest > limit {
			t.Fatalf("a job waited for %v", oldest)
		}
	})
}

func TestMoves(t *testing.T) {
	all := []api.JobStatus{api.JobInit, api.JobPending, api.JobSettingUp, api.JobRunning, api.JobFailedDriver, api.JobSucceeded, api.JobFailed, api.JobFailedSetup, api.JobCancelled}
	if len(moves) != len(all) {
		t.Errorf("the table has %d states, want %d", len(moves), len(all))
	}
	for _, s := range all {
		for e, next := range moves[s] {
			if slices.Index(all, next) <= slices.Index(all, s) {
				t.Errorf("%s goes back to %s on %q", s, next, e)
			}
			rec := &record{Job: agentapi.Job{Status: s}}
			if err := rec.move(e, time.Unix(9, 0)); err != nil || rec.Job.Status != next {
				t.Errorf("%s on %q: %s, %v", s, e, rec.Job.Status, err)
			}
			if next.Terminal() != (rec.Job.EndedAt == 9) {
				t.Errorf("%s on %q: ended at %v", s, e, rec.Job.EndedAt)
			}
		}
		if s.Terminal() != (len(moves[s]) == 0) {
			t.Errorf("%s: terminal %v, but %d ways out", s, s.Terminal(), len(moves[s]))
		}
		if !s.Terminal() && moves[s][evCancelled] != api.JobCancelled {
			t.Errorf("%s cannot be cancelled", s)
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	free := make([]slot, 64)
	for i := range free {
		free[i] = slotOf(agentapi.Capacity{CPUs: 96, MemoryGiB: 512, Accelerators: map[string]float64{"A100": 8}})
	}
	now := time.Unix(1e9, 0)
	var queue []waiting
	for i := range 10000 {
		queue = append(queue, waiting{id: i, demand: demand{nodes: 1 + i%8, cpu: int64(500 + i%50*100), accel: "a100", gpu: int64(i%9) * 1000}, since: now})
	}
	for b.Loop() {
		plan(free, queue, now)
	}
}

// A stream of small jobs that would fill the cluster for ever does not keep a
// big one from starting.
func TestBigJobStartsInAStreamOfSmallOnes(t *testing.T) {
	capacity := agentapi.Capacity{CPUs: 4}
	begin := time.Unix(1e9, 0)
	small := demandOf(&agentapi.JobSpec{Run: "x", CPUs: 1})
	big := waiting{demand: demandOf(&agentapi.JobSpec{Run: "x", CPUs: 4, NumNodes: 2}), since: begin}
	const longest = 7 * time.Minute
	var running []simulated
	for id, now := 1, begin; ; now = now.Add(time.Minute) {
		running = slices.DeleteFunc(running, func(r simulated) bool { return !r.until.After(now) })
		free := []slot{slotOf(capacity), slotOf(capacity), slotOf(capacity)}
		for _, r := range running {
			free[r.grant.nodes[0]].take(r.demand, nil)
		}
		queue := []waiting{}
		if now != begin { // the cluster is full when the big one comes
			queue = append(queue, big)
		}
		for range 20 {
			queue = append(queue, waiting{id: id, demand: small, since: now})
			id++
		}
		grants, kept := plan(free, queue, now)
		big.kept = kept[0]
		for _, g := range grants {
			if g.id == 0 {
				if now.Sub(begin) < patience {
					t.Errorf("it started after %v, so this test shows nothing", now.Sub(begin))
				}
				return
			}
			running = append(running, simulated{g, small, now.Add(time.Minute + time.Duration(g.id%7)*time.Minute)})
		}
		if now.Sub(begin) > patience+longest+time.Minute {
			t.Fatalf("the big job has not started after %v", now.Sub(begin))
		}
	}
}
