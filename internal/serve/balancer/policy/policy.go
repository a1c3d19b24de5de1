// Package policy chooses among replicas. Its functions are pure: what they know of
// a replica is a [Candidate], chance is an argument, and the answer is an index.
package policy

import (
	"math"
	"strings"
)

// A Candidate is a replica that may be chosen.
type Candidate struct {
	ID int
	// Load is the number of requests that it has, by whichever balancer.
	Load float64
	// Speed is what it can do beside others: its weight, capacity and slow start.
	Speed float64
}

// cost is the load that a candidate would have with one request more.
func (c Candidate) cost() float64 { return (c.Load + 1) / max(c.Speed, 1e-9) }

// Few is the number of candidates up to which [LeastLoad] looks at all of them.
const Few = 16

// LeastLoad is the candidate with the least load for its speed: exactly among few,
// else the better of two that chance chooses, which is nearly as good and does not
// send the requests of several balancers to the same replica. It is -1 without
// candidates.
func LeastLoad(c []Candidate, chance uint64) int {
	n := uint64(len(c))
	switch {
	case n == 0:
		return -1
	case n <= Few: // equals take turns by starting anywhere
		first := chance % n // the sum of chance and an index could overflow
		best := first
		for i := uint64(1); i < n; i++ {
			if k := (first + i) % n; c[k].cost() < c[best].cost() {
				best = k
			}
		}
		return int(best)
	}
	a := chance % n
	b := (chance >> 32) % (n - 1)
	if b >= a {
		b++
	}
	if c[b].cost() < c[a].cost() {
		return int(b)
	}
	return int(a)
}

// Rotation is the state of [RoundRobin]: the credit of each replica by its id.
type Rotation map[int]float64

// RoundRobin takes the candidates in turn, each as often as its speed says, and
// spreads the turns of the fast ones evenly. It is -1 without candidates.
func RoundRobin(c []Candidate, r Rotation) int {
	best, total := -1, 0.0
	for i := range c {
		r[c[i].ID] += c[i].Speed
		total += c[i].Speed
		if best < 0 || r[c[i].ID] > r[c[best].ID]+1e-9 {
			best = i
		}
	}
	if best >= 0 {
		r[c[best].ID] -= total
	}
	return best
}

// Capacity is what a replica with an accelerator can do by a map of targets: its
// exact key, else the name before the colon, else 1.
func Capacity(targets map[string]float64, gpu string) float64 {
	if q, ok := targets[gpu]; ok && q > 0 {
		return q
	}
	name, _, _ := strings.Cut(gpu, ":")
	if q, ok := targets[name]; ok && q > 0 {
		return q
	}
	return 1
}

// A Bound is how loaded a replica may be and still get requests for the sake of
// its sessions or caches: Factor times the mean, and Slack requests more.
type Bound struct{ Factor, Slack float64 }

// limits returns the load up to which a candidate of speed 1 is within the bound.
func (b Bound) limit(c []Candidate) float64 {
	load, speed := 1.0, 0.0 // this request included
	for i := range c {
		load += c[i].Load
		speed += c[i].Speed
	}
	return b.Factor*load/max(speed, 1e-9) + b.Slack
}

// Affine is the candidate of a session: the first in an order that the session's
// key alone decides whose load is within the bound. So a session stays where it is
// while other replicas come and go, and a replica with too many sessions passes
// some on. It is -1 without candidates.
func Affine(c []Candidate, key uint64, b Bound) int {
	limit := b.limit(c)
	best, most := -1, math.Inf(-1)
	fallback, least := -1, math.Inf(1)
	for i := range c {
		if cost := c[i].cost(); cost < least {
			fallback, least = i, cost
		}
		if c[i].cost() > limit {
			continue
		}
		// Weighted rendezvous: the share of keys that a candidate gets is its speed.
		u := (float64(mix(key^mix(uint64(c[i].ID)+0x9e3779b97f4a7c15))>>11) + 0.5) / (1 << 53)
		if score := -c[i].Speed / math.Log(u); score > most {
			best, most = i, score
		}
	}
	if best < 0 {
		return fallback
	}
	return best
}

// Prefix is the candidate that has seen the longest prefix of a prompt, unless its
// load is above the bound; then it is the next best. matched has the length of
// each candidate's prefix. Among equals it is [LeastLoad].
func Prefix(c []Candidate, matched []int, b Bound, chance uint64) int {
	limit, longest := b.limit(c), 0
	for i := range c {
		if matched[i] > longest && c[i].cost() <= limit {
			longest = matched[i]
		}
	}
	if longest == 0 {
		return LeastLoad(c, chance)
	}
	best := -1
	for i := range c {
		if matched[i] == longest && c[i].cost() <= limit && (best < 0 || c[i].cost() < c[best].cost()) {
			best = i
		}
	}
	return best
}

// Share is the index of the version that a request goes to: u, from [0, 1), falls
// into one of the shares that the weights divide it into. It is -1 if no weight is
// positive.
func Share(weights []float64, u float64) int {
	total := 0.0
	for _, w := range weights {
		total += max(0, w)
	}
	last := -1
	for i, w := range weights {
		if w <= 0 {
			continue
		}
		last = i
		if u -= w / total; u < 0 {
			return i
		}
	}
	return last // u was 1, but for rounding
}

// Spread is the n-th number of a sequence from [0, 1) whose beginnings are all
// evenly spread, so that shares are kept over few requests already.
func Spread(n uint64) float64 {
	_, f := math.Modf(float64(n%(1<<40)) * 0.6180339887498949)
	return f
}

// Reported is what a replica says of itself, as vLLM and SGLang do.
type Reported struct {
	Requests float64 // running and waiting
	Waiting  float64
	Cache    float64 // share of the KV cache in use, 0 to 1
	Sent     float64 // requests of ours that it had when it said so
}

// Load is the load of a replica with own requests of this balancer: with what it
// said, requests of others count too, those that wait there twice, and a cache that
// is nearly full counts as much again.
func Load(own float64, r *Reported) float64 {
	if r == nil {
		return own
	}
	load := own + max(0, r.Requests-r.Sent) + r.Waiting
	if r.Cache > 0.9 {
		load += (load + 1) * min(1, (r.Cache-0.9)*10)
	}
	return load
}

// mix spreads the bits of x (the finaliser of splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// Hash is the key of a session by its text.
func Hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}
