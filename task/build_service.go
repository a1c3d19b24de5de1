package task

import (
	"encoding/json"
	"slices"
	"strings"
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

func (b *builder) service(t *Task, doc *node) {
	t.Service, t.Pool = nil, nil
	svc, pool := doc.get("service"), doc.get("pool")
	if svc != nil && pool != nil {
		b.at(doc.keyNode("pool"), "pool", "a task is a service or a pool, not both; remove one of them")
		return
	}
	switch {
	case pool != nil:
		t.Pool = b.pool(pool, nil, "pool")
	case svc != nil && svc.get("pool") != nil:
		b.noServiceFields(svc)
		t.Pool = b.pool(svc.get("pool"), svc.get("workers"), "service.pool")
	case svc != nil:
		t.Service = b.serviceOf(svc)
	}
}

// noServiceFields refuses what a pool inside service cannot have.
func (b *builder) noServiceFields(n *node) {
	for _, k := range []string{"replica_policy", "replicas", "ports", "tls", "load_balancing_policy", "load_balancer"} {
		if n.get(k) != nil {
			b.at(n.keyNode(k), "service."+k, "service.%s does not go with a pool; a pool has workers, or min_workers and max_workers", k)
		}
	}
	if probe := n.get("readiness_probe"); probe != nil && probe.kind == mappingNode {
		for _, k := range []string{"headers", "post_data"} {
			if probe.get(k) != nil {
				b.at(probe.keyNode(k), "service.readiness_probe."+k, "service.readiness_probe.%s does not go with a pool", k)
			}
		}
	}
}

func (b *builder) pool(n, workers *node, path string) *Pool {
	if w := n.get("workers"); w != nil {
		workers = w
	}
	p := &Pool{
		Workers: intPtr(workers), Min: intPtr(n.get("min_workers")), Max: intPtr(n.get("max_workers")),
		QueueLengthThreshold: intPtr(n.get("queue_length_threshold")),
		UpscaleDelaySeconds:  floatPtr(n.get("upscale_delay_seconds")), DownscaleDelaySeconds: floatPtr(n.get("downscale_delay_seconds")),
	}
	switch {
	case p.Workers == nil && p.Min == nil && p.Max == nil:
		b.at(n, path, "%s needs workers, or max_workers (and min_workers) to scale with the queue", path)
	case p.Workers != nil && (p.Min != nil || p.Max != nil):
		b.at(workers, join(path, "workers"), "%s has both a fixed number of workers and a range; keep workers, or min_workers and max_workers", path)
	case p.Min != nil && p.Max == nil:
		b.at(n.keyNode("min_workers"), join(path, "min_workers"), "%s has min_workers without max_workers; add max_workers", path)
	case p.Min != nil && *p.Min > *p.Max:
		b.at(n.get("min_workers"), join(path, "min_workers"), "%s.min_workers (%d) should not be more than max_workers (%d)", path, *p.Min, *p.Max)
	}
	if p.Max == nil {
		for _, k := range []string{"queue_length_threshold", "upscale_delay_seconds", "downscale_delay_seconds"} {
			if n.get(k) != nil {
				b.at(n.keyNode(k), join(path, k), "%s.%s is for pools that scale; add max_workers", path, k)
			}
		}
	}
	return p
}

func (b *builder) serviceOf(n *node) *Service {
	s := &Service{
		ReadinessProbe:       b.probe(n.get("readiness_probe")),
		Ports:                intOf(n.get("ports")),
		LoadBalancingPolicy:  strings.ToLower(textOf(n.get("load_balancing_policy"))),
		StreamTimeoutSeconds: defaultStreamTimeout,
	}
	if lb := n.get("load_balancer"); lb != nil {
		s.StreamTimeoutSeconds = floatOf(lb.get("stream_timeout_seconds"), defaultStreamTimeout)
		s.Balancer = b.balancer(lb)
	}
	s.DrainSeconds = floatPtr(n.get("drain_seconds"))
	if u := n.get("update"); u != nil && len(u.entries) > 0 {
		s.Update = &ServiceUpdate{CanaryWeight: floatPtr(u.get("canary_weight")), ErrorMargin: floatPtr(u.get("error_margin")),
			MinRequests: intPtr(u.get("min_requests")), MaxSurge: intPtr(u.get("max_surge"))}
	}
	if tls := n.get("tls"); tls != nil {
		s.TLSKeyfile, s.TLSCertfile = textOf(tls.get("keyfile")), textOf(tls.get("certfile"))
	}
	if n.get("replicas") != nil && n.get("workers") != nil {
		b.at(n.keyNode("workers"), "service.workers", "service.replicas and service.workers are the same field; remove one")
	}
	fixed := "replicas"
	if n.get("workers") != nil {
		fixed = "workers"
	}
	policy := n.get("replica_policy")
	switch {
	case policy == nil:
		s.Replicas = intPtr(n.get(fixed))
		if s.Replicas == nil {
			one := 1
			s.Replicas = &one
		}
	case n.get(fixed) != nil:
		b.at(n.keyNode(fixed), "service."+fixed, "service.%s (a fixed number) and service.replica_policy (scaling) exclude each other; remove one", fixed)
	default:
		s.Policy = b.replicaPolicy(policy, n)
	}
	if s.LoadBalancingPolicy == "instance_aware_least_load" && (s.Policy == nil || s.Policy.TargetQPSByGPU == nil) {
		b.at(n.get("load_balancing_policy"), "service.load_balancing_policy", "instance_aware_least_load needs replica_policy.target_qps_per_replica as a map from accelerator to requests per second")
	}
	sessions := s.Balancer != nil && (s.Balancer.AffinityHeader != "" || s.Balancer.AffinityCookie != "")
	if s.LoadBalancingPolicy == "session_affinity" && !sessions {
		b.at(n.get("load_balancing_policy"), "service.load_balancing_policy", "session_affinity needs to know what names a session; add load_balancer.affinity with a header or a cookie")
	}
	if sessions && s.LoadBalancingPolicy != "session_affinity" {
		b.at(n.get("load_balancer").keyNode("affinity"), "service.load_balancer.affinity", "load_balancer.affinity is for load_balancing_policy: session_affinity")
	}
	return s
}

func (b *builder) balancer(n *node) *Balancer {
	out := Balancer{
		PrefixLoadFactor: floatPtr(n.get("prefix_load_factor")), RequestTimeoutSeconds: floatPtr(n.get("request_timeout_seconds")),
		IdleTimeoutSeconds: floatPtr(n.get("idle_timeout_seconds")), MaxHeaderBytes: intPtr(n.get("max_header_bytes")), MaxBodyBytes: intPtr(n.get("max_body_bytes")),
	}
	if a := n.get("affinity"); a != nil {
		out.AffinityHeader, out.AffinityCookie = textOf(a.get("header")), textOf(a.get("cookie"))
		if (out.AffinityHeader == "") == (out.AffinityCookie == "") {
			b.at(n.keyNode("affinity"), "service.load_balancer.affinity", "a session is named by a header or by a cookie; give one of them")
		}
	}
	if q := n.get("queue"); q != nil {
		out.QueueRequests, out.QueueBytes, out.QueueSeconds = intPtr(q.get("max_requests")), intPtr(q.get("max_bytes")), floatPtr(q.get("max_wait_seconds"))
	}
	if out == (Balancer{}) {
		return nil
	}
	return &out
}

func (b *builder) probe(n *node) Probe {
	p := Probe{
		Path: "/", InitialDelaySeconds: defaultInitialDelay, TimeoutSeconds: defaultProbeTimeout,
		IntervalSeconds: defaultProbeInterval, FailureThresholdSeconds: defaultFailureTime,
	}
	if n == nil {
		return p
	}
	path := n
	if n.kind == mappingNode {
		path = n.get("path")
		p.Protocol, p.GRPCService = textOf(n.get("protocol")), textOf(n.get("grpc_service"))
		p.InitialDelaySeconds = floatOf(n.get("initial_delay_seconds"), p.InitialDelaySeconds)
		p.TimeoutSeconds = floatOf(n.get("timeout_seconds"), p.TimeoutSeconds)
		p.IntervalSeconds = floatOf(n.get("endpoint_probe_interval_seconds"), p.IntervalSeconds)
		p.FailureThresholdSeconds = floatOf(n.get("consecutive_failure_threshold_timeout"), p.FailureThresholdSeconds)
		p.Headers = textMap(n.get("headers"))
		if data := n.get("post_data"); data != nil {
			p.PostData = b.postData(data)
		}
	}
	if p.Protocol != "" && p.Protocol != "http" {
		p.Path = ""
		b.noHTTPFields(n, p.Protocol)
		return p
	}
	if n.kind == mappingNode && n.get("grpc_service") != nil {
		b.at(n.keyNode("grpc_service"), "service.readiness_probe.grpc_service", "grpc_service is for protocol: grpc")
	}
	if path == nil {
		b.at(n, "service.readiness_probe", `service.readiness_probe needs "path"`)
		return p
	}
	p.Path = textOf(path)
	if !strings.HasPrefix(p.Path, "/") && !path.pending {
		b.at(path, "service.readiness_probe", "the path of service.readiness_probe should begin with a slash, not be %q", p.Path)
	}
	return p
}

// noHTTPFields refuses what only a probe over HTTP has.
func (b *builder) noHTTPFields(n *node, protocol string) {
	not := []string{"path", "post_data"}
	if protocol == "tcp" {
		not = append(not, "headers", "grpc_service")
	}
	for _, k := range not {
		if n.get(k) != nil {
			b.at(n.keyNode(k), "service.readiness_probe."+k, "%s does not go with protocol: %s", k, protocol)
		}
	}
}

func (b *builder) postData(n *node) string {
	if n.kind == mappingNode {
		text, err := json.Marshal(n.any())
		if err != nil {
			b.at(n, "service.readiness_probe.post_data", "post_data cannot be written as JSON: %s", err)
		}
		return string(text)
	}
	if !json.Valid([]byte(n.text)) && !n.pending {
		b.at(n, "service.readiness_probe.post_data", "post_data should be JSON text, or a map; not %s", quoteShort(n.text))
	}
	return n.text
}

// scalesBy are the fields of replica_policy that say how the load is measured.
var scalesBy = []string{"target_qps_per_replica", "target_in_flight_per_replica", "target_latency_seconds", "metric"}

func (b *builder) replicaPolicy(n, svc *node) *ReplicaPolicy {
	const path = "service.replica_policy"
	p := &ReplicaPolicy{
		Min: intOf(n.get("min_replicas")), Max: intPtr(n.get("max_replicas")),
		Overprovision:         intOf(n.get("num_overprovision")),
		UpscaleDelaySeconds:   floatOf(n.get("upscale_delay_seconds"), defaultUpscaleDelay),
		DownscaleDelaySeconds: floatOf(n.get("downscale_delay_seconds"), defaultDownscaleDelay),
		BaseOndemandFallback:  intOf(n.get("base_ondemand_fallback_replicas")),
		SpotPlacer:            strings.ToLower(textOf(n.get("spot_placer"))),
		TargetInFlight:        floatPtr(n.get("target_in_flight_per_replica")),
		TargetLatencySeconds:  floatPtr(n.get("target_latency_seconds")),
	}
	if m := n.get("metric"); m != nil {
		p.Metric = &MetricTarget{Name: textOf(m.get("name")), Target: floatOf(m.get("target"), 0)}
	}
	if pre := boolOf(n.get("predictive")); pre != nil {
		p.Predictive = *pre
	}
	if list := n.get("schedules"); list != nil {
		for _, item := range list.items {
			s := ReplicaSchedule{Cron: textOf(item.get("cron")), Timezone: textOf(item.get("timezone")), Min: intOf(item.get("min_replicas"))}
			s.DurationSeconds, _ = ParseSeconds(textOf(item.get("duration")))
			p.Schedules = append(p.Schedules, s)
			if p.Max != nil && s.Min > *p.Max {
				b.at(item.get("min_replicas"), path+".schedules", "min_replicas (%d) of a schedule should not be more than max_replicas (%d)", s.Min, *p.Max)
			}
		}
	}
	if dyn := boolOf(n.get("dynamic_ondemand_fallback")); dyn != nil {
		p.DynamicOndemand = *dyn
	}
	qps := n.get("target_qps_per_replica")
	if qps != nil && qps.kind == mappingNode {
		p.TargetQPSByGPU = map[string]float64{}
		for _, e := range qps.entries {
			p.TargetQPSByGPU[e.key.text] = floatOf(e.val, 0)
		}
		if strings.ToLower(textOf(svc.get("load_balancing_policy"))) != "instance_aware_least_load" {
			b.at(qps, path+".target_qps_per_replica", "a map of requests per second by accelerator needs service.load_balancing_policy: instance_aware_least_load")
		}
	} else {
		p.TargetQPS = floatPtr(qps)
	}
	signal := slices.ContainsFunc(scalesBy, func(k string) bool { return n.get(k) != nil })
	switch {
	case p.Max != nil && *p.Max < p.Min:
		b.at(n.get("max_replicas"), path+".max_replicas", "max_replicas (%d) should not be less than min_replicas (%d)", *p.Max, p.Min)
	case p.Max == nil:
		for _, k := range append(slices.Clone(scalesBy), "schedules", "predictive") {
			if n.get(k) != nil {
				b.at(n.keyNode(k), path+"."+k, "%s scales up to max_replicas; add max_replicas", k)
				break
			}
		}
	case *p.Max != p.Min && !signal && n.get("schedules") == nil:
		b.at(n.get("max_replicas"), path+".max_replicas", "replicas scale from %d to %d by the load per replica; add target_qps_per_replica (or target_in_flight_per_replica, target_latency_seconds, metric)", p.Min, *p.Max)
	}
	if p.Predictive && !signal && p.Max != nil {
		b.at(n.keyNode("predictive"), path+".predictive", "predictive goes by the replicas that the load needed on earlier days; say how the load is measured, as by target_qps_per_replica")
	}
	return p
}
