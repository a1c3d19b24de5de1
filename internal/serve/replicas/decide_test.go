package replicas

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/serve/spec"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// bench is a service in virtual time: launches take three minutes, replicas get
// ready a minute later, machines go within a minute.
type bench struct {
	t        *testing.T
	now      time.Time
	state    State
	versions []Version
	rows     []Replica
	load     Load
	offers   []Offer
	down     bool
	full     map[string]bool // places without machines
	broken   map[int]Failure // versions that fail when they start
	slow     map[int]bool    // versions that never get ready
	last     Decision
	since    map[int]time.Time // of the status, by id
	was      map[int]api.ReplicaStatus
	used     map[int]bool
	took     int // the last version that took over
	check    func(before []Replica, d Decision)
}

func service(scale spec.Scale) *spec.Spec {
	if scale.UpDelay == 0 {
		scale.UpDelay, scale.DownDelay = 5*time.Minute, 20*time.Minute
	}
	return &spec.Spec{Kind: spec.Service, Port: 80, Scale: scale, Drain: 2 * time.Minute, Update: spec.Update{CanaryWeight: 10, ErrorMargin: 0.05, MinRequests: 100}}
}

func newBench(t *testing.T, sp *spec.Spec) *bench {
	return &bench{t: t, now: noon, versions: []Version{{1, sp}}, load: Load{Known: true}, full: map[string]bool{}, broken: map[int]Failure{}, slow: map[int]bool{},
		since: map[int]time.Time{}, was: map[int]api.ReplicaStatus{}, used: map[int]bool{}}
}

func (b *bench) decide() Decision {
	b.t.Helper()
	before := slices.Clone(b.rows)
	d := Decide(Situation{Now: b.now, State: b.state, Versions: b.versions, Replicas: b.rows, Load: b.load, Offers: b.offers, Down: b.down})
	// Nothing is only in memory.
	text, err := json.Marshal(d.State)
	if err != nil {
		b.t.Fatal(err)
	}
	b.state = State{}
	if err := json.Unmarshal(text, &b.state); err != nil {
		b.t.Fatal(err)
	}
	for _, r := range d.Replicas {
		if !slices.ContainsFunc(before, func(x Replica) bool { return x.ID == r.ID }) {
			if b.used[r.ID] {
				b.t.Fatalf("the id %d was used before", r.ID)
			}
			b.used[r.ID] = true
		}
	}
	if b.check != nil {
		b.check(before, d)
	}
	b.rows, b.last = d.Replicas, d
	return d
}

func (b *bench) tell(i int, f Fact) {
	b.t.Helper()
	r, err := b.rows[i].After(f, b.now)
	if err != nil {
		b.t.Fatal(err)
	}
	b.rows[i] = r
}

// act is what a controller and the clouds do.
func (b *bench) act() {
	for i := range b.rows {
		r := &b.rows[i]
		if b.was[r.ID] != r.Status {
			b.was[r.ID], b.since[r.ID] = r.Status, b.now
		}
		age := b.now.Sub(b.since[r.ID])
		switch r.Work() {
		case Launch:
			switch {
			case b.full[r.key()]:
				b.tell(i, Fact{Event: fsm.ReplicaRetry, Failure: NoCapacity})
			case age >= 3*time.Minute:
				b.tell(i, Fact{Event: fsm.ReplicaLaunched, Place: r.Place, InstanceType: r.InstanceType, Accelerator: r.Accelerator})
			}
		case Probe:
			switch {
			case r.Status != api.ReplicaStarting:
			case b.broken[r.Version] != "":
				b.tell(i, Fact{Event: fsm.ReplicaStop, Failure: b.broken[r.Version], Detail: "exit code 1"})
			case age >= time.Minute && !b.slow[r.Version]:
				b.tell(i, Fact{Event: fsm.ReplicaReady})
			}
		case End:
			if r.Uncleaned == "" && (age >= time.Minute || r.Status == api.ReplicaShuttingDown) {
				b.tell(i, Fact{Event: fsm.ReplicaGone})
			}
		}
	}
	b.rows = slices.DeleteFunc(b.rows, func(r Replica) bool { return r.Status == fsm.ReplicaAbsent })
}

// run lets time pass.
func (b *bench) run(span time.Duration) {
	b.t.Helper()
	for end := b.now.Add(span); b.now.Before(end); b.now = b.now.Add(20 * time.Second) {
		b.decide()
		b.act()
	}
}

func (b *bench) count(match func(r *Replica) bool) int {
	n := 0
	for i := range b.rows {
		if match(&b.rows[i]) {
			n++
		}
	}
	return n
}

func (b *bench) ready(version int) int {
	return b.count(func(r *Replica) bool { return r.Ready() && (version == 0 || r.Version == version) })
}

// text is the rows in short.
func (b *bench) text() string {
	var s []string
	for _, r := range b.rows {
		s = append(s, fmt.Sprintf("%d:v%d:%s", r.ID, r.Version, r.Status))
	}
	return strings.Join(s, " ")
}

func (b *bench) want(what string, got, want any) {
	b.t.Helper()
	if !reflect.DeepEqual(got, want) {
		b.t.Errorf("%s is %v, want %v; rows %s; %v", what, got, want, b.text(), b.last.Why)
	}
}

func TestAServiceComesUpAndGoes(t *testing.T) {
	b := newBench(t, service(spec.Scale{Min: 6, Max: 6}))
	d := b.decide()
	b.want("status", d.Status, api.ServiceReplicaInit)
	b.want("rows", b.text(), "1:v1:PROVISIONING 2:v1:PROVISIONING 3:v1:PROVISIONING 4:v1:PROVISIONING 5:v1:PENDING 6:v1:PENDING")
	b.want("why", d.Why, []string{"0 of 6 replicas are ready, 2 PENDING, 4 PROVISIONING"})
	b.run(10 * time.Minute)
	b.want("ready", b.ready(1), 6)
	b.want("status", b.last.Status, api.ServiceReady)
	b.want("stable version", b.state.Update.Stable, 1)
	b.want("routing", b.last.Routing, Routing{Ready: []int{1, 2, 3, 4, 5, 6}})
	if len(b.last.Why) > 0 || b.last.After != 20*time.Second {
		t.Errorf("after %v because %v", b.last.After, b.last.Why)
	}
	b.down = true
	d = b.decide()
	b.want("status", d.Status, api.ServiceShuttingDown)
	b.want("routing", d.Routing, Routing{})
	if b.count(func(r *Replica) bool { return r.Work() == End }) != 6 {
		t.Errorf("%s", b.text())
	}
	b.run(2 * time.Minute)
	b.want("rows", b.text(), "")
}

func TestLostReplicasAreReplaced(t *testing.T) {
	b := newBench(t, service(spec.Scale{Min: 2, Max: 2}))
	b.run(10 * time.Minute)
	b.tell(0, Fact{Event: fsm.ReplicaPreempt, Failure: MachineLost})
	b.tell(1, Fact{Event: fsm.ReplicaPreempt, Until: b.now.Add(2 * time.Minute)})
	b.rows[1].InFlight = 3
	d := b.decide()
	b.want("rows", b.text(), "1:v1:PREEMPTED 2:v1:PREEMPTED 3:v1:PROVISIONING 4:v1:PROVISIONING")
	b.want("work", []Work{b.rows[0].Work(), b.rows[1].Work()}, []Work{End, Drain})
	b.want("reasons", []string{b.rows[0].Reason, b.rows[1].Reason}, []string{"its machine was lost", "its spot machine was taken away"})
	b.want("status", d.Status, api.ServiceReplicaInit)
	b.now = b.now.Add(2 * time.Minute)
	b.decide()
	b.want("work", b.rows[1].Work(), End)
	b.run(10 * time.Minute)
	b.want("rows", b.text(), "3:v1:READY 4:v1:READY")
}

// Whatever goes drains first: it is off the table at once, and its machines go
// when its requests have ended, or their time.
func TestDraining(t *testing.T) {
	b := newBench(t, service(spec.Scale{Min: 0, Max: 3, QPS: 1, UpDelay: time.Minute, DownDelay: time.Minute}))
	b.load.QPS = 3
	b.run(10 * time.Minute)
	b.want("ready", b.ready(1), 3)
	b.load.QPS, b.load.InFlight = 1, 5
	b.run(61 * time.Second)
	b.want("target", b.last.Target, 1)
	b.want("routing", b.last.Routing.Ready, []int{1})
	// What has no requests ends after a moment.
	b.want("rows", b.text(), "1:v1:READY 2:v1:SHUTTING_DOWN 3:v1:SHUTTING_DOWN")
	b.rows[1].InFlight = 2
	b.now = b.now.Add(10 * time.Second)
	b.decide()
	b.want("work", []Work{b.rows[1].Work(), b.rows[2].Work()}, []Work{Drain, End})
	b.now = b.now.Add(2 * time.Minute)
	b.decide()
	b.want("work", b.rows[1].Work(), End)

	// Requests that run keep a service from scaling to zero.
	b.load.QPS, b.load.InFlight = 0, 1
	b.run(10 * time.Minute)
	b.want("ready", b.ready(1), 1)
	b.load.InFlight = 0
	b.run(10 * time.Minute)
	b.want("rows", b.text(), "")
	b.want("status", b.last.Status, api.ServiceNoReplica)
	b.want("next decision", b.last.After, 5*time.Second)
	b.load.Waiting = 1
	b.decide()
	b.want("target", b.last.Target, 1)
}

func TestEachFailureHasItsStatusAndSentence(t *testing.T) {
	for f, want := range map[Failure]api.ReplicaStatus{
		Crashed: api.ReplicaFailed, SetupFailed: api.ReplicaFailed, OutOfMemory: api.ReplicaFailed, OutOfDisk: api.ReplicaFailed, ImagePull: api.ReplicaFailed,
		TooLate: api.ReplicaFailedDelay, Hung: api.ReplicaFailedProbing, Unhealthy: api.ReplicaFailedProbing,
		NoCapacity: api.ReplicaFailedProvision, LaunchError: api.ReplicaFailedProvision, Refused: api.ReplicaFailedProvision,
		MachineLost: fsm.ReplicaAbsent, Preempted: fsm.ReplicaAbsent,
	} {
		r := Replica{ID: 1, Status: api.ReplicaStarting}
		r, err := r.After(Fact{Event: fsm.ReplicaStop, Failure: f, Detail: "the detail"}, noon)
		if err != nil || r.Status != api.ReplicaShuttingDown || r.Work() != End || !strings.Contains(r.Reason, ": the detail") {
			t.Errorf("%s: %+v, %v", f, r, err)
		}
		for _, uncleaned := range []bool{false, true} {
			r := r
			if uncleaned {
				r, _ = r.After(Fact{Event: fsm.ReplicaUncleaned}, noon)
				if r.Status != api.ReplicaFailedCleanup {
					t.Errorf("%s: %s", f, r.Status)
				}
				r, _ = r.After(Fact{Event: fsm.ReplicaStop}, noon)
			}
			if r, err = r.After(Fact{Event: fsm.ReplicaGone}, noon); err != nil || r.Status != want || r.Failure != f {
				t.Errorf("%s: %+v, %v; want %s", f, r, err, want)
			}
		}
	}
	seen := map[string]bool{}
	for f := range failures {
		text := f.Sentence("")
		if seen[text] || text == "" || strings.Contains(text, "%") {
			t.Errorf("%s: %q", f, text)
		}
		seen[text] = true
	}
	if Failure("").Sentence("x") != "" || Failure("").outcome() != fsm.ReplicaGone {
		t.Error("no failure says something")
	}
	// A failure stays what it was when its machine goes as well.
	r := Replica{ID: 1, Status: api.ReplicaShuttingDown, Failure: Crashed, Ending: true}
	r, err := r.After(Fact{Event: fsm.ReplicaPreempt}, noon)
	if err != nil || r.Failure != Crashed || r.Status != api.ReplicaShuttingDown || len(r.Trouble) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := r.After(Fact{Event: fsm.ReplicaReady}, noon); err == nil {
		t.Error("a replica that goes got ready")
	}
}

func TestAVersionThatCannotWorkIsNotLaunchedAgain(t *testing.T) {
	b := newBench(t, service(spec.Scale{Min: 2, Max: 2}))
	b.broken[1] = Crashed
	b.run(time.Hour)
	b.want("rows", b.text(), "1:v1:FAILED 2:v1:FAILED")
	b.want("status", b.last.Status, api.ServiceFailed)
	if len(b.last.Why) == 0 || !strings.Contains(b.last.Why[0], "replica 1 of version 1: its program ended: exit code 1; see its log") {
		t.Errorf("%q", b.last.Why)
	}
	// Forgotten, it is tried once more.
	b.broken[1] = ""
	b.rows = nil
	b.run(10 * time.Minute)
	b.want("rows", b.text(), "3:v1:READY 4:v1:READY")
}

func TestCrashLoopsBackOff(t *testing.T) {
	b := newBench(t, service(spec.Scale{Min: 1, Max: 1}))
	b.run(10 * time.Minute)
	launches := map[int]time.Time{}
	b.check = func(before []Replica, d Decision) {
		for _, r := range d.Replicas {
			if _, ok := launches[r.ID]; !ok {
				launches[r.ID] = b.now
			}
		}
	}
	b.broken[1] = OutOfMemory
	b.tell(0, Fact{Event: fsm.ReplicaStop, Failure: OutOfMemory})
	b.run(3 * time.Hour)
	if n := len(launches); n < 15 || n > 30 { // 3 minutes to launch, and pauses of up to 5
		t.Errorf("%d launches in 3 hours", n)
	}
	if n := b.count(func(r *Replica) bool { return r.Status == api.ReplicaFailed }); n != keptFailures {
		t.Errorf("%d failures are kept: %s", n, b.text())
	}
	b.broken[1] = ""
	b.run(15 * time.Minute)
	b.want("ready", b.ready(1), 1)
	b.want("status", b.last.Status, api.ServiceReady)
}

func TestLaunchesAreTriedAgain(t *testing.T) {
	r := Replica{ID: 1, Version: 1, Status: api.ReplicaProvisioning, ProvisionedAt: noon}
	for i, pause := range []time.Duration{60, 120, 240, 300, 300} {
		var err error
		if r, err = r.After(Fact{Event: fsm.ReplicaRetry, Failure: NoCapacity, Detail: "sold out"}, noon); err != nil {
			t.Fatal(err)
		}
		if r.Status != api.ReplicaPending || r.NotBefore.Sub(noon) != pause*time.Second || r.Tries != i+1 || r.Reason != "no machine for it was to be had: sold out" {
			t.Errorf("%+v", r)
		}
		d := Decide(Situation{Now: noon, Versions: []Version{{1, service(spec.Scale{Min: 1, Max: 1})}}, Replicas: []Replica{r}, Load: Load{Known: true}})
		if d.Replicas[0].Status != api.ReplicaPending || d.After > pause*time.Second {
			t.Errorf("%+v", d)
		}
		r.Status = api.ReplicaProvisioning
	}
	// Other errors end it, with the third.
	r = Replica{ID: 1, Status: api.ReplicaProvisioning}
	for range 2 {
		r, _ = r.After(Fact{Event: fsm.ReplicaRetry, Failure: LaunchError, Detail: "boom"}, noon)
		r.Status = api.ReplicaProvisioning
	}
	r, err := r.After(Fact{Event: fsm.ReplicaRetry, Failure: LaunchError, Detail: "boom"}, noon)
	if err != nil || r.Status != api.ReplicaShuttingDown || r.Failure != LaunchError || r.Work() != End {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRollingUpdate(t *testing.T) {
	b := newBench(t, service(spec.Scale{Min: 3, Max: 3}))
	b.run(10 * time.Minute)
	b.check = b.neverBelow(3)
	b.versions = append(b.versions, Version{2, service(spec.Scale{Min: 3, Max: 3})})
	b.state = b.state.Begin(Rolling, 0)
	b.decide()
	b.want("rows", b.text(), "1:v1:READY 2:v1:READY 3:v1:READY 4:v2:PROVISIONING 5:v2:PROVISIONING 6:v2:PROVISIONING")
	b.run(10 * time.Minute)
	b.want("rows", b.text(), "4:v2:READY 5:v2:READY 6:v2:READY")
	b.want("stable version", b.state.Update.Stable, 2)
}

// neverBelow checks that no decision leaves fewer ready replicas than n, or than
// there were.
func (b *bench) neverBelow(n int) func([]Replica, Decision) {
	return func(before []Replica, d Decision) {
		b.t.Helper()
		had := 0
		for i := range before {
			if before[i].Ready() {
				had++
			}
		}
		if len(d.Routing.Ready) < min(n, had) {
			b.t.Errorf("at %v %d of %d ready replicas are left", b.now.Sub(noon), len(d.Routing.Ready), had)
		}
	}
}

func TestSurgeIsBounded(t *testing.T) {
	sp := service(spec.Scale{Min: 3, Max: 3})
	sp.Update.MaxSurge = 1
	b := newBench(t, sp)
	b.run(10 * time.Minute)
	never := b.neverBelow(3)
	b.check = func(before []Replica, d Decision) {
		never(before, d)
		live := 0
		for i := range d.Replicas {
			if d.Replicas[i].Live() {
				live++
			}
		}
		if live > 4 {
			t.Errorf("%d replicas at once", live)
		}
	}
	b.versions = append(b.versions, Version{2, sp})
	b.state = b.state.Begin(Rolling, 0)
	b.run(time.Hour)
	b.want("ready", b.ready(2), 3)
	b.want("rows", len(b.rows), 3)
}

func TestAVersionThatIsNeverReadyReplacesNothing(t *testing.T) {
	for _, mode := range []Mode{Rolling, BlueGreen, Canary} {
		for _, how := range []string{"broken", "slow"} {
			b := newBench(t, service(spec.Scale{Min: 3, Max: 3}))
			b.run(10 * time.Minute)
			b.check = b.neverBelow(2) // one will be lost
			b.versions = append(b.versions, Version{2, service(spec.Scale{Min: 3, Max: 3})})
			b.state = b.state.Begin(mode, 0)
			if how == "broken" {
				b.broken[2] = ImagePull
			}
			b.slow[2] = true
			b.run(30 * time.Minute)
			b.want(how+" "+string(mode)+": ready", b.ready(1), 3)
			// What the old version loses comes back as the old version.
			b.tell(0, Fact{Event: fsm.ReplicaPreempt, Failure: MachineLost})
			b.run(30 * time.Minute)
			b.want(how+" "+string(mode)+": ready", b.ready(1), 3)
			b.want("stable version", b.state.Update.Stable, 1)
			if _, back := b.state.Update.Failed[2]; back != (mode == Canary && how == "broken") {
				t.Errorf("%s %s: rolled back: %v", how, mode, b.state.Update.Failed)
			}
		}
	}
}

func TestBlueGreenUpdate(t *testing.T) {
	b := newBench(t, service(spec.Scale{Min: 2, Max: 5, QPS: 1}))
	b.load.QPS = 4
	b.run(20 * time.Minute)
	b.want("ready", b.ready(1), 4)
	b.check = b.neverBelow(4)
	b.versions = append(b.versions, Version{2, service(spec.Scale{Min: 2, Max: 5, QPS: 1})})
	b.state = b.state.Begin(BlueGreen, 0)
	for b.ready(2) < 3 {
		b.run(20 * time.Second)
		if b.ready(2) == 1 {
			break
		}
	}
	for range 60 {
		d := b.decide()
		versions := map[int]bool{}
		for _, r := range b.rows {
			if slices.Contains(d.Routing.Ready, r.ID) {
				versions[r.Version] = true
			}
		}
		if len(versions) != 1 || versions[2] && len(d.Routing.Ready) < 4 {
			t.Fatalf("traffic goes to %v of %s", d.Routing.Ready, b.text())
		}
		b.act()
		b.now = b.now.Add(20 * time.Second)
	}
	b.want("ready", b.ready(2), 4)
	b.want("old rows", b.count(func(r *Replica) bool { return r.Version == 1 }), 0)
}

func TestCanary(t *testing.T) {
	start := func(t *testing.T) *bench {
		b := newBench(t, service(spec.Scale{Min: 4, Max: 4}))
		b.run(10 * time.Minute)
		b.check = b.neverBelow(4)
		b.versions = append(b.versions, Version{2, service(spec.Scale{Min: 4, Max: 4})})
		b.state = b.state.Begin(Canary, 25)
		b.run(10 * time.Minute)
		b.want("rows", b.text(), "1:v1:READY 2:v1:READY 3:v1:READY 4:v1:READY 5:v2:READY")
		b.want("weights", b.last.Routing.Weights, map[int]float64{1: 75, 2: 25})
		b.want("ready", b.last.Routing.Ready, []int{1, 2, 3, 4, 5})
		return b
	}
	traffic := func(b *bench, old, canary Traffic) {
		b.load.Versions = map[int]Traffic{1: old, 2: canary}
		b.run(20 * time.Minute)
	}
	t.Run("promoted", func(t *testing.T) {
		b := start(t)
		traffic(b, Traffic{Requests: 1000, Errors: 40}, Traffic{Requests: 200, Errors: 17}) // 4% and 8.5%
		b.want("canaries", b.ready(2), 1)
		var err error
		if b.state, err = b.state.Promote(); err != nil {
			t.Fatal(err)
		}
		b.run(20 * time.Minute)
		b.want("rows", b.text(), "5:v2:READY 6:v2:READY 7:v2:READY 8:v2:READY")
		if _, err := b.state.Promote(); err == nil {
			t.Error("promoted twice")
		}
		if _, err := b.state.Rollback(2, "x"); err == nil {
			t.Error("rolled back what has taken over")
		}
	})
	for name, c := range map[string]struct {
		few, canary Traffic
		says        string
	}{
		"requests fail": {Traffic{Requests: 99, Errors: 9}, Traffic{Requests: 100, Errors: 10},
			"10 of 100 requests of version 2 failed, and 4.0% of those of version 1; at most 5.0% more are let pass (service.update.error_margin)"},
		"so many fail that others do not matter": {Traffic{Requests: 12, Errors: 9}, Traffic{Requests: 12, Errors: 10},
			"10 of 12 requests of version 2 failed, and 4.0% of those of version 1; at most 5.0% more are let pass (service.update.error_margin)"},
		"probes fail": {Traffic{Probes: 100, ProbeFailures: 5}, Traffic{Probes: 100, ProbeFailures: 6},
			"6 of 100 probes of version 2 failed, and 0.0% of those of version 1; at most 5.0% more are let pass (service.update.error_margin)"},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			traffic(b, Traffic{Requests: 1000, Errors: 40}, c.few)
			b.want("canaries", b.ready(2), 1)
			traffic(b, Traffic{Requests: 1000, Errors: 40}, c.canary)
			b.want("rows", b.text(), "1:v1:READY 2:v1:READY 3:v1:READY 4:v1:READY")
			b.want("reason", b.state.Update.Failed[2], c.says)
			b.want("why", b.last.Why, []string{"version 2 was rolled back: " + c.says})
			// The next version is another matter.
			b.versions = append(b.versions, Version{3, service(spec.Scale{Min: 4, Max: 4})})
			b.state = b.state.Begin(Rolling, 0)
			b.run(20 * time.Minute)
			b.want("ready", b.ready(3), 4)
			b.want("rows", len(b.rows), 4)
		})
	}
	t.Run("by hand", func(t *testing.T) {
		b := start(t)
		var err error
		if b.state, err = b.state.Rollback(2, "the user asked for it"); err != nil {
			t.Fatal(err)
		}
		b.run(20 * time.Minute)
		b.want("rows", b.text(), "1:v1:READY 2:v1:READY 3:v1:READY 4:v1:READY")
	})
	if _, err := (State{}).Rollback(1, ""); err == nil {
		t.Error("rolled back to nothing")
	}
}

func TestPoolsEndIdleWorkersOnly(t *testing.T) {
	sp := &spec.Spec{Kind: spec.Pool, Scale: spec.Scale{Min: 0, Max: 6, QueueThreshold: 2, UpDelay: time.Minute, DownDelay: time.Minute}}
	b := newBench(t, sp)
	b.load.Pending = 6
	b.run(10 * time.Minute)
	b.want("workers", b.ready(1), 3)
	b.load.Pending = 0
	b.rows[0].InFlight, b.rows[2].InFlight = 1, 2
	b.run(10 * time.Minute)
	b.want("workers", b.text(), "1:v1:READY 3:v1:READY")
	b.load.Pending = 3 // two more, at once
	b.run(10 * time.Minute)
	b.want("workers", b.ready(1), 4)
	b.rows[0].InFlight, b.rows[1].InFlight, b.load.Pending = 0, 0, 0
	b.run(10 * time.Minute)
	b.want("workers", b.text(), "")
}

func TestPlacesAreAskedForByThePlacer(t *testing.T) {
	sp := service(spec.Scale{Min: 3, Max: 3, Placer: "dynamic_fallback"})
	sp.Spot = true
	b := newBench(t, sp)
	for i, zone := range []string{"a", "b", "c"} {
		b.offers = append(b.offers, Offer{Offer: cloud.Offer{Place: cloud.Place{Cloud: "x", Region: "r", Zone: zone}, InstanceType: "m", Spot: true, HourlyPrice: float64(i + 1)}})
	}
	b.full[b.offers[0].key()] = true
	b.run(15 * time.Minute)
	places := map[cloud.Place]int{}
	for i := range b.rows {
		if r := &b.rows[i]; r.Live() && r.Place != (cloud.Place{}) {
			places[r.Place]++
		}
	}
	b.want("places", places, map[cloud.Place]int{b.offers[1].Place: 2, b.offers[2].Place: 1})
}
