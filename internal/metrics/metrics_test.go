package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestText(t *testing.T) {
	h := NewHistogram("sky_seconds", "Times.", "name", "status")
	h.bounds = []float64{.1, 1}
	h.Observe(50*time.Millisecond, `a"b`, "ok")
	h.Observe(100*time.Millisecond, `a"b`, "ok") // a bound belongs to its bucket
	h.Observe(time.Minute, `a"b`, "ok")
	var b strings.Builder
	w := NewWriter(&b)
	w.Gauge("up", "Is it?", 1)
	w.Gauges("sky_clusters", "Clusters.", "status", map[string]float64{"UP": 2, "INIT": 0.5})
	w.Histogram(h)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	want := `# HELP up Is it?
# TYPE up gauge
up 1
# HELP sky_clusters Clusters.
# TYPE sky_clusters gauge
sky_clusters{status="INIT"} 0.5
sky_clusters{status="UP"} 2
# HELP sky_seconds Times.
# TYPE sky_seconds histogram
sky_seconds_bucket{name="a\"b",status="ok",le="0.1"} 2
sky_seconds_bucket{name="a\"b",status="ok",le="1"} 2
sky_seconds_bucket{name="a\"b",status="ok",le="+Inf"} 3
sky_seconds_sum{name="a\"b",status="ok"} 60.15
sky_seconds_count{name="a\"b",status="ok"} 3
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestSeriesAreBounded(t *testing.T) {
	h := NewHistogram("x", "x", "name")
	for i := range maxSeries + 10 {
		h.Observe(time.Second, fmt.Sprint(i))
	}
	if len(h.series) != maxSeries {
		t.Errorf("%d series", len(h.series))
	}
}

func BenchmarkObserve(b *testing.B) {
	h := NewHistogram("x", "x", "name")
	for b.Loop() {
		h.Observe(time.Millisecond, "sky.status")
	}
}
