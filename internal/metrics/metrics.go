// Package metrics counts and times things and writes them as Prometheus reads
// them.
//
// It is a hundred lines instead of the Prometheus client because the command
// line, the server and the agent are one binary: what the client registers when
// it is loaded would cost every command.
package metrics

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Label is a name and a value.
type Label struct{ Name, Value string }

// Seconds are bounds for times that reach from a fast answer to a launch.
var Seconds = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900}

// Histogram times things by their labels' values. It may be used concurrently.
type Histogram struct {
	name, help string
	labels     []string
	bounds     []float64

	mu     sync.Mutex
	series map[string]*series // by the values, joined
}

type series struct {
	values []string
	counts []uint64 // of each bucket alone; the last has no bound
	sum    float64
}

// maxSeries bounds how many combinations of values are kept apart.
const maxSeries = 2000

// NewHistogram is an empty one with the bounds [Seconds].
func NewHistogram(name, help string, labels ...string) *Histogram {
	return &Histogram{name: name, help: help, labels: labels, bounds: Seconds, series: map[string]*series{}}
}

// Observe adds a time under the labels' values, in their order.
func (h *Histogram) Observe(d time.Duration, values ...string) {
	v := d.Seconds()
	at, _ := slices.BinarySearch(h.bounds, v)
	key := strings.Join(values, "\x00")
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.series[key]
	if s == nil {
		if len(h.series) >= maxSeries {
			return
		}
		s = &series{values: slices.Clone(values), counts: make([]uint64, len(h.bounds)+1)}
		h.series[key] = s
	}
	s.counts[at]++
	s.sum += v
}

// Writer writes one answer to a scrape.
type Writer struct{ w *bufio.Writer }

// NewWriter writes to w once it is flushed.
func NewWriter(w io.Writer) *Writer { return &Writer{bufio.NewWriter(w)} }

// Flush writes what is left.
func (w *Writer) Flush() error { return w.w.Flush() }

func (w *Writer) head(name, help, kind string) {
	fmt.Fprintf(w.w, "# HELP %s %s\n# TYPE %s %s\n", name, strings.NewReplacer("\\", `\\`, "\n", `\n`).Replace(help), name, kind)
}

func (w *Writer) sample(name string, labels []Label, v string) {
	w.w.WriteString(name)
	for i, l := range labels {
		w.w.WriteString([]string{"{", ","}[min(i, 1)] + l.Name + `="` + escape.Replace(l.Value) + `"`)
	}
	if len(labels) > 0 {
		w.w.WriteByte('}')
	}
	w.w.WriteString(" " + v + "\n")
}

var escape = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// Gauge writes one value.
func (w *Writer) Gauge(name, help string, v float64, labels ...Label) {
	w.head(name, help, "gauge")
	w.sample(name, labels, number(v))
}

// Gauges writes a value for each value of one label.
func (w *Writer) Gauges(name, help, label string, values map[string]float64) {
	w.head(name, help, "gauge")
	for _, k := range slices.Sorted(maps.Keys(values)) {
		w.sample(name, []Label{{label, k}}, number(values[k]))
	}
}

// Histogram writes a histogram as it is now.
func (w *Writer) Histogram(h *Histogram) {
	w.head(h.name, h.help, "histogram")
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(h.series)) {
		s := h.series[key]
		labels := make([]Label, len(h.labels), len(h.labels)+1)
		for i, name := range h.labels {
			labels[i] = Label{name, s.values[i]}
		}
		total := uint64(0)
		for i, n := range s.counts {
			total += n
			bound := "+Inf"
			if i < len(h.bounds) {
				bound = number(h.bounds[i])
			}
			w.sample(h.name+"_bucket", append(labels, Label{"le", bound}), strconv.FormatUint(total, 10))
		}
		w.sample(h.name+"_sum", labels, number(s.sum))
		w.sample(h.name+"_count", labels, strconv.FormatUint(total, 10))
	}
}

// Sample is a value under labels.
type Sample struct {
	Labels []Label
	Value  float64
}

// Samples writes the values of one metric, of a kind such as "counter", in their
// order.
func (w *Writer) Samples(name, help, kind string, samples []Sample) {
	w.head(name, help, kind)
	for _, s := range samples {
		w.sample(name, s.Labels, number(s.Value))
	}
}

// Distribution is what was counted in the buckets of a histogram under labels.
type Distribution struct {
	Labels []Label
	Counts []int64 // of each bucket alone; the last has no bound
	Sum    float64
}

// Distributions writes histograms that were counted elsewhere, in their order.
func (w *Writer) Distributions(name, help string, bounds []float64, all []Distribution) {
	w.head(name, help, "histogram")
	for _, d := range all {
		labels := append(make([]Label, 0, len(d.Labels)+1), d.Labels...)
		total := int64(0)
		for i, n := range d.Counts {
			total += n
			bound := "+Inf"
			if i < len(bounds) {
				bound = number(bounds[i])
			}
			w.sample(name+"_bucket", append(labels, Label{"le", bound}), strconv.FormatInt(total, 10))
		}
		w.sample(name+"_sum", labels, number(d.Sum))
		w.sample(name+"_count", labels, strconv.FormatInt(total, 10))
	}
}
