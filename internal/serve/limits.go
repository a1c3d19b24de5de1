package serve

import (
	"fmt"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
)

// Limits of what a service may take of the server, whose balancer and probes are
// everybody's.
const (
	mostHeader    = 1 << 20
	mostQueue     = 256 << 20 // bytes of requests that wait
	mostWaiting   = 10_000
	leastInterval = 100 * time.Millisecond
)

// allowed refuses a service that would take too much of the server, or read files of
// it that are not its user's.
func allowed(call cluster.Call, v *version) error {
	s, b := v.spec, v.spec.Balance
	for _, l := range []struct {
		field    string
		is, most int
	}{
		{"max_header_bytes", b.MaxHeaderBytes, mostHeader},
		{"queue.max_bytes", b.QueueBytes, mostQueue},
		{"queue.max_requests", b.QueueRequests, mostWaiting},
	} {
		if l.is > l.most {
			return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("service.load_balancer.%s is %d; the most is %d.", l.field, l.is, l.most)}
		}
	}
	if s.Probe.Interval < leastInterval {
		return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("Probes of a service are at least %v apart, not %v (readiness_probe.endpoint_probe_interval_seconds).", leastInterval, s.Probe.Interval)}
	}
	if call.Scope != nil && !v.hasCertificate() && (b.KeyFile != "" || b.CertFile != "") {
		return &api.Error{Type: api.ErrPermissionDenied, Message: "service.tls names files of the server's machine, which only its administrators may use.",
			Hint: "Put a proxy with your certificate before the service's endpoint."}
	}
	return nil
}
