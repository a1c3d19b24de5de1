package simulate

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func day(policy string, spot bool, seed uint64) Options {
	span := 24 * time.Hour
	return Options{Spec: docSpec(policy, spot), Requests: Requests(span, docSpotPeak, seed)[0].Requests, Zones: Zones(span, seed), Span: span, Seed: seed}
}

func TestRunsAreDeterministic(t *testing.T) {
	o := day(docScale+", spot_placer: hedged", true, 3)
	first := Run(o)
	if second := Run(o); first != second {
		t.Errorf("%+v\n%+v", first, second)
	}
	if first.Requests < 10000 || first.Preemptions == 0 || first.Launches < 5 {
		t.Errorf("%+v", first)
	}
	o.Seed++
	if other := Run(o); other == first {
		t.Error("the seed changes nothing")
	}
}

// Decisions depend on nothing that is not stored: a controller that is replaced
// before each of them makes the same.
func TestNothingIsOnlyInMemory(t *testing.T) {
	for _, policy := range []string{
		docScale + ", spot_placer: hedged, predictive: true",
		"min_replicas: 0, max_replicas: 10, target_latency_seconds: 0.8, upscale_delay_seconds: 60, spot_placer: dynamic_fallback, dynamic_ondemand_fallback: true",
	} {
		o := day(policy, true, 4)
		kept := Run(o)
		o.stored = true
		if stored := Run(o); stored != kept {
			t.Errorf("%s:\nin memory %+v\nstored    %+v", policy, kept, stored)
		}
	}
}

// The goal of hedged spot, on zones that fail as real ones do: for hours, together
// within a region, and now and then nearly all of them.
func TestHedgedSpotMeetsItsGoal(t *testing.T) {
	const seeds = 3
	var base float64
	notices := map[time.Duration]*struct{ cost, worst float64 }{2 * time.Minute: {}, -1: {}}
	for seed := range uint64(seeds) {
		span := 3 * 24 * time.Hour
		o := Options{Spec: docSpec(docScale+", spot_placer: hedged", true), Requests: Requests(span, docSpotPeak, seed)[0].Requests, Zones: Zones(span, seed), Span: span}
		for notice, sum := range notices {
			o.Machine.Notice = notice
			r := Run(o)
			sum.cost, sum.worst = sum.cost+r.Cost, max(sum.worst, 1-r.Served())
			if r.Preemptions < 5 {
				t.Errorf("seed %d: only %d preemptions", seed, r.Preemptions)
			}
		}
		o.Spec = onDemand(o.Spec)
		base += Run(o).Cost
	}
	for notice, sum := range notices {
		t.Logf("notices of %v: %.3f%% failed in the worst run, %.0f%% of the cost on demand", notice, 100*sum.worst, 100*sum.cost/base)
		if sum.worst > 0.001 || sum.cost > 0.55*base {
			t.Errorf("notices of %v: %.3f%% failed in the worst run, %.0f%% of the cost on demand", notice, 100*sum.worst, 100*sum.cost/base)
		}
	}
}

// With no spot machine anywhere, on-demand machines stand in.
func TestNoSpotMachineAtAll(t *testing.T) {
	o := day(docScale+", spot_placer: hedged", true, 1)
	for i := range o.Zones {
		o.Zones[i].Up = []bool{false}
	}
	r := Run(o)
	if r.Served() < 0.999 || r.SpotHours != 0 || r.ReplicaHours == 0 {
		t.Errorf("%+v", r)
	}
	o.Spec = docSpec(docScale, true) // and without anything to stand in
	if r := Run(o); r.ReplicaHours != 0 || r.Served() > 0.01 {
		t.Errorf("%+v", r)
	}
}

func TestEveryRequestIsCounted(t *testing.T) {
	o := Options{Spec: docSpec("min_replicas: 0, max_replicas: 1, target_qps_per_replica: 1", false), Requests: []float64{5, 5.5, 4000}, Span: 2 * time.Hour}
	r := Run(o)
	if r.Requests != 3 || r.Waited != 3 || r.Failed != 0 || r.Launches != 2 || r.Most != 1 || r.Served() != 1 {
		t.Errorf("from zero, twice: %+v", r)
	}
	o.Machine.Patience = time.Minute
	if r := Run(o); r.Failed != 3 || r.Served() != 0 {
		t.Errorf("with less patience: %+v", r)
	}
	if r := Run(Options{Spec: o.Spec, Span: time.Hour}); r != (Result{}) {
		t.Errorf("nobody came: %+v", r)
	}
}

func TestTracesThatAreMade(t *testing.T) {
	span := 10 * 24 * time.Hour
	again := Requests(span, 1, 5)
	for i, tr := range Requests(span, 1, 5) {
		if !reflect.DeepEqual(tr, again[i]) {
			t.Errorf("%s is another the second time", tr.Name)
		}
		if n := len(tr.Requests); n < 100000 || tr.Requests[n-1] > span.Seconds() {
			t.Errorf("%s has %d requests, the last at %v", tr.Name, n, tr.Requests[n-1])
		}
		if reflect.DeepEqual(tr.Requests, Requests(span, 1, 6)[i].Requests) {
			t.Errorf("%s is the same with another seed", tr.Name)
		}
	}
	span = 60 * 24 * time.Hour
	same, apart, n, m, share, some := 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
	for seed := range uint64(10) {
		zones := Zones(span, seed)
		for i := range zones[0].Up {
			if slices.ContainsFunc(zones, func(z Zone) bool { return z.Up[i] }) {
				some += 0.1 / float64(len(zones[0].Up))
			}
		}
		for i := range zones {
			if s := zones[i].Share(); s < 0.2 || s > 0.95 {
				t.Errorf("%s is up for %.2f of the time", zones[i].Place.Zone, s)
			}
			share += zones[i].Share() / 90
			changes := 0
			for j := 1; j < len(zones[i].Up); j++ {
				if zones[i].Up[j] != zones[i].Up[j-1] {
					changes++
				}
			}
			if hours := span.Hours() / float64(changes+1); hours < 0.8 {
				t.Errorf("%s changes every %.1f hours", zones[i].Place.Zone, hours)
			}
			for j := range i {
				c := correlation(zones[i].Up, zones[j].Up)
				if zones[i].Place.Region == zones[j].Place.Region {
					same, n = same+c, n+1
				} else {
					apart, m = apart+c, m+1
				}
			}
		}
	}
	if share < 0.5 || share > 0.7 || some < 0.97 {
		t.Errorf("a zone is up for %.2f of the time, any of them for %.3f; want about 0.6 and 0.99", share, some)
	}
	t.Logf("up %.2f, any %.3f, together %.2f and %.2f", share, some, same/n, apart/m)
	if same/n < 0.3 || same/n > 0.5 || apart/m < 0.1 || apart/m > 0.25 {
		t.Errorf("zones of a region go together by %.2f, of different ones by %.2f; want about 0.4 and 0.15", same/n, apart/m)
	}
}

func correlation(a, b []bool) float64 {
	var x, y, both float64
	for i := range a {
		if a[i] {
			x++
		}
		if b[i] {
			y++
		}
		if a[i] && b[i] {
			both++
		}
	}
	n := float64(len(a))
	x, y, both = x/n, y/n, both/n
	return (both - x*y) / math.Sqrt(x*(1-x)*y*(1-y))
}

func TestReadingTraces(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("us-west-2a_v100.json", `{"metadata": {"gap_seconds": 60}, "data": [3, 0, 1]}`)
	write("zoneless.json", `{"metadata": {"gap_seconds": 60}, "data": [1]}`)
	zones, err := ReadZones(dir)
	if err != nil || len(zones) != 2 || zones[0].Place.Region != "us-west-2" || zones[1].Place.Region != "zoneless" || zones[0].Place.Zone != "us-west-2a_v100" {
		t.Fatalf("%+v, %v", zones, err)
	}
	for at, want := range map[float64]bool{0: true, 59: true, 60: false, 120: true, 180: true, 240: false} {
		if zones[0].at(at) != want {
			t.Errorf("at %v: %v", at, !want)
		}
	}
	for text, says := range map[string]string{"{": "is no availability trace", `{"metadata": {"gap_seconds": 0}, "data": [1]}`: "at least 1"} {
		write("zoneless.json", text)
		if _, err := ReadZones(dir); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, says := range map[string]string{"": "has no requests", "1\n-1": ":2: \"-1\"", "NaN": ":1:", "Inf": ":1:"} {
		dir = t.TempDir()
		write("a.txt", text)
		if _, err := ReadRequests(dir); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
