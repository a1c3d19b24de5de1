package task

import "github.com/skypilot-go/sky/internal/yaml11"

func (p *Pool) tree() *yaml11.Node {
	return yaml11.NewMap().Put("workers", p.Workers).Put("min_workers", p.Min).Put("max_workers", p.Max).
		Put("queue_length_threshold", p.QueueLengthThreshold).
		Put("upscale_delay_seconds", p.UpscaleDelaySeconds).Put("downscale_delay_seconds", p.DownscaleDelaySeconds)
}

func (s *Service) tree() *yaml11.Node {
	p := s.ReadinessProbe
	probe := yaml11.NewMap().PutText("path", p.Path).PutText("protocol", p.Protocol).PutText("grpc_service", p.GRPCService).
		Put("initial_delay_seconds", yaml11.PlainNumber(p.InitialDelaySeconds)).Put("timeout_seconds", yaml11.PlainNumber(p.TimeoutSeconds)).
		Put("endpoint_probe_interval_seconds", yaml11.PlainNumber(p.IntervalSeconds)).
		Put("consecutive_failure_threshold_timeout", yaml11.PlainNumber(p.FailureThresholdSeconds)).
		PutText("post_data", p.PostData)
	if p.Headers != nil {
		probe.Put("headers", p.Headers)
	}
	n := yaml11.NewMap().Put("readiness_probe", probe)
	if r := s.Policy; r != nil {
		policy := yaml11.NewMap().Put("min_replicas", r.Min).Put("max_replicas", r.Max)
		if r.Overprovision != 0 {
			policy.Put("num_overprovision", r.Overprovision)
		}
		policy.Put("target_qps_per_replica", r.TargetQPS)
		if r.TargetQPSByGPU != nil {
			policy.Put("target_qps_per_replica", r.TargetQPSByGPU)
		}
		policy.Put("target_in_flight_per_replica", r.TargetInFlight).Put("target_latency_seconds", r.TargetLatencySeconds)
		if m := r.Metric; m != nil {
			policy.Put("metric", yaml11.NewMap().Put("name", m.Name).Put("target", yaml11.PlainNumber(m.Target)))
		}
		if len(r.Schedules) > 0 {
			list := yaml11.NewList()
			for _, s := range r.Schedules {
				list.Items = append(list.Items, yaml11.NewMap().Put("cron", s.Cron).PutText("timezone", s.Timezone).
					Put("duration", s.DurationSeconds).Put("min_replicas", s.Min))
			}
			policy.Put("schedules", list)
		}
		if r.Predictive {
			policy.Put("predictive", true)
		}
		policy.Put("upscale_delay_seconds", yaml11.PlainNumber(r.UpscaleDelaySeconds)).Put("downscale_delay_seconds", yaml11.PlainNumber(r.DownscaleDelaySeconds))
		if r.BaseOndemandFallback != 0 {
			policy.Put("base_ondemand_fallback_replicas", r.BaseOndemandFallback)
		}
		if r.DynamicOndemand {
			policy.Put("dynamic_ondemand_fallback", true)
		}
		n.Put("replica_policy", policy.PutText("spot_placer", r.SpotPlacer))
	} else {
		n.Put("replicas", s.Replicas)
	}
	if s.Ports != 0 {
		n.Put("ports", s.Ports)
	}
	n.PutText("load_balancing_policy", s.LoadBalancingPolicy)
	n.Put("load_balancer", s.balancer())
	if u := s.Update; u != nil {
		n.Put("update", yaml11.NewMap().Put("canary_weight", u.CanaryWeight).Put("error_margin", u.ErrorMargin).
			Put("min_requests", u.MinRequests).Put("max_surge", u.MaxSurge))
	}
	n.Put("drain_seconds", s.DrainSeconds)
	if s.TLSKeyfile != "" || s.TLSCertfile != "" {
		n.Put("tls", yaml11.NewMap().Put("keyfile", s.TLSKeyfile).Put("certfile", s.TLSCertfile))
	}
	return n
}

func (s *Service) balancer() *yaml11.Node {
	n := yaml11.NewMap().Put("stream_timeout_seconds", yaml11.PlainNumber(s.StreamTimeoutSeconds))
	b := s.Balancer
	if b == nil {
		return n
	}
	if b.AffinityHeader != "" || b.AffinityCookie != "" {
		n.Put("affinity", yaml11.NewMap().PutText("header", b.AffinityHeader).PutText("cookie", b.AffinityCookie))
	}
	n.Put("prefix_load_factor", b.PrefixLoadFactor)
	if b.QueueRequests != nil || b.QueueBytes != nil || b.QueueSeconds != nil {
		n.Put("queue", yaml11.NewMap().Put("max_requests", b.QueueRequests).Put("max_bytes", b.QueueBytes).Put("max_wait_seconds", b.QueueSeconds))
	}
	if b.EjectFailures != nil || b.EjectFirstSeconds != nil || b.EjectMaxSeconds != nil || b.EjectMaxPercent != nil {
		n.Put("eject", yaml11.NewMap().Put("failures", b.EjectFailures).Put("first_seconds", b.EjectFirstSeconds).
			Put("max_seconds", b.EjectMaxSeconds).Put("max_percent", b.EjectMaxPercent))
	}
	if b.TrustForwarded {
		n.Put("trust_forwarded", true)
	}
	n.Put("max_requests_per_replica", b.ReplicaRequests).PutText("metrics", b.Metrics).Put("slow_start_seconds", b.SlowStartSeconds).
		Put("attempts", b.Attempts).Put("retry_after_seconds", b.RetryAfterSeconds).Put("keep_alive_seconds", b.KeepAliveSeconds).
		PutText("replica_protocol", b.ReplicaProtocol)
	return n.Put("request_timeout_seconds", b.RequestTimeoutSeconds).Put("idle_timeout_seconds", b.IdleTimeoutSeconds).
		Put("max_header_bytes", b.MaxHeaderBytes).Put("max_body_bytes", b.MaxBodyBytes)
}
