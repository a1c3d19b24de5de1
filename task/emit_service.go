package task

func (p *Pool) tree() *node {
	return newMap().put("workers", p.Workers).put("min_workers", p.Min).put("max_workers", p.Max).
		put("queue_length_threshold", p.QueueLengthThreshold).
		put("upscale_delay_seconds", p.UpscaleDelaySeconds).put("downscale_delay_seconds", p.DownscaleDelaySeconds)
}

func (s *Service) tree() *node {
	p := s.ReadinessProbe
	probe := newMap().putText("path", p.Path).putText("protocol", p.Protocol).putText("grpc_service", p.GRPCService).
		put("initial_delay_seconds", plainNumber(p.InitialDelaySeconds)).put("timeout_seconds", plainNumber(p.TimeoutSeconds)).
		put("endpoint_probe_interval_seconds", plainNumber(p.IntervalSeconds)).
		put("consecutive_failure_threshold_timeout", plainNumber(p.FailureThresholdSeconds)).
		putText("post_data", p.PostData)
	if p.Headers != nil {
		probe.put("headers", p.Headers)
	}
	n := newMap().put("readiness_probe", probe)
	if r := s.Policy; r != nil {
		policy := newMap().put("min_replicas", r.Min).put("max_replicas", r.Max)
		if r.Overprovision != 0 {
			policy.put("num_overprovision", r.Overprovision)
		}
		policy.put("target_qps_per_replica", r.TargetQPS)
		if r.TargetQPSByGPU != nil {
			policy.put("target_qps_per_replica", r.TargetQPSByGPU)
		}
		policy.put("target_in_flight_per_replica", r.TargetInFlight).put("target_latency_seconds", r.TargetLatencySeconds)
		if m := r.Metric; m != nil {
			policy.put("metric", newMap().put("name", m.Name).put("target", plainNumber(m.Target)))
		}
		if len(r.Schedules) > 0 {
			list := &node{kind: sequenceNode}
			for _, s := range r.Schedules {
				list.items = append(list.items, newMap().put("cron", s.Cron).putText("timezone", s.Timezone).
					put("duration", s.DurationSeconds).put("min_replicas", s.Min))
			}
			policy.put("schedules", list)
		}
		if r.Predictive {
			policy.put("predictive", true)
		}
		policy.put("upscale_delay_seconds", plainNumber(r.UpscaleDelaySeconds)).put("downscale_delay_seconds", plainNumber(r.DownscaleDelaySeconds))
		if r.BaseOndemandFallback != 0 {
			policy.put("base_ondemand_fallback_replicas", r.BaseOndemandFallback)
		}
		if r.DynamicOndemand {
			policy.put("dynamic_ondemand_fallback", true)
		}
		n.put("replica_policy", policy.putText("spot_placer", r.SpotPlacer))
	} else {
		n.put("replicas", s.Replicas)
	}
	if s.Ports != 0 {
		n.put("ports", s.Ports)
	}
	n.putText("load_balancing_policy", s.LoadBalancingPolicy)
	n.put("load_balancer", s.balancer())
	if u := s.Update; u != nil {
		n.put("update", newMap().put("canary_weight", u.CanaryWeight).put("error_margin", u.ErrorMargin).
			put("min_requests", u.MinRequests).put("max_surge", u.MaxSurge))
	}
	n.put("drain_seconds", s.DrainSeconds)
	if s.TLSKeyfile != "" || s.TLSCertfile != "" {
		n.put("tls", newMap().put("keyfile", s.TLSKeyfile).put("certfile", s.TLSCertfile))
	}
	return n
}

func (s *Service) balancer() *node {
	n := newMap().put("stream_timeout_seconds", plainNumber(s.StreamTimeoutSeconds))
	b := s.Balancer
	if b == nil {
		return n
	}
	if b.AffinityHeader != "" || b.AffinityCookie != "" {
		n.put("affinity", newMap().putText("header", b.AffinityHeader).putText("cookie", b.AffinityCookie))
	}
	n.put("prefix_load_factor", b.PrefixLoadFactor)
	if b.QueueRequests != nil || b.QueueBytes != nil || b.QueueSeconds != nil {
		n.put("queue", newMap().put("max_requests", b.QueueRequests).put("max_bytes", b.QueueBytes).put("max_wait_seconds", b.QueueSeconds))
	}
	return n.put("request_timeout_seconds", b.RequestTimeoutSeconds).put("idle_timeout_seconds", b.IdleTimeoutSeconds).
		put("max_header_bytes", b.MaxHeaderBytes).put("max_body_bytes", b.MaxBodyBytes)
}
