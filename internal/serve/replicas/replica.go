// Package replicas decides which replicas of a service, or workers of a pool, to
// launch, to drain and to end, where to launch them, and which version gets the
// traffic.
//
// Everything here is pure. The controller observes, turns what it has seen into
// facts ([Replica.After]), calls [Decide], stores what comes back in one
// transaction, and acts on the rows: [Replica.Work] says what each of them needs.
// Rows and [State] are all that a decision remembers, so any server can make the
// next one.
package replicas

import (
	"fmt"
	"slices"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/fsm"
)

// Replica is a replica of a service, or a worker of a pool: its row, and what was
// observed of it just now.
type Replica struct {
	ID      int               `json:"id"` // never used again
	Version int               `json:"version"`
	Status  api.ReplicaStatus `json:"status"`
	Spot    bool              `json:"spot,omitempty"`

	// Where it is, or is to be launched. A zero place is left to the launch.
	Place        cloud.Place `json:"place,omitzero"`
	InstanceType string      `json:"instance_type,omitempty"`
	Accelerator  string      `json:"accelerator,omitempty"` // "A100:8"; "": none, or not known yet

	CreatedAt     time.Time `json:"created_at"`
	ProvisionedAt time.Time `json:"provisioned_at,omitzero"` // when its machines were asked for
	FirstReady    time.Time `json:"first_ready,omitzero"`
	ReadySince    time.Time `json:"ready_since,omitzero"` // of now

	Tries     int       `json:"tries,omitempty"`      // launches that found no machine
	NotBefore time.Time `json:"not_before,omitzero"`  // of the next one
	Trouble   []Trouble `json:"trouble,omitempty"`    // with places, until a decision has noted it
	Failure   Failure   `json:"failure,omitempty"`    // why it goes, or went
	Reason    string    `json:"reason,omitempty"`     // the same as a sentence, or why it waits
	FailedAt  time.Time `json:"failed_at,omitzero"`   //
	DrainFrom time.Time `json:"drain_from,omitzero"`  // no new requests since
	DrainTo   time.Time `json:"drain_until,omitzero"` // its machines go then, at the latest
	Ending    bool      `json:"ending,omitempty"`     // its machines are to be given back
	Uncleaned string    `json:"uncleaned,omitempty"`  // why they could not be

	// Observed, not stored.
	InFlight int      `json:"-"` // requests that balancers have with it; jobs of a worker that have not ended
	Metric   *float64 `json:"-"` // the metric of its version; nil: not known
}

// Trouble is a place that had no machine, or took one away.
type Trouble struct {
	Key       string    `json:"key"`
	At        time.Time `json:"at"`
	Preempted bool      `json:"preempted,omitempty"`
}

// Live reports that the replica counts: it is ready, or on its way.
func (r *Replica) Live() bool {
	switch r.Status {
	case api.ReplicaPending, api.ReplicaProvisioning, api.ReplicaStarting, api.ReplicaReady, api.ReplicaNotReady:
		return true
	}
	return false
}

// Ready reports that the replica takes requests, or jobs.
func (r *Replica) Ready() bool { return r.Status == api.ReplicaReady }

// key names what is learned about where a replica is.
func (r *Replica) key() string { return placeKey(r.Place, r.InstanceType, r.Spot) }

func placeKey(p cloud.Place, instanceType string, spot bool) string {
	kind := "on-demand"
	if spot {
		kind = "spot"
	}
	return p.Cloud + "/" + p.Region + "/" + p.Zone + "/" + instanceType + "/" + kind
}

// Work is what a row asks its controller for, again and again until the row
// says otherwise. Each step can be repeated.
type Work string

// Work.
const (
	Nothing Work = ""
	Launch  Work = "launch" // see that its cluster is being launched, or was; report launched, retry or stop
	Probe   Work = "probe"  // probe it, watch its program and its machines
	Drain   Work = "drain"  // watch how many requests it still has
	End     Work = "end"    // see that its machines are given back; report gone or uncleaned
)

// Work is what the replica needs.
func (r *Replica) Work() Work {
	switch r.Status {
	case api.ReplicaProvisioning:
		return Launch
	case api.ReplicaStarting, api.ReplicaReady, api.ReplicaNotReady:
		return Probe
	case api.ReplicaShuttingDown, api.ReplicaPreempted:
		if r.Ending {
			return End
		}
		return Drain
	case api.ReplicaFailedCleanup:
		return End
	}
	return Nothing
}

// Fact is something that happened to a replica.
type Fact struct {
	Event   fsm.ReplicaEvent
	Failure Failure // of stop, preempt and retry; "": none
	Detail  string  // such as an exit code, or the cloud's words
	// Until is when announced machines go (preempt), or how long requests may
	// take to end (stop); zero: now.
	Until time.Time
	// Of launched.
	Place        cloud.Place
	InstanceType string
	Accelerator  string
}

const (
	launchTries  = 3 // of a launch that fails for another reason than capacity
	placesAtOnce = 3 // that a placer tries before a pause
)

// Pauses between launches that found no machine.
const (
	firstPause = 60 * time.Second
	mostPause  = 300 * time.Second
)

// After is the replica after a fact; an error if it cannot happen to it now. What
// was reported already changes nothing.
func (r Replica) After(f Fact, now time.Time) (Replica, error) {
	switch {
	case f.Event == fsm.ReplicaGone && (r.Status == api.ReplicaShuttingDown || r.Status == api.ReplicaFailedCleanup):
		f.Event = r.Failure.outcome()
	case f.Event == fsm.ReplicaPreempt && r.Status == api.ReplicaShuttingDown && r.Failure != "":
		r.Trouble = append(slices.Clone(r.Trouble), Trouble{Key: r.key(), At: now, Preempted: true}) // it stays what it was
		return r, nil
	}
	if f.Event == fsm.ReplicaRetry && f.Failure != NoCapacity && r.Tries+1 >= launchTries {
		f.Event = fsm.ReplicaStop
	}
	next, ok := fsm.Replicas().Next(r.Status, f.Event)
	if !ok {
		return r, fmt.Errorf("replica %d is %s: %q cannot happen to it", r.ID, r.Status, f.Event)
	}
	was := r.Status
	r.Status, r.Uncleaned = next, ""
	switch f.Event {
	case fsm.ReplicaLaunched:
		r.Place, r.InstanceType, r.Accelerator = f.Place, f.InstanceType, f.Accelerator
		r.Tries, r.NotBefore, r.Reason = 0, time.Time{}, ""
	case fsm.ReplicaRetry:
		r.Tries++
		r.Reason = f.Failure.Sentence(f.Detail)
		if f.Failure == NoCapacity && r.Place != (cloud.Place{}) {
			r.Trouble = append(slices.Clone(r.Trouble), Trouble{Key: r.key(), At: now})
			if r.Tries%placesAtOnce == 0 {
				r.NotBefore = now.Add(firstPause)
			}
		} else {
			r.NotBefore = now.Add(min(firstPause<<min(r.Tries-1, 10), mostPause))
		}
		r.Place, r.InstanceType, r.ProvisionedAt = cloud.Place{}, "", time.Time{}
	case fsm.ReplicaReady:
		r.ReadySince, r.Reason = now, ""
		if r.FirstReady.IsZero() {
			r.FirstReady = now
		}
	case fsm.ReplicaNotReady:
		r.ReadySince, r.Reason = time.Time{}, f.Detail
	case fsm.ReplicaStop, fsm.ReplicaPreempt:
		r.stop(f, was, now)
	case fsm.ReplicaUncleaned:
		r.Uncleaned = f.Detail
	}
	return r, nil
}

// stop takes a replica out of service.
func (r *Replica) stop(f Fact, was api.ReplicaStatus, now time.Time) {
	if f.Event == fsm.ReplicaPreempt {
		f.Failure = or(f.Failure, Preempted)
		r.Trouble = append(slices.Clone(r.Trouble), Trouble{Key: r.key(), At: now, Preempted: true})
	}
	// A replica that was on its way out keeps the reason for that.
	if was != api.ReplicaShuttingDown && was != api.ReplicaFailedCleanup {
		r.Failure = f.Failure
		r.Reason = or(f.Failure.Sentence(f.Detail), f.Detail)
		if f.Failure != "" {
			r.FailedAt = now
		}
	}
	r.ReadySince = time.Time{}
	r.DrainFrom = or(r.DrainFrom, now)
	served := was == api.ReplicaReady || was == api.ReplicaNotReady || was == api.ReplicaShuttingDown && !r.Ending
	if !served || !f.Until.After(now) {
		r.DrainTo, r.Ending = now, true
		return
	}
	if r.DrainTo.IsZero() || f.Until.Before(r.DrainTo) {
		r.DrainTo = f.Until
	}
}

func or[T comparable](a, b T) T {
	var zero T
	if a == zero {
		return b
	}
	return a
}
