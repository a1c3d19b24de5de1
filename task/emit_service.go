package task

func (p *Pool) tree() *node {
	return newMap().put("workers", p.Workers).put("min_workers", p.Min).put("max_workers", p.Max).
		put("queue_length_threshold", p.QueueLengthThreshold).
		put("upscale_delay_seconds", p.UpscaleDelaySeconds).put("downscale_delay_seconds", p.DownscaleDelaySeconds)
}

func (s *Service) tree() *node {
	p := s.ReadinessProbe
	probe := newMap().put("path", p.Path).
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
	n.put("load_balancer", newMap().put("stream_timeout_seconds", plainNumber(s.StreamTimeoutSeconds)))
	if s.TLSKeyfile != "" || s.TLSCertfile != "" {
		n.put("tls", newMap().put("keyfile", s.TLSKeyfile).put("certfile", s.TLSCertfile))
	}
	return n
}
