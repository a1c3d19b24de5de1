package task

import (
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

func probeSchema() *schema.Spec {
	return text().With(object(
		field{name: "path", is: text(), doc: "Path that answers 200 when the replica is ready; required with http.", example: "/health"},
		field{name: "protocol", is: choice(ProbeProtocols...), doc: "How to ask: http; tcp: a connection is enough; grpc: the standard health service says SERVING.", def: "http", example: "grpc"},
		field{name: "grpc_service", is: text(), doc: "Service to ask for with grpc; without it the whole server.", example: "chat.Chat"},
		field{name: "initial_delay_seconds", is: number().AtLeast(0), doc: "How long a replica may take to get ready for the first time.", def: "1200", example: "600"},
		field{name: "timeout_seconds", is: number().AtLeast(0), doc: "How long one probe may take.", def: "15", example: "5"},
		field{name: "endpoint_probe_interval_seconds", is: number().AtLeast(0), doc: "Time between probes.", def: "10", example: "5"},
		field{name: "consecutive_failure_threshold_timeout", is: number().AtLeast(0), doc: "How long probes may fail before the replica is given up.", def: "180", example: "60"},
		field{name: "post_data", is: text().With(openObject()), doc: "JSON sent with POST instead of a GET.", example: "{model: x}"},
		field{name: "headers", is: mapOf(text()), doc: "Headers of the probe; with grpc its metadata.", example: "{Authorization: Bearer x}"},
	))
}

func serviceSchema() *schema.Spec {
	s := object(
		field{name: "readiness_probe", is: probeSchema(), doc: "How to ask a replica whether it is ready: a path, or a map.", def: "/", example: "/health"},
		field{name: "pool", is: poolSchema(), internal: true},
		field{name: "replica_policy", is: object(
			field{name: "min_replicas", is: integer().AtLeast(0), required: true, doc: "Fewest replicas.", example: "1"},
			field{name: "max_replicas", is: integer().AtLeast(0).Or(yaml11.Null), doc: "Most replicas.", def: "min_replicas", example: "5"},
			field{name: "num_overprovision", is: integer().AtLeast(0), doc: "Replicas beyond what is needed.", def: "0", example: "1"},
			field{name: "target_qps_per_replica", is: checkedNumber(number(), checkPositive).With(atLeastOne(named(checkedNumber(number(), checkPositive), `[A-Z0-9-]+(?::[0-9]+)?`, "an accelerator in capitals such as A100 or A100:8"))),
				doc: "Requests per second that one replica serves; a map gives it per accelerator.", example: "2.5"},
			field{name: "target_in_flight_per_replica", is: checkedNumber(number(), checkPositive), doc: "Requests that one replica works on at the same time.", example: "8"},
			field{name: "target_latency_seconds", is: checkedNumber(number(), checkPositive), doc: "The time in which 95 of 100 requests should get their first byte.", example: "0.5"},
			field{name: "metric", is: object(
				field{name: "name", is: matching(`[a-zA-Z_:][a-zA-Z0-9_:]*`, "the name of a Prometheus metric"), required: true, doc: "A metric that replicas expose under /metrics; several series of it are added up.", example: "vllm:num_requests_waiting"},
				field{name: "target", is: checkedNumber(number(), checkPositive), required: true, doc: "Its mean over the replicas that is kept.", example: "4"},
			), doc: "Scale by a Prometheus metric of the replicas.", example: "{name: 'vllm:num_requests_waiting', target: 4}"},
			field{name: "schedules", is: list(object(
				field{name: "cron", is: checked(text(), checkTimes, `\S.*`), required: true, doc: "When it begins: minute, hour, day of the month, month, day of the week.", example: `"0 8 * * 1-5"`},
				field{name: "timezone", is: timezoneSchema(), doc: "The zone in which the times are meant.", def: "UTC", example: "Europe/Berlin"},
				field{name: "duration", is: checked(text().Or(yaml11.Int), checkSomeSeconds, durationPattern), required: true, doc: "For how long.", example: "10h"},
				field{name: "min_replicas", is: integer().AtLeast(0), required: true, doc: "Fewest replicas in this time.", example: "4"},
			)), doc: "Times at which more replicas are kept, whatever the load.", example: "[{cron: '0 8 * * 1-5', duration: 10h, min_replicas: 4}]"},
			field{name: "predictive", is: boolean(), doc: "Whether replicas that the same hour of earlier days needed are there before the load comes.", def: "false", example: "true"},
			field{name: "upscale_delay_seconds", is: number().AtLeast(0), doc: "How long the load must be high before replicas are added.", def: "300", example: "60"},
			field{name: "downscale_delay_seconds", is: number().AtLeast(0), doc: "How long the load must be low before replicas are removed.", def: "1200", example: "600"},
			field{name: "base_ondemand_fallback_replicas", is: integer().AtLeast(0), doc: "Replicas that are always on-demand machines.", def: "0", example: "1"},
			field{name: "dynamic_ondemand_fallback", is: boolean(), doc: "Whether on-demand machines stand in for spot machines that are not to be had.", def: "false", example: "true"},
			field{name: "spot_placer", is: choiceAnyCase(SpotPlacers...), doc: "How spot replicas are spread over places: dynamic_fallback avoids places that failed; hedged spreads by what is known of each, keeps a spare while a place is in trouble, and rents on-demand machines only meanwhile.", example: "hedged"},
		), doc: "Scale with the load.", example: "{min_replicas: 1, max_replicas: 5, target_qps_per_replica: 2}"},
		field{name: "replicas", is: integer().AtLeast(0), doc: "How many replicas, always.", def: "1", example: "2"},
		field{name: "workers", is: integer().AtLeast(0), doc: "The same as replicas.", example: "2"},
		field{name: "ports", is: integer().AtLeast(1).AtMost(65535), doc: "Port that replicas serve on.", def: "the one of resources.ports", example: "8080"},
		field{name: "load_balancing_policy", is: choiceAnyCase(LoadBalancingPolicies...), doc: "Which replica gets a request.", def: "least_load", example: "round_robin"},
		field{name: "load_balancer", is: object(
			field{name: "stream_timeout_seconds", is: number().AtLeast(0), doc: "How long an upload, or an answer that has begun, may pause; event streams, gRPC and WebSockets may be silent.", def: "120", example: "600"},
			field{name: "affinity", is: object(
				field{name: "header", is: matching("[-!#$%&'*+.^_`|~0-9A-Za-z]+", "the name of a header"), doc: "Header whose value names the session.", example: "X-Session-Id"},
				field{name: "cookie", is: matching("[-!#$%&'*+.^_`|~0-9A-Za-z]+", "the name of a cookie"), doc: "Cookie whose value names the session.", example: "session"},
			), doc: "What the session_affinity policy goes by.", example: "{header: X-Session-Id}"},
			field{name: "prefix_load_factor", is: number().AtLeast(1), doc: "How far above the mean a replica's load may be and still get the requests whose prompts it has seen.", def: "1.5", example: "2"},
			field{name: "queue", is: object(
				field{name: "max_requests", is: integer().AtLeast(0), doc: "How many requests may wait.", def: "1000", example: "100"},
				field{name: "max_bytes", is: integer().AtLeast(0), doc: "How many bytes of them may be kept.", def: "67108864", example: "1048576"},
				field{name: "max_wait_seconds", is: number().AtLeast(0), doc: "How long each may wait.", def: "300", example: "60"},
			), doc: "Requests that wait while no replica is ready, or all have max_requests_per_replica.", example: "{max_requests: 100, max_wait_seconds: 60}"},
			field{name: "max_requests_per_replica", is: integer().AtLeast(1), doc: "Requests that a replica gets at the same time; more wait in the queue. Without it: any number.", example: "64"},
			field{name: "metrics", is: matching(`/\S*`, "a path that begins with a slash"), doc: "Path where replicas show the metrics of vLLM or SGLang, whose queues and caches are then a part of the load.", def: "/metrics with prefix_aware, else none", example: "/metrics"},
			field{name: "slow_start_seconds", is: number().AtLeast(0), doc: "The time in which a replica that has become ready gets to its full share.", def: "10", example: "60"},
			field{name: "eject", is: object(
				field{name: "failures", is: integer().AtLeast(0), doc: "Failures in a row after which a replica gets no requests for a while; 0: it always gets them.", def: "5", example: "3"},
				field{name: "first_seconds", is: checkedNumber(number(), checkPositive), doc: "How long the first time; it doubles each time.", def: "1", example: "5"},
				field{name: "max_seconds", is: checkedNumber(number(), checkPositive), doc: "How long at most.", def: "60", example: "300"},
				field{name: "max_percent", is: checkedNumber(number(), checkPercent), doc: "Percent of the replicas that may be ejected at the same time.", def: "50", example: "30"},
			), doc: "When a replica that fails gets no requests for a while.", example: "{failures: 3, max_seconds: 300}"},
			field{name: "attempts", is: integer().AtLeast(1), doc: "How many replicas a request is tried on, where trying again is safe.", def: "3", example: "2"},
			field{name: "retry_after_seconds", is: number().AtLeast(1), doc: "What an answer 503 asks clients to wait.", def: "5", example: "30"},
			field{name: "keep_alive_seconds", is: number().AtLeast(0), doc: "How long an unused connection to a replica is kept.", def: "4", example: "60"},
			field{name: "replica_protocol", is: choice(ReplicaProtocols...), doc: "What replicas speak: http1, and HTTP/2 for gRPC; or h2c, HTTP/2 without TLS for everything.", def: "http1", example: "h2c"},
			field{name: "trust_forwarded", is: boolean(), doc: "Whether the X-Forwarded headers of clients are kept, as behind another proxy.", def: "false", example: "true"},
			field{name: "request_timeout_seconds", is: number().AtLeast(0), doc: "How long it may take until an answer begins, uploading included; 0: as long as it likes.", def: "0", example: "600"},
			field{name: "idle_timeout_seconds", is: number().AtLeast(0), doc: "How long a connection without requests is kept.", def: "120", example: "60"},
			field{name: "max_header_bytes", is: integer().AtLeast(1), doc: "Longest header of a request.", def: "1048576", example: "65536"},
			field{name: "max_body_bytes", is: integer().AtLeast(0), doc: "Longest body of a request; 0: any.", def: "0", example: "104857600"},
		), doc: "Settings of the load balancer.", example: "{stream_timeout_seconds: 600}"},
		field{name: "update", is: object(
			field{name: "canary_weight", is: checkedNumber(number(), checkPercent), doc: "Percent of the requests that a canary gets.", def: "10", example: "5"},
			field{name: "error_margin", is: number().AtLeast(0).AtMost(1), doc: "A canary is rolled back when its share of failed requests or probes exceeds the old version's by more than this.", def: "0.05", example: "0.01"},
			field{name: "min_requests", is: integer().AtLeast(1), doc: "Requests or probes of a canary before its share is judged.", def: "100", example: "1000"},
			field{name: "max_surge", is: integer().AtLeast(1), doc: "Replicas beyond the target while versions change; without it all of the new version start at once.", example: "1"},
		), doc: "How a new version takes over.", example: "{canary_weight: 5, max_surge: 1}"},
		field{name: "drain_seconds", is: number().AtLeast(0), doc: "How long the requests of a replica that is to go may take to end.", def: "120", example: "600"},
		field{name: "tls", is: object(
			field{name: "keyfile", is: text(), required: true, doc: "Private key, PEM.", example: "./key.pem"},
			field{name: "certfile", is: text(), required: true, doc: "Certificate, PEM.", example: "./cert.pem"},
		), doc: "Serve https with this key.", example: "{keyfile: key.pem, certfile: cert.pem}"},
	)
	s.Gone = map[string]string{
		"readiness_path":       `write "readiness_probe"`,
		"auto_restart":         "replicas are always restarted",
		"qps_upper_bound":      `write "target_qps_per_replica" under replica_policy`,
		"app_port":             `write "ports"`,
		"port":                 `write "ports"`,
		"replica_port":         `write "ports"`,
		"controller_resources": "it is set in the configuration file",
	}
	for _, f := range []string{"min_replicas", "max_replicas", "target_qps_per_replica"} {
		s.Gone[f] = "it goes under replica_policy"
	}
	return s
}

// LoadBalancingPolicies has the words of service.load_balancing_policy.
var LoadBalancingPolicies = []string{"least_load", "round_robin", "instance_aware_least_load", "session_affinity", "prefix_aware"}

// ReplicaProtocols has the words of service.load_balancer.replica_protocol.
var ReplicaProtocols = []string{"http1", "h2c"}

// SpotPlacers has the words of service.replica_policy.spot_placer.
var SpotPlacers = []string{"dynamic_fallback", "hedged"}

// ProbeProtocols has the words of service.readiness_probe.protocol.
var ProbeProtocols = []string{"http", "tcp", "grpc"}

func checkPercent(s string) error {
	if f, ok := parseDecimal(s); !ok || f <= 0 || f > 100 {
		return fmt.Errorf("should be more than 0 and at most 100, not %s", s)
	}
	return nil
}

// checkTimes takes a schedule whose times do not depend on when it is read.
func checkTimes(s string) error {
	if strings.HasPrefix(s, "@every") {
		return fmt.Errorf("%q has no times of the day; write them, such as \"0 8 * * 1-5\"", s)
	}
	return checkCron(s)
}

// checkSomeSeconds takes a time that is not 0.
func checkSomeSeconds(s string) error {
	n, err := ParseSeconds(s)
	if err == nil && n <= 0 {
		return fmt.Errorf("should be more than 0, not %s", s)
	}
	return err
}

func poolSchema() *schema.Spec {
	return object(
		field{name: "workers", is: integer().AtLeast(0), doc: "How many workers, always.", example: "3"},
		field{name: "min_workers", is: integer().AtLeast(0), doc: "Fewest workers.", def: "1", example: "1"},
		field{name: "max_workers", is: integer().AtLeast(0), doc: "Most workers.", example: "10"},
		field{name: "queue_length_threshold", is: integer().AtLeast(1), doc: "Waiting jobs that make the pool grow.", def: "1", example: "2"},
		field{name: "upscale_delay_seconds", is: number().AtLeast(0), doc: "How long jobs must wait before workers are added.", def: "300", example: "60"},
		field{name: "downscale_delay_seconds", is: number().AtLeast(0), doc: "How long workers must be idle before they are removed.", def: "1200", example: "600"},
	)
}
