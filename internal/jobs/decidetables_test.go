package jobs

import (
	"strings"
	"testing"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/state"
)

// A node of several is replaced alone if the task asks for that and its head is there.
func TestWhenALostNodeIsReplacedAlone(t *testing.T) {
	for _, c := range []struct {
		name    string
		perNode bool
		nodes   int
		seen    observation
		want    outcome
	}{
		{"the head answers and runs the job", true, 2, observation{cluster: clusterBroken, job: job(api.JobRunning)}, outNode},
		{"the head answers and knows no job", true, 2, observation{cluster: clusterBroken, noJob: true}, outNode},
		{"the head does not answer", true, 2, observation{cluster: clusterBroken, silent: "no answer"}, outLost},
		{"all machines are gone", true, 2, observation{cluster: clusterGone, job: job(api.JobRunning)}, outLost},
		{"the task does not ask for it", false, 2, observation{cluster: clusterBroken, job: job(api.JobRunning)}, outLost},
		{"there is one node", true, 1, observation{cluster: clusterBroken, noJob: true}, outLost},
	} {
		c.seen.observed, c.seen.confirmed, c.seen.weighed, c.seen.heard, c.seen.reason = true, true, true, noon.Add(-9*time.Second), "preempted"
		s := running(c.seen)
		s.policy.perNode, s.attempt.Nodes = c.perNode, c.nodes
		got := decide(s, noon)
		if got.do != doSettle || got.outcome != c.want || !got.ended.Equal(c.seen.heard) ||
			got.reason != "preempted; outcome of attempt 1 unknown: machine lost 9.0s after the last word; running again" {
			t.Errorf("%s: %s %s at %v: %s", c.name, got.do, got.outcome, got.ended, got.reason)
		}
	}
}

func TestThePatienceWithASilentAgentEnds(t *testing.T) {
	const patience = 45 * time.Minute
	for _, c := range []struct {
		name     string
		patience time.Duration
		since    time.Duration // ago
		want     action
	}{
		{"endless", 0, 1000 * time.Hour, action{do: doWait}},
		{"not over", patience, patience - time.Second, action{do: doWait, until: noon.Add(time.Second)}},
		{"over", patience, patience, action{do: doSettle, outcome: outHung, ended: noon.Add(-time.Hour),
			reason: "its agent did not answer for 45m0s (no answer); its machines are ended before it runs elsewhere"}},
	} {
		s := running(observation{observed: true, cluster: clusterUp, silent: "no answer:\nat all", since: noon.Add(-c.since), confirmed: true, weighed: true, heard: noon.Add(-time.Hour)})
		s.patience, s.task.Details = c.patience, unreachable+"10:00"
		got := decide(s, noon)
		if got.do != c.want.do || got.outcome != c.want.outcome || got.reason != c.want.reason || !got.until.Equal(c.want.until) || !got.ended.Equal(c.want.ended) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// When the time of a task is over it is ended wherever it is; what has ended by itself
// keeps its own outcome.
func TestATaskIsEndedWhereverItIsWhenItsTimeIsOver(t *testing.T) {
	end := ending{noon, outOvertime, "too long"}
	succeeded, up := observation{observed: true, cluster: clusterUp, job: job(api.JobSucceeded, 0)}, observation{observed: true, cluster: clusterUp, job: job(api.JobRunning)}
	for _, c := range []struct {
		name          string
		seen          observation
		change        func(s *situation)
		before, after action // its end
	}{
		{"it has no attempt", observation{}, func(s *situation) { s.attempt = nil }, action{do: doBegin}, action{do: doMove, event: fsm.ManagedFailed, reason: "too long"}},
		{"its cluster is being brought up", observation{}, func(s *situation) { s.attempt.ClusterJob = 0 }, action{do: doLaunch}, action{do: doSettle, outcome: outOvertime, reason: "too long"}},
		{"it waits for its next launch", observation{}, func(s *situation) { s.attempt.ClusterJob, s.task.NotBefore = 0, noon.Add(time.Hour) },
			action{do: doPause, until: noon.Add(time.Hour)}, action{do: doSettle, outcome: outOvertime, reason: "too long"}},
		{"it runs", up, nil, action{do: doWait}, action{do: doSettle, outcome: outOvertime, reason: "too long"}},
		{"nobody has looked", observation{}, nil, action{do: doObserve}, action{do: doObserve}},
		{"it has succeeded", succeeded, nil, action{do: doSettle, outcome: outSucceeded}, action{do: doSettle, outcome: outSucceeded}},
		{"a node was lost", observation{}, func(s *situation) { s.attempt.Outcome, s.attempt.LogKept = string(outNode), true }, action{do: doReplace}, action{do: doClose}},
		{"its log is not here", observation{}, func(s *situation) { s.attempt.Outcome = string(outNode) }, action{do: doKeep}, action{do: doKeep}},
	} {
		for at, want := range map[time.Time]action{noon.Add(-time.Nanosecond): c.before, noon: c.after} {
			s := running(c.seen)
			s.end = end
			if c.change != nil {
				c.change(&s)
			}
			got := decide(s, at)
			if got.do != want.do || got.event != want.event || got.outcome != want.outcome || got.reason != want.reason || !got.until.Equal(want.until) {
				t.Errorf("%s, at %v: %+v, want %+v", c.name, at, got, want)
			}
		}
	}
	aborted := running(observation{})
	aborted.attempt, aborted.end = nil, ending{noon, outAborted, "its group has ended"}
	if got := decide(aborted, noon); got.do != doMove || got.event != fsm.ManagedCancelled {
		t.Errorf("a task whose group has ended: %+v", got)
	}
}

// A task whose program is known to have succeeded does not begin again.
func TestALateWordOfSuccessEndsATask(t *testing.T) {
	for _, o := range []outcome{outSucceeded, outFailed, outSetup, outDriver, outLost, outNode, outStray, outAborted, outRefused, outOvertime, outHung} {
		for _, said := range []api.JobStatus{"", api.JobSucceeded, api.JobFailed} {
			s := running(observation{})
			s.attempt.Outcome, s.attempt.ClosedAt = string(o), noon.Add(-time.Minute)
			if said != "" {
				s.attempt.Report = &state.ManagedReport{Status: said}
			}
			want := action{do: doBegin}
			if said == api.JobSucceeded && (o == outLost || o == outNode || o == outHung) {
				want = action{do: doMove, event: fsm.ManagedSucceeded}
			}
			if got := decide(s, noon); got.do != want.do || got.event != want.event {
				t.Errorf("%s, then it said %q: %s %s", o, said, got.do, got.event)
			}
		}
	}
}

// What comes before the next step of an attempt that has ended.
func TestWhatFollowsTheEndOfAnAttempt(t *testing.T) {
	for _, c := range []struct {
		outcome outcome
		status  api.ManagedStatus
		want    action
	}{
		{outSucceeded, api.ManagedRunning, action{do: doMove, event: fsm.ManagedSucceeded, reason: "why"}},
		{outSucceeded, api.ManagedSucceeded, action{do: doClose}},
		{outFailed, api.ManagedRunning, action{do: doMove, event: fsm.ManagedFailed, reason: "why"}},
		{outFailed, api.ManagedRecovering, action{do: doClose}}, // it may again: that was decided
		{outSetup, api.ManagedRecovering, action{do: doClose}},
		{outOvertime, api.ManagedRunning, action{do: doMove, event: fsm.ManagedFailed, reason: "why"}},
		{outLost, api.ManagedRecovering, action{do: doClose}},
		{outHung, api.ManagedRecovering, action{do: doClose}},
		{outNode, api.ManagedRecovering, action{do: doReplace}},
		{outNode, api.ManagedCancelled, action{do: doClose}},
	} {
		s := running(observation{})
		s.task.Status, s.attempt.Outcome, s.attempt.Reason, s.attempt.LogKept = c.status, string(c.outcome), "why", true
		if got := decide(s, noon); got.do != c.want.do || got.event != c.want.event || got.reason != c.want.reason {
			t.Errorf("%s, %s: %+v", c.outcome, c.status, got)
		}
	}
}

func TestTheReasonOfAnEndSaysWhatTheAgentKnows(t *testing.T) {
	said := func(j *agentapi.Job, reason string) *agentapi.Job { j.Reason = reason; return j }
	for _, c := range []struct {
		job  *agentapi.Job
		want string
	}{
		{job(api.JobSucceeded, 0), ""},
		{said(job(api.JobSucceeded, 0), "x"), ""},
		{job(api.JobFailed), "the program failed"},
		{job(api.JobFailed, 7), "the program failed with exit code 7"},
		{job(api.JobFailed, 0, 7), "the program failed with exit codes [0 7]"},
		{said(job(api.JobFailed, 7), "no memory"), "the program failed with exit code 7: no memory"},
		{job(api.JobFailedSetup, 1), "setup failed with exit code 1"},
		{job(api.JobCancelled), "the job was cancelled on its cluster, and nobody cancelled it here; it runs again"},
		{said(job(api.JobFailedDriver), "killed"), "the job was cut off on its cluster; the machine may have run out of memory: killed"},
	} {
		s := running(observation{observed: true, cluster: clusterUp, confirmed: true, weighed: true, job: c.job})
		got := decide(s, noon)
		if got.do != doSettle || got.reason != c.want || len(got.codes) != len(c.job.ExitCodes) || !got.ended.Equal(unix(c.job.EndedAt)) {
			t.Errorf("%s %v: %s %q at %v", c.job.Status, c.job.ExitCodes, got.do, got.reason, got.ended)
		}
	}
	if at := unix(0); !at.IsZero() {
		t.Errorf("what has not ended ended at %v", at)
	}
	if at := unix(1.5); !at.Equal(time.UnixMilli(1500)) {
		t.Errorf("1.5 s after the epoch is %v", at)
	}
}

func TestWhatIsSaidOfAnUnknownOutcome(t *testing.T) {
	a := &state.ManagedAttempt{Number: 3}
	for _, c := range []struct {
		seen observation
		want string
	}{
		{observation{}, "outcome of attempt 3 unknown: no word of it was heard; running again"},
		{observation{heard: noon.Add(-90 * time.Second)}, "outcome of attempt 3 unknown: machine lost 90.0s after the last word; running again"},
		{observation{heard: noon.Add(time.Second)}, "outcome of attempt 3 unknown: machine lost 0.0s after the last word; running again"},
		{observation{reported: true, job: job(api.JobCancelled)}, "attempt 3 ended CANCELLED as its machine went; running again"},
		{observation{reason: "preempted"}, "preempted; outcome of attempt 3 unknown: no word of it was heard; running again"},
	} {
		if got := unknownOutcome(a, c.seen, noon); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// A program whose failure was told before its machine went failed by itself, unless
// the machine's end may have been the cause.
func TestWhoseFailureItIsWhenAMachineGoesAfterwards(t *testing.T) {
	ended := noon.Add(-time.Minute) // see [job]
	for _, c := range []struct {
		name   string
		seen   observation
		change func(a *state.ManagedAttempt)
		want   bool
	}{
		{"the program's", observation{reported: true, job: job(api.JobFailed, 1)}, nil, true},
		{"the setup's", observation{reported: true, job: job(api.JobFailedSetup, 1)}, nil, true},
		{"nobody told", observation{job: job(api.JobFailed, 1)}, nil, false},
		{"it was cut off", observation{reported: true, job: job(api.JobFailedDriver), heard: noon}, nil, false},
		{"a node of two", observation{reported: true, job: job(api.JobFailed, 1)}, func(a *state.ManagedAttempt) { a.Nodes = 2 }, false},
		{"on spot", observation{reported: true, job: job(api.JobFailed, 1), heard: ended}, func(a *state.ManagedAttempt) { a.Offer.Spot = true }, true},
		{"on spot, nobody told", observation{job: job(api.JobFailed, 1), heard: ended.Add(doubtShort + 1)}, func(a *state.ManagedAttempt) { a.Offer.Spot = true }, false},
		{"on a machine that was announced to go, heard for long enough", observation{reported: true, job: noticed(job(api.JobFailed, 1)), heard: ended.Add(doubtShort + 1)}, nil, true},
		{"on a machine that was announced to go, heard for just as long", observation{reported: true, job: noticed(job(api.JobFailed, 1)), heard: ended.Add(doubtShort)}, nil, false},
		{"killed, heard for just as long", observation{reported: true, job: job(api.JobFailed, 137), heard: ended.Add(doubtShort)}, nil, false},
	} {
		s := running(c.seen)
		s.attempt.Nodes = 1
		if c.change != nil {
			c.change(s.attempt)
		}
		if got := ownFailure(s.attempt, c.seen); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Of a cluster that is gone there is no more log; of one whose job is ended from here,
// as long as its processes may end by themselves.
func TestWhichAttemptsMayHaveMoreOfALog(t *testing.T) {
	for _, c := range []struct {
		outcome outcome
		job     int
		by      time.Time // of whoever cancelled the job; zero: nobody did
		want    bool
	}{
		{outSucceeded, 7, time.Time{}, true}, {outFailed, 7, time.Time{}, true}, {outStray, 7, time.Time{}, true}, {outSucceeded, 0, time.Time{}, false},
		{outLost, 7, noon.Add(1), false}, {outNode, 7, noon.Add(1), false}, {outHung, 7, noon.Add(1), false}, {outOvertime, 7, noon, true},
		{outOvertime, 0, time.Time{}, false}, {outAborted, 7, time.Time{}, true}, {outAborted, 7, noon, false}, {outAborted, 7, noon.Add(1), true},
	} {
		s := running(observation{})
		s.attempt.Outcome, s.attempt.ClusterJob, s.attempt.EndedAt = string(c.outcome), c.job, noon.Add(1-proc.Grace)
		s.job.CancelAsked, s.job.CancelBy = !c.by.IsZero(), c.by
		if got := moreLog(s, noon); got != c.want {
			t.Errorf("%s, job %d, until %v: %v", c.outcome, c.job, c.by, got)
		}
		if got := written(s, action{do: doKeep}); got != !moreLog(s, time.Now()) {
			t.Errorf("%s: nothing but written: %v", c.outcome, got)
		}
	}
}

func TestHowManyAttemptsInARowWereTooQuick(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "q": 0, "qq": 0, "qqq": 1, "qqqq": 2, "lqqq": 1, "qqqql": 0, "qqqqn": 0, "qqqnqqq": 1,
	} {
		var all []*state.ManagedAttempt
		for _, c := range text {
			a := &state.ManagedAttempt{}
			switch c {
			case 'q':
				a.RanAt, a.EndedAt = noon, noon.Add(tooQuick-1)
			case 'l':
				a.RanAt, a.EndedAt = noon, noon.Add(tooQuick)
			case 'n': // it never ran
				a.EndedAt = noon
			}
			all = append(all, a)
		}
		if got := rushing(all); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestTheEarlierOfTwoTimesThatMayNeverCome(t *testing.T) {
	var never time.Time
	for _, c := range [][3]time.Time{{never, never, never}, {noon, never, noon}, {never, noon, noon}, {noon, noon.Add(1), noon}, {noon.Add(1), noon, noon}} {
		if got := until(c[0], c[1]); !got.Equal(c[2]) {
			t.Errorf("%v", c)
		}
	}
}

// What the task says of recovery is that of the first resources that say something.
func TestHowATaskWantsToComeBack(t *testing.T) {
	for text, want := range map[string]policy{
		"run: x\n": {},
		"resources: {job_recovery: FAILOVER}\nrun: x\n":                                                                     {strategy: "FAILOVER"},
		"resources: {job_recovery: {max_restarts_on_errors: 3, recover_on_exit_codes: [33, 34], recovery: node}}\nrun: x\n": {restarts: 3, exitCodes: []int{33, 34}, perNode: true},
		"resources: {cpus: 2, job_recovery: {recovery: cluster}}\nrun: x\n":                                                 {},
	} {
		s, err := graphOf(&state.ManagedJob{Dag: []byte("name: t\n" + text), Tasks: []*state.ManagedTask{{}}})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got := s.tasks[0].policy
		if !strings.EqualFold(got.strategy, want.strategy) || got.restarts != want.restarts || len(got.exitCodes) != len(want.exitCodes) || got.perNode != want.perNode {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
