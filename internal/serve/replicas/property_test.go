package replicas

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/serve/spec"
	"github.com/skypilot-go/sky/task"
)

// randomSpec is a service or pool of any kind.
func randomSpec(r *rand.Rand) *spec.Spec {
	low := r.IntN(4)
	sp := service(spec.Scale{Min: low, Max: low + r.IntN(5), Overprovision: r.IntN(2), UpDelay: time.Duration(1+r.IntN(300)) * time.Second, DownDelay: time.Duration(1+r.IntN(600)) * time.Second})
	if r.IntN(4) == 0 {
		sp.Kind = spec.Pool
		sp.Scale.Overprovision = 0
		if r.IntN(2) == 0 {
			sp.Scale.QueueThreshold = 1 + r.IntN(3)
		}
		return sp
	}
	switch r.IntN(5) {
	case 0:
		sp.Scale.QPS = 1
	case 1:
		sp.Scale.InFlight = 4
	case 2:
		sp.Scale.Latency = time.Second
	case 3:
		sp.Scale.QPSByAccelerator = map[string]float64{"L4": 1, "A100": 3}
	}
	if sp.Spot = r.IntN(2) == 0; sp.Spot {
		sp.Scale.Placer = []string{"", dynamicFallback, hedged}[r.IntN(3)]
		sp.Scale.BaseOnDemand, sp.Scale.DynamicFallback = r.IntN(2), r.IntN(2) == 0
	}
	if r.IntN(3) == 0 {
		sp.Update.MaxSurge = 1 + r.IntN(2)
	}
	return sp
}

// A random history: updates in every mode, versions that fail, machines that are
// lost or announced to be, places without machines, loads that are not known,
// servers that begin anew. What has to hold holds after every decision, and every
// kind of decision is seen.
func TestRandomHistories(t *testing.T) {
	reached := map[string]int{}
	for seed := range uint64(90) {
		r := rand.New(rand.NewPCG(seed, 7))
		sp := randomSpec(r)
		b := newBench(t, sp)
		for i := range 6 {
			b.offers = append(b.offers, Offer{Chance: r.Float64(), Offer: cloud.Offer{InstanceType: "m", Spot: true, HourlyPrice: 1 + r.Float64(),
				Place: cloud.Place{Cloud: "x", Region: fmt.Sprint("r", i/2), Zone: fmt.Sprint("z", i)}}})
		}
		b.check = func(before []Replica, d Decision) { invariants(t, seed, b, before, d, reached) }
		for range 300 {
			switch r.IntN(30) {
			case 0:
				if len(b.versions) < 4 {
					n := len(b.versions) + 1
					next := *sp
					next.Scale.Min = min(sp.Scale.Min, 1)
					b.versions = append(b.versions, Version{n, &next})
					b.broken[n] = []Failure{"", "", Crashed, TooLate}[r.IntN(4)]
					b.state = b.state.Begin([]Mode{Rolling, BlueGreen, Canary}[r.IntN(3)], 0)
				}
			case 1:
				if st, err := b.state.Promote(); err == nil {
					b.state = st
				}
			case 2:
				if st, err := b.state.Rollback(b.versions[len(b.versions)-1].Number, "by hand"); err == nil {
					b.state = st
				}
			case 3:
				o := b.offers[r.IntN(len(b.offers))].key()
				b.full[o] = !b.full[o]
			case 4:
				b.load = Load{Known: r.IntN(8) > 0, QPS: r.Float64() * 9, InFlight: r.IntN(30), Latency: time.Duration(r.IntN(3000)) * time.Millisecond, Pending: r.IntN(9),
					Versions: map[int]Traffic{1: {Requests: 500, Errors: 5}, 2: {Requests: 500, Errors: r.IntN(60)}, 3: {Requests: 500, Errors: r.IntN(60)}}}
			case 5, 6:
				if n := len(b.rows); n > 0 {
					i := r.IntN(n)
					f := Fact{Event: fsm.ReplicaPreempt, Failure: []Failure{MachineLost, Preempted}[r.IntN(2)], Until: b.now.Add(time.Duration(r.IntN(200)) * time.Second)}
					if x, err := b.rows[i].After(f, b.now); err == nil {
						b.rows[i] = x
					}
				}
			case 7:
				if n := len(b.rows); n > 0 {
					i := r.IntN(n)
					if x, err := b.rows[i].After(Fact{Event: fsm.ReplicaNotReady, Detail: "503"}, b.now); err == nil {
						b.rows[i] = x
					} else if x, err := b.rows[i].After(Fact{Event: fsm.ReplicaReady}, b.now); err == nil && b.rows[i].Status == api.ReplicaNotReady {
						b.rows[i] = x
					}
				}
			case 9:
				if n := len(b.rows); n > 0 {
					i := r.IntN(n)
					if x, err := b.rows[i].After(Fact{Event: fsm.ReplicaStop, Failure: []Failure{Crashed, Hung, OutOfDisk}[r.IntN(3)]}, b.now); err == nil {
						b.rows[i] = x
					}
				}
			case 8:
				if n := len(b.rows); n > 0 {
					i := r.IntN(n)
					if x, err := b.rows[i].After(Fact{Event: fsm.ReplicaUncleaned, Detail: "no rights"}, b.now); err == nil {
						b.rows[i] = x
					}
				}
			}
			for i := range b.rows {
				if b.rows[i].InFlight = r.IntN(3); b.rows[i].FirstReady.IsZero() {
					b.rows[i].InFlight = 0
				}
			}
			b.run(20 * time.Second)
		}
		b.down = true
		b.run(10 * time.Minute)
		var err error
		for i := range b.rows {
			if b.rows[i].Status != api.ReplicaFailedCleanup {
				t.Errorf("seed %d: down leaves %s", seed, b.text())
				break
			}
			if b.rows[i], err = b.rows[i].After(Fact{Event: fsm.ReplicaGone}, b.now); err != nil {
				t.Errorf("seed %d: what could not be given back cannot be later: %v", seed, err)
			}
		}
		b.run(time.Minute)
		if len(b.rows) > 0 {
			t.Errorf("seed %d: when all was given back there is %s", seed, b.text())
		}
	}
	for _, want := range []string{"launch", "drain", "end", "removed", "weights", "spare", "on-demand beside spot", "took over", "rolled back", "old version launched anew", "waits for a place", "crash pause",
		"hopeless", "scaled to zero", "surge bound", string(api.ServiceReady), string(api.ServiceFailed), string(api.ServiceReplicaInit), string(api.ServiceNoReplica), string(api.ServiceShuttingDown), string(api.ServiceFailedCleanup)} {
		if reached[want] == 0 {
			t.Errorf("no decision was: %s", want)
		}
	}
}

func invariants(t *testing.T, seed uint64, b *bench, before []Replica, d Decision, reached map[string]int) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		was := &bench{rows: before}
		is := &bench{rows: d.Replicas}
		t.Fatalf("seed %d at %v: %s\nbefore: %s\nafter: %s\nstate: %+v\nwhy: %v", seed, b.now.Sub(noon), fmt.Sprintf(format, args...), was.text(), is.text(), d.State, d.Why)
	}
	reached[string(d.Status)]++
	wasReady, live, ready := 0, 0, 0
	for i := range before {
		if before[i].Ready() && slices.Contains(b.last.Routing.Ready, before[i].ID) {
			wasReady++
		}
	}
	spot, onDemand, byVersion := 0, 0, map[int]int{}
	for i := range d.Replicas {
		r := &d.Replicas[i]
		old := slices.IndexFunc(before, func(x Replica) bool { return x.ID == r.ID })
		switch {
		case old < 0:
			reached["launch"]++
			if r.Version < b.versions[len(b.versions)-1].Number && d.State.Update.Failed[b.versions[len(b.versions)-1].Number] == "" && d.State.Update.Mode != Canary {
				reached["old version launched anew"]++
			}
		case before[old].Work() != Drain && r.Work() == Drain:
			reached["drain"]++
		case before[old].Work() != End && r.Work() == End:
			reached["end"]++
			if before[old].Ready() && b.versions[0].Spec.Drain > 0 && !b.down {
				fail("replica %d ended without a drain", r.ID)
			}
		}
		if old >= 0 && before[old].Live() && !r.Live() && b.versions[0].Spec.Kind == spec.Pool && before[old].InFlight > 0 && !b.down {
			fail("the worker %d has jobs", r.ID)
		}
		if r.Ready() {
			ready++
		}
		if r.Live() {
			live++
			byVersion[r.Version]++
			if r.Spot {
				spot++
			} else {
				onDemand++
			}
		}
		if _, ok := fsm.Replicas()[r.Status]; !ok || r.ID >= d.State.NextID {
			fail("replica %d is %s, and the next id is %d", r.ID, r.Status, d.State.NextID)
		}
		if len(r.Trouble) > 0 {
			fail("trouble that was noted is noted again")
		}
	}
	if len(d.Removed) > 0 {
		reached["removed"]++
	}
	if b.down {
		if len(d.Routing.Ready) > 0 || live > 0 {
			fail("%d replicas live on", live)
		}
		return
	}
	var s spec.Scale
	newest := d.State.Update.wanted(b.versions)
	current := newest
	if d.State.Update.Mode == Canary && d.State.Update.Stable != 0 && newest > d.State.Update.Stable {
		current = d.State.Update.Stable
	}
	for _, v := range b.versions {
		if v.Number == current {
			s = v.Spec.Scale
		}
	}
	if d.Target < s.Min || d.Target > s.Max || d.Final < d.Target {
		fail("the target %d (%d) is not from %d to %d", d.Target, d.Final, s.Min, s.Max)
	}
	// Fewer ready replicas than needed are never made fewer.
	if len(d.Routing.Ready) < min(wasReady, d.Final) {
		fail("%d of %d ready replicas are left, and %d are needed", ready, wasReady, d.Final)
	}
	if n := len(d.Routing.Ready); n > ready || d.State.Update.Mode != BlueGreen && b.versions[0].Spec.Kind == spec.Service && n != ready || ready > 0 && n == 0 {
		fail("%d of %d ready replicas get requests", n, ready)
	}
	// What was launched for one version stays within its limits.
	if b.versions[0].Spec.Kind == spec.Service && byVersion[newest] > d.Final+d.Target+1+s.BaseOnDemand {
		fail("version %d has %d replicas", newest, byVersion[newest])
	}
	// A version of which nothing was ever ready has not taken over.
	if st := d.State.Update.Stable; st != 0 && !slices.Contains(d.State.Update.Proven, st) {
		fail("version %d has taken over and was never ready", st)
	}
	if d.State.Update.Stable > b.took {
		reached["took over"]++
		b.took = d.State.Update.Stable
	}
	why := strings.Join(d.Why, "\n")
	for text, name := range map[string]string{"rolled back": "rolled back", "spot replicas wait": "waits for a place", "the next launch is at": "crash pause", "is not launched again": "hopeless"} {
		if strings.Contains(why, text) {
			reached[name]++
		}
	}
	if d.Routing.Weights != nil {
		reached["weights"]++
		sum := 0.0
		for _, w := range d.Routing.Weights {
			sum += w
		}
		if sum < 99.99 || sum > 100.01 {
			fail("weights add up to %v", sum)
		}
	}
	if spot > d.Final && len(byVersion) == 1 {
		reached["spare"]++
	}
	if spot > 0 && onDemand > 0 {
		reached["on-demand beside spot"]++
	}
	if s.Min == 0 && s.Max > 0 && d.Target == 0 && live == 0 {
		reached["scaled to zero"]++
	}
	if len(byVersion) > 1 && b.versions[0].Spec.Update.MaxSurge > 0 {
		reached["surge bound"]++
	}
	if len(d.Replicas) == 0 != (d.Status == api.ServiceNoReplica) {
		fail("%d rows, and it is %s", len(d.Replicas), d.Status)
	}
	if d.After <= 0 || d.After > usualInterval {
		fail("decides again after %v", d.After)
	}
	// The same situation, read back from what is stored, gives the same decision.
	if b.now.Unix()%100 == 0 {
		text, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		var stored []Replica
		if err := json.Unmarshal(text, &stored); err != nil {
			t.Fatal(err)
		}
		for i := range stored {
			stored[i].InFlight, stored[i].Metric = before[i].InFlight, before[i].Metric
		}
		first := Decide(Situation{Now: b.now.Add(time.Second), State: d.State, Versions: b.versions, Replicas: before, Load: b.load, Offers: b.offers})
		second := Decide(Situation{Now: b.now.Add(time.Second), State: d.State, Versions: b.versions, Replicas: stored, Load: b.load, Offers: b.offers})
		x, _ := json.Marshal(first)
		y, _ := json.Marshal(second)
		if string(x) != string(y) {
			fail("what is stored is not all:\n%s\n%s", x, y)
		}
	}
}

func TestSameReplicas(t *testing.T) {
	read := func(text string) *task.Task {
		d, err := task.Parse("task.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return d.Tasks[0]
	}
	base := "run: serve\nenvs: {A: b}\nresources: {ports: 80, cpus: 2}\n"
	one := read(base + "service: {replicas: 1}")
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"the same":             {base + "service: {replicas: 1}", true},
		"more replicas":        {base + "service: {replicas: 5, readiness_probe: /x}", true},
		"another order":        {"service: {replicas: 1}\n" + base, true},
		"another program":      {strings.Replace(base, "serve", "other", 1) + "service: {replicas: 1}", false},
		"another variable":     {strings.Replace(base, "A: b", "A: c", 1) + "service: {replicas: 1}", false},
		"other machines":       {strings.Replace(base, "cpus: 2", "cpus: 4", 1) + "service: {replicas: 1}", false},
		"another port of them": {base + "service: {replicas: 1, ports: 80}", false},
		"files":                {base + "workdir: .\nservice: {replicas: 1}", false},
	} {
		if got := SameReplicas(one, read(c.text)); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	files := read(base + "file_mounts: {/a: b}\nservice: {replicas: 1}")
	if SameReplicas(files, files) {
		t.Error("files may have changed")
	}
}

func TestRemovalOrder(t *testing.T) {
	row := func(id, version int, s api.ReplicaStatus, jobs int, acc string) Replica {
		return Replica{ID: id, Version: version, Status: s, InFlight: jobs, Accelerator: acc}
	}
	ids := func(sp *spec.Spec, rows []Replica) []int {
		var of, out []int
		for i := range rows {
			of = append(of, i)
		}
		for _, i := range spare(sp, rows, of, len(of)) {
			out = append(out, rows[i].ID)
		}
		return out
	}
	rows := []Replica{
		row(1, 1, api.ReplicaReady, 0, ""), row(2, 2, api.ReplicaReady, 0, ""), row(3, 2, api.ReplicaReady, 9, ""), row(4, 2, api.ReplicaNotReady, 0, ""),
		row(5, 2, api.ReplicaStarting, 0, ""), row(6, 2, api.ReplicaProvisioning, 0, ""), row(7, 2, api.ReplicaPending, 0, ""), row(8, 1, api.ReplicaPending, 0, ""),
	}
	if got := ids(service(spec.Scale{}), rows); !reflect.DeepEqual(got, []int{8, 7, 6, 5, 4, 1, 3, 2}) {
		t.Errorf("of a service: %v", got)
	}
	if got := ids(&spec.Spec{Kind: spec.Pool}, rows); !reflect.DeepEqual(got, []int{8, 7, 6, 5, 4, 1, 2}) {
		t.Errorf("of a pool: %v", got)
	}
	gpus := []Replica{row(1, 1, api.ReplicaReady, 0, "A100:1"), row(2, 1, api.ReplicaReady, 0, "L4:1"), row(3, 1, api.ReplicaReady, 0, "A100:1")}
	if got := ids(service(spec.Scale{QPSByAccelerator: map[string]float64{"A100": 4, "L4": 1}}), gpus); !reflect.DeepEqual(got, []int{2, 3, 1}) {
		t.Errorf("by accelerator: %v", got)
	}
}
