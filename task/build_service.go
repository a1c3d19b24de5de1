package task

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// Defaults of a service.
const (
	defaultInitialDelay   = 1200
	defaultProbeTimeout   = 15
	defaultProbeInterval  = 10
	defaultFailureTime    = 180
	defaultUpscaleDelay   = 300
	defaultDownscaleDelay = 1200
	defaultStreamTimeout  = 120
)

func (b *builder) service(t *Task, doc *yaml11.Node) {
	t.Service, t.Pool = nil, nil
	svc, pool := doc.Get("service"), doc.Get("pool")
	if svc != nil && pool != nil {
		b.at(doc.Key("pool"), "pool", "a task is a service or a pool, not both; remove one of them")
		return
	}
	switch {
	case pool != nil:
		t.Pool = b.pool(pool, nil, "pool")
	case svc != nil && svc.Get("pool") != nil:
		b.noServiceFields(svc)
		t.Pool = b.pool(svc.Get("pool"), svc.Get("workers"), "service.pool")
	case svc != nil:
		t.Service = b.serviceOf(svc)
	}
}

// noServiceFields refuses what a pool inside service cannot have.
func (b *builder) noServiceFields(n *yaml11.Node) {
	for _, k := range []string{"replica_policy", "replicas", "ports", "tls", "load_balancing_policy", "load_balancer"} {
		if n.Get(k) != nil {
			b.at(n.Key(k), "service."+k, "service.%s does not go with a pool; a pool has workers, or min_workers and max_workers", k)
		}
	}
	if probe := n.Get("readiness_probe"); probe != nil && probe.Kind == yaml11.Map {
		for _, k := range []string{"headers", "post_data"} {
			if probe.Get(k) != nil {
				b.at(probe.Key(k), "service.readiness_probe."+k, "service.readiness_probe.%s does not go with a pool", k)
			}
		}
	}
}

func (b *builder) pool(n, workers *yaml11.Node, path string) *Pool {
	if w := n.Get("workers"); w != nil {
		workers = w
	}
	p := &Pool{
		Workers: intPtr(workers), Min: intPtr(n.Get("min_workers")), Max: intPtr(n.Get("max_workers")),
		QueueLengthThreshold: intPtr(n.Get("queue_length_threshold")),
		UpscaleDelaySeconds:  floatPtr(n.Get("upscale_delay_seconds")), DownscaleDelaySeconds: floatPtr(n.Get("downscale_delay_seconds")),
	}
	switch {
	case p.Workers == nil && p.Min == nil && p.Max == nil:
		b.at(n, path, "%s needs workers, or max_workers (and min_workers) to scale with the queue", path)
	case p.Workers != nil && (p.Min != nil || p.Max != nil):
		b.at(workers, join(path, "workers"), "%s has both a fixed number of workers and a range; keep workers, or min_workers and max_workers", path)
	case p.Min != nil && p.Max == nil:
		b.at(n.Key("min_workers"), join(path, "min_workers"), "%s has min_workers without max_workers; add max_workers", path)
	case p.Min != nil && *p.Min > *p.Max:
		b.at(n.Get("min_workers"), join(path, "min_workers"), "%s.min_workers (%d) should not be more than max_workers (%d)", path, *p.Min, *p.Max)
	}
	if p.Max == nil {
		for _, k := range []string{"queue_length_threshold", "upscale_delay_seconds", "downscale_delay_seconds"} {
			if n.Get(k) != nil {
				b.at(n.Key(k), join(path, k), "%s.%s is for pools that scale; add max_workers", path, k)
			}
		}
	}
	return p
}

func (b *builder) serviceOf(n *yaml11.Node) *Service {
	s := &Service{
		ReadinessProbe:       b.probe(n.Get("readiness_probe")),
		Ports:                intOf(n.Get("ports")),
		LoadBalancingPolicy:  strings.ToLower(textOf(n.Get("load_balancing_policy"))),
		StreamTimeoutSeconds: defaultStreamTimeout,
	}
	if lb := n.Get("load_balancer"); lb != nil {
		s.StreamTimeoutSeconds = floatOf(lb.Get("stream_timeout_seconds"), defaultStreamTimeout)
		s.Balancer = b.balancer(lb)
	}
	s.DrainSeconds = floatPtr(n.Get("drain_seconds"))
	if u := n.Get("update"); u != nil && len(u.Entries) > 0 {
		s.Update = &ServiceUpdate{CanaryWeight: floatPtr(u.Get("canary_weight")), ErrorMargin: floatPtr(u.Get("error_margin")),
			MinRequests: intPtr(u.Get("min_requests")), MaxSurge: intPtr(u.Get("max_surge"))}
	}
	if tls := n.Get("tls"); tls != nil {
		s.TLSKeyfile, s.TLSCertfile = textOf(tls.Get("keyfile")), textOf(tls.Get("certfile"))
	}
	if n.Get("replicas") != nil && n.Get("workers") != nil {
		b.at(n.Key("workers"), "service.workers", "service.replicas and service.workers are the same field; remove one")
	}
	fixed := "replicas"
	if n.Get("workers") != nil {
		fixed = "workers"
	}
	policy := n.Get("replica_policy")
	switch {
	case policy == nil:
		s.Replicas = intPtr(n.Get(fixed))
		if s.Replicas == nil {
			one := 1
			s.Replicas = &one
		}
	case n.Get(fixed) != nil:
		b.at(n.Key(fixed), "service."+fixed, "service.%s (a fixed number) and service.replica_policy (scaling) exclude each other; remove one", fixed)
	default:
		s.Policy = b.replicaPolicy(policy, n)
	}
	if s.LoadBalancingPolicy == "instance_aware_least_load" && (s.Policy == nil || s.Policy.TargetQPSByGPU == nil) {
		b.at(n.Get("load_balancing_policy"), "service.load_balancing_policy", "instance_aware_least_load needs replica_policy.target_qps_per_replica as a map from accelerator to requests per second")
	}
	sessions := s.Balancer != nil && (s.Balancer.AffinityHeader != "" || s.Balancer.AffinityCookie != "")
	if s.LoadBalancingPolicy == "session_affinity" && !sessions {
		b.at(n.Get("load_balancing_policy"), "service.load_balancing_policy", "session_affinity needs to know what names a session; add load_balancer.affinity with a header or a cookie")
	}
	if sessions && s.LoadBalancingPolicy != "session_affinity" {
		b.at(n.Get("load_balancer").Key("affinity"), "service.load_balancer.affinity", "load_balancer.affinity is for load_balancing_policy: session_affinity")
	}
	return s
}

func (b *builder) balancer(n *yaml11.Node) *Balancer {
	out := Balancer{
		PrefixLoadFactor: floatPtr(n.Get("prefix_load_factor")), RequestTimeoutSeconds: floatPtr(n.Get("request_timeout_seconds")),
		IdleTimeoutSeconds: floatPtr(n.Get("idle_timeout_seconds")), MaxHeaderBytes: intPtr(n.Get("max_header_bytes")), MaxBodyBytes: intPtr(n.Get("max_body_bytes")),
	}
	if a := n.Get("affinity"); a != nil {
		out.AffinityHeader, out.AffinityCookie = textOf(a.Get("header")), textOf(a.Get("cookie"))
		if (out.AffinityHeader == "") == (out.AffinityCookie == "") {
			b.at(n.Key("affinity"), "service.load_balancer.affinity", "a session is named by a header or by a cookie; give one of them")
		}
	}
	out.ReplicaRequests, out.Metrics, out.SlowStartSeconds = intPtr(n.Get("max_requests_per_replica")), textOf(n.Get("metrics")), floatPtr(n.Get("slow_start_seconds"))
	out.Attempts, out.RetryAfterSeconds, out.KeepAliveSeconds = intPtr(n.Get("attempts")), floatPtr(n.Get("retry_after_seconds")), floatPtr(n.Get("keep_alive_seconds"))
	out.ReplicaProtocol = textOf(n.Get("replica_protocol"))
	if trust := boolOf(n.Get("trust_forwarded")); trust != nil {
		out.TrustForwarded = *trust
	}
	if e := n.Get("eject"); e != nil {
		out.EjectFailures, out.EjectFirstSeconds = intPtr(e.Get("failures")), floatPtr(e.Get("first_seconds"))
		out.EjectMaxSeconds, out.EjectMaxPercent = floatPtr(e.Get("max_seconds")), floatPtr(e.Get("max_percent"))
	}
	if q := n.Get("queue"); q != nil {
		out.QueueRequests, out.QueueBytes, out.QueueSeconds = intPtr(q.Get("max_requests")), intPtr(q.Get("max_bytes")), floatPtr(q.Get("max_wait_seconds"))
	}
	if out == (Balancer{}) {
		return nil
	}
	return &out
}

func (b *builder) probe(n *yaml11.Node) Probe {
	p := Probe{
		Path: "/", InitialDelaySeconds: defaultInitialDelay, TimeoutSeconds: defaultProbeTimeout,
		IntervalSeconds: defaultProbeInterval, FailureThresholdSeconds: defaultFailureTime,
	}
	if n == nil {
		return p
	}
	path := n
	if n.Kind == yaml11.Map {
		path = n.Get("path")
		p.Protocol, p.GRPCService = textOf(n.Get("protocol")), textOf(n.Get("grpc_service"))
		p.InitialDelaySeconds = floatOf(n.Get("initial_delay_seconds"), p.InitialDelaySeconds)
		p.TimeoutSeconds = floatOf(n.Get("timeout_seconds"), p.TimeoutSeconds)
		p.IntervalSeconds = floatOf(n.Get("endpoint_probe_interval_seconds"), p.IntervalSeconds)
		p.FailureThresholdSeconds = floatOf(n.Get("consecutive_failure_threshold_timeout"), p.FailureThresholdSeconds)
		p.Headers = textMap(n.Get("headers"))
		if data := n.Get("post_data"); data != nil {
			p.PostData = b.postData(data)
		}
	}
	if p.Protocol != "" && p.Protocol != "http" {
		p.Path = ""
		b.noHTTPFields(n, p.Protocol)
		return p
	}
	if n.Kind == yaml11.Map && n.Get("grpc_service") != nil {
		b.at(n.Key("grpc_service"), "service.readiness_probe.grpc_service", "grpc_service is for protocol: grpc")
	}
	if path == nil {
		b.at(n, "service.readiness_probe", `service.readiness_probe needs "path"`)
		return p
	}
	p.Path = textOf(path)
	if !strings.HasPrefix(p.Path, "/") && !path.Pending {
		b.at(path, "service.readiness_probe", "the path of service.readiness_probe should begin with a slash, not be %q", p.Path)
	}
	return p
}

// noHTTPFields refuses what only a probe over HTTP has.
func (b *builder) noHTTPFields(n *yaml11.Node, protocol string) {
	not := []string{"path", "post_data"}
	if protocol == "tcp" {
		not = append(not, "headers", "grpc_service")
	}
	for _, k := range not {
		if n.Get(k) != nil {
			b.at(n.Key(k), "service.readiness_probe."+k, "%s does not go with protocol: %s", k, protocol)
		}
	}
}

func (b *builder) postData(n *yaml11.Node) string {
	if n.Kind == yaml11.Map {
		text, err := json.Marshal(n.Any())
		if err != nil {
			b.at(n, "service.readiness_probe.post_data", "post_data cannot be written as JSON: %s", err)
		}
		return string(text)
	}
	if !json.Valid([]byte(n.Text)) && !n.Pending {
		b.at(n, "service.readiness_probe.post_data", "post_data should be JSON text, or a map; not %s", yaml11.Quote(n.Text))
	}
	return n.Text
}

// scalesBy are the fields of replica_policy that say how the load is measured.
var scalesBy = []string{"target_qps_per_replica", "target_in_flight_per_replica", "target_latency_seconds", "metric"}

func (b *builder) replicaPolicy(n, svc *yaml11.Node) *ReplicaPolicy {
	const path = "service.replica_policy"
	p := &ReplicaPolicy{
		Min: intOf(n.Get("min_replicas")), Max: intPtr(n.Get("max_replicas")),
		Overprovision:         intOf(n.Get("num_overprovision")),
		UpscaleDelaySeconds:   floatOf(n.Get("upscale_delay_seconds"), defaultUpscaleDelay),
		DownscaleDelaySeconds: floatOf(n.Get("downscale_delay_seconds"), defaultDownscaleDelay),
		BaseOndemandFallback:  intOf(n.Get("base_ondemand_fallback_replicas")),
		SpotPlacer:            strings.ToLower(textOf(n.Get("spot_placer"))),
		TargetInFlight:        floatPtr(n.Get("target_in_flight_per_replica")),
		TargetLatencySeconds:  floatPtr(n.Get("target_latency_seconds")),
	}
	if m := n.Get("metric"); m != nil {
		p.Metric = &MetricTarget{Name: textOf(m.Get("name")), Target: floatOf(m.Get("target"), 0)}
	}
	if pre := boolOf(n.Get("predictive")); pre != nil {
		p.Predictive = *pre
	}
	if list := n.Get("schedules"); list != nil {
		for _, item := range list.Items {
			s := ReplicaSchedule{Cron: textOf(item.Get("cron")), Timezone: textOf(item.Get("timezone")), Min: intOf(item.Get("min_replicas"))}
			s.DurationSeconds, _ = ParseSeconds(textOf(item.Get("duration")))
			p.Schedules = append(p.Schedules, s)
			if p.Max != nil && s.Min > *p.Max {
				b.at(item.Get("min_replicas"), path+".schedules", "min_replicas (%d) of a schedule should not be more than max_replicas (%d)", s.Min, *p.Max)
			}
		}
	}
	if dyn := boolOf(n.Get("dynamic_ondemand_fallback")); dyn != nil {
		p.DynamicOndemand = *dyn
	}
	qps := n.Get("target_qps_per_replica")
	if qps != nil && qps.Kind == yaml11.Map {
		p.TargetQPSByGPU = map[string]float64{}
		for _, e := range qps.Entries {
			p.TargetQPSByGPU[e.Key.Text] = floatOf(e.Value, 0)
		}
		if strings.ToLower(textOf(svc.Get("load_balancing_policy"))) != "instance_aware_least_load" {
			b.at(qps, path+".target_qps_per_replica", "a map of requests per second by accelerator needs service.load_balancing_policy: instance_aware_least_load")
		}
	} else {
		p.TargetQPS = floatPtr(qps)
	}
	signal := slices.ContainsFunc(scalesBy, func(k string) bool { return n.Get(k) != nil })
	switch {
	case p.Max != nil && *p.Max < p.Min:
		b.at(n.Get("max_replicas"), path+".max_replicas", "max_replicas (%d) should not be less than min_replicas (%d)", *p.Max, p.Min)
	case p.Max == nil:
		for _, k := range append(slices.Clone(scalesBy), "schedules", "predictive") {
			if n.Get(k) != nil {
				b.at(n.Key(k), path+"."+k, "%s scales up to max_replicas; add max_replicas", k)
				break
			}
		}
	case *p.Max != p.Min && !signal && n.Get("schedules") == nil:
		b.at(n.Get("max_replicas"), path+".max_replicas", "replicas scale from %d to %d by the load per replica; add target_qps_per_replica (or target_in_flight_per_replica, target_latency_seconds, metric)", p.Min, *p.Max)
	}
	if p.Predictive && !signal && p.Max != nil {
		b.at(n.Key("predictive"), path+".predictive", "predictive goes by the replicas that the load needed on earlier days; say how the load is measured, as by target_qps_per_replica")
	}
	return p
}
