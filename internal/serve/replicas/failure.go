package replicas

import (
	"fmt"
	"time"

	"github.com/skypilot-go/sky/internal/fsm"
)

// Failure is why a replica did not last; "" for one that was not needed any more.
type Failure string

// Failures.
const (
	Crashed     Failure = "crashed"       // its program ended
	SetupFailed Failure = "setup_failed"  //
	OutOfMemory Failure = "out_of_memory" // its program was killed for want of memory
	OutOfDisk   Failure = "out_of_disk"   //
	ImagePull   Failure = "image_pull"    // its container image cannot be had
	TooLate     Failure = "too_late"      // it did not get ready in time
	Hung        Failure = "hung"          // it was ready, and does not answer any more
	Unhealthy   Failure = "unhealthy"     // it was ready, and answers that it is not any more
	NoCapacity  Failure = "no_capacity"   // no machine to be had
	LaunchError Failure = "launch_error"  // the launch failed for another reason
	Refused     Failure = "refused"       // it can never be launched as it is
	MachineLost Failure = "machine_lost"  // its machines are gone, and nobody announced that
	Preempted   Failure = "preempted"     // its spot machines were taken away
)

// failures says what follows from each.
var failures = map[Failure]struct {
	outcome  fsm.ReplicaEvent // when its machines are given back
	sentence string           // %s: detail
	hint     string
	// final: a version of which no replica was ever ready is not launched again.
	final bool
}{
	Crashed:     {fsm.ReplicaFailed, "its program ended%s", "see its log", true},
	SetupFailed: {fsm.ReplicaFailed, "its setup failed%s", "see its log", true},
	OutOfMemory: {fsm.ReplicaFailed, "its program was killed, most likely because memory ran out%s", "ask for more memory under resources", true},
	OutOfDisk:   {fsm.ReplicaFailed, "its disk is full%s", "ask for a larger disk_size under resources", true},
	ImagePull:   {fsm.ReplicaFailed, "its container image cannot be pulled%s", "look at image_id and at the login to its registry", true},
	TooLate:     {fsm.ReplicaTooLate, "it did not get ready in time%s", "see its log, or give it more time with readiness_probe.initial_delay_seconds", true},
	Hung:        {fsm.ReplicaUnhealthy, "it stopped answering its probes%s", "see its log", false},
	Unhealthy:   {fsm.ReplicaUnhealthy, "its probes failed for too long%s", "see its log", false},
	NoCapacity:  {fsm.ReplicaUnprovisioned, "no machine for it was to be had%s", "", false},
	LaunchError: {fsm.ReplicaUnprovisioned, "it could not be launched%s", "", false},
	Refused:     {fsm.ReplicaUnprovisioned, "it cannot be launched as it is%s", "change the task and update the service", true},
	MachineLost: {fsm.ReplicaGone, "its machine was lost%s", "", false},
	Preempted:   {fsm.ReplicaGone, "its spot machine was taken away%s", "", false},
}

// outcome is the event by which a replica that has given back its machines
// becomes what users see of it.
func (f Failure) outcome() fsm.ReplicaEvent { return or(failures[f].outcome, fsm.ReplicaGone) }

// Final reports that a version which was never ready is not launched again after
// this failure: its program, image or setup is at fault.
func (f Failure) Final() bool { return failures[f].final }

// Sentence says in words what happened; "" without a failure.
func (f Failure) Sentence(detail string) string {
	row, ok := failures[f]
	if !ok {
		return ""
	}
	if detail != "" {
		detail = ": " + detail
	}
	text := fmt.Sprintf(row.sentence, detail)
	if row.hint != "" {
		text += "; " + row.hint
	}
	return text
}

// Replicas of a version that fail again and again are launched after pauses,
// which double with each failure of the last hour.
const (
	crashMemory = time.Hour
	crashPause  = 10 * time.Second
	mostCrash   = 5 * time.Minute
)

// crashes counts the failures of a version in the last hour that are not the
// cloud's, and says when the next launch may be.
func crashes(rows []Replica, version int, now time.Time) (n int, notBefore time.Time) {
	var last time.Time
	for i := range rows {
		r := &rows[i]
		if r.Version != version || r.FailedAt.IsZero() || now.Sub(r.FailedAt) > crashMemory || !r.Failure.repeats() {
			continue
		}
		n++
		if r.FailedAt.After(last) {
			last = r.FailedAt
		}
	}
	if n == 0 {
		return 0, time.Time{}
	}
	return n, last.Add(min(crashPause<<min(n-1, 10), mostCrash))
}

// repeats reports that a new replica is likely to fail in the same way.
func (f Failure) repeats() bool {
	return f.Final() || f == Hung || f == Unhealthy || f == LaunchError
}

// keptFailures is how many failed replicas of a service stay to be seen.
const keptFailures = 10
