package replicas

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/serve/spec"
	"github.com/skypilot-go/sky/task"
)

func rowsOf(status api.ReplicaStatus, accelerators ...string) []Replica {
	var rows []Replica
	for i, a := range accelerators {
		rows = append(rows, Replica{ID: i + 1, Version: 1, Status: status, Accelerator: a})
	}
	return rows
}

func gauge(rows []Replica, values ...float64) []Replica {
	for i := range values {
		if !math.IsInf(values[i], 1) {
			rows[i].Metric = &values[i]
		}
	}
	return rows
}

func TestDemand(t *testing.T) {
	byGPU := spec.Scale{QPSByAccelerator: map[string]float64{"L4": 1, "A100": 4, "A100:8": 20}}
	mixed := append(rowsOf(api.ReplicaReady, "L4:1", "A100:1", "A100:1"), rowsOf(api.ReplicaStarting, "L4:1")...)
	three := []string{"", "", ""}
	jobs := func(n ...int) []Replica {
		rows := rowsOf(api.ReplicaReady, make([]string, len(n))...)
		for i := range n {
			rows[i].InFlight = n[i]
		}
		return rows
	}
	none := math.Inf(1)
	for _, c := range []struct {
		name  string
		s     spec.Scale
		l     Load
		rows  []Replica
		m     Scale
		want  int
		known bool
	}{
		{"no balancer has reported", spec.Scale{QPS: 1}, Load{QPS: 5}, nil, Scale{}, 0, false},
		{"a fixed number", spec.Scale{Min: 3}, Load{}, nil, Scale{}, 3, true},
		{"by rate", spec.Scale{QPS: 2}, Load{QPS: 5}, nil, Scale{}, 3, true},
		{"by rate, exactly", spec.Scale{QPS: 0.1}, Load{QPS: 0.3}, nil, Scale{}, 3, true},
		{"by rate, nothing", spec.Scale{QPS: 2}, Load{}, nil, Scale{}, 0, true},
		{"by rate, one that runs for long", spec.Scale{QPS: 2}, Load{InFlight: 1}, nil, Scale{}, 1, true},
		{"by rate, one that waits", spec.Scale{QPS: 2}, Load{Waiting: 1}, nil, Scale{}, 1, true},
		{"in flight", spec.Scale{InFlight: 4}, Load{InFlight: 6, Waiting: 3}, nil, Scale{}, 3, true},
		{"the highest counts", spec.Scale{InFlight: 4, QPS: 1}, Load{InFlight: 6, QPS: 5}, nil, Scale{}, 5, true},

		{"by accelerator, a few suffice", byGPU, Load{QPS: 3}, mixed, Scale{}, 1, true},
		{"by accelerator, the two largest", byGPU, Load{QPS: 7}, mixed, Scale{}, 2, true},
		{"by accelerator, all that start as well", byGPU, Load{QPS: 9.5}, mixed, Scale{}, 4, true},
		{"by accelerator, more", byGPU, Load{QPS: 31}, mixed, Scale{}, 6, true},
		{"by accelerator, exact before name", byGPU, Load{QPS: 19}, rowsOf(api.ReplicaReady, "A100:8", "A100:1"), Scale{}, 1, true},
		{"by accelerator, unknown is the slowest", byGPU, Load{QPS: 1}, rowsOf(api.ReplicaReady, "T4:1", "T4:1"), Scale{}, 2, true},
		{"by accelerator, nothing there", byGPU, Load{QPS: 1}, nil, Scale{}, 1, true},
		{"by accelerator, nothing to do", byGPU, Load{}, nil, Scale{}, 0, true},
		{"by accelerator, nobody answers", byGPU, Load{QPS: 9}, rowsOf(api.ReplicaNotReady, "A100:1", "A100:1"), Scale{}, 2, true},
		{"by accelerator, what has ended does not count", byGPU, Load{QPS: 1}, rowsOf(api.ReplicaFailed, "A100:1"), Scale{}, 1, true},

		{"metric", spec.Scale{Metric: "m", MetricTarget: 2}, Load{}, gauge(rowsOf(api.ReplicaReady, three...), 1, 3, 3), Scale{}, 4, true},
		{"metric, one does not tell", spec.Scale{Metric: "m", MetricTarget: 2}, Load{}, gauge(rowsOf(api.ReplicaReady, three...), 4, none, 4), Scale{}, 6, true},
		{"metric, none tells", spec.Scale{Metric: "m", MetricTarget: 2}, Load{}, rowsOf(api.ReplicaReady, three...), Scale{}, 0, false},
		{"metric, not a number", spec.Scale{Metric: "m", MetricTarget: 2}, Load{}, gauge(rowsOf(api.ReplicaReady, ""), math.NaN()), Scale{}, 0, false},
		{"metric, nothing to do", spec.Scale{Metric: "m", MetricTarget: 2}, Load{}, gauge(rowsOf(api.ReplicaReady, three...), 0, 0, 0), Scale{}, 0, true},

		{"latency missed", spec.Scale{Latency: time.Second}, Load{QPS: 6, Latency: 1500 * time.Millisecond}, rowsOf(api.ReplicaReady, three...), Scale{}, 5, true},
		{"latency missed by far", spec.Scale{Latency: time.Second}, Load{QPS: 6, Latency: time.Minute}, rowsOf(api.ReplicaReady, three...), Scale{}, 6, true},
		{"latency met", spec.Scale{Latency: time.Second}, Load{QPS: 6, Latency: 800 * time.Millisecond}, rowsOf(api.ReplicaReady, three...), Scale{}, 3, true},
		{"latency met by far", spec.Scale{Latency: time.Second}, Load{QPS: 6, Latency: 100 * time.Millisecond}, rowsOf(api.ReplicaReady, three...), Scale{}, 2, true},
		{"latency met by far, but fewer missed it", spec.Scale{Latency: time.Second}, Load{QPS: 6, Latency: 100 * time.Millisecond}, rowsOf(api.ReplicaReady, three...), Scale{Knee: 3, KneeAt: noon.Add(-time.Hour)}, 3, true},
		{"latency met by far, fewer missed it long ago", spec.Scale{Latency: time.Second}, Load{QPS: 6, Latency: 100 * time.Millisecond}, rowsOf(api.ReplicaReady, three...), Scale{Knee: 3, KneeAt: noon.Add(-25 * time.Hour)}, 2, true},
		{"latency, nobody comes", spec.Scale{Latency: time.Second}, Load{}, rowsOf(api.ReplicaReady, three...), Scale{}, 2, true},
		{"latency, nobody is ready", spec.Scale{Latency: time.Second}, Load{QPS: 1}, nil, Scale{Target: 4}, 4, true},

		{"jobs, none", spec.Scale{QueueThreshold: 2}, Load{}, jobs(0, 0), Scale{Target: 2}, 0, true},
		{"jobs, some run", spec.Scale{QueueThreshold: 2}, Load{}, jobs(1, 0, 2), Scale{Target: 3}, 2, true},
		{"jobs, fewer than the threshold", spec.Scale{QueueThreshold: 2}, Load{Pending: 1}, jobs(0), Scale{Target: 1}, 1, true},
		{"jobs, as many", spec.Scale{QueueThreshold: 2}, Load{Pending: 2}, jobs(0), Scale{Target: 3}, 3, true},
		{"jobs, more", spec.Scale{QueueThreshold: 2}, Load{Pending: 5}, jobs(1), Scale{Target: 1}, 4, true},
	} {
		m := c.m
		c.l.Known = c.name != "no balancer has reported"
		if n, known := demand(&c.s, &c.l, c.rows, &m, noon); n != c.want || known != c.known {
			t.Errorf("%s: %d, %v; want %d, %v", c.name, n, known, c.want, c.known)
		}
	}
}

func TestDelays(t *testing.T) {
	s := spec.Scale{Min: 1, Max: 10, QPS: 1, UpDelay: 5 * time.Minute, DownDelay: 20 * time.Minute}
	var m Scale
	now := noon
	step := func(span time.Duration, want int) {
		for end := now.Add(span); now.Before(end); now = now.Add(20 * time.Second) {
			m = m.after(&s, 1, want, true, 0, now)
		}
	}
	is := func(what string, want int) {
		t.Helper()
		if m.Target != want {
			t.Errorf("%s: the target is %d, want %d", what, m.Target, want)
		}
	}
	step(time.Minute, 0)
	is("first", 1)
	step(5*time.Minute, 4)
	is("just before the delay", 1)
	step(20*time.Second, 4)
	is("after the delay", 4)
	step(4*time.Minute, 6)
	step(20*time.Second, 4) // one reading that is not above
	step(5*time.Minute, 6)
	is("interrupted", 4)
	step(20*time.Second, 99)
	is("at most", 10)
	step(20*time.Minute, 2)
	is("just before the delay", 10)
	step(20*time.Second, 1)
	is("down to the highest reading of the delay", 2)
	step(4*time.Minute, 3)
	now = now.Add(10 * time.Minute) // the controller was away
	step(5*time.Minute, 3)
	is("measured anew", 2)
	step(20*time.Second, 3)
	is("after the delay", 3)

	// Floors and limits hold at once, and end with the usual delay.
	m = m.after(&s, 1, 1, true, 6, now)
	is("floor", 6)
	step(20*time.Minute+20*time.Second, 1)
	is("after the floor", 1)
	s.Min, s.Max = 0, 5
	step(20*time.Minute+20*time.Second, 0)
	is("zero", 0)
	m = m.after(&s, 1, 3, true, 0, now)
	is("from zero at once", 3)
	m = m.after(&s, 1, 0, false, 0, now)
	is("an unknown load changes nothing", 3)

	// A new version recomputes at once, and takes nothing away.
	now = now.Add(20 * time.Second)
	m = m.after(&s, 2, 5, true, 0, now)
	is("new version", 5)
	m = m.after(&s, 3, 1, true, 0, now)
	is("new version with less to do", 5)
	s.Max = 4
	m = m.after(&s, 4, 1, true, 0, now)
	is("new version with a lower limit", 4)
}

func TestFloors(t *testing.T) {
	s := spec.Scale{Min: 1, Max: 9, QPS: 1, Schedules: []spec.Floor{
		{Times: task.Schedule{Cron: "0 12 * * *"}, For: time.Hour, Min: 3}, {Times: task.Schedule{Cron: "0 11 * * *"}, For: 3 * time.Hour, Min: 2}}}
	var m Scale
	for hour, want := range map[int]int{10: 0, 11: 2, 12: 3, 13: 2, 14: 0} {
		if got := m.floor(&s, time.Date(2026, 3, 2, hour, 0, 0, 0, time.UTC)); got != want {
			t.Errorf("at %d: %d, want %d", hour, got, want)
		}
	}
	// Three days with a peak in the hour of 14 o'clock.
	s = spec.Scale{Min: 1, Max: 9, QPS: 1, Predictive: true}
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	for day, most := range []int{4, 9, 6} {
		for hour := range 24 {
			n := 1
			if hour == 14 {
				n = most
			}
			at := midnight.AddDate(0, 0, day).Add(time.Duration(hour) * time.Hour)
			m = m.remember(1, at)
			m = m.remember(n, at.Add(30*time.Minute))
		}
		if next := midnight.AddDate(0, 0, day+1).Add(14 * time.Hour); day == 0 && m.floor(&s, next) != 4 {
			t.Errorf("on the second day: %d, want what the only day before needed", m.floor(&s, next))
		}
	}
	fourth := midnight.AddDate(0, 0, 3)
	for at, want := range map[string]int{"13h44m": 1, "13h45m": 6, "14h": 6, "14h59m": 6, "15h": 1} {
		after, err := time.ParseDuration(at)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.floor(&s, fourth.Add(after)); got != want {
			t.Errorf("on the fourth day at %s: %d, want %d", at, got, want)
		}
	}
	s.Predictive = false
	if got := m.floor(&s, fourth.Add(14*time.Hour)); got != 0 {
		t.Errorf("nobody asked for a floor of %d", got)
	}
}

// Under a constant load, with the noise that counting arrivals has, the target is
// reached and then stays.
func TestNoFlapping(t *testing.T) {
	for _, qps := range []float64{0.5, 3.5, 7.9, 8, 8.1, 15} {
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 1))
			s := spec.Scale{Min: 1, Max: 20, QPS: 1, UpDelay: 5 * time.Minute, DownDelay: 20 * time.Minute}
			var m Scale
			now, changes := noon, 0
			for range 24 * 180 {
				last := m.Target
				reading := qps + r.NormFloat64()*math.Sqrt(qps*60)/60
				m = m.after(&s, 1, up(reading), true, 0, now)
				if m.Target != last {
					changes++
				}
				now = now.Add(20 * time.Second)
			}
			if changes > 4 { // the first, and a rise or two until the highest noise was seen
				t.Errorf("%v requests a second: the target changed %d times in a day", qps, changes)
			}
		}
	}
}

// The latency target finds its number and stays there, although fewer replicas
// would be tried if nothing were remembered.
func TestLatencyDoesNotFlap(t *testing.T) {
	s := service(spec.Scale{Min: 1, Max: 20, Latency: time.Second, UpDelay: time.Minute, DownDelay: 10 * time.Minute})
	b := newBench(t, s)
	changes, last := 0, 0
	b.check = func(_ []Replica, d Decision) {
		if d.Target != last && b.now.Sub(noon) > 3*time.Hour {
			changes++
		}
		last = d.Target
	}
	for range 12 * 180 {
		b.load.QPS = 20
		n := float64(max(b.ready(0), 1))
		use := min(20/n/5, 0.999) // each serves 5 a second
		b.load.Latency = time.Duration(float64(time.Second) * 0.05 / (1 - use))
		if use > 0.99 {
			b.load.Latency = 20 * time.Second
		}
		b.run(20 * time.Second)
	}
	if changes > 2 || b.ready(0) < 5 || b.ready(0) > 7 {
		t.Errorf("%d changes; %s", changes, b.text())
	}
}

// Whatever is read, the target is within its limits, and what is stored goes on as
// it would have.
func TestTargetsKeepTheirLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := rapid.IntRange(0, 5).Draw(t, "min")
		s := spec.Scale{Min: low, Max: low + rapid.IntRange(0, 5).Draw(t, "more"), QPS: 1, Predictive: rapid.Bool().Draw(t, "predictive"),
			UpDelay:   time.Duration(rapid.IntRange(0, 300).Draw(t, "up")) * time.Second,
			DownDelay: time.Duration(rapid.IntRange(0, 300).Draw(t, "down")) * time.Second}
		var m Scale
		now := noon
		for range rapid.IntRange(1, 60).Draw(t, "readings") {
			now = now.Add(time.Duration(rapid.IntRange(1, 4000).Draw(t, "gap")) * time.Second)
			want := rapid.IntRange(0, 20).Draw(t, "want")
			m = m.after(&s, rapid.IntRange(1, 2).Draw(t, "version"), want, rapid.Bool().Draw(t, "known"), m.floor(&s, now), now)
			m = m.remember(want, now)
			if m.Target < s.Min || m.Target > s.Max {
				t.Fatalf("the target %d is not from %d to %d", m.Target, s.Min, s.Max)
			}
			if len(m.Peaks) > 24*daysBack+1 {
				t.Fatalf("%d hours are kept", len(m.Peaks))
			}
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			var back Scale
			if err := json.Unmarshal(text, &back); err != nil {
				t.Fatal(err)
			}
			again, _ := json.Marshal(back)
			if string(again) != string(text) {
				t.Fatalf("%s is read as %s", text, again)
			}
			m = back
		}
	})
}
