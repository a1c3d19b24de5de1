package jobs

import (
	"testing"
	"time"

	"github.com/skypilot-go/sky/internal/state"
)

func TestWhichCallbackAnEventMeans(t *testing.T) {
	for _, c := range []struct {
		code string
		ran  int
		want string
	}{
		{"SUBMITTED", 0, "SUBMITTED"}, {"STARTING", 0, "STARTING"}, {"STARTED", 0, "STARTED"}, {"STARTED", 1, "RECOVERED"}, {"RECOVERING", 1, "RECOVERING"},
		{"SUCCEEDED", 1, "SUCCEEDED"}, {"FAILED", 1, "FAILED"}, {"CANCELLING", 1, "CANCELLING"}, {"CANCELLED", 1, "CANCELLED"},
		{"BACKOFF", 0, ""}, {callbackCode, 0, ""},
	} {
		if got := called(c.code, c.ran); got != c.want {
			t.Errorf("%s after %d runs: %q, want %q", c.code, c.ran, got, c.want)
		}
	}
}

// A callback runs on a cluster that has the job, and on no other.
func TestWhereACallbackFindsItsNode(t *testing.T) {
	on := state.ManagedAttempt{Number: 1, ClusterJob: 1}
	with := func(change func(*state.ManagedAttempt)) *state.ManagedAttempt {
		a := on
		change(&a)
		return &a
	}
	for _, c := range []struct {
		what, name string
		attempt    *state.ManagedAttempt
		want       bool
	}{
		{"a job that runs", "STARTED", &on, true},
		{"a program that failed", "FAILED", with(func(a *state.ManagedAttempt) { a.Outcome = string(outFailed) }), true},
		{"a worker that is lost", "RECOVERING", with(func(a *state.ManagedAttempt) { a.Outcome = string(outNode) }), true},
		{"a cancelled job", "CANCELLED", with(func(a *state.ManagedAttempt) { a.Outcome = string(outAborted) }), true},
		{"no attempt", "CANCELLED", nil, false},
		{"before there is a node", "STARTING", &on, false},
		{"before there is a job", "SUBMITTED", &on, false},
		{"a launch that failed", "FAILED", with(func(a *state.ManagedAttempt) { a.ClusterJob = 0 }), false},
		{"a preempted cluster", "RECOVERING", with(func(a *state.ManagedAttempt) { a.Outcome = string(outLost) }), false},
		{"a cluster that is silent for too long", "RECOVERING", with(func(a *state.ManagedAttempt) { a.Outcome = string(outHung) }), false},
		{"a cluster that was given back", "SUCCEEDED", with(func(a *state.ManagedAttempt) { a.ClosedAt = time.Unix(1, 0) }), false},
	} {
		if got := nodeFor(c.name, c.attempt); (got != nil) != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
