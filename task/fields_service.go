package task

func probeSchema() *schema {
	return text().with(object(
		field{name: "path", is: text(), required: true, doc: "Path that answers 200 when the replica is ready.", example: "/health"},
		field{name: "initial_delay_seconds", is: number().from(0), doc: "How long a replica may take to get ready for the first time.", def: "1200", example: "600"},
		field{name: "timeout_seconds", is: number().from(0), doc: "How long one probe may take.", def: "15", example: "5"},
		field{name: "endpoint_probe_interval_seconds", is: number().from(0), doc: "Time between probes.", def: "10", example: "5"},
		field{name: "consecutive_failure_threshold_timeout", is: number().from(0), doc: "How long probes may fail before the replica is given up.", def: "180", example: "60"},
		field{name: "post_data", is: text().with(openObject()), doc: "JSON sent with POST instead of a GET.", example: "{model: x}"},
		field{name: "headers", is: mapOf(text()), doc: "Headers of the probe.", example: "{Authorization: Bearer x}"},
	))
}

func serviceSchema() *schema {
	s := object(
		field{name: "readiness_probe", is: probeSchema(), doc: "How to ask a replica whether it is ready: a path, or a map.", def: "/", example: "/health"},
		field{name: "pool", is: poolSchema(), internal: true},
		field{name: "replica_policy", is: object(
			field{name: "min_replicas", is: integer().from(0), required: true, doc: "Fewest replicas.", example: "1"},
			field{name: "max_replicas", is: integer().from(0).or("null"), doc: "Most replicas.", def: "min_replicas", example: "5"},
			field{name: "num_overprovision", is: integer().from(0), doc: "Replicas beyond what is needed.", def: "0", example: "1"},
			field{name: "target_qps_per_replica", is: checkedNumber(number(), checkPositive).with(&schema{types: []string{"object"}, open: true, minKeys: 1,
				keys: `[A-Z0-9-]+(?::[0-9]+)?`, keyWant: "an accelerator in capitals such as A100 or A100:8", values: checkedNumber(number(), checkPositive)}),
				doc: "Requests per second that one replica serves; a map gives it per accelerator.", example: "2.5"},
			field{name: "upscale_delay_seconds", is: number().from(0), doc: "How long the load must be high before replicas are added.", def: "300", example: "60"},
			field{name: "downscale_delay_seconds", is: number().from(0), doc: "How long the load must be low before replicas are removed.", def: "1200", example: "600"},
			field{name: "base_ondemand_fallback_replicas", is: integer().from(0), doc: "Replicas that are always on-demand machines.", def: "0", example: "1"},
			field{name: "dynamic_ondemand_fallback", is: boolean(), doc: "Whether on-demand machines stand in for spot machines that are not to be had.", def: "false", example: "true"},
			field{name: "spot_placer", is: choice(true, "dynamic_fallback"), doc: "How spot replicas are spread over places.", example: "dynamic_fallback"},
		), doc: "Scale with the load.", example: "{min_replicas: 1, max_replicas: 5, target_qps_per_replica: 2}"},
		field{name: "replicas", is: integer().from(0), doc: "How many replicas, always.", def: "1", example: "2"},
		field{name: "workers", is: integer().from(0), doc: "The same as replicas.", example: "2"},
		field{name: "ports", is: integer().from(1).to(65535), doc: "Port that replicas serve on.", def: "the one of resources.ports", example: "8080"},
		field{name: "load_balancing_policy", is: choice(true, LoadBalancingPolicies...), doc: "Which replica gets a request.", def: "least_load", example: "round_robin"},
		field{name: "load_balancer", is: object(
			field{name: "stream_timeout_seconds", is: number().from(0), doc: "How long a response may pause.", def: "120", example: "600"},
		), doc: "Settings of the load balancer.", example: "{stream_timeout_seconds: 600}"},
		field{name: "tls", is: object(
			field{name: "keyfile", is: text(), required: true, doc: "Private key, PEM.", example: "./key.pem"},
			field{name: "certfile", is: text(), required: true, doc: "Certificate, PEM.", example: "./cert.pem"},
		), doc: "Serve https with this key.", example: "{keyfile: key.pem, certfile: cert.pem}"},
	)
	s.gone = map[string]string{
		"readiness_path":       `write "readiness_probe"`,
		"auto_restart":         "replicas are always restarted",
		"qps_upper_bound":      `write "target_qps_per_replica" under replica_policy`,
		"app_port":             `write "ports"`,
		"port":                 `write "ports"`,
		"replica_port":         `write "ports"`,
		"controller_resources": "it is set in the configuration file",
	}
	for _, f := range []string{"min_replicas", "max_replicas", "target_qps_per_replica"} {
		s.gone[f] = "it goes under replica_policy"
	}
	return s
}

// LoadBalancingPolicies has the words of service.load_balancing_policy.
var LoadBalancingPolicies = []string{"least_load", "round_robin", "instance_aware_least_load"}

func poolSchema() *schema {
	return object(
		field{name: "workers", is: integer().from(0), doc: "How many workers, always.", example: "3"},
		field{name: "min_workers", is: integer().from(0), doc: "Fewest workers.", def: "1", example: "1"},
		field{name: "max_workers", is: integer().from(0), doc: "Most workers.", example: "10"},
		field{name: "queue_length_threshold", is: integer().from(1), doc: "Waiting jobs that make the pool grow.", def: "1", example: "2"},
		field{name: "upscale_delay_seconds", is: number().from(0), doc: "How long jobs must wait before workers are added.", def: "300", example: "60"},
		field{name: "downscale_delay_seconds", is: number().from(0), doc: "How long workers must be idle before they are removed.", def: "1200", example: "600"},
	)
}
