package jobs

import (
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/state"
)

// A task's clocks run while its program does, and its history names what happened.
func TestATasksClocksAndHistory(t *testing.T) {
	task := &state.ManagedTask{JobID: 7, Index: 1, Status: api.ManagedPending}
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		event      fsm.ManagedEvent
		at         int
		is         api.ManagedStatus
		code       string
		details    string // afterwards
		ranFor     time.Duration
		recoveries int
	}{
		{fsm.ManagedLaunch, 0, api.ManagedStarting, "STARTING", "waiting", 0, 0},
		{fsm.ManagedBackoff, 1, api.ManagedPending, "BACKOFF", "waiting", 0, 0},
		{fsm.ManagedRelaunch, 2, api.ManagedRecovering, "RECOVERING", "why", 0, 0},
		{fsm.ManagedRan, 10, api.ManagedRunning, "STARTED", "", 0, 0},
		{fsm.ManagedLost, 70, api.ManagedRecovering, "RECOVERING", "why", time.Minute, 0},
		{fsm.ManagedLost, 80, api.ManagedRecovering, "RECOVERING", "why", time.Minute, 0},
		{fsm.ManagedRan, 100, api.ManagedRunning, "STARTED", "", time.Minute, 1},
		{fsm.ManagedCancel, 130, api.ManagedCancelling, "CANCELLING", "why", 90 * time.Second, 1},
		{fsm.ManagedFailed, 140, api.ManagedFailed, "FAILED", "", 90 * time.Second, 1},
	} {
		if task.Status != api.ManagedRunning {
			task.Details = "waiting"
		}
		e, err := move(task, c.event, "why", at(c.at))
		if err != nil {
			t.Fatal(err)
		}
		if want := (state.ManagedEvent{JobID: 7, Task: 1, Status: c.is, Code: c.code, Reason: "why", At: at(c.at)}); e != want {
			t.Errorf("%s: %+v", c.event, e)
		}
		if task.Status != c.is || task.Details != c.details || task.RanFor != c.ranFor || task.Recoveries != c.recoveries {
			t.Errorf("%s: %s, %q, ran for %v, %d recoveries", c.event, task.Status, task.Details, task.RanFor, task.Recoveries)
		}
		if task.Status == api.ManagedRunning && !task.LastRecoveredAt.Equal(at(c.at)) {
			t.Errorf("%s: runs since %v", c.event, task.LastRecoveredAt)
		}
	}
	if !task.StartedAt.Equal(at(10)) || !task.EndedAt.Equal(at(140)) || task.Failure != "why" {
		t.Errorf("from %v to %v: %q", task.StartedAt, task.EndedAt, task.Failure)
	}
	before := *task
	if _, err := move(task, fsm.ManagedRan, "", at(200)); err == nil || task.Status != before.Status || !task.EndedAt.Equal(before.EndedAt) {
		t.Errorf("one that has ended ran again: %v", err)
	}
	for event, code := range map[fsm.ManagedEvent]string{fsm.ManagedCancelled: "CANCELLED", fsm.ManagedSucceeded: "SUCCEEDED"} {
		task := &state.ManagedTask{Status: api.ManagedRunning, LastRecoveredAt: at(60)}
		e, err := move(task, event, "why", at(0)) // by a clock that is behind
		if err != nil || e.Code != code || task.Failure != "" || task.RanFor != 0 {
			t.Errorf("%s: %s, %q, ran for %v, %v", event, e.Code, task.Failure, task.RanFor, err)
		}
	}
	if j := (&state.ManagedJob{Schedule: api.ScheduleDone}); schedule(j, claimed) == nil || j.Schedule != api.ScheduleDone {
		t.Errorf("a job that is done is %s", j.Schedule)
	}
}

// A task ended when its attempt did, also if that is found out later.
func TestATaskEndedWhenItsProgramDid(t *testing.T) {
	ended, closed, reportedAt := noon.Add(-3*time.Hour), noon.Add(-2*time.Hour), noon.Add(-4*time.Hour)
	report := &state.ManagedReport{ClusterHash: "h", Status: api.JobSucceeded, EndedAt: float64(reportedAt.Unix())}
	for _, c := range []struct {
		name    string
		attempt *state.ManagedAttempt
		event   fsm.ManagedEvent
		want    time.Time // zero: now
	}{
		{"no attempt", nil, fsm.ManagedCancelled, time.Time{}},
		{"an attempt that goes on", &state.ManagedAttempt{}, fsm.ManagedCancel, time.Time{}},
		{"an attempt that ended", &state.ManagedAttempt{EndedAt: ended}, fsm.ManagedSucceeded, ended},
		{"one whose cluster was given back", &state.ManagedAttempt{EndedAt: ended, ClosedAt: closed}, fsm.ManagedCancelled, time.Time{}},
		{"one whose success was told after it was given up", &state.ManagedAttempt{EndedAt: ended, ClosedAt: closed, ClusterHash: "h", Report: report}, fsm.ManagedSucceeded, reportedAt},
		{"one that is cancelled after that", &state.ManagedAttempt{EndedAt: ended, ClosedAt: closed, ClusterHash: "h", Report: report}, fsm.ManagedCancelled, time.Time{}},
		{"a report on another incarnation", &state.ManagedAttempt{EndedAt: ended, ClosedAt: closed, ClusterHash: "other", Report: report}, fsm.ManagedSucceeded, time.Time{}},
	} {
		task := &state.ManagedTask{Status: api.ManagedRunning}
		before := time.Now()
		events, err := moved(situation{task: task, attempt: c.attempt}, action{event: c.event, reason: "why"})
		if err != nil || len(events) != 1 || events[0].Reason != "why" {
			t.Fatalf("%s: %+v, %v", c.name, events, err)
		}
		if at := events[0].At; c.want.IsZero() && at.Before(before) || !c.want.IsZero() && !at.Equal(c.want) {
			t.Errorf("%s: at %v, want %v", c.name, at, c.want)
		}
	}
}

// The later of what a node says and when it began counts, and a failure that may be
// repeated for ever is not counted.
func TestHowAnAttemptThatEndedIsNoted(t *testing.T) {
	ran := noon.Add(-time.Hour)
	for _, c := range []struct {
		name     string
		action   action
		policy   policy
		status   api.ManagedStatus
		ended    time.Time
		restarts int
		is       api.ManagedStatus
		events   int
	}{
		{"it succeeded", ended(outSucceeded, job(api.JobSucceeded, 0), ""), policy{}, api.ManagedRunning, noon.Add(-time.Minute), 1, api.ManagedRunning, 0},
		{"it ended before it ran, by its clock", ended(outSucceeded, &agentapi.Job{EndedAt: float64(ran.Unix() - 60)}, ""), policy{}, api.ManagedRunning, ran, 1, api.ManagedRunning, 0},
		{"it failed for good", failedBy(job(api.JobFailed, 1)), policy{restarts: 1}, api.ManagedRunning, noon.Add(-time.Minute), 1, api.ManagedRunning, 0},
		{"it failed and may again", failedBy(job(api.JobFailed, 1)), policy{restarts: 2}, api.ManagedRunning, noon.Add(-time.Minute), 2, api.ManagedRecovering, 1},
		{"its setup failed and may again", failedBy(job(api.JobFailedSetup, 1)), policy{restarts: 2}, api.ManagedRunning, noon.Add(-time.Minute), 2, api.ManagedRecovering, 1},
		{"it failed with a code that may come any number of times", failedBy(job(api.JobFailed, 33)), policy{exitCodes: []int{33}}, api.ManagedRunning, noon.Add(-time.Minute), 1, api.ManagedRecovering, 1},
		{"its machine was lost", action{outcome: outLost, ended: noon.Add(-time.Minute)}, policy{restarts: 5}, api.ManagedRunning, noon.Add(-time.Minute), 1, api.ManagedRecovering, 1},
		{"its machine was lost while it is cancelled", action{outcome: outLost, ended: noon.Add(-time.Minute)}, policy{}, api.ManagedCancelling, noon.Add(-time.Minute), 1, api.ManagedCancelling, 0},
	} {
		s := running(observation{})
		s.job.CancelAsked = c.status == api.ManagedCancelling
		s.policy, s.task.Status, s.task.Restarts = c.policy, c.status, 1
		r := &runner{controller: &controller{phase: map[int]api.ScheduleState{}}}
		events, err := r.settle(s, c.action)
		if err != nil {
			t.Fatal(err)
		}
		a := s.attempt
		if outcome(a.Outcome) != c.action.outcome || a.Reason != c.action.reason || len(a.ExitCodes) != len(c.action.codes) || !a.EndedAt.Equal(c.ended) {
			t.Errorf("%s: %s, %q, %v at %v", c.name, a.Outcome, a.Reason, a.ExitCodes, a.EndedAt)
		}
		if s.task.Restarts != c.restarts || s.task.Status != c.is || len(events) != c.events {
			t.Errorf("%s: %d restarts, %s, %+v", c.name, s.task.Restarts, s.task.Status, events)
		}
	}
}
