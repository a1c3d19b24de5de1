package auth

import (
	"math"
	"time"
)

// A pace says how failures slow down what comes after them.
type pace struct {
	free    int           // failures that slow nothing down
	first   time.Duration // the wait after these; every further failure doubles it
	most    time.Duration // the longest wait
	forgive time.Duration // the time in which one failure is forgotten
	size    int           // keys that are remembered
}

// wait is how long the next try has to wait after the last of n failures.
func (p pace) wait(n int) time.Duration {
	if n < p.free {
		return 0
	}
	if doublings := n - p.free; doublings < p.doublings() {
		return p.first << doublings
	}
	return p.most
}

// doublings is how many of them reach the longest wait.
func (p pace) doublings() int {
	n := 0
	for w := p.first; w < p.most; w *= 2 {
		n++
	}
	return n
}

// A limiter counts failures by key and says when the next try may be made. It is
// not safe for concurrent use, and knows no clock.
type limiter[K comparable] struct {
	pace
	failures map[K]failures
}

type failures struct {
	n  float64 // those that were not yet forgotten when the last one came
	at time.Time
}

func newLimiter[K comparable](p pace) *limiter[K] {
	return &limiter[K]{pace: p, failures: map[K]failures{}}
}

// left is how many failures are remembered at a time.
func (l *limiter[K]) left(f failures, now time.Time) float64 {
	return max(0, f.n-max(0, now.Sub(f.at).Seconds())/l.forgive.Seconds())
}

// Count is how many failures of a key are remembered.
func (l *limiter[K]) Count(key K, now time.Time) int {
	f, ok := l.failures[key]
	if !ok {
		return 0
	}
	return whole(l.left(f, now))
}

func whole(n float64) int { return int(math.Ceil(n - 1e-6)) }

// Wait is how long the next try for a key has to wait; 0: it may be made.
func (l *limiter[K]) Wait(key K, now time.Time) time.Duration {
	f, ok := l.failures[key]
	if !ok || l.left(f, now) == 0 {
		return 0
	}
	return max(0, l.wait(whole(f.n))-now.Sub(f.at))
}

// Failed counts a failure. It reports whether this one begins to slow the key
// down. If too many keys are remembered, one with few failures is forgotten.
func (l *limiter[K]) Failed(key K, now time.Time) bool {
	f, ok := l.failures[key]
	if !ok && len(l.failures) >= l.size {
		l.forget(now)
	}
	before := l.left(f, now)
	after := min(before+1, float64(l.free+l.doublings()))
	l.failures[key] = failures{after, now}
	return whole(before) < l.free && whole(after) >= l.free
}

// Succeeded forgets the failures of a key.
func (l *limiter[K]) Succeeded(key K) { delete(l.failures, key) }

// sample is how many keys, at random, are looked at to find one to forget: who
// floods the limiter with new keys meets mostly those.
const sample = 64

// forget drops the key with the fewest failures, of these the oldest, of a sample.
func (l *limiter[K]) forget(now time.Time) {
	var least K
	fewest, oldest := math.Inf(1), time.Time{}
	looked := 0
	for k, f := range l.failures {
		if looked++; looked > sample {
			break
		}
		if n := l.left(f, now); n < fewest || n == fewest && f.at.Before(oldest) {
			least, fewest, oldest = k, n, f.at
		}
	}
	delete(l.failures, least)
}
