package server

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/metrics"
	"github.com/skypilot-go/sky/internal/state"
)

// Metrics are the times that the server takes: of answers by route, of requests
// by name, and of calls to clouds.
type Metrics struct {
	answers, waits, runs, calls *metrics.Histogram

	refusals sync.Mutex
	unknown  map[unknownRefusal]float64

	sweeps sync.Mutex
	strays map[string]float64 // machines without an owner by cloud, as of the last sweep
	swept  time.Time
	ended  float64 // machines without an owner that sweeps have ended
}

// NewMetrics is empty.
func NewMetrics() *Metrics {
	return &Metrics{
		answers: metrics.NewHistogram("sky_http_request_duration_seconds", "Time until an answer was sent, streams included.", "route"),
		waits:   metrics.NewHistogram("sky_request_wait_seconds", "Time that requests waited before they were run.", "name"),
		runs:    metrics.NewHistogram("sky_request_duration_seconds", "Time that requests ran.", "name", "status"),
		calls:   metrics.NewHistogram("sky_cloud_call_duration_seconds", "Time that calls to clouds took, retries and waits for their turn included.", "cloud", "call", "outcome"),
	}
}

// RequestEnded counts a request that has ended.
func (m *Metrics) RequestEnded(r *state.Request) {
	if r.StartedAt.IsZero() {
		return
	}
	m.waits.Observe(max(0, r.StartedAt.Sub(r.CreatedAt)), r.Name)
	m.runs.Observe(max(0, r.FinishedAt.Sub(r.StartedAt)), r.Name, string(r.Status))
}

// CloudCalled counts a call to a cloud and how it ended, in a word.
func (m *Metrics) CloudCalled(cloud, call, outcome string, took time.Duration) {
	m.calls.Observe(took, cloud, call, outcome)
}

// unknownRefusal is a refusal of a cloud that sky has no meaning for.
type unknownRefusal struct{ cloud, call, code string }

// mostUnknown bounds how many codes of refusals are told apart, and mostCode their length:
// they are texts of others.
const (
	mostUnknown = 200
	mostCode    = 80
)

// CloudRefused counts a call that a cloud refused with a code that sky does not know.
func (m *Metrics) CloudRefused(cloud, call, code string) {
	if len(code) > mostCode {
		code = strings.ToValidUTF8(code[:mostCode], "")
	}
	m.refusals.Lock()
	defer m.refusals.Unlock()
	if m.unknown == nil {
		m.unknown = map[unknownRefusal]float64{}
	}
	r := unknownRefusal{cloud, call, code}
	if _, ok := m.unknown[r]; !ok && len(m.unknown) >= mostUnknown {
		r.code = "other"
	}
	m.unknown[r]++
}

func (m *Metrics) writeRefusals(out *metrics.Writer) {
	m.refusals.Lock()
	defer m.refusals.Unlock()
	if len(m.unknown) == 0 {
		return
	}
	all := slices.SortedFunc(maps.Keys(m.unknown), func(a, b unknownRefusal) int {
		return cmp.Or(strings.Compare(a.cloud, b.cloud), strings.Compare(a.call, b.call), strings.Compare(a.code, b.code))
	})
	samples := make([]metrics.Sample, len(all))
	for i, r := range all {
		samples[i] = metrics.Sample{Labels: []metrics.Label{{Name: "cloud", Value: r.cloud}, {Name: "call", Value: r.call}, {Name: "code", Value: r.code}}, Value: m.unknown[r]}
	}
	out.Samples("sky_cloud_unknown_refusals_total", "Calls that clouds refused with a code that sky does not know, since the server started.", "counter", samples)
}

// Swept takes in what a sweep found: machines without an owner that are left, by
// cloud, and how many it ended.
func (m *Metrics) Swept(at time.Time, left map[string]int, ended int) {
	m.sweeps.Lock()
	defer m.sweeps.Unlock()
	m.strays, m.swept = map[string]float64{}, at
	for cloud, n := range left {
		m.strays[cloud] = float64(n)
	}
	m.ended += float64(ended)
}

func (m *Metrics) writeSweeps(out *metrics.Writer) {
	m.sweeps.Lock()
	defer m.sweeps.Unlock()
	if m.swept.IsZero() {
		return
	}
	out.Gauge("sky_sweep_last_timestamp_seconds", "When machines without an owner were last looked for, in seconds since 1970.", float64(m.swept.UnixMilli())/1e3)
	out.Gauges("sky_stray_machines", "Machines without an owner that the last sweep left, by cloud.", "cloud", m.strays)
	out.Gauge("sky_stray_machines_ended", "Machines without an owner that sweeps have ended since the server started.", m.ended)
}

// metrics answers a scrape.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	var text bytes.Buffer
	if err := s.writeMetrics(r.Context(), &text); err != nil {
		s.failed(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = text.WriteTo(w)
}

func (s *Server) writeMetrics(ctx context.Context, w io.Writer) error {
	clusters, err := s.Store.Clusters().List(ctx, state.ClusterFilter{})
	if err != nil {
		return err
	}
	byStatus, nodes := map[string]float64{}, map[string]float64{}
	for _, c := range clusters {
		byStatus[string(c.Status)]++
		nodes[string(c.Status)] += float64(c.NumNodes)
	}
	load := s.Engine.Load()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	out := metrics.NewWriter(w)
	out.Gauge("sky_build_info", "Version of the server.", 1, metrics.Label{Name: "version", Value: api.ProductVersion}, metrics.Label{Name: "build", Value: s.BuildID})
	out.Gauge("process_start_time_seconds", "When the server started, in seconds since 1970.", float64(s.started.UnixMilli())/1e3)
	out.Gauge("go_goroutines", "Goroutines.", float64(runtime.NumGoroutine()))
	out.Gauge("go_memstats_heap_alloc_bytes", "Bytes of memory in use.", float64(memory.HeapAlloc))
	out.Gauges("sky_clusters", "Clusters by status.", "status", byStatus)
	out.Gauges("sky_cluster_nodes", "Nodes of clusters by the cluster's status.", "status", nodes)
	out.Gauges("sky_requests", "Requests that this server has: running, holding a slot of the long ones, waiting for a slot.", "state",
		map[string]float64{"running": float64(load.Running), "slots": float64(load.Slots), "waiting": float64(load.Waiting)})
	out.Histogram(s.Metrics.answers)
	out.Histogram(s.Metrics.waits)
	out.Histogram(s.Metrics.runs)
	out.Histogram(s.Metrics.calls)
	s.Metrics.writeRefusals(out)
	s.Metrics.writeSweeps(out)
	return out.Flush()
}
