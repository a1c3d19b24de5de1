package balancer

import (
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// counters count the requests of one replica or version.
type counters struct {
	requests, errors, bytes, bytesIn atomic.Int64
	statuses                         [len(statusNames)]atomic.Int64
	firstByte, duration              histogram
}

// statusNames are the classes of answers. 499 means that the client left.
var statusNames = [...]string{"1xx", "2xx", "3xx", "4xx", "5xx", "499"}

func statusClass(status int) int {
	if status == statusClientGone {
		return len(statusNames) - 1
	}
	return min(max(status/100, 1), 5) - 1
}

// statusClientGone is what nginx counts a request as whose client left.
const statusClientGone = 499

type histogram struct {
	buckets [20]atomic.Int64 // one more than balancerapi.Bounds
	sum     atomic.Int64     // nanoseconds
}

func (h *histogram) observe(d time.Duration) {
	h.buckets[balancerapi.Bucket(d.Seconds())].Add(1)
	h.sum.Add(int64(d))
}

func (h *histogram) value() balancerapi.Histogram {
	out := balancerapi.Histogram{Buckets: make([]int64, len(h.buckets)), Sum: time.Duration(h.sum.Load()).Seconds()}
	for i := range h.buckets {
		out.Buckets[i] = h.buckets[i].Load()
	}
	return out
}

func (c *counters) value() balancerapi.Counts {
	out := balancerapi.Counts{
		Requests: c.requests.Load(), Errors: c.errors.Load(), Bytes: c.bytes.Load(), BytesIn: c.bytesIn.Load(),
		FirstByte: c.firstByte.value(), Duration: c.duration.value(),
	}
	for i := range c.statuses {
		if n := c.statuses[i].Load(); n > 0 {
			if out.Statuses == nil {
				out.Statuses = map[string]int64{}
			}
			out.Statuses[statusNames[i]] = n
		}
	}
	return out
}

// arrivals counts requests by the second of their arrival, for the last keepSeconds.
type arrivals struct {
	total int64
	ring  []balancerapi.Second
}

// keepSeconds is how much a controller that was away learns afterwards.
const keepSeconds = 3600

func (a *arrivals) add(now int64) {
	a.total++
	if n := len(a.ring); n > 0 && a.ring[n-1].At >= now { // a clock that went back counts for the latest second
		a.ring[n-1].N++
		return
	}
	a.ring = append(a.ring, balancerapi.Second{At: now, N: 1})
	if len(a.ring) > 2*keepSeconds || len(a.ring) > 16 && a.ring[0].At < now-2*keepSeconds {
		a.trim(now)
	}
}

func (a *arrivals) trim(now int64) {
	old := 0
	for old < len(a.ring) && a.ring[old].At <= now-keepSeconds {
		old++
	}
	a.ring = append([]balancerapi.Second(nil), a.ring[old:]...)
}

// since are the counts of the seconds from one on that are remembered.
func (a *arrivals) since(from, now int64) []balancerapi.Second {
	from = max(from, now-keepSeconds+1)
	i := len(a.ring)
	for i > 0 && a.ring[i-1].At >= from {
		i--
	}
	return append([]balancerapi.Second(nil), a.ring[i:]...)
}
