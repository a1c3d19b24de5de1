package replicas

import (
	"fmt"
	"slices"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/serve/probe"
)

// Probed is what the probes of a replica mean for it; false: nothing new.
func Probed(r *Replica, h probe.History, s probe.Settings) (Fact, bool) {
	var f Fact
	switch h.Verdict(s) {
	case probe.Ready:
		if h.FirstReady.IsZero() {
			return Fact{}, false // it was never probed
		}
		f = Fact{Event: fsm.ReplicaReady}
	case probe.NotReady:
		f = Fact{Event: fsm.ReplicaNotReady, Detail: h.Reason}
	case probe.TooLate:
		f = Fact{Event: fsm.ReplicaStop, Failure: TooLate, Detail: h.Reason}
	case probe.Unhealthy:
		f = Fact{Event: fsm.ReplicaStop, Failure: Unhealthy, Detail: h.Reason}
		if h.Timeout {
			f.Failure = Hung
		}
	}
	_, can := fsm.Replicas.Next(r.Status, f.Event)
	return f, can
}

// killed is the exit code of a process that got SIGKILL, as the kernel sends it
// when memory runs out.
const killed = 137

// Ended is the end of a replica's program, which should not end. full tells that
// a disk of the replica was full.
func Ended(status api.JobStatus, codes []int, reason string, full bool) Fact {
	f := Fact{Event: fsm.ReplicaStop, Failure: Crashed, Detail: reason}
	switch {
	case full:
		f.Failure = OutOfDisk
	case slices.Contains(codes, killed) || status == api.JobFailedDriver:
		f.Failure = OutOfMemory
	case status == api.JobFailedSetup:
		f.Failure = SetupFailed
	}
	code := 0
	for _, c := range codes {
		if code == 0 {
			code = c
		}
	}
	if len(codes) > 0 {
		f.Detail = fmt.Sprintf("exit code %d", code)
		if reason != "" {
			f.Detail += ", " + reason
		}
	}
	return f
}

// Terminate is the end of a replica that a user asks for; its requests may take so
// long. With purge a replica that has failed is forgotten.
func Terminate(r *Replica, drain time.Duration, purge bool, now time.Time) (Fact, error) {
	switch {
	case r.Status.Failed() && purge, r.Status == api.ReplicaPending:
		return Fact{Event: fsm.ReplicaForget}, nil
	case r.Status == api.ReplicaFailedCleanup:
		return Fact{Event: fsm.ReplicaStop}, nil
	case r.Status.Failed():
		return Fact{}, fmt.Errorf("replica %d is %s and has no machines; add --purge to take it off the list", r.ID, r.Status)
	case !r.Live():
		return Fact{}, fmt.Errorf("replica %d is being terminated already (%s)", r.ID, r.Status)
	}
	return Fact{Event: fsm.ReplicaStop, Detail: "terminated by the user", Until: now.Add(drain)}, nil
}
