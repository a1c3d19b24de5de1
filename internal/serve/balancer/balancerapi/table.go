// Package balancerapi has the values that a controller of services and its load
// balancers exchange: the [Table] of what is to be served, which goes to the
// balancers, and the [Report] of what happened, which comes back. All of them are
// plain values that travel as JSON.
package balancerapi

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// A Table is everything that a balancer serves. It is a value: a change is another
// table with a higher version.
type Table struct {
	// Epoch names the series that Version counts in. A table of another epoch
	// replaces any table, as that of a controller whose database was restored.
	Epoch    string    `json:"epoch,omitempty"`
	Version  int64     `json:"version"`
	Services []Service `json:"services"`
}

// Newer reports whether t replaces old.
func (t Table) Newer(old Table) bool { return t.Epoch != old.Epoch || t.Version > old.Version }

// A Service is one endpoint and the replicas behind it. The zero value of each
// field that can be left out is its default.
type Service struct {
	Name string `json:"name"`
	Host string `json:"host,omitempty"` // address to listen on; "": every address
	Port int    `json:"port"`           // 0: a free one

	TLS    *TLS   `json:"tls,omitempty"`
	Policy Policy `json:"policy,omitzero"`
	Limits Limits `json:"limits,omitzero"`
	Queue  Queue  `json:"queue,omitzero"`
	Eject  Eject  `json:"eject,omitzero"`

	// Versions says how much traffic each version of the service gets. Versions
	// without ready replicas get none; without a list, all replicas are one set.
	Versions []Version `json:"versions,omitempty"`
	Replicas []Replica `json:"replicas,omitempty"`

	// TrustForwarded keeps the X-Forwarded-* headers of clients, for a balancer
	// behind another proxy. Otherwise they are replaced.
	TrustForwarded bool `json:"trust_forwarded,omitempty"`
	// SlowStart is the time over which a replica that became ready gets its full
	// share; 0: 10 s, negative: none.
	SlowStart Seconds `json:"slow_start_seconds,omitempty"`
	// Drain is how long requests of a removed replica go on; 0: 120 s.
	Drain Seconds `json:"drain_seconds,omitempty"`
	// RetryAfter is what an answer 503 asks clients to wait; 0: 5 s.
	RetryAfter Seconds `json:"retry_after_seconds,omitempty"`
}

// TLS is a certificate with its key, in PEM: in files on the balancer's machine, which
// are read again when they change, or as texts.
type TLS struct {
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`

	CertFile string `json:"certfile,omitempty"`
	KeyFile  string `json:"keyfile,omitempty"`
}

// Names of policies.
const (
	LeastLoad              = "least_load"
	RoundRobin             = "round_robin"
	InstanceAwareLeastLoad = "instance_aware_least_load"
	SessionAffinity        = "session_affinity"
	PrefixAware            = "prefix_aware"
)

// Policies lists the names of policies.
var Policies = []string{RoundRobin, LeastLoad, InstanceAwareLeastLoad, SessionAffinity, PrefixAware}

// A Policy says how a replica is chosen.
type Policy struct {
	Name string `json:"name,omitempty"` // "": least_load
	// TargetQPS is the capacity of a replica by its accelerator, for
	// instance_aware_least_load: "A100:2", else "A100", else 1.
	TargetQPS map[string]float64 `json:"target_qps_per_replica,omitempty"`
	// Header or Cookie has the session of a request, for session_affinity. A
	// cookie that a request lacks is set.
	Header string `json:"header,omitempty"`
	Cookie string `json:"cookie,omitempty"`
	// LoadFactor is how far above the mean load a replica may be and still get
	// the requests of its sessions and prefixes; 0: 1.25.
	LoadFactor float64 `json:"load_factor,omitempty"`
	// LoadSlack is added to that limit, in requests, so that an idle service does
	// not scatter sessions; 0: 2, negative: none.
	LoadSlack float64 `json:"load_slack,omitempty"`
	// PrefixBlocks bounds how many blocks of prompts are remembered of each
	// replica, for prefix_aware; 0: 20000.
	PrefixBlocks int `json:"prefix_blocks,omitempty"`
	// Metrics is the path where replicas show the metrics of vLLM or SGLang, such
	// as "/metrics". Their queues and caches are then a part of the load.
	Metrics string `json:"metrics,omitempty"`
	// MetricsInterval is how often they are read; 0: 2 s.
	MetricsInterval Seconds `json:"metrics_interval_seconds,omitempty"`
}

// Limits bound what a request may take.
type Limits struct {
	HeaderBytes int   `json:"header_bytes,omitempty"` // of all headers; 0: 64 KiB
	BodyBytes   int64 `json:"body_bytes,omitempty"`   // of a request; 0: no limit
	// RequestTimeout ends a request whose answer has not begun; 0: none. A time
	// for uploading counts.
	RequestTimeout Seconds `json:"request_timeout_seconds,omitempty"`
	// IdleTimeout ends an exchange when nothing comes of an upload or of an answer that
	// has begun; 0: none. It does not hold for WebSockets and event streams.
	IdleTimeout Seconds `json:"idle_timeout_seconds,omitempty"`
	// ReplicaRequests bounds the requests in flight of each replica; more wait in
	// the queue. 0: no limit.
	ReplicaRequests int `json:"replica_requests,omitempty"`
	// KeepAlive is how long an unused connection to a replica is kept; 0: 4 s,
	// which is less than servers of LLMs keep theirs.
	KeepAlive Seconds `json:"keep_alive_seconds,omitempty"`
	// ClientKeepAlive is how long a client's connection without requests is kept; 0: 2
	// minutes, negative: as long as the client wants.
	ClientKeepAlive Seconds `json:"client_keep_alive_seconds,omitempty"`
	// Attempts bounds on how many replicas a request is tried; 0: 3.
	Attempts int `json:"attempts,omitempty"`
}

// Queue bounds the requests that wait for a replica: while none is ready, if Wait
// is set, and while all are at their limit.
type Queue struct {
	Wait     bool    `json:"wait,omitempty"`            // for the first replica, as of a service with min_replicas 0
	Requests int     `json:"requests,omitempty"`        // 0: 1000
	Bytes    int64   `json:"bytes,omitempty"`           // held in memory for them; 0: 64 MiB
	Timeout  Seconds `json:"timeout_seconds,omitempty"` // 0: 600 s
}

// Eject says when a replica that fails gets no requests for a while.
type Eject struct {
	Failures int     `json:"failures,omitempty"`     // in a row; 0: 5, negative: never
	Base     Seconds `json:"base_seconds,omitempty"` // the first time; doubles each time; 0: 1 s
	Max      Seconds `json:"max_seconds,omitempty"`  // 0: 60 s
	Share    float64 `json:"share,omitempty"`        // of the replicas that may be ejected at once; 0: 0.5
}

// A Version of a service and its share of the traffic.
type Version struct {
	Version int     `json:"version"`
	Weight  float64 `json:"weight"`
}

// State is what a replica is to the balancer.
type State string

const (
	Starting State = "starting" // gets no requests
	Ready    State = "ready"
	Draining State = "draining" // gets no new requests; those in flight go on
)

// Protocols of replicas.
const (
	HTTP1 = "http/1.1" // and gRPC over HTTP/2 without TLS
	H2C   = "h2c"      // HTTP/2 without TLS for everything except WebSockets
)

// AgentOnly is the Network of replicas that nothing but the agent on their own machine
// reaches.
const AgentOnly = "agent"

// KubernetesNetwork is the Network of the pods of a cluster, by the name of its context.
func KubernetesNetwork(context string) string { return "kubernetes/" + context }

// A Replica answers requests.
type Replica struct {
	ID      int    `json:"id"`
	Address string `json:"address"` // host:port
	// Network is where Address can be dialled; "": wherever balancers run. Balancers
	// outside of it connect through the server.
	Network  string  `json:"network,omitempty"`
	Version  int     `json:"version,omitempty"`
	State    State   `json:"state"`
	Weight   float64 `json:"weight,omitempty"`   // its share beside its equals; 0: 1
	GPU      string  `json:"gpu,omitempty"`      // such as A100:2
	Protocol string  `json:"protocol,omitempty"` // "": HTTP1
}

// Seconds is a time as spec files write it.
type Seconds float64

// Or is s as a duration, with a default for 0; negative is 0.
func (s Seconds) Or(unset time.Duration) time.Duration {
	if s == 0 {
		return unset
	}
	return max(0, time.Duration(float64(s)*float64(time.Second)))
}

// Check reports what a balancer cannot serve of a table.
func (t Table) Check() error {
	var errs []error
	names, ports := map[string]bool{}, map[string]string{}
	for _, s := range t.Services {
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("service %q: "+format, append([]any{s.Name}, args...)...))
		}
		if s.Name == "" || names[s.Name] {
			bad("the name is empty or given twice")
		}
		names[s.Name] = true
		if s.Port < 0 || s.Port > 65535 {
			bad("port %d is not between 0 and 65535", s.Port)
		}
		if at := fmt.Sprint(s.Host, " ", s.Port); s.Port != 0 {
			if other, taken := ports[at]; taken {
				bad("port %d is that of service %q", s.Port, other)
			}
			ports[at] = s.Name
		}
		if s.TLS != nil && (s.TLS.CertFile == "" || s.TLS.KeyFile == "") && (s.TLS.Cert == "" || s.TLS.Key == "") {
			bad("tls needs both certfile and keyfile")
		}
		if s.Policy.Name != "" && !slices.Contains(Policies, s.Policy.Name) {
			bad("unknown load balancing policy %q; use one of %s", s.Policy.Name, strings.Join(Policies, ", "))
		}
		if s.Policy.Name == SessionAffinity && (s.Policy.Header == "") == (s.Policy.Cookie == "") {
			bad("session_affinity needs either a header or a cookie")
		}
		ids := map[int]bool{}
		for _, r := range s.Replicas {
			if ids[r.ID] {
				bad("replica %d is given twice", r.ID)
			}
			ids[r.ID] = true
			if r.State != Starting && r.State != Ready && r.State != Draining {
				bad("replica %d: unknown state %q", r.ID, r.State)
			}
			if _, _, err := net.SplitHostPort(r.Address); err != nil && r.State != Starting {
				bad("replica %d: address %q is not host:port", r.ID, r.Address)
			}
			if r.Weight < 0 {
				bad("replica %d: weight %v is negative", r.ID, r.Weight)
			}
			if r.Protocol != "" && r.Protocol != HTTP1 && r.Protocol != H2C {
				bad("replica %d: unknown protocol %q; use %s or %s", r.ID, r.Protocol, HTTP1, H2C)
			}
		}
		for _, v := range s.Versions {
			if v.Weight < 0 {
				bad("version %d: weight %v is negative", v.Version, v.Weight)
			}
		}
	}
	return errors.Join(errs...)
}
