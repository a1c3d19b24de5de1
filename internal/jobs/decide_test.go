package jobs

import (
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/state"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// running is a task whose job a cluster has taken.
func running(seen observation) situation {
	t := &state.ManagedTask{JobID: 1, Status: api.ManagedRunning, Attempt: 1, StartedAt: noon.Add(-time.Hour)}
	return situation{
		job: &state.ManagedJob{ID: 1, Schedule: api.ScheduleAlive, Tasks: []*state.ManagedTask{t}}, task: t,
		attempt: &state.ManagedAttempt{JobID: 1, Number: 1, ClusterName: "c", ClusterHash: "h", ClusterJob: 7, RanAt: noon.Add(-time.Hour)},
		seen:    seen,
	}
}

func job(s api.JobStatus, codes ...int) *agentapi.Job {
	return &agentapi.Job{ID: 7, Status: s, ExitCodes: codes, EndedAt: float64(noon.Add(-time.Minute).Unix())}
}

// TestEveryObservationOfARunningJob is the rule of what may end an attempt:
// the agent's word about the job, or the provider's about the machines.
func TestEveryObservationOfARunningJob(t *testing.T) {
	const silent = "connection refused"
	jobs := map[string]*agentapi.Job{
		"no word": nil, "pending": job(api.JobPending), "setting up": job(api.JobSettingUp), "running": job(api.JobRunning),
		"succeeded": job(api.JobSucceeded, 0), "failed": job(api.JobFailed, 1), "setup failed": job(api.JobFailedSetup, 1),
		"cut off": job(api.JobFailedDriver), "cancelled": job(api.JobCancelled),
	}
	ends := map[string]outcome{"succeeded": outSucceeded, "failed": outFailed, "setup failed": outSetup, "cut off": outDriver, "cancelled": outStray}
	for name, j := range jobs {
		for _, c := range []clusterState{clusterUnknown, clusterUp, clusterBroken, clusterGone} {
			for _, confirmed := range []bool{false, true} {
				for _, failed := range []bool{false, true} {
					o := observation{observed: true, cluster: c, confirmed: confirmed, failed: failed, job: j, weighed: true}
					got := decide(running(o), noon)
					want := action{do: doWait}
					switch {
					case name == "succeeded":
						want = action{do: doSettle, outcome: outSucceeded}
					case c == clusterGone:
						want = action{do: doSettle, outcome: outLost}
					case failed:
					case c == clusterBroken && confirmed:
						want = action{do: doSettle, outcome: outLost}
					case c == clusterBroken:
						want = action{do: doConfirm}
					case ends[name] != "" && confirmed:
						want = action{do: doSettle, outcome: ends[name]}
					case ends[name] != "":
						want = action{do: doConfirm}
					}
					if got.do != want.do || got.outcome != want.outcome {
						t.Errorf("job %s, cluster %v, confirmed %v, provider mute %v: %s %s, want %s %s", name, c, confirmed, failed, got.do, got.outcome, want.do, want.outcome)
					}
				}
			}
		}
	}
	for _, tt := range []struct {
		name    string
		seen    observation
		details string
		want    action
	}{
		{"nothing seen yet", observation{}, "", action{do: doObserve}},
		{"the job is not known there", observation{observed: true, cluster: clusterUp, noJob: true, weighed: true}, "", action{do: doConfirm}},
		{"the job is not known there, and the machines run", observation{observed: true, cluster: clusterUp, noJob: true, confirmed: true, weighed: true}, "", action{do: doSettle, outcome: outDriver}},
		{"silence is written down", observation{observed: true, cluster: clusterUp, silent: silent}, "", action{do: doNote, reason: "UNREACHABLE since 2026-03-01 12:00:00 UTC: connection refused"}},
		{"before the provider is asked, what the agent said last is read", observation{observed: true, cluster: clusterUp, silent: silent}, unreachable + "10:00", action{do: doWeigh}},
		{"before a job is given up as unknown, too", observation{observed: true, cluster: clusterUp, noJob: true}, "", action{do: doWeigh}},
		{"before a loss is believed, too", observation{observed: true, cluster: clusterBroken, confirmed: true}, "", action{do: doWeigh}},
		{"and when the record is gone", observation{observed: true, cluster: clusterGone, confirmed: true}, "", action{do: doWeigh}},
		{"it said that it succeeded", observation{observed: true, cluster: clusterGone, confirmed: true, weighed: true, reported: true, job: job(api.JobSucceeded, 0)}, "", action{do: doSettle, outcome: outSucceeded}},
		{"it said that it failed, and nothing speaks for the machine as the cause", observation{observed: true, cluster: clusterGone, confirmed: true, weighed: true, reported: true, job: job(api.JobFailed, 1)}, "", action{do: doSettle, outcome: outFailed}},
		{"it said that it was killed, just before the machine went", observation{observed: true, cluster: clusterGone, confirmed: true, weighed: true, reported: true, job: job(api.JobFailed, 143), heard: noon.Add(-58 * time.Second)}, "", action{do: doSettle, outcome: outLost}},
		{"it said that it was killed, and was heard of long after", observation{observed: true, cluster: clusterGone, confirmed: true, weighed: true, reported: true, job: job(api.JobFailed, 143), heard: noon.Add(-20 * time.Second)}, "", action{do: doSettle, outcome: outFailed}},
		{"it said that it was cancelled", observation{observed: true, cluster: clusterGone, confirmed: true, weighed: true, reported: true, job: job(api.JobCancelled)}, "", action{do: doSettle, outcome: outLost}},
		{"then the provider is asked", observation{observed: true, cluster: clusterUp, silent: silent, weighed: true}, unreachable + "10:00", action{do: doConfirm}},
		{"the machines run: silence is no reason", observation{observed: true, cluster: clusterUp, silent: silent, confirmed: true, weighed: true}, unreachable + "10:00", action{do: doWait}},
		{"nobody can tell", observation{observed: true, cluster: clusterUp, silent: silent, failed: true, weighed: true}, unreachable + "10:00", action{do: doWait}},
		{"the machines are gone", observation{observed: true, cluster: clusterGone, silent: silent, confirmed: true, weighed: true}, unreachable + "10:00", action{do: doSettle, outcome: outLost}},
		{"it is heard of again", observation{observed: true, cluster: clusterUp, job: job(api.JobRunning)}, unreachable + "10:00", action{do: doNote}},
		{"it ended while nobody heard", observation{observed: true, cluster: clusterUp, job: job(api.JobSucceeded, 0)}, unreachable + "10:00", action{do: doSettle, outcome: outSucceeded}},
	} {
		s := running(tt.seen)
		s.task.Details = tt.details
		got := decide(s, noon)
		if got.do != tt.want.do || got.outcome != tt.want.outcome || tt.want.do == doNote && got.reason != tt.want.reason {
			t.Errorf("%s: %s %s %q, want %s %s %q", tt.name, got.do, got.outcome, got.reason, tt.want.do, tt.want.outcome, tt.want.reason)
		}
	}
}

// TestEveryStatusAndStageOfAnAttempt walks a task's status, cancelled or not,
// and how far its attempt is.
func TestEveryStatusAndStageOfAnAttempt(t *testing.T) {
	stages := map[string]*state.ManagedAttempt{
		"none":  nil,
		"begun": {Number: 1},
		"runs":  {Number: 1, ClusterJob: 7},
		"over":  {Number: 1, ClusterJob: 7, Outcome: string(outLost), EndedAt: noon},
		"kept":  {Number: 1, ClusterJob: 7, Outcome: string(outLost), EndedAt: noon, LogKept: true},
		"shut":  {Number: 1, ClusterJob: 7, Outcome: string(outLost), EndedAt: noon, LogKept: true, ClosedAt: noon},
	}
	const move, cancelling = doMove, api.ManagedCancelling
	for stage, a := range stages {
		for _, status := range api.ManagedStatuses {
			for _, cancel := range []bool{false, true} {
				task := &state.ManagedTask{Status: status}
				got := decide(situation{job: &state.ManagedJob{CancelAsked: cancel, Tasks: []*state.ManagedTask{task}}, task: task, attempt: a}, noon)
				var want verb
				switch {
				case stage == "none" || stage == "shut":
					switch {
					case status.Terminal():
						want = doFinish
					case cancel:
						want = move
					default:
						want = doBegin
					}
				case stage == "over":
					want = doKeep
				case stage == "kept":
					want = doClose
					if cancel && !status.Terminal() {
						want = move // to CANCELLED, before the cluster is given back
					}
				case cancel && status != cancelling:
					want = move
				case cancel:
					want = doSettle
				case stage == "runs":
					want = doObserve
				default:
					want = doLaunch
				}
				if got.do != want {
					t.Errorf("%s, attempt %s, cancelled %v: %s, want %s", status, stage, cancel, got.do, want)
				}
			}
		}
	}
	task := &state.ManagedTask{Status: api.ManagedPending, NotBefore: noon.Add(time.Minute)}
	early := situation{job: &state.ManagedJob{}, task: task, attempt: &state.ManagedAttempt{Number: 1}}
	if got := decide(early, noon); got.do != doPause || !got.until.Equal(task.NotBefore) {
		t.Errorf("before its time: %+v", got)
	}
	if got := decide(early, noon.Add(time.Minute)); got.do != doLaunch {
		t.Errorf("at its time: %+v", got)
	}
	if got := decide(situation{job: &state.ManagedJob{}, task: &state.ManagedTask{Status: api.ManagedPending}, empty: true}, noon); got.event != fsm.ManagedSucceeded {
		t.Errorf("nothing to run: %+v", got)
	}
}

// TestWhatAnOutcomeMeans is the table of outcomes.
func TestWhatAnOutcomeMeans(t *testing.T) {
	ran := noon
	for _, tt := range []struct {
		name     string
		outcome  outcome
		codes    []int
		policy   policy
		restarts int
		started  time.Time
		cancel   bool
		want     fsm.ManagedEvent
	}{
		{"it succeeded", outSucceeded, nil, policy{}, 0, ran, false, fsm.ManagedSucceeded},
		{"it succeeded although it is to be cancelled", outSucceeded, nil, policy{}, 0, ran, true, fsm.ManagedSucceeded},
		{"its machines went", outLost, nil, policy{}, 0, ran, false, fsm.ManagedLost},
		{"its machines went while it is cancelled", outLost, nil, policy{}, 0, ran, true, fsm.ManagedCancelled},
		{"the program failed", outFailed, []int{1}, policy{}, 0, ran, false, fsm.ManagedFailed},
		{"it may fail twice, once", outFailed, []int{1}, policy{restarts: 2}, 0, ran, false, fsm.ManagedLost},
		{"it may fail twice, the third time", outFailed, []int{1}, policy{restarts: 2}, 2, ran, false, fsm.ManagedFailed},
		{"the code says again", outFailed, []int{33}, policy{exitCodes: []int{33}}, 9, ran, false, fsm.ManagedLost},
		{"the code of one node says again", outFailed, []int{0, 33}, policy{exitCodes: []int{33}}, 9, ran, false, fsm.ManagedLost},
		{"another code", outFailed, []int{34}, policy{exitCodes: []int{33}}, 0, ran, false, fsm.ManagedFailed},
		{"zero never says again", outFailed, []int{0, 1}, policy{exitCodes: []int{0}}, 0, ran, false, fsm.ManagedFailed},
		{"it failed while it is cancelled", outFailed, []int{33}, policy{exitCodes: []int{33}, restarts: 5}, 0, ran, true, fsm.ManagedCancelled},
		{"setup failed", outSetup, []int{1}, policy{}, 0, ran, false, fsm.ManagedBadSetup},
		{"setup may fail, too", outSetup, []int{1}, policy{restarts: 1}, 0, ran, false, fsm.ManagedLost},
		{"cut off by none of its doing", outDriver, nil, policy{restarts: 5}, 0, ran, false, fsm.ManagedBroken},
		{"cancelled on its cluster by nobody", outStray, nil, policy{}, 0, ran, false, fsm.ManagedLost},
		{"cancelled on its cluster while it is cancelled here", outStray, nil, policy{restarts: 5}, 0, ran, true, fsm.ManagedCancelled},
		{"cancelled here", outAborted, nil, policy{}, 0, ran, true, fsm.ManagedCancelled},
		{"refused at first", outRefused, nil, policy{}, 0, time.Time{}, false, fsm.ManagedRefused},
		{"refused later", outRefused, nil, policy{}, 0, ran, false, fsm.ManagedNoResource},
	} {
		s := situation{
			job: &state.ManagedJob{CancelAsked: tt.cancel}, task: &state.ManagedTask{Status: api.ManagedRunning, StartedAt: tt.started, Restarts: tt.restarts},
			attempt: &state.ManagedAttempt{Outcome: string(tt.outcome), ExitCodes: tt.codes}, policy: tt.policy,
		}
		if got := follows(s); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// noticed is a job that failed after the cloud had announced its machine's end.
func noticed(j *agentapi.Job) *agentapi.Job { j.Noticed = true; return j }

// TestForHowLongAFailureIsDoubted is the time in the rule: machines that are being
// taken away end their jobs before the provider says so. A failure that may be such an
// end is nobody's until the doubt is over, and the user's from then on.
func TestForHowLongAFailureIsDoubted(t *testing.T) {
	for _, tt := range []struct {
		name  string
		job   *agentapi.Job
		nodes int
		spot  bool
		doubt time.Duration
		want  outcome
	}{
		{"a program fails on machines of its own", job(api.JobFailed, 1), 1, false, 0, outFailed},
		{"a program fails on spot", job(api.JobFailed, 1), 1, true, 0, outFailed},
		{"a setup fails on spot", job(api.JobFailedSetup, 1), 1, true, 0, outSetup},
		{"a program fails on a machine that is announced to go", noticed(job(api.JobFailed, 1)), 1, true, doubtShort, outFailed},
		{"a program fails on two nodes on spot", job(api.JobFailed, 1, 0), 2, true, doubtShort, outFailed},
		{"a program is killed", job(api.JobFailed, 137), 1, false, doubtShort, outFailed},
		{"a program is killed on one node of two", job(api.JobFailed, 0, 143), 2, false, doubtShort, outFailed},
		{"a program ends with the highest code of its own", job(api.JobFailed, 128), 1, false, 0, outFailed},
		{"a program is ended by the first of all signals", job(api.JobFailed, 129), 1, false, doubtShort, outFailed},
		{"a job is cut off", job(api.JobFailedDriver), 1, false, doubtShort, outDriver},
		{"a job on two nodes is cut off: a peer's loss is seen first", job(api.JobFailedDriver), 2, false, doubtLong, outDriver},
		{"somebody cancelled it there", job(api.JobCancelled), 1, true, 0, outStray},
	} {
		s := running(observation{observed: true, cluster: clusterUp, confirmed: true, weighed: true, job: tt.job})
		s.attempt.Offer.Spot, s.attempt.Nodes = tt.spot, tt.nodes
		ended := unix(tt.job.EndedAt)
		if tt.doubt > 0 {
			for _, at := range []time.Duration{0, tt.doubt - time.Second} {
				if got := decide(s, ended.Add(at)); got.do != doWait || !got.until.Equal(ended.Add(tt.doubt)) {
					t.Errorf("%s, %v later: %s %s until %v", tt.name, at, got.do, got.outcome, got.until.Sub(ended))
				}
			}
			gone := s
			gone.seen.cluster, gone.seen.job = clusterGone, nil
			if got := decide(gone, ended.Add(tt.doubt-time.Second)); got.do != doSettle || got.outcome != outLost {
				t.Errorf("%s, and the machines are gone: %s %s", tt.name, got.do, got.outcome)
			}
		}
		if got := decide(s, ended.Add(tt.doubt)); got.do != doSettle || got.outcome != tt.want {
			t.Errorf("%s, %v later: %s %s, want %s", tt.name, tt.doubt, got.do, got.outcome, tt.want)
		}
	}
}
