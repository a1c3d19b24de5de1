package spec

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/serve/probe"
	"github.com/skypilot-go/sky/task"
)

func read(t *testing.T, text string) (*Spec, error) {
	t.Helper()
	d, err := task.Parse("task.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return Of(d.Tasks[0])
}

func TestDefaults(t *testing.T) {
	got, err := read(t, "service: {replicas: 2}\nresources: {ports: 8080}")
	want := &Spec{
		Kind: Service, Port: 8080, Drain: 2 * time.Minute,
		Probe:  probe.Settings{Protocol: probe.HTTP, Path: "/", Timeout: 15 * time.Second, Interval: 10 * time.Second, InitialDelay: 20 * time.Minute, FailureSpan: 3 * time.Minute},
		Scale:  Scale{Min: 2, Max: 2, UpDelay: 5 * time.Minute, DownDelay: 20 * time.Minute},
		Update: Update{CanaryWeight: 10, ErrorMargin: 0.05, MinRequests: 100},
		Balance: Balance{Policy: "least_load", PrefixLoadFactor: 1.5, QueueRequests: 1000, QueueBytes: 64 << 20, QueueWait: 5 * time.Minute,
			StreamTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 1 << 20, SlowStart: 10 * time.Second,
			EjectFailures: 5, EjectFirst: time.Second, EjectMost: time.Minute, EjectShare: 0.5, Attempts: 3, RetryAfter: 5 * time.Second, KeepAlive: 4 * time.Second},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestEverything(t *testing.T) {
	got, err := read(t, `
service:
  ports: 9000
  readiness_probe: {path: /v1, post_data: {a: 1}, headers: {X: y}, initial_delay_seconds: 1, timeout_seconds: 2, endpoint_probe_interval_seconds: 3, consecutive_failure_threshold_timeout: 4}
  load_balancing_policy: session_affinity
  load_balancer:
    stream_timeout_seconds: 5
    affinity: {cookie: sid}
    prefix_load_factor: 2
    queue: {max_requests: 6, max_bytes: 7, max_wait_seconds: 8}
    request_timeout_seconds: 9
    idle_timeout_seconds: 10
    max_header_bytes: 11
    max_body_bytes: 12
    max_requests_per_replica: 22
    metrics: /m
    slow_start_seconds: 23
    eject: {failures: 24, first_seconds: 25, max_seconds: 26, max_percent: 27}
    attempts: 28
    retry_after_seconds: 29
    keep_alive_seconds: 30
    replica_protocol: h2c
    trust_forwarded: true
  replica_policy:
    min_replicas: 1
    max_replicas: 13
    num_overprovision: 1
    target_qps_per_replica: 2.5
    target_in_flight_per_replica: 14
    target_latency_seconds: 0.5
    metric: {name: m, target: 15}
    schedules: [{cron: "0 8 * * *", timezone: Europe/Berlin, duration: 1h, min_replicas: 3}]
    predictive: true
    upscale_delay_seconds: 16
    downscale_delay_seconds: 17
    base_ondemand_fallback_replicas: 1
    dynamic_ondemand_fallback: true
    spot_placer: Hedged
  update: {canary_weight: 18, error_margin: 0.1, min_requests: 19, max_surge: 20}
  drain_seconds: 21
  tls: {keyfile: k, certfile: c}
resources: {ports: [9000, 9001], use_spot: true}`)
	s := time.Second
	want := &Spec{
		Kind: Service, Port: 9000, Spot: true, Drain: 21 * s,
		Probe: probe.Settings{Protocol: probe.HTTP, Path: "/v1", Body: `{"a":1}`, Headers: map[string]string{"X": "y"}, Timeout: 2 * s, Interval: 3 * s, InitialDelay: s, FailureSpan: 4 * s},
		Scale: Scale{Min: 1, Max: 13, Overprovision: 1, QPS: 2.5, InFlight: 14, Latency: s / 2, Metric: "m", MetricTarget: 15,
			Schedules:  []Floor{{Times: task.Schedule{Cron: "0 8 * * *", Timezone: "Europe/Berlin"}, For: time.Hour, Min: 3}},
			Predictive: true, UpDelay: 16 * s, DownDelay: 17 * s, BaseOnDemand: 1, DynamicFallback: true, Placer: "hedged"},
		Update: Update{CanaryWeight: 18, ErrorMargin: 0.1, MinRequests: 19, MaxSurge: 20},
		Balance: Balance{Policy: "session_affinity", AffinityCookie: "sid", PrefixLoadFactor: 2, QueueRequests: 6, QueueBytes: 7, QueueWait: 8 * s,
			StreamTimeout: 5 * s, RequestTimeout: 9 * s, IdleTimeout: 10 * s, MaxHeaderBytes: 11, MaxBodyBytes: 12, ReplicaRequests: 22, Metrics: "/m", SlowStart: 23 * s,
			EjectFailures: 24, EjectFirst: 25 * s, EjectMost: 26 * s, EjectShare: 0.27, Attempts: 28, RetryAfter: 29 * s, KeepAlive: 30 * s, H2C: true, TrustForwarded: true, KeyFile: "k", CertFile: "c"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestScaleInWords(t *testing.T) {
	for want, s := range map[string]Scale{
		"Fixed 1 replica":                  {Min: 1, Max: 1},
		"Fixed 0 replicas":                 {},
		"Autoscaling from 0 to 5 replicas": {Max: 5},
		"Autoscaling from 1 to 5 replicas (target QPS per replica: 2.5)":                                                  {Min: 1, Max: 5, QPS: 2.5},
		"Autoscaling from 1 to 5 replicas with 1 overprovisioned replica (target QPS by accelerator)":                     {Min: 1, Max: 5, Overprovision: 1, QPSByAccelerator: map[string]float64{"A100": 2}},
		"Autoscaling from 1 to 5 replicas (target requests in flight per replica: 4, target latency: 500ms, target m: 3)": {Min: 1, Max: 5, InFlight: 4, Latency: time.Second / 2, Metric: "m", MetricTarget: 3},
	} {
		if got := s.String(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

func TestOtherForms(t *testing.T) {
	for _, c := range []struct {
		name, text string
		check      func(s *Spec) bool
	}{
		{"neither replicas nor a policy", "service: {readiness_probe: /}\nresources: {ports: 1}", func(s *Spec) bool { return s.Scale.Min == 1 && s.Scale.Max == 1 }},
		{"workers of a service", "service: {workers: 4}\nresources: {ports: 1}", func(s *Spec) bool { return s.Scale.Min == 4 }},
		{"no maximum", "service: {replica_policy: {min_replicas: 2}}\nresources: {ports: 1}", func(s *Spec) bool { return s.Scale.Max == 2 && !s.Scale.Follows() }},
		{"a rate by accelerator", "service: {load_balancing_policy: instance_aware_least_load, replica_policy: {min_replicas: 1, max_replicas: 2, target_qps_per_replica: {A100: 2}}}\nresources: {ports: 1}",
			func(s *Spec) bool {
				return s.Scale.QPSByAccelerator["A100"] == 2 && s.Scale.QPS == 0 && s.Scale.Follows()
			}},
		{"TCP", "service: {readiness_probe: {protocol: tcp}}\nresources: {ports: 1}", func(s *Spec) bool { return s.Probe.Protocol == probe.TCP && s.Probe.Path == "" }},
		{"gRPC", "service: {readiness_probe: {protocol: grpc, grpc_service: a.B}}\nresources: {ports: 1}", func(s *Spec) bool { return s.Probe.Protocol == probe.GRPC && s.Probe.GRPCService == "a.B" }},
		{"a pool", "pool: {workers: 3}", func(s *Spec) bool {
			return s.Kind == Pool && s.Scale.Min == 3 && s.Scale.Max == 3 && s.Port == 0 && !s.Scale.Follows() && s.Probe.FailureSpan == 10*time.Second
		}},
		{"a pool that scales", "pool: {max_workers: 3}", func(s *Spec) bool { return s.Scale.Min == 1 && s.Scale.Max == 3 && s.Scale.QueueThreshold == 1 }},
		{"a pool without room", "pool: {max_workers: 0}", func(s *Spec) bool { return s.Scale.Min == 0 && s.Scale.Max == 0 }},
		{"a pool with all of it", "pool: {min_workers: 0, max_workers: 3, queue_length_threshold: 4, upscale_delay_seconds: 5, downscale_delay_seconds: 6}", func(s *Spec) bool {
			c := s.Scale
			return c.Min == 0 && c.Max == 3 && c.QueueThreshold == 4 && c.UpDelay == 5*time.Second && c.DownDelay == 6*time.Second
		}},
	} {
		if s, err := read(t, c.text); err != nil || !c.check(s) {
			t.Errorf("%s: %+v, %v", c.name, s, err)
		}
	}
	for text, says := range map[string]string{"run: x": "neither a service nor a pool", "service: {replicas: 1}": "exactly one port"} {
		if _, err := read(t, text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../../examples/service*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read(t, string(text)); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}

func TestFloorsHoldForTheirTime(t *testing.T) {
	f := Floor{Times: task.Schedule{Cron: "0 8 * * 1-5", Timezone: "Europe/Berlin"}, For: 2 * time.Hour, Min: 3}
	for at, want := range map[string]bool{
		"2026-03-02T06:59:59Z": false, // Monday, 7:59:59 there
		"2026-03-02T07:00:00Z": true,
		"2026-03-02T08:59:59Z": true,
		"2026-03-02T09:00:00Z": false,
		"2026-03-01T07:30:00Z": false, // Sunday
		"2026-06-01T06:30:00Z": true,  // summer time
	} {
		now, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Holds(now); got != want {
			t.Errorf("at %s: %v", at, got)
		}
	}
	if (Floor{Times: task.Schedule{Cron: "no"}, For: time.Hour}).Holds(time.Now()) {
		t.Error("a broken schedule holds")
	}
}
