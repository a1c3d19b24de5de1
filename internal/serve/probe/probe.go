// Package probe finds out whether replicas of a service are ready.
//
// [History] is the pure half: it says when to probe next and what a row of
// answers means. [Prober] sends one probe, over HTTP, TCP or gRPC.
package probe

import (
	"fmt"
	"time"
)

// Protocol is how a replica is asked.
type Protocol string

// Protocols of probes.
const (
	HTTP Protocol = "http" // 200 is ready
	TCP  Protocol = "tcp"  // a connection is ready
	GRPC Protocol = "grpc" // SERVING of the standard health service is ready
)

// Settings say how a replica is probed, and how long it may fail.
type Settings struct {
	Protocol    Protocol
	Path        string            // of HTTP
	Body        string            // JSON, sent with POST; "": GET
	Headers     map[string]string // of HTTP; metadata of gRPC
	GRPCService string            // "": the whole server

	Timeout      time.Duration
	Interval     time.Duration
	InitialDelay time.Duration // from the first failed probe to the first success
	FailureSpan  time.Duration // of unbroken failures after the first success
}

// PacedBy are the settings of a replica of an older version: what is asked is
// its own version's, how often and how patiently is the latest one's.
func (s Settings) PacedBy(latest Settings) Settings {
	s.Interval, s.FailureSpan = latest.Interval, latest.FailureSpan
	return s
}

// Result is the answer to one probe.
type Result struct {
	OK      bool
	Timeout bool   // nothing came in time: the program may hang
	Reason  string // of a failure
}

// History is what the probes of one replica have said. It is stored with the
// replica. The zero value is a replica that was not probed yet.
type History struct {
	Last         time.Time `json:"last,omitzero"`          // the latest probe
	FirstFailure time.Time `json:"first_failure,omitzero"` // before the first success: the initial delay counts from here
	FirstReady   time.Time `json:"first_ready,omitzero"`
	FailingSince time.Time `json:"failing_since,omitzero"` // the first of unbroken failures; zero: the latest probe succeeded
	Timeout      bool      `json:"timeout,omitempty"`      // the latest failure was a silence
	Reason       string    `json:"reason,omitempty"`       // of the latest failure
	Probes       int       `json:"probes,omitempty"`       // from the first success on: starting is no failure
	Failures     int       `json:"failures,omitempty"`     // of those
}

// Verdict is what a history means for its replica.
type Verdict string

// Verdicts.
const (
	Starting  Verdict = "starting"  // not ready yet, and in time
	Ready     Verdict = "ready"     // the latest probe succeeded
	NotReady  Verdict = "not_ready" // was ready; the latest probe failed
	TooLate   Verdict = "too_late"  // never ready, and its time is over
	Unhealthy Verdict = "unhealthy" // was ready, and failed for too long
)

// Due is when the next probe should be sent; the zero time is at once.
func (h History) Due(s Settings) time.Time {
	if h.Last.IsZero() {
		return time.Time{}
	}
	return h.Last.Add(s.Interval)
}

// After is the history with the answer to a probe that was sent at the time.
func (h History) After(s Settings, r Result, at time.Time) (History, Verdict) {
	h.Last = at
	if r.OK {
		h.Probes++
		h.FailingSince, h.Timeout, h.Reason = time.Time{}, false, ""
		if h.FirstReady.IsZero() {
			h.FirstReady = at
		}
		return h, Ready
	}
	if !h.FirstReady.IsZero() {
		h.Probes++
		h.Failures++
	}
	h.Timeout, h.Reason = r.Timeout, r.Reason
	if h.FailingSince.IsZero() {
		h.FailingSince = at
	}
	if h.FirstReady.IsZero() && h.FirstFailure.IsZero() {
		h.FirstFailure = at
	}
	return h, h.Verdict(s)
}

// Verdict is what the history means.
func (h History) Verdict(s Settings) Verdict {
	switch {
	case h.FirstReady.IsZero() && !h.FirstFailure.IsZero() && h.Last.Sub(h.FirstFailure) > s.InitialDelay:
		return TooLate
	case h.FirstReady.IsZero():
		return Starting
	case h.FailingSince.IsZero():
		return Ready
	case h.Last.Sub(h.FailingSince) >= s.FailureSpan:
		return Unhealthy
	}
	return NotReady
}

// Explain says in a sentence why a replica is not ready; "" if it is.
func (h History) Explain(s Settings) string {
	switch h.Verdict(s) {
	case TooLate:
		return fmt.Sprintf("it was not ready within %v: %s", s.InitialDelay, h.Reason)
	case Unhealthy:
		return fmt.Sprintf("it was ready, and its probes failed for %v: %s", h.Last.Sub(h.FailingSince).Round(time.Second), h.Reason)
	case NotReady, Starting:
		return h.Reason
	}
	return ""
}
