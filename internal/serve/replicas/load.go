package replicas

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/serve/spec"
)

// Load is what was observed of the work that a service, or a pool, has.
type Load struct {
	// Known: the balancers, or the queue of jobs, have been read. Otherwise the
	// target stays as it is.
	Known    bool
	QPS      float64       // requests of the last minute, for each second
	InFlight int           // requests with replicas now
	Waiting  int           // requests that wait for a replica to get ready
	Latency  time.Duration // 95th percentile of the time to the first byte in the last minute; 0: no request
	Pending  int           // jobs that wait for a worker

	Versions map[int]Traffic // since the update began
}

// Traffic is how the requests and probes of a version went.
type Traffic struct{ Requests, Errors, Probes, ProbeFailures int }

// demand is how many replicas the load asks for, before limits and delays;
// false: it cannot be told, and the target stays. The highest of several
// measures counts.
func demand(s *spec.Scale, l *Load, rows []Replica, m *Scale, now time.Time) (int, bool) {
	if !l.Known {
		return 0, false
	}
	want, known := 0, false
	take := func(n int, ok bool) {
		if ok {
			want, known = max(want, n), true
		}
	}
	if s.QPS > 0 {
		take(byRate(s.QPS, l), true)
	}
	if len(s.QPSByAccelerator) > 0 {
		take(byInstance(s, l, rows), true)
	}
	if s.InFlight > 0 {
		take(up(float64(l.InFlight+l.Waiting)/s.InFlight), true)
	}
	if s.Latency > 0 {
		take(m.byLatency(s, l, rows, now), true)
	}
	if s.Metric != "" {
		take(byMetric(s, rows))
	}
	if s.QueueThreshold > 0 {
		take(byQueue(s, l, rows, m.Target), true)
	}
	if !s.Follows() {
		take(s.Min, true)
	}
	if known && l.InFlight+l.Waiting > 0 { // nobody is cut off by a service that scales to zero
		want = max(want, 1)
	}
	return want, known
}

// up rounds up, and forgives what floating point adds.
func up(x float64) int { return int(math.Ceil(x - 1e-9)) }

// byRate is the RequestRate autoscaler.
func byRate(target float64, l *Load) int { return up(l.QPS / target) }

// byInstance is the InstanceAware autoscaler: accelerators differ in how many
// requests they serve.
func byInstance(s *spec.Scale, l *Load, rows []Replica) int {
	capacity, n := 0.0, 0
	var ready []float64
	for i := range rows {
		r := &rows[i]
		if !r.Live() {
			continue
		}
		n++
		if r.Status != api.ReplicaNotReady {
			capacity += rateOf(s, r)
		}
		if r.Ready() {
			ready = append(ready, rateOf(s, r))
		}
	}
	largest := 0.0
	for _, q := range s.QPSByAccelerator {
		largest = max(largest, q)
	}
	switch {
	case capacity == 0 && n > 0: // none of them answers
		return n
	case capacity == 0 && l.QPS == 0:
		return 0
	case l.QPS >= capacity:
		return n + up((l.QPS-capacity)/largest)
	}
	slices.Sort(ready)
	slices.Reverse(ready)
	sum := 0.0
	for k, q := range ready {
		if sum += q; sum > l.QPS {
			return max(k+1, 1)
		}
	}
	return max(n, 1) // what starts is needed, too
}

// rateOf is how many requests a replica serves; an accelerator that the task
// does not name counts like the slowest.
func rateOf(s *spec.Scale, r *Replica) float64 {
	name, _, _ := strings.Cut(r.Accelerator, ":")
	for _, key := range []string{r.Accelerator, name} {
		if q, ok := s.QPSByAccelerator[key]; ok && key != "" {
			return q
		}
	}
	least := math.Inf(1)
	for _, q := range s.QPSByAccelerator {
		least = min(least, q)
	}
	return least
}

// byMetric keeps the mean of a metric at its target. Replicas that do not tell
// theirs count as the mean of those that do.
func byMetric(s *spec.Scale, rows []Replica) (int, bool) {
	sum, told, ready := 0.0, 0, 0
	for i := range rows {
		if r := &rows[i]; r.Ready() {
			ready++
			if r.Metric != nil && !math.IsNaN(*r.Metric) && !math.IsInf(*r.Metric, 0) {
				told++
				sum += *r.Metric
			}
		}
	}
	if told == 0 {
		return 0, false
	}
	return up(min(sum/float64(told)*float64(ready)/s.MetricTarget, 1e6)), true
}

// byQueue is the QueueLength autoscaler of pools: workers for the jobs that wait,
// at once instead of one by one.
func byQueue(s *spec.Scale, l *Load, rows []Replica, target int) int {
	busy := 0
	for i := range rows {
		if r := &rows[i]; r.Live() && r.InFlight > 0 {
			busy++
		}
	}
	switch {
	case l.Pending > s.QueueThreshold:
		return busy + up(float64(l.Pending)/float64(s.QueueThreshold))
	case l.Pending == s.QueueThreshold:
		return max(target, 1)
	case l.Pending > 0:
		return max(busy, 1)
	}
	return busy
}

// Shares of the latency target and of the rate at which it was missed.
const (
	idleBelow  = 0.5 // below this share of the target a replica fewer is thought of
	safe       = 0.8 // of the highest rate at which the target was met
	kneeMemory = 24 * time.Hour
)

// byLatency keeps the time to the first byte. It remembers the rate for each
// replica at which the target was missed, so that it does not go back there.
func (m *Scale) byLatency(s *spec.Scale, l *Load, rows []Replica, now time.Time) int {
	n := 0
	for i := range rows {
		if rows[i].Ready() {
			n++
		}
	}
	if now.Sub(m.KneeAt) > kneeMemory {
		m.Knee = 0
	}
	if n == 0 || l.Latency == 0 && l.QPS > 0 {
		return m.Target
	}
	each := l.QPS / float64(n)
	if l.Latency > s.Latency {
		if m.Knee == 0 {
			m.Knee = each
		}
		m.Knee, m.KneeAt = (m.Knee+each)/2, now
		worse := min(float64(l.Latency)/float64(s.Latency), 2)
		return max(n+1, up(float64(n)*worse))
	}
	if float64(l.Latency) < idleBelow*float64(s.Latency) && n > 1 {
		if m.Knee == 0 || l.QPS/float64(n-1) < safe*m.Knee {
			return n - 1
		}
	}
	if l.QPS == 0 {
		return n - 1
	}
	return n
}
