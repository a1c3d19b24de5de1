package balancer

import (
	"strconv"

	"github.com/skypilot-go/sky/internal/metrics"
	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// WriteMetrics writes the balancer's metrics as Prometheus reads them.
func (b *Balancer) WriteMetrics(w *metrics.Writer) {
	type (
		samples = []metrics.Sample
		labels  = []metrics.Label
	)
	var arrived, waiting, refused, retries, ejections, open, requests, ended, failed, in, out, inFlight, ejected, ready samples
	var firstByte, duration []metrics.Distribution
	rep := b.Report(map[string]int64{})
	b.mu.Lock()
	services := make(map[string]*service, len(b.services))
	for n, s := range b.services {
		services[n] = s
	}
	b.mu.Unlock()
	add := func(to *samples, v float64, l labels) { *to = append(*to, metrics.Sample{Labels: l, Value: v}) }
	for _, s := range rep.Services {
		l := labels{{Name: "service", Value: s.Name}}
		add(&arrived, float64(s.Arrivals), l)
		add(&waiting, float64(s.Waiting), l)
		for _, name := range reasonNames {
			if n := s.Refused[name]; n > 0 {
				add(&refused, float64(n), labels{l[0], {Name: "reason", Value: name}})
			}
		}
		if live := services[s.Name]; live != nil {
			add(&retries, float64(live.counts.retries.Load()), l)
			add(&ejections, float64(live.counts.ejected.Load()), l)
			add(&open, float64(live.counts.upgraded.Load()), l)
			live.mu.Lock()
			add(&ready, float64(len(live.ready)), l)
			live.mu.Unlock()
		}
		for _, r := range s.Replicas {
			l := labels{l[0], {Name: "replica", Value: strconv.Itoa(r.ID)}, {Name: "version", Value: strconv.Itoa(r.Version)}}
			add(&requests, float64(r.Requests), l)
			for _, status := range statusNames {
				if n := r.Statuses[status]; n > 0 {
					add(&ended, float64(n), labels{l[0], l[1], l[2], {Name: "status", Value: status}})
				}
			}
			add(&failed, float64(r.Errors), l)
			add(&in, float64(r.BytesIn), l)
			add(&out, float64(r.Bytes), l)
			add(&inFlight, float64(r.InFlight), l)
			add(&ejected, map[bool]float64{true: 1}[r.Ejected], l)
			firstByte = append(firstByte, metrics.Distribution{Labels: l, Counts: r.FirstByte.Buckets, Sum: r.FirstByte.Sum})
			duration = append(duration, metrics.Distribution{Labels: l, Counts: r.Duration.Buckets, Sum: r.Duration.Sum})
		}
	}
	w.Gauge("sky_balancer_table_version", "Version of the table that is served.", float64(rep.Table))
	w.Samples("sky_balancer_requests_total", "Requests that came in, whatever became of them.", "counter", arrived)
	w.Samples("sky_balancer_waiting", "Requests that wait for a replica.", "gauge", waiting)
	w.Samples("sky_balancer_refused_total", "Answers of the balancer's own, by their reason.", "counter", refused)
	w.Samples("sky_balancer_retries_total", "Requests that were sent again.", "counter", retries)
	w.Samples("sky_balancer_ejections_total", "Times that a replica got no requests for a while because it failed.", "counter", ejections)
	w.Samples("sky_balancer_upgraded", "WebSockets and other upgraded connections that are open.", "gauge", open)
	w.Samples("sky_balancer_replicas_ready", "Replicas that may get requests.", "gauge", ready)
	w.Samples("sky_balancer_replica_requests_total", "Requests sent to a replica.", "counter", requests)
	w.Samples("sky_balancer_replica_answers_total", "Requests of a replica that have ended, by status; 499: the client left.", "counter", ended)
	w.Samples("sky_balancer_replica_errors_total", "Requests that got no answer from a replica.", "counter", failed)
	w.Samples("sky_balancer_replica_received_bytes_total", "Bytes of requests' bodies.", "counter", in)
	w.Samples("sky_balancer_replica_sent_bytes_total", "Bytes of answers' bodies.", "counter", out)
	w.Samples("sky_balancer_replica_in_flight", "Requests that a replica has.", "gauge", inFlight)
	w.Samples("sky_balancer_replica_ejected", "1 while a replica gets no requests because it failed.", "gauge", ejected)
	w.Distributions("sky_balancer_first_byte_seconds", "Time until an answer began.", balancerapi.Bounds, firstByte)
	w.Distributions("sky_balancer_request_seconds", "Time until an answer ended.", balancerapi.Bounds, duration)
}
