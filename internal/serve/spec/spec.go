// Package spec is the service section of a task, or its pool, as one value with
// every default filled in: what the serve controller, the autoscalers and the
// load balancer work with.
package spec

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/serve/probe"
	"github.com/skypilot-go/sky/task"
)

// Kind says what replicas are held for.
type Kind string

// Kinds of held replicas.
const (
	Service Kind = "service" // replicas behind an endpoint
	Pool    Kind = "pool"    // workers for managed jobs
)

// Spec is what one version of a service or pool asks for.
type Spec struct {
	Kind    Kind
	Port    int  // that replicas listen on; 0 for pools
	Spot    bool // replicas are spot machines
	Probe   probe.Settings
	Scale   Scale
	Update  Update
	Drain   time.Duration // for the requests of a replica that is to go
	Balance Balance
}

// Scale says how many replicas there should be.
type Scale struct {
	Min, Max      int
	Overprovision int // beyond the target

	// What the target follows; zero: not this. The highest of several counts.
	QPS              float64            // requests a second for each replica
	QPSByAccelerator map[string]float64 // the same by "A100" or "A100:8"
	InFlight         float64            // requests for each replica at the same time
	Latency          time.Duration      // 95th percentile of the time to the first byte
	Metric           string             // of Prometheus
	MetricTarget     float64            // its mean over replicas
	QueueThreshold   int                // jobs that wait for a worker of a pool

	Schedules  []Floor
	Predictive bool

	UpDelay, DownDelay time.Duration

	BaseOnDemand    int
	DynamicFallback bool
	Placer          string // "", dynamic_fallback or hedged
}

// Follows reports whether the target follows a load.
func (s *Scale) Follows() bool {
	return s.QPS > 0 || len(s.QPSByAccelerator) > 0 || s.InFlight > 0 || s.Latency > 0 || s.Metric != "" || s.QueueThreshold > 0
}

// String says how the replicas scale, as users read it.
func (s *Scale) String() string {
	if s.Max == s.Min {
		return "Fixed " + count(s.Min, "replica")
	}
	text := fmt.Sprintf("Autoscaling from %d to %d replicas", s.Min, s.Max)
	if s.Overprovision > 0 {
		text += " with " + count(s.Overprovision, "overprovisioned replica")
	}
	var by []string
	if s.QPS > 0 {
		by = append(by, fmt.Sprintf("target QPS per replica: %g", s.QPS))
	}
	if len(s.QPSByAccelerator) > 0 {
		by = append(by, "target QPS by accelerator")
	}
	if s.InFlight > 0 {
		by = append(by, fmt.Sprintf("target requests in flight per replica: %g", s.InFlight))
	}
	if s.Latency > 0 {
		by = append(by, fmt.Sprintf("target latency: %v", s.Latency))
	}
	if s.Metric != "" {
		by = append(by, fmt.Sprintf("target %s: %g", s.Metric, s.MetricTarget))
	}
	if len(by) > 0 {
		text += " (" + strings.Join(by, ", ") + ")"
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Floor keeps at least Min replicas for a time after each time of a schedule.
type Floor struct {
	Times task.Schedule
	For   time.Duration
	Min   int
}

// Holds reports whether the floor holds at a time.
func (f Floor) Holds(now time.Time) bool {
	next, err := f.Times.Next(now.Add(-f.For))
	return err == nil && !next.IsZero() && !next.After(now)
}

// Update says how versions replace each other.
type Update struct {
	CanaryWeight float64 // percent of the requests
	ErrorMargin  float64 // share by which a canary may fail more than the old version
	MinRequests  int     // before shares are compared
	MaxSurge     int     // replicas beyond the target; 0: any number
}

// Balance has the settings of the load balancer.
type Balance struct {
	Policy                         string
	AffinityHeader, AffinityCookie string
	PrefixLoadFactor               float64
	QueueRequests, QueueBytes      int // that wait while no replica is ready
	QueueWait                      time.Duration
	StreamTimeout                  time.Duration
	RequestTimeout                 time.Duration // 0: none
	IdleTimeout                    time.Duration
	MaxHeaderBytes, MaxBodyBytes   int           // MaxBodyBytes 0: any
	ReplicaRequests                int           // that each replica gets at the same time; 0: any number
	Metrics                        string        // path of those of vLLM or SGLang; "": they are not read
	SlowStart                      time.Duration // of replicas that become ready; 0: none
	EjectFailures                  int           // in a row, after which a replica gets no requests; 0: never
	EjectFirst, EjectMost          time.Duration // for which it gets none
	EjectShare                     float64       // of the replicas that may be ejected
	Attempts                       int           // replicas on which a request is tried
	RetryAfter                     time.Duration // that an answer 503 asks for
	KeepAlive                      time.Duration // of unused connections to replicas
	H2C                            bool          // replicas speak HTTP/2 without TLS
	TrustForwarded                 bool          // headers X-Forwarded of clients
	KeyFile, CertFile              string        // "": plain HTTP
}

// Defaults of what a task leaves out.
const (
	defaultUpDelay      = 300 * time.Second
	defaultDownDelay    = 1200 * time.Second
	defaultDrain        = 120 * time.Second
	defaultPoolFailures = 10 * time.Second
	defaultInterval     = 10 * time.Second
	defaultPolicy       = "least_load"
	prefixAware         = "prefix_aware"
)

// Of reads the service or pool of a task that [task.Parse] took.
func Of(t *task.Task) (*Spec, error) {
	s := &Spec{Drain: defaultDrain, Update: Update{CanaryWeight: 10, ErrorMargin: 0.05, MinRequests: 100}}
	if len(t.Resources) > 0 && t.Resources[0].UseSpot != nil {
		s.Spot = *t.Resources[0].UseSpot
	}
	switch {
	case t.Service != nil:
		s.Kind = Service
		if err := s.service(t); err != nil {
			return nil, err
		}
	case t.Pool != nil:
		s.Kind = Pool
		s.pool(t.Pool)
	default:
		return nil, errors.New("the task has neither a service nor a pool; add one of these sections")
	}
	return s, nil
}

func (s *Spec) service(t *task.Task) error {
	v := t.Service
	s.Port = v.Ports
	if s.Port == 0 && len(t.Resources) > 0 && len(t.Resources[0].Ports) == 1 {
		s.Port, _ = strconv.Atoi(t.Resources[0].Ports[0])
	}
	if s.Port == 0 {
		return errors.New("a service needs exactly one port in resources.ports, or service.ports to say which one it serves on")
	}
	p := v.ReadinessProbe
	s.Probe = probe.Settings{
		Protocol: probe.Protocol(or(p.Protocol, string(probe.HTTP))), Path: p.Path, Body: p.PostData, Headers: p.Headers, GRPCService: p.GRPCService,
		Timeout: seconds(p.TimeoutSeconds), Interval: seconds(p.IntervalSeconds), InitialDelay: seconds(p.InitialDelaySeconds), FailureSpan: seconds(p.FailureThresholdSeconds),
	}
	if r := v.Policy; r != nil {
		s.policy(r)
	} else {
		n := 1
		if v.Replicas != nil {
			n = *v.Replicas
		}
		s.Scale = Scale{Min: n, Max: n, UpDelay: defaultUpDelay, DownDelay: defaultDownDelay}
	}
	if v.DrainSeconds != nil {
		s.Drain = seconds(*v.DrainSeconds)
	}
	if u := v.Update; u != nil {
		set(&s.Update.CanaryWeight, u.CanaryWeight)
		set(&s.Update.ErrorMargin, u.ErrorMargin)
		set(&s.Update.MinRequests, u.MinRequests)
		set(&s.Update.MaxSurge, u.MaxSurge)
	}
	s.balance(v)
	return nil
}

func (s *Spec) policy(r *task.ReplicaPolicy) {
	c := Scale{
		Min: r.Min, Max: r.Min, Overprovision: r.Overprovision, QPSByAccelerator: r.TargetQPSByGPU, Predictive: r.Predictive,
		UpDelay: seconds(r.UpscaleDelaySeconds), DownDelay: seconds(r.DownscaleDelaySeconds),
		BaseOnDemand: r.BaseOndemandFallback, DynamicFallback: r.DynamicOndemand, Placer: strings.ToLower(r.SpotPlacer),
	}
	set(&c.Max, r.Max)
	set(&c.QPS, r.TargetQPS)
	set(&c.InFlight, r.TargetInFlight)
	if r.TargetLatencySeconds != nil {
		c.Latency = seconds(*r.TargetLatencySeconds)
	}
	if m := r.Metric; m != nil {
		c.Metric, c.MetricTarget = m.Name, m.Target
	}
	for _, f := range r.Schedules {
		c.Schedules = append(c.Schedules, Floor{
			Times: task.Schedule{Cron: f.Cron, Timezone: f.Timezone}, For: time.Duration(f.DurationSeconds) * time.Second, Min: f.Min})
	}
	s.Scale = c
}

func (s *Spec) balance(v *task.Service) {
	b := Balance{
		Policy: or(v.LoadBalancingPolicy, defaultPolicy), PrefixLoadFactor: 1.5, QueueRequests: 1000, QueueBytes: 64 << 20, QueueWait: 5 * time.Minute,
		StreamTimeout: seconds(v.StreamTimeoutSeconds), IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 1 << 20,
		KeyFile: v.TLSKeyfile, CertFile: v.TLSCertfile,
		SlowStart: 10 * time.Second, EjectFailures: 5, EjectFirst: time.Second, EjectMost: time.Minute, EjectShare: 0.5, Attempts: 3,
		RetryAfter: 5 * time.Second, KeepAlive: 4 * time.Second, // servers of models close theirs after 5 s
	}
	if b.Policy == prefixAware {
		b.Metrics = "/metrics"
	}
	if o := v.Balancer; o != nil {
		b.AffinityHeader, b.AffinityCookie = o.AffinityHeader, o.AffinityCookie
		set(&b.PrefixLoadFactor, o.PrefixLoadFactor)
		set(&b.QueueRequests, o.QueueRequests)
		set(&b.QueueBytes, o.QueueBytes)
		setSeconds(&b.QueueWait, o.QueueSeconds)
		setSeconds(&b.RequestTimeout, o.RequestTimeoutSeconds)
		setSeconds(&b.IdleTimeout, o.IdleTimeoutSeconds)
		set(&b.MaxHeaderBytes, o.MaxHeaderBytes)
		set(&b.MaxBodyBytes, o.MaxBodyBytes)
		set(&b.ReplicaRequests, o.ReplicaRequests)
		b.Metrics = or(o.Metrics, b.Metrics)
		setSeconds(&b.SlowStart, o.SlowStartSeconds)
		set(&b.EjectFailures, o.EjectFailures)
		setSeconds(&b.EjectFirst, o.EjectFirstSeconds)
		setSeconds(&b.EjectMost, o.EjectMaxSeconds)
		if o.EjectMaxPercent != nil {
			b.EjectShare = *o.EjectMaxPercent / 100
		}
		set(&b.Attempts, o.Attempts)
		setSeconds(&b.RetryAfter, o.RetryAfterSeconds)
		setSeconds(&b.KeepAlive, o.KeepAliveSeconds)
		b.H2C, b.TrustForwarded = o.ReplicaProtocol == "h2c", o.TrustForwarded
	}
	s.Balance = b
}

// pool fills in a pool. Its workers are asked by their agents, not over a port.
func (s *Spec) pool(p *task.Pool) {
	s.Probe = probe.Settings{Interval: defaultInterval, FailureSpan: defaultPoolFailures}
	c := Scale{UpDelay: defaultUpDelay, DownDelay: defaultDownDelay}
	switch {
	case p.Max != nil:
		c.Min, c.Max, c.QueueThreshold = 1, *p.Max, 1
		set(&c.Min, p.Min)
		c.Min = min(c.Min, c.Max)
		set(&c.QueueThreshold, p.QueueLengthThreshold)
	case p.Workers != nil:
		c.Min, c.Max = *p.Workers, *p.Workers
	}
	setSeconds(&c.UpDelay, p.UpscaleDelaySeconds)
	setSeconds(&c.DownDelay, p.DownscaleDelaySeconds)
	s.Scale = c
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func setSeconds(to *time.Duration, from *float64) {
	if from != nil {
		*to = seconds(*from)
	}
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
