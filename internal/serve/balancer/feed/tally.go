package feed

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// A Tally puts the reports of all balancers together. A report that comes twice or
// late changes nothing, since counters only grow within an epoch, and one that is
// lost is made up for by the next.
type Tally struct {
	mu       sync.Mutex
	services map[string]*total
}

// total is what is known of one service.
type total struct {
	counters map[counterKey]*counter
}

// counterKey is a balancer's process.
type counterKey struct{ balancer, epoch string }

// counter is the last that one process reported.
type counter struct {
	seen     time.Time
	last     balancerapi.ServiceReport
	arrivals map[int64]int64 // by second
	have     int64           // arrivals of seconds before this one are known
	past     []moment        // one in momentEvery
}

// moment is what had been counted at a time.
type moment struct {
	at        time.Time
	firstByte balancerapi.Histogram
}

// Times until answers began are known for each momentEvery of the last momentsKept.
const (
	momentEvery = 10 * time.Second
	momentsKept = 5 * time.Minute
)

// remember keeps how the times until answers began were at a time.
func (c *counter) remember(now time.Time) {
	if n := len(c.past); n > 0 && now.Sub(c.past[n-1].at) < momentEvery {
		return
	}
	c.past = append(c.past, moment{now, c.firstByte()})
	c.past = slices.DeleteFunc(c.past, func(m moment) bool { return now.Sub(m.at) > momentsKept })
}

func (c *counter) firstByte() (all balancerapi.Histogram) {
	for _, v := range c.last.Versions {
		all = all.Add(v.FirstByte)
	}
	return all
}

// FirstByte is the times until answers began, of about the answers that did so from
// since on.
func (t *Tally) FirstByte(service string, since time.Time) (out balancerapi.Histogram) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.services[service]
	if all == nil {
		return out
	}
	for _, c := range all.counters {
		if c.seen.Before(since) {
			continue
		}
		base := c.past[0]
		for _, m := range c.past {
			if !m.at.After(since) {
				base = m
			}
		}
		if d := c.firstByte().Sub(base.firstByte); !slices.ContainsFunc(d.Buckets, func(n int64) bool { return n < 0 }) { // else a version was forgotten
			out = out.Add(d)
		}
	}
	return out
}

// keep is how long the arrivals of a second are remembered.
const keep = time.Hour

// alive is how long a balancer's gauges count after its last report.
const alive = 10 * time.Second

// Add takes in a report, at the time now, and answers it.
func (t *Tally) Add(r balancerapi.Report, now time.Time) balancerapi.Receipt {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.services == nil {
		t.services = map[string]*total{}
	}
	key := counterKey{r.Balancer, r.Epoch}
	receipt := balancerapi.Receipt{Have: map[string]int64{}}
	for _, s := range r.Services {
		all := t.services[s.Name]
		if all == nil {
			all = &total{counters: map[counterKey]*counter{}}
			t.services[s.Name] = all
		}
		c := all.counters[key]
		if c == nil {
			c = &counter{arrivals: map[int64]int64{}}
			all.counters[key] = c
		}
		c.seen = now
		if s.Arrivals >= c.last.Arrivals { // else it was overtaken by a later one
			c.last = s
		}
		for _, sec := range s.Recent {
			c.arrivals[sec.At] = max(c.arrivals[sec.At], sec.N)
		}
		// The running second is not over, and a request of the one before may have
		// been counted after the report was made.
		c.have = max(c.have, int64(r.Time)-1)
		c.last.Recent = nil
		c.remember(now)
		receipt.Have[s.Name] = c.have
	}
	return receipt
}

// Forget drops what is too old to matter, and services that are not listed.
func (t *Tally) Forget(services []string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, all := range t.services {
		if !slices.Contains(services, name) {
			delete(t.services, name)
			continue
		}
		for key, c := range all.counters {
			maps.DeleteFunc(c.arrivals, func(at, _ int64) bool { return at < now.Add(-keep).Unix() })
			if now.Sub(c.seen) > keep {
				delete(all.counters, key)
			}
		}
	}
}

// Arrivals is how many requests of a service came in during the seconds from since
// on, over all balancers.
func (t *Tally) Arrivals(service string, since time.Time) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := int64(0)
	if all := t.services[service]; all != nil {
		for _, c := range all.counters {
			for at, k := range c.arrivals {
				if at >= since.Unix() {
					n += k
				}
			}
		}
	}
	return n
}

// Seconds are the arrivals of a service by second, from since on.
func (t *Tally) Seconds(service string, since time.Time) []balancerapi.Second {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := map[int64]int64{}
	if all := t.services[service]; all != nil {
		for _, c := range all.counters {
			for at, k := range c.arrivals {
				if at >= since.Unix() {
					sum[at] += k
				}
			}
		}
	}
	var out []balancerapi.Second
	for _, at := range slices.Sorted(maps.Keys(sum)) {
		out = append(out, balancerapi.Second{At: at, N: sum[at]})
	}
	return out
}

// Heard is what a balancer that has reported lately says of a service.
type Heard struct {
	Address string // where it listens
	Error   string // why it does not
	Ejected []int  // replicas that get no requests from it for a while
}

// Heard is the balancers that have reported lately, by their ids.
func (t *Tally) Heard(service string, now time.Time) map[string]Heard {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[string]Heard{}
	latest := map[string]time.Time{}
	all := t.services[service]
	if all == nil {
		return out
	}
	for key, c := range all.counters {
		if now.Sub(c.seen) > alive || c.seen.Before(latest[key.balancer]) {
			continue
		}
		latest[key.balancer] = c.seen
		h := Heard{Address: c.last.Address, Error: c.last.Error}
		for _, r := range c.last.Replicas {
			if r.Ejected {
				h.Ejected = append(h.Ejected, r.ID)
			}
		}
		out[key.balancer] = h
	}
	return out
}

// A Summary is a service over all its balancers.
type Summary struct {
	Balancers    int // that have reported lately
	Waiting      int
	WaitingSince time.Time   // zero: none waits
	InFlight     map[int]int // by replica
	Refused      map[string]int64
	// Versions and Replicas count since the first report; differences of two
	// summaries are what happened between them.
	Versions map[int]balancerapi.Counts
	Replicas map[int]balancerapi.Counts
}

// Summary is what the reports say together.
func (t *Tally) Summary(service string, now time.Time) Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := Summary{InFlight: map[int]int{}, Refused: map[string]int64{}, Versions: map[int]balancerapi.Counts{}, Replicas: map[int]balancerapi.Counts{}}
	all := t.services[service]
	if all == nil {
		return out
	}
	for _, c := range all.counters {
		if now.Sub(c.seen) <= alive {
			out.Balancers++
			out.Waiting += c.last.Waiting
			if c.last.Waiting > 0 {
				if since := time.UnixMicro(int64(c.last.WaitingSince * 1e6)); out.WaitingSince.IsZero() || since.Before(out.WaitingSince) {
					out.WaitingSince = since
				}
			}
			for _, r := range c.last.Replicas {
				out.InFlight[r.ID] += r.InFlight
			}
		}
		for k, n := range c.last.Refused {
			out.Refused[k] += n
		}
		for _, v := range c.last.Versions {
			out.Versions[v.Version] = sum(out.Versions[v.Version], v.Counts)
		}
		for _, r := range c.last.Replicas {
			out.Replicas[r.ID] = sum(out.Replicas[r.ID], r.Counts)
		}
	}
	return out
}

func sum(a, b balancerapi.Counts) balancerapi.Counts {
	statuses := map[string]int64{}
	for _, s := range []map[string]int64{a.Statuses, b.Statuses} {
		for k, n := range s {
			statuses[k] += n
		}
	}
	return balancerapi.Counts{
		Requests: a.Requests + b.Requests, Errors: a.Errors + b.Errors, Bytes: a.Bytes + b.Bytes, BytesIn: a.BytesIn + b.BytesIn,
		Statuses: statuses, FirstByte: a.FirstByte.Add(b.FirstByte), Duration: a.Duration.Add(b.Duration),
	}
}
