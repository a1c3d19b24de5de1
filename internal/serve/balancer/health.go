package balancer

import "time"

// health is what a replica's answers say about it. Failures in a row eject it: it
// gets no requests until a time that doubles with each ejection, then one request
// on trial, whose end decides.
type health struct {
	failures  int       // in a row
	until     time.Time // ejected; zero: not
	trial     bool      // a request on trial is in flight
	ejections int       // since it was last well for long
	last      time.Time // the end of the last ejection
}

// ejectRules are [balancerapi.Eject] with its defaults.
type ejectRules struct {
	failures  int // 0: never
	base, max time.Duration
	share     float64
}

// outcome is what the end of a request says about its replica.
type outcome int

const (
	unknown     outcome = iota // nothing, as when the client left
	succeeded                  // it answers
	failed                     // an answer 5xx, or none
	unreachable                // no connection
)

// out reports whether a replica gets no requests now.
func (h *health) out(now time.Time) bool {
	return !h.until.IsZero() && (now.Before(h.until) || h.trial)
}

// sent notes that a request goes to the replica, and reports whether it is on trial.
func (h *health) sent(now time.Time) bool {
	if h.until.IsZero() || h.trial || now.Before(h.until) {
		return false
	}
	h.trial = true
	return true
}

// ended notes the end of a request and reports whether the replica has recovered
// by it. ready is the number of ready replicas, and out how many of them are
// ejected.
func (h *health) ended(o outcome, onTrial bool, now time.Time, rules ejectRules, ready, out int) (recovered bool) {
	if onTrial {
		h.trial = false
	}
	switch {
	case o == unknown || rules.failures == 0:
		return false
	case o == succeeded:
		h.failures = 0
		if onTrial {
			h.until, h.last = time.Time{}, now
		}
		return onTrial
	case onTrial:
		h.eject(now, rules)
		return false
	case !h.until.IsZero(): // it was in flight when the replica was ejected
		return false
	}
	h.failures++
	enough := o == unreachable || h.failures >= rules.failures
	if enough && float64(out+1) <= rules.share*float64(ready) {
		if now.Sub(h.last) > rules.max {
			h.ejections = 0
		}
		h.eject(now, rules)
	}
	return false
}

func (h *health) eject(now time.Time, rules ejectRules) {
	wait := rules.max
	if h.ejections < 30 {
		wait = min(wait, rules.base<<h.ejections)
	}
	h.ejections++
	h.failures = 0
	h.until = now.Add(wait)
}
