package balancerapi

import "sort"

// Where a controller answers balancers.
const (
	// TablePath answers GET ?epoch=E&after=V with the table once it is newer than
	// that, or with 204 after a while.
	TablePath = "/serve/balancer/table"
	// ReportPath takes a POST of a [Report] and answers with a [Receipt].
	ReportPath = "/serve/balancer/report"
	// ConnectPath answers GET ?service=NAME&replica=ID with a websocket whose binary
	// messages are the bytes of a connection to that replica.
	ConnectPath = "/serve/balancer/connect"
)

// A Report is what a balancer has counted since it started. Its counters only grow,
// within an epoch: whatever a controller misses, it learns from the next report.
type Report struct {
	Balancer string          `json:"balancer"` // its id, which outlives restarts
	Epoch    string          `json:"epoch"`    // the process that counts
	Time     float64         `json:"time"`     // Unix seconds, by the balancer's clock
	Table    int64           `json:"table"`    // the version that it serves
	Services []ServiceReport `json:"services"`
}

// ServiceReport has the counters of one service.
type ServiceReport struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"` // where it listens
	Error   string `json:"error,omitempty"`   // why it does not
	// Arrivals counts requests that came in, whatever became of them.
	Arrivals int64 `json:"arrivals"`
	// Recent counts the arrivals of single seconds, for the seconds since
	// [Receipt.Have]. The count of a second that has passed does not change.
	Recent []Second `json:"recent,omitempty"`
	// Refused counts answers of the balancer's own by their reason.
	Refused map[string]int64 `json:"refused,omitempty"`
	// Waiting are the requests that wait for a replica now, and since when the
	// first of them does (Unix seconds).
	Waiting      int     `json:"waiting,omitempty"`
	WaitingSince float64 `json:"waiting_since,omitempty"`
	InFlight     int     `json:"in_flight"`

	Versions []VersionReport `json:"versions,omitempty"` // replicas that are gone included
	Replicas []ReplicaReport `json:"replicas,omitempty"`
}

// Second is how many requests came in during one second.
type Second struct {
	At int64 `json:"at"` // Unix seconds
	N  int64 `json:"n"`
}

// Counts are about the requests that went to one replica or version.
type Counts struct {
	Requests  int64            `json:"requests"`            // sent
	Statuses  map[string]int64 `json:"statuses,omitempty"`  // ended, by "2xx", "5xx", "499" (client gone) and so on
	Errors    int64            `json:"errors,omitempty"`    // no answer: refused, reset or timed out
	Bytes     int64            `json:"bytes,omitempty"`     // of answers
	BytesIn   int64            `json:"bytes_in,omitempty"`  // of requests
	FirstByte Histogram        `json:"first_byte,omitzero"` // time until the answer began
	Duration  Histogram        `json:"duration,omitzero"`   // time until the answer ended
}

// VersionReport has the counters of one version of a service.
type VersionReport struct {
	Version int `json:"version"`
	Counts
}

// ReplicaReport has the counters of one replica.
type ReplicaReport struct {
	ID       int  `json:"id"`
	Version  int  `json:"version"`
	InFlight int  `json:"in_flight"`
	Ejected  bool `json:"ejected,omitempty"`
	Counts
}

// Bounds are the upper limits, in seconds, of a [Histogram]'s buckets. The last
// bucket has none.
var Bounds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// Histogram counts times in the buckets of [Bounds].
type Histogram struct {
	Buckets []int64 `json:"buckets,omitempty"` // each alone
	Sum     float64 `json:"sum,omitempty"`     // seconds
}

// Count is how many times were counted.
func (h Histogram) Count() int64 {
	n := int64(0)
	for _, b := range h.Buckets {
		n += b
	}
	return n
}

// Sub is what was counted since old, an earlier state of the same histogram.
func (h Histogram) Sub(old Histogram) Histogram {
	out := Histogram{Buckets: append([]int64(nil), h.Buckets...), Sum: h.Sum - old.Sum}
	for i := range min(len(out.Buckets), len(old.Buckets)) {
		out.Buckets[i] -= old.Buckets[i]
	}
	return out
}

// Add is both together.
func (h Histogram) Add(o Histogram) Histogram {
	a, b := h.Buckets, o.Buckets
	if len(a) < len(b) {
		a, b = b, a
	}
	out := Histogram{Buckets: append([]int64(nil), a...), Sum: h.Sum + o.Sum}
	for i := range b {
		out.Buckets[i] += b[i]
	}
	return out
}

// Quantile estimates the time, in seconds, that a share q of all is below. Within
// a bucket times count as evenly spread; 0 of an empty histogram.
func (h Histogram) Quantile(q float64) float64 {
	total := h.Count()
	if total == 0 {
		return 0
	}
	want, seen := q*float64(total), 0.0
	for i, n := range h.Buckets {
		if n == 0 {
			continue
		}
		if seen+float64(n) >= want || i == len(h.Buckets)-1 {
			if i >= len(Bounds) {
				break
			}
			low := 0.0
			if i > 0 {
				low = Bounds[i-1]
			}
			return low + (Bounds[i]-low)*min(1, max(0, (want-seen)/float64(n)))
		}
		seen += float64(n)
	}
	return Bounds[len(Bounds)-1]
}

// Bucket is the bucket of a time in seconds.
func Bucket(seconds float64) int { return sort.SearchFloat64s(Bounds, seconds) }

// A Receipt answers a report.
type Receipt struct {
	// Have says, for each service, up to which second, that one excluded, the
	// controller has the arrivals of this balancer's epoch. One that has restarted
	// has none, and is sent all that the balancer remembers.
	Have map[string]int64 `json:"have,omitempty"`
}
