package replicas

import (
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/serve/spec"
)

func TestWhenBlueGreenSwitches(t *testing.T) {
	row := func(id, version int, s api.ReplicaStatus) Replica {
		return Replica{ID: id, Version: version, Status: s, FirstReady: noon}
	}
	rows := func(version, ready, notReady int, more ...Replica) []Replica {
		for i := range ready + notReady {
			s := api.ReplicaReady
			if i >= ready {
				s = api.ReplicaNotReady
			}
			more = append(more, row(10*version+i, version, s))
		}
		return more
	}
	for _, c := range []struct {
		name     string
		rows     []Replica
		switched bool
	}{
		{"as many as before", rows(2, 3, 0, rows(1, 3, 0)...), true},
		{"fewer than before", rows(2, 2, 0, rows(1, 3, 0)...), false},
		{"fewer than before, some of which do not answer now", rows(2, 2, 0, rows(1, 2, 1)...), false},
		{"as many as the target, fewer than before", rows(2, 4, 0, rows(1, 5, 0)...), true},
		{"as many as before, fewer than the minimum", rows(2, 1, 0, rows(1, 1, 0)...), false},
		{"the old ones are gone", rows(2, 2, 0), true},
	} {
		s := State{Scale: Scale{Target: 4, Version: 2, At: noon}, Update: Update{Mode: BlueGreen, Stable: 1}, NextID: 100}
		sp := service(spec.Scale{Min: 2, Max: 5, QPS: 1})
		d := Decide(Situation{Now: noon, State: s, Versions: []Version{{1, sp}, {2, sp}}, Replicas: c.rows, Load: Load{Known: true, QPS: 4}})
		if got := d.State.Update.Stable == 2; got != c.switched {
			t.Errorf("%s: switched: %v", c.name, got)
		}
	}
}

func TestPausesOfCrashLoops(t *testing.T) {
	failed := func(version int, f Failure, ago time.Duration) Replica {
		return Replica{Version: version, Failure: f, FailedAt: noon.Add(-ago)}
	}
	for _, c := range []struct {
		name  string
		rows  []Replica
		n     int
		pause time.Duration
	}{
		{"none", nil, 0, 0},
		{"one", []Replica{failed(1, Crashed, 0)}, 1, 10 * time.Second},
		{"two, from the last one on", []Replica{failed(1, Crashed, 2*time.Minute), failed(1, Hung, time.Second)}, 2, 19 * time.Second},
		{"many", []Replica{failed(1, Crashed, 0), failed(1, Crashed, 0), failed(1, Crashed, 0), failed(1, Crashed, 0), failed(1, Crashed, 0), failed(1, Crashed, 0), failed(1, Crashed, 0)}, 7, 5 * time.Minute},
		{"of another version", []Replica{failed(2, Crashed, 0)}, 0, 0},
		{"long ago", []Replica{failed(1, Crashed, 61*time.Minute)}, 0, 0},
		{"of the cloud", []Replica{failed(1, Preempted, 0), failed(1, MachineLost, 0), failed(1, NoCapacity, 0)}, 0, 0},
		{"not failed", []Replica{{Version: 1, Status: api.ReplicaReady}}, 0, 0},
	} {
		n, until := crashes(c.rows, 1, noon)
		want := time.Time{}
		if c.n > 0 {
			want = noon.Add(c.pause)
		}
		if n != c.n || !until.Equal(want) {
			t.Errorf("%s: %d, %v", c.name, n, until.Sub(noon))
		}
	}
}

func TestOverprovisioning(t *testing.T) {
	b := newBench(t, service(spec.Scale{Min: 0, Max: 3, QPS: 1, Overprovision: 2}))
	b.run(time.Minute)
	b.want("rows", b.text(), "")
	b.load.QPS = 1
	d := b.decide()
	b.want("numbers", []int{d.Target, d.Final, len(d.Replicas)}, []int{1, 3, 3})
	b.load.QPS = 30
	b.run(30 * time.Minute)
	b.want("numbers", []int{b.last.Target, b.last.Final, b.ready(1)}, []int{3, 5, 5})
}

func TestPeaksAreForgottenAfterAWeek(t *testing.T) {
	var m Scale
	for h := range 24 * 12 {
		m = m.remember(h, noon.Add(time.Duration(h)*time.Hour))
	}
	if n := len(m.Peaks); n != 24*daysBack+1 || m.Peaks[n-1].Most != 24*12-1 {
		t.Errorf("%d hours are kept: %+v", n, m.Peaks)
	}
}

func TestLaunchesAtOnceAreBounded(t *testing.T) {
	b := newBench(t, service(spec.Scale{Min: 9, Max: 9}))
	b.check = func(_ []Replica, d Decision) {
		n := 0
		for i := range d.Replicas {
			if d.Replicas[i].Status == api.ReplicaProvisioning {
				n++
			}
		}
		if n > 4 {
			t.Errorf("%d launches at once", n)
		}
	}
	b.run(20 * time.Minute)
	b.want("ready", b.ready(1), 9)
}

func TestStatuses(t *testing.T) {
	rows := func(statuses ...api.ReplicaStatus) []Replica {
		var out []Replica
		for _, s := range statuses {
			out = append(out, Replica{Version: 2, Status: s})
		}
		return out
	}
	for _, c := range []struct {
		name string
		rows []Replica
		down bool
		want api.ServiceStatus
	}{
		{"nothing", nil, false, api.ServiceNoReplica},
		{"one is ready", rows(api.ReplicaFailed, api.ReplicaReady), false, api.ServiceReady},
		{"one has failed", rows(api.ReplicaFailed, api.ReplicaStarting), false, api.ServiceFailed},
		{"one of an older version has failed", []Replica{{Version: 1, Status: api.ReplicaFailed}, {Version: 2, Status: api.ReplicaPending}}, false, api.ServiceReplicaInit},
		{"all start", rows(api.ReplicaPending, api.ReplicaProvisioning), false, api.ServiceReplicaInit},
		{"going down", rows(api.ReplicaShuttingDown, api.ReplicaFailedCleanup), true, api.ServiceShuttingDown},
		{"gone, but for something that cannot go", rows(api.ReplicaFailedCleanup), true, api.ServiceFailedCleanup},
		{"gone", nil, true, api.ServiceShuttingDown},
	} {
		if got := status(c.rows, 2, c.down); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// Down ends what drains, and what was only planned.
func TestDownEndsWhatDrainsAndWhatWaits(t *testing.T) {
	draining := Replica{ID: 1, Version: 1, Status: api.ReplicaShuttingDown, DrainFrom: noon, DrainTo: noon.Add(time.Hour), InFlight: 3}
	noticed := Replica{ID: 2, Version: 1, Status: api.ReplicaPreempted, DrainFrom: noon, DrainTo: noon.Add(time.Hour), InFlight: 3}
	waiting := Replica{ID: 3, Version: 1, Status: api.ReplicaPending}
	failed := Replica{ID: 4, Version: 1, Status: api.ReplicaFailed}
	s := Situation{Now: noon, Versions: []Version{{1, service(spec.Scale{Min: 1, Max: 1})}}, Replicas: []Replica{draining, noticed, waiting, failed}, Down: true}
	d := Decide(s)
	if len(d.Replicas) != 2 || d.Replicas[0].Work() != End || d.Replicas[1].Work() != End || len(d.Removed) != 2 || d.Removed[0] != 3 || d.Removed[1] != 4 {
		t.Errorf("%+v, removed %v", d.Replicas, d.Removed)
	}
}

// What waits for its launch goes first, at no cost; a worker with one job stays.
func TestWhatIsNotNeededGoes(t *testing.T) {
	ready := Replica{ID: 1, Version: 1, Status: api.ReplicaReady, FirstReady: noon, InFlight: 1}
	waiting := Replica{ID: 2, Version: 1, Status: api.ReplicaPending, NotBefore: noon.Add(time.Hour)}
	busy := Replica{ID: 3, Version: 1, Status: api.ReplicaReady, FirstReady: noon, InFlight: 1}
	sp := &spec.Spec{Kind: spec.Pool, Scale: spec.Scale{Min: 1, Max: 1}}
	d := Decide(Situation{Now: noon, Versions: []Version{{1, sp}}, Replicas: []Replica{ready, waiting, busy}, Load: Load{Known: true}})
	if len(d.Replicas) != 2 || !d.Replicas[0].Ready() || !d.Replicas[1].Ready() || len(d.Removed) != 1 || d.Removed[0] != 2 {
		t.Errorf("%+v, removed %v", d.Replicas, d.Removed)
	}
}

// A decision is made again when a pause is over.
func TestPausesEndInADecision(t *testing.T) {
	rows := []Replica{{ID: 1, Version: 1, Status: api.ReplicaFailed, Failure: Crashed, FailedAt: noon.Add(-3 * time.Second), FirstReady: noon.Add(-time.Hour)}}
	d := Decide(Situation{Now: noon, Versions: []Version{{1, service(spec.Scale{Min: 1, Max: 1})}}, Replicas: rows, Load: Load{Known: true}})
	if d.After != 7*time.Second || len(d.Replicas) != 1 {
		t.Errorf("after %v: %+v", d.After, d.Replicas)
	}
}
