package feed

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// Times until answers began count for as long as they are recent, and not when a
// server hears a balancer for the first time.
func TestRecentTimesUntilAnswersBegin(t *testing.T) {
	var tally Tally
	begin := time.Unix(10_000, 0)
	slow, fast := int64(0), int64(0)
	report := func(at time.Duration) {
		h := balancerapi.Histogram{Buckets: make([]int64, len(balancerapi.Bounds))}
		h.Buckets[balancerapi.Bucket(0.001)], h.Buckets[balancerapi.Bucket(10)] = fast, slow
		now := begin.Add(at)
		tally.Add(balancerapi.Report{Balancer: "b", Epoch: "e", Time: float64(now.Unix()), Services: []balancerapi.ServiceReport{
			{Name: "s", Versions: []balancerapi.VersionReport{{Version: 1, Counts: balancerapi.Counts{FirstByte: h}}}}}}, now)
	}
	slow = 1000
	report(0)
	want := func(at time.Duration, n int64) {
		t.Helper()
		if got := tally.FirstByte("s", begin.Add(at-time.Minute)).Count(); got != n {
			t.Errorf("after %v: %d, want %d", at, got, n)
		}
	}
	want(0, 0)
	for at := time.Duration(0); at <= 100*time.Second; at += time.Second {
		if at == 15*time.Second {
			fast += 5
		}
		report(at)
	}
	want(20*time.Second, 5)
	want(100*time.Second, 0)
	want(10*time.Minute, 0)
	if n := tally.FirstByte("none", begin).Count(); n != 0 {
		t.Errorf("%d of none", n)
	}
}

// Whatever is lost, repeated, late or restarted: the counts are those of the
// balancers.
func TestTallyIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type process struct {
			epoch   string
			total   int64
			seconds map[int64]int64
			have    int64
			sent    []balancerapi.Report
		}
		balancers := map[string]*process{"a": {epoch: "a1", seconds: map[int64]int64{}}, "b": {epoch: "b1", seconds: map[int64]int64{}}}
		ended := map[int64]int64{}
		var tally Tally
		now, restarts := int64(10_000), 0
		report := func(name string, p *process, lost bool) {
			r := balancerapi.Report{Balancer: name, Epoch: p.epoch, Time: float64(now) + 0.5, Services: []balancerapi.ServiceReport{{Name: "s", Arrivals: p.total,
				Versions: []balancerapi.VersionReport{{Version: 1, Counts: balancerapi.Counts{Requests: p.total}}}}}}
			for at, n := range p.seconds {
				if at >= p.have {
					r.Services[0].Recent = append(r.Services[0].Recent, balancerapi.Second{At: at, N: n})
				}
			}
			p.sent = append(p.sent, r)
			if !lost {
				p.have = tally.Add(r, time.Unix(now, 0)).Have["s"]
			}
		}
		var lostTotal int64
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "balancer")
			p := balancers[name]
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0, 1:
				p.total++
				p.seconds[now]++
			case 2:
				now += int64(rapid.IntRange(0, 5).Draw(t, "seconds"))
			case 3:
				report(name, p, rapid.Bool().Draw(t, "lost"))
			case 4: // one that comes again, or late
				if len(p.sent) > 0 {
					tally.Add(rapid.SampledFrom(p.sent).Draw(t, "again"), time.Unix(now, 0))
				}
			case 5: // the balancer restarts, after its last report
				report(name, p, false)
				for at, n := range p.seconds {
					ended[at] += n
				}
				lostTotal += p.total
				restarts++
				balancers[name] = &process{epoch: name + "+" + string(rune('a'+restarts)), seconds: map[int64]int64{}}
			case 6: // the controller restarts: it has nothing of those that run, and forgets those that do not
				if restarts == 0 {
					tally = Tally{}
					for _, p := range balancers {
						p.have = 0
					}
				}
			}
		}
		var total int64
		for name, p := range balancers {
			report(name, p, false)
			total += p.total
			for at, n := range p.seconds {
				ended[at] += n
			}
		}
		if got := tally.Arrivals("s", time.Unix(0, 0)); got != total+lostTotal {
			t.Fatalf("%d arrivals, want %d", got, total+lostTotal)
		}
		for _, s := range tally.Seconds("s", time.Unix(0, 0)) {
			if s.N != ended[s.At] {
				t.Fatalf("second %d: %d, want %d", s.At, s.N, ended[s.At])
			}
		}
		if got := tally.Summary("s", time.Unix(now, 0)).Versions[1].Requests; got != total+lostTotal {
			t.Fatalf("version 1 has %d requests, want %d", got, total+lostTotal)
		}
	})
}

func TestTallyForgets(t *testing.T) {
	var tally Tally
	now := time.Unix(10_000, 0)
	tally.Add(balancerapi.Report{Balancer: "a", Epoch: "e", Time: 10_000, Services: []balancerapi.ServiceReport{
		{Name: "s", Arrivals: 2, Waiting: 1, WaitingSince: 9_990, Recent: []balancerapi.Second{{At: 9_000, N: 2}}}, {Name: "gone", Arrivals: 1}}}, now)
	s := tally.Summary("s", now)
	if s.Balancers != 1 || s.Waiting != 1 || s.WaitingSince.Unix() != 9_990 {
		t.Errorf("%+v", s)
	}
	if s := tally.Summary("s", now.Add(time.Minute)); s.Balancers != 0 || s.Waiting != 0 {
		t.Errorf("a balancer that is silent for a minute: %+v", s)
	}
	tally.Forget([]string{"s"}, now.Add(time.Hour))
	if n := tally.Arrivals("s", time.Unix(0, 0)); n != 0 || tally.services["gone"] != nil {
		t.Errorf("%d arrivals, services %v", n, tally.services)
	}
}

func TestQuantile(t *testing.T) {
	var h balancerapi.Histogram
	h.Buckets = make([]int64, len(balancerapi.Bounds)+1)
	if h.Quantile(0.95) != 0 {
		t.Error("of nothing")
	}
	h.Buckets[balancerapi.Bucket(0.08)] = 90
	h.Buckets[balancerapi.Bucket(0.7)] = 10
	if q := h.Quantile(0.5); q < .05 || q > .1 {
		t.Errorf("median %v", q)
	}
	if q := h.Quantile(0.95); q < .5 || q > 1 {
		t.Errorf("p95 %v", q)
	}
	old := h
	h = h.Add(h)
	if got := h.Sub(old); got.Count() != 100 || h.Count() != 200 {
		t.Errorf("%v", got)
	}
}
