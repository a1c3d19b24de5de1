package jobs

import (
	"fmt"
	"slices"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// outcome is how an attempt ended.
type outcome string

const (
	outSucceeded outcome = "succeeded"
	outFailed    outcome = "failed"       // the user's program
	outSetup     outcome = "failed_setup" // the user's setup
	outDriver    outcome = "failed_driver"
	outLost      outcome = "lost"        // the cluster is gone, or no longer whole
	outNode      outcome = "node_lost"   // a node is gone and is to be replaced; the rest of the cluster stays
	outStray     outcome = "cancelled"   // on the cluster, although nobody cancelled the managed job
	outAborted   outcome = "aborted"     // the managed job was cancelled
	outRefused   outcome = "refused"     // it can never be launched as it is
	outOvertime  outcome = "overtime"    // max_duration was over
	outHung      outcome = "unreachable" // its agent was silent for longer than the installation allows
)

// lost reports whether the attempt ended with its machines, or was given up with them:
// its program may have come to its end nevertheless.
func (o outcome) lost() bool { return o == outLost || o == outNode || o == outHung }

// ordered reports whether the attempt was ended from here while its program ran.
func (o outcome) ordered() bool { return o == outAborted || o == outOvertime }

// situation is all that a decision depends on.
type situation struct {
	job      *state.ManagedJob
	task     *state.ManagedTask    // the one in question
	attempt  *state.ManagedAttempt // its latest; nil: none
	closed   *state.ManagedAttempt // the one before, which ends as this one begins; else nil
	policy   policy
	empty    bool          // the task has nothing to run
	end      ending        // when it is ended if it still goes on
	patience time.Duration // with an agent that is silent while its provider says that the machines run; 0: endless
	seen     observation
}

// policy is what the task says about coming back.
type policy struct {
	strategy  string
	restarts  int   // after the user's program failed
	exitCodes []int // after these, as often as needed
	perNode   bool  // a lost node of several is replaced alone
}

func policyOf(t *task.Task) policy {
	for _, r := range t.Resources {
		if j := r.JobRecovery; j != nil {
			return policy{j.Strategy, j.MaxRestartsOnErrors, j.RecoverOnExitCodes, j.Extra["recovery"] == "node"}
		}
	}
	return policy{}
}

// clusterState is what is known of an attempt's cluster.
type clusterState int

const (
	clusterUnknown clusterState = iota
	clusterUp
	clusterBroken // machines are missing or off
	clusterGone
)

// observation is what could be found out just now. The zero value is nothing.
type observation struct {
	observed  bool
	cluster   clusterState
	reason    string
	confirmed bool // the provider said so, after the job was looked at
	failed    bool // the provider was asked and could not tell
	job       *agentapi.Job
	noJob     bool      // the agent answers and knows no such job
	silent    string    // why the agent did not answer, or a worker did not answer it; "": they did, or were not asked
	since     time.Time // with silent: since when this server has heard nothing

	weighed  bool      // what the agent said last was read, after the provider answered, if it did
	reported bool      // job is that last word: how it ended
	heard    time.Time // when servers last heard of the agent; zero: unknown
}

// action is what a controller does next.
type action struct {
	do      verb
	event   fsm.ManagedEvent // of move
	outcome outcome          // of settle
	reason  string
	codes   []int
	until   time.Time // of pause and wait
	ended   time.Time // of settle, if the cluster knows
}

type verb string

const (
	doBegin   verb = "begin"   // write down the next attempt
	doLaunch  verb = "launch"  // bring its cluster up and submit the job
	doPause   verb = "pause"   // before the next launch
	doObserve verb = "observe" // ask the agent
	doConfirm verb = "confirm" // ask the provider
	doWeigh   verb = "weigh"   // read what the agent said last
	doNote    verb = "note"    // write down that the agent fell silent, or answers again
	doWait    verb = "wait"    // until something happens
	doSettle  verb = "settle"  // write down how the attempt ended
	doKeep    verb = "keep"    // get the rest of its log
	doMove    verb = "move"    // write down the task's new state
	doReplace verb = "replace" // begin the next attempt on what is left of the cluster
	doClose   verb = "close"   // give the cluster back
	doFinish  verb = "finish"  // nothing is left to do
)

// decide says what comes next. It is pure.
func decide(s situation, now time.Time) action {
	a := s.attempt
	if a == nil || !a.ClosedAt.IsZero() {
		return decideNext(s, now)
	}
	switch {
	case a.Outcome != "":
		return decideEnded(s, now)
	case s.job.CancelAsked && s.task.Status != api.ManagedCancelling:
		return action{do: doMove, event: fsm.ManagedCancel, reason: "cancelled by the user"}
	case s.job.CancelAsked:
		return action{do: doSettle, outcome: outAborted, reason: "cancelled by the user"}
	case a.ClusterJob != 0:
		next := decideRunning(s, now)
		if next.do == doWait && s.end.due(now) { // what has ended by itself keeps its own outcome
			return action{do: doSettle, outcome: s.end.outcome, reason: s.end.reason}
		}
		return next
	case s.end.due(now):
		return action{do: doSettle, outcome: s.end.outcome, reason: s.end.reason}
	case now.Before(s.task.NotBefore):
		return action{do: doPause, until: s.task.NotBefore}
	}
	return action{do: doLaunch}
}

// decideNext is for a task without an open attempt.
func decideNext(s situation, now time.Time) action {
	switch {
	case s.task.Status.Terminal():
		return action{do: doFinish}
	case s.job.CancelAsked:
		return action{do: doMove, event: fsm.ManagedCancelled, reason: "cancelled by the user"}
	case s.end.due(now):
		return action{do: doMove, event: s.end.event(), reason: s.end.reason}
	case s.empty:
		return action{do: doMove, event: fsm.ManagedSucceeded, reason: "the task has nothing to run"}
	case s.attempt != nil && outcome(s.attempt.Outcome).lost() && s.attempt.Report != nil && s.attempt.Report.Status == api.JobSucceeded:
		return action{do: doMove, event: fsm.ManagedSucceeded, reason: fmt.Sprintf("the program of attempt %d had succeeded before its machine was lost", s.attempt.Number)}
	}
	return action{do: doBegin}
}

// decideEnded is for an attempt whose outcome is known.
func decideEnded(s situation, now time.Time) action {
	a := s.attempt
	if !a.LogKept {
		return action{do: doKeep}
	}
	switch event := follows(s); {
	case s.task.Status.Terminal():
	case event != fsm.ManagedLost:
		return action{do: doMove, event: event, reason: a.Reason}
	case outcome(a.Outcome) == outNode && !s.end.due(now):
		return action{do: doReplace}
	}
	return action{do: doClose}
}

// follows is what an attempt's outcome means for the task.
func follows(s situation) fsm.ManagedEvent {
	switch outcome(s.attempt.Outcome) {
	case outSucceeded:
		return fsm.ManagedSucceeded
	case outAborted:
		return fsm.ManagedCancelled
	case outDriver:
		return fsm.ManagedBroken
	case outOvertime:
		return fsm.ManagedFailed
	case outRefused:
		if !s.task.StartedAt.IsZero() {
			return fsm.ManagedNoResource
		}
		return fsm.ManagedRefused
	}
	if s.job.CancelAsked {
		return fsm.ManagedCancelled
	}
	switch outcome(s.attempt.Outcome) {
	case outFailed, outSetup:
		if s.task.Status == api.ManagedRecovering { // decided already
			return fsm.ManagedLost
		}
		if _, again := s.policy.again(s.attempt.ExitCodes, s.task.Restarts); again {
			return fsm.ManagedLost
		}
		if outcome(s.attempt.Outcome) == outSetup {
			return fsm.ManagedBadSetup
		}
		return fsm.ManagedFailed
	}
	return fsm.ManagedLost
}

// again reports whether a program that failed is run again, and whether that
// counts.
func (p policy) again(codes []int, restarts int) (counts, again bool) {
	for _, c := range codes {
		if c != 0 && slices.Contains(p.exitCodes, c) {
			return false, true
		}
	}
	return true, restarts < p.restarts
}

// decideRunning is for a job that its cluster has taken. Silence proves
// nothing: only the agent's record of the job or the provider's word about the
// machines ends an attempt.
func decideRunning(s situation, now time.Time) action {
	o := s.seen
	lost := func() action {
		switch {
		case !o.weighed:
			return action{do: doWeigh}
		case ownFailure(s.attempt, o):
			return failedBy(o.job)
		}
		o.reason = unknownOutcome(s.attempt, o, now)
		if s.policy.perNode && s.attempt.Machines() > 1 && o.cluster == clusterBroken && (o.job != nil || o.noJob) {
			return action{do: doSettle, outcome: outNode, reason: o.reason, ended: o.heard} // the head is there
		}
		return action{do: doSettle, outcome: outLost, reason: o.reason, ended: o.heard}
	}
	switch {
	case !o.observed:
		return action{do: doObserve}
	case o.job != nil && o.job.Status == api.JobSucceeded:
		return ended(outSucceeded, o.job, "")
	case o.cluster == clusterGone:
		return lost()
	case o.failed:
		return action{do: doWait}
	case o.cluster == clusterBroken:
		if !o.confirmed {
			return action{do: doConfirm}
		}
		return lost()
	case o.noJob && !o.weighed:
		return action{do: doWeigh}
	case o.noJob || o.job != nil && o.job.Status.Terminal():
		if !o.confirmed { // a machine that goes takes the job with it
			return action{do: doConfirm}
		}
	case o.silent != "" && !isSilent(s.task):
		return action{do: doNote, reason: silence(o.silent, now)}
	case o.silent != "" && !o.weighed:
		return action{do: doWeigh}
	case o.silent != "" && !o.confirmed:
		return action{do: doConfirm}
	case o.silent != "" && s.patience > 0:
		if until := o.since.Add(s.patience); now.Before(until) {
			return action{do: doWait, until: until}
		}
		return action{do: doSettle, outcome: outHung, reason: hung(s.patience, o.silent), ended: o.heard}
	case o.job != nil && o.silent == "" && isSilent(s.task):
		return action{do: doNote}
	default:
		return action{do: doWait}
	}
	if until := doubt(s.attempt, o.job); now.Before(until) {
		return action{do: doWait, until: until}
	}
	if o.noJob {
		return action{do: doSettle, outcome: outDriver, reason: "the cluster no longer knows the job"}
	}
	switch o.job.Status {
	case api.JobFailed, api.JobFailedSetup:
		return failedBy(o.job)
	case api.JobCancelled:
		return ended(outStray, o.job, "the job was cancelled on its cluster, and nobody cancelled it here; it runs again")
	}
	return ended(outDriver, o.job, "the job was cut off on its cluster; the machine may have run out of memory")
}

// failedBy is the end of a job whose program, or setup, failed.
func failedBy(j *agentapi.Job) action {
	if j.Status == api.JobFailedSetup {
		return ended(outSetup, j, "setup failed"+withCodes(j.ExitCodes))
	}
	return ended(outFailed, j, "the program failed"+withCodes(j.ExitCodes))
}

// For how long a failure is doubted: machines that are being taken away kill
// their jobs before the provider says so, and a node's loss is seen by its peers
// first. Elsewhere the agent's word decides, also on spot machines: a program that
// exited by itself, on one node that nobody had announced to take away, has failed.
const (
	doubtShort = 5 * time.Second
	doubtLong  = time.Minute
)

// doubt is until when a job that failed may still turn out to have lost its
// machines.
func doubt(a *state.ManagedAttempt, j *agentapi.Job) time.Time {
	if j == nil {
		return time.Time{}
	}
	killed := slices.ContainsFunc(j.ExitCodes, func(c int) bool { return c > 128 })
	switch {
	case j.Status == api.JobCancelled:
		return time.Time{}
	case j.Status != api.JobFailed && j.Status != api.JobFailedSetup && a.Machines() > 1:
		return unix(j.EndedAt).Add(doubtLong)
	case killed || j.Noticed || j.Status == api.JobFailedDriver || a.Offer.Spot && a.Machines() > 1:
		return unix(j.EndedAt).Add(doubtShort)
	}
	return time.Time{}
}

// ended is an attempt that ended as the agent says.
func ended(o outcome, j *agentapi.Job, reason string) action {
	if j.Reason != "" && reason != "" {
		reason += ": " + j.Reason
	}
	return action{do: doSettle, outcome: o, reason: reason, codes: j.ExitCodes, ended: unix(j.EndedAt)}
}

func withCodes(codes []int) string {
	if len(codes) == 1 {
		return fmt.Sprintf(" with exit code %d", codes[0])
	}
	if len(codes) > 1 {
		return fmt.Sprintf(" with exit codes %v", codes)
	}
	return ""
}

func unix(s float64) time.Time {
	if s <= 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(s * 1e6))
}
