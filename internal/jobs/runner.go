package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/task"
)

// runner takes one task of a job to its end, or until the server goes. Nobody
// else changes the task meanwhile.
type runner struct {
	*controller
	index int
	phase api.ScheduleState

	kept     situation       // the job and the attempt as they are stored, for the next step; without a job: to be read
	slot     bool            // holds one of the launches that may run at once
	rows     <-chan struct{} // the job's rows changed
	seen     observation     // since the last wait
	notified bool            // something happened to the cluster or its job since then
	mute     time.Time       // since when the attempt's agent has not answered this server; zero: it did last

	// Of the running attempt.
	followed    string          // its key; "": none
	changed     <-chan struct{} // its cluster or job changed
	stopChanged func()
	copy        *copier // of its log
}

// How long a runner waits before it looks again by itself; what happens is told
// to it long before.
const (
	observeAgain = time.Minute
	confirmAgain = 5 * time.Second // while the provider cannot tell
	failAgain    = 3 * time.Second // after an error of our own
)

func (c *controller) runner(task int) *runner {
	return &runner{controller: c, index: task, slot: c.takeSlot()}
}

// run observes, decides, acts and records, again and again.
func (r *runner) run(ctx context.Context) {
	rows, stop := r.m.rows.Subscribe(r.id)
	r.rows = rows
	r.does(api.ScheduleAlive)
	if r.slot {
		r.does(api.ScheduleLaunching)
	}
	defer func() {
		stop()
		r.unfollow()
		r.does("")
		if r.slot {
			r.m.slots.release()
		}
	}()
	for ctx.Err() == nil {
		err := r.step(ctx)
		if errors.Is(err, errFinished) {
			return
		}
		if err != nil { // what was decided or changed in memory is not stored: look again
			r.seen, r.kept = observation{}, situation{}
			r.failed(ctx, err)
		}
	}
}

// does notes what the runner does now, for the job's place in the schedule.
func (r *runner) does(s api.ScheduleState) {
	r.phase = s
	r.controller.does(r.index, s)
}

// load is what is known of the task. It is read anew unless the step before left
// it as it wrote or read it: nobody else writes as long as the lease holds, but
// for those who cancel the job, and what is stored after that is refused.
func (r *runner) load(ctx context.Context) (situation, error) {
	s := situation{job: r.kept.job, attempt: r.kept.attempt}
	r.kept = situation{}
	if s.job == nil || !r.m.held.Held() {
		j, err := r.controller.load(ctx)
		if err != nil {
			return s, err
		}
		s = situation{job: j}
		if t := j.Tasks[r.index]; t.Attempt > 0 {
			if s.attempt, err = r.m.store.ManagedJobs().Attempt(ctx, j.ID, t.Index, t.Attempt); err != nil {
				return s, err
			}
		}
	}
	of := r.graph.tasks[r.index]
	s.task, s.seen, s.policy, s.empty, s.end, s.patience = s.job.Tasks[r.index], r.seen, of.policy, of.empty, r.graph.end(s.job, r.index), r.m.patience()
	return s, nil
}

// keep leaves what is known to the next step, which comes at once.
func (r *runner) keep(s situation) { r.kept = situation{job: s.job, attempt: s.attempt} }

// save writes what changed. The next step begins with that.
func (r *runner) save(ctx context.Context, s situation, events ...state.ManagedEvent) error {
	if err := r.controller.save(ctx, s, r.rows, events...); err != nil {
		return err
	}
	r.keep(s)
	return nil
}

// write saves what changed together with all that follows from it and needs
// nobody else: how the attempt ended, and what the task is then.
func (r *runner) write(ctx context.Context, s situation, events ...state.ManagedEvent) error {
	for {
		var more []state.ManagedEvent
		var err error
		switch a := decide(s, time.Now()); {
		case !written(s, a):
			return r.save(ctx, s, events...)
		case a.do == doMove:
			more, err = moved(s, a)
		case a.do == doSettle:
			more, err = r.settle(s, a)
		case a.do == doKeep:
			r.logKept(s)
		}
		if err != nil {
			return err
		}
		events = append(events, more...)
	}
}

// written reports whether an action is nothing but something to be written down.
func written(s situation, a action) bool {
	return a.do == doMove || a.do == doSettle || a.do == doKeep && !moreLog(s, time.Now())
}

// taskOf is one task of a job as it was submitted.
func taskOf(j *state.ManagedJob, index int) (*task.Task, error) {
	dag, err := dagOf(j)
	if err != nil {
		return nil, err
	}
	if index >= len(dag.Tasks) {
		return nil, fmt.Errorf("managed job %d has no task %d", j.ID, index)
	}
	return dag.Tasks[index], nil
}

func dagOf(j *state.ManagedJob) (*task.Dag, error) {
	dag, err := task.ParseSent("task", j.Dag)
	if err != nil {
		return nil, fmt.Errorf("the stored tasks of managed job %d: %w", j.ID, err)
	}
	return dag, nil
}

func (r *runner) step(ctx context.Context) error {
	s, err := r.load(ctx)
	if err != nil {
		return err
	}
	a := decide(s, time.Now())
	if a.do != doLaunch && a.do != doBegin && r.slot {
		r.freeSlot()
	}
	if written(s, a) {
		return r.write(ctx, s)
	}
	switch a.do {
	case doBegin:
		return r.begin(ctx, s)
	case doLaunch:
		return r.launch(ctx, s)
	case doPause:
		return r.pause(ctx, s, a.until)
	case doObserve:
		r.follow(s.attempt)
		r.notified = false
		r.seen = r.observe(ctx, s.attempt)
		r.keep(s)
		return nil
	case doConfirm:
		r.keep(s)
		return r.confirm(ctx, s.attempt)
	case doWeigh:
		r.keep(s)
		return r.reconcileReport(ctx, s.attempt)
	case doNote:
		return r.note(ctx, s, a)
	case doWait:
		return r.wait(ctx, until(a.until, s.end.at))
	case doKeep:
		return r.keepLog(ctx, s)
	case doReplace:
		return r.replace(ctx, s)
	case doClose:
		return r.close(ctx, s)
	case doFinish:
		return errFinished
	}
	return fmt.Errorf("nobody knows how to %q", a.do)
}

func (r *runner) freeSlot() {
	r.slot = false
	r.m.slots.release()
}

// begin writes down the next attempt, before anything is asked of a cloud.
func (r *runner) begin(ctx context.Context, s situation) error {
	now := time.Now()
	name, err := r.clusterName(ctx, s)
	if err != nil {
		return err
	}
	attempts, err := r.attempts(ctx, s.task)
	if err != nil {
		return err
	}
	t := s.task
	if n := len(attempts); n > 0 && outcome(attempts[n-1].Outcome).lost() && attempts[n-1].Report != nil && s.attempt.Report == nil {
		s.attempt = attempts[n-1] // the word came after the loss was written down
		return r.write(ctx, s)
	}
	t.NotBefore = time.Time{}
	if n := rushing(attempts); n > 0 {
		t.NotBefore = now.Add(pause(n, rand.Float64()))
		t.Details = fmt.Sprintf("starts again at %s: its last attempts ended within %v", t.NotBefore.UTC().Format("15:04:05 MST"), tooQuick)
	}
	s.attempt = next(t, name, now)
	return r.save(ctx, s)
}

// next is a task's next attempt.
func next(t *state.ManagedTask, cluster string, now time.Time) *state.ManagedAttempt {
	t.Attempt++
	t.Tries = 0
	if t.SubmittedAt.IsZero() {
		t.SubmittedAt = now
	}
	return &state.ManagedAttempt{JobID: t.JobID, Task: t.Index, Number: t.Attempt, ClusterName: cluster, StartedAt: now}
}

// replace ends an attempt and begins the next one on the same cluster, whose
// launch finds out what is missing. Both are written at once: at no time does
// the cluster belong to none.
func (r *runner) replace(ctx context.Context, s situation) error {
	now := time.Now()
	s.closed = s.attempt
	s.closed.ClosedAt = now
	s.task.NotBefore = time.Time{}
	s.attempt = next(s.task, s.closed.ClusterName, now)
	return r.save(ctx, s)
}

// attempts is all that were made of a task, in order.
func (r *runner) attempts(ctx context.Context, t *state.ManagedTask) ([]*state.ManagedAttempt, error) {
	if t.Attempt == 0 {
		return nil, nil
	}
	all, err := r.m.store.ManagedJobs().Attempts(ctx, r.id)
	return slices.DeleteFunc(all, func(a *state.ManagedAttempt) bool { return a.Task != t.Index }), err
}

// clusterName is the name of the attempt's cluster: that of the task and the
// job, unless somebody has taken it.
func (r *runner) clusterName(ctx context.Context, s situation) (string, error) {
	base := clusterName(s.task.Name, r.id)
	for n := 1; ; n++ {
		name := base
		if n > 1 {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		if taken, err := r.m.env.Taken(ctx, name, r.id); err != nil || !taken {
			return name, err
		}
	}
}

// pause waits for the time of the next launch.
func (r *runner) pause(ctx context.Context, s situation, until time.Time) error {
	if r.phase != api.ScheduleAliveBackoff {
		r.does(api.ScheduleAliveBackoff)
		return r.save(ctx, s)
	}
	t := time.NewTimer(time.Until(sooner(until, s.end.at)))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-r.rows:
	case <-t.C:
	}
	return nil
}

// until is the earlier of two times that may both never come.
func until(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return sooner(a, b)
}

// sooner is the earlier of two times; a zero second one never comes.
func sooner(a, b time.Time) time.Time {
	if !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// observe asks the agent.
func (r *runner) observe(ctx context.Context, a *state.ManagedAttempt) observation {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	o := r.m.env.Observe(ctx, a)
	switch {
	case o.silent == "":
		r.mute = time.Time{}
	case r.mute.IsZero():
		r.mute = time.Now()
	}
	o.since = r.mute
	return o
}

// confirm asks the provider. An answer that comes in another way meanwhile is as good:
// an answer may take long.
func (r *runner) confirm(ctx context.Context, a *state.ManagedAttempt) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	type answer struct {
		cluster clusterState
		reason  string
		err     error
	}
	answers := make(chan answer, 1)
	go func() {
		var got answer
		got.cluster, got.reason, got.err = r.m.env.Confirm(ctx, a)
		answers <- got
	}()
	for {
		var got answer
		select {
		case got = <-answers:
		case <-r.changed:
			r.notified = true
			o := r.m.env.Recorded(ctx, a)
			if !o.confirmed || o.cluster != clusterBroken && o.cluster != clusterGone {
				continue
			}
			got = answer{cluster: o.cluster, reason: o.reason}
		}
		if got.err != nil {
			r.seen.failed = true
			r.out.Printf("The state of cluster %s could not be found out: %v", a.ClusterName, got.err)
			return nil
		}
		r.seen.cluster, r.seen.confirmed = got.cluster, true
		r.seen.weighed = r.seen.reported // what arrived before the provider's answer counts
		if got.reason != "" {
			r.seen.reason = got.reason
		}
		return nil
	}
}

// wait waits until something happens to the cluster or the job. What happened
// since the runner looked is notified already.
func (r *runner) wait(ctx context.Context, end time.Time) error {
	if r.notified {
		r.seen, r.notified = observation{}, false
		return nil
	}
	after := observeAgain + rand.N(observeAgain/4)
	if r.seen.failed {
		after = confirmAgain
	}
	t := time.NewTimer(time.Until(sooner(time.Now().Add(after), end)))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-r.changed:
	case <-r.rows:
	case <-t.C:
	}
	r.seen = observation{}
	return nil
}

// follow makes the runner hear of the attempt's cluster and copies the log
// of its job, if it does not yet.
func (r *runner) follow(a *state.ManagedAttempt) {
	if r.followed == attemptKey(a) {
		return
	}
	r.unfollow()
	r.followed = attemptKey(a)
	r.changed, r.stopChanged = r.m.env.Changed(a)
	r.copy = r.m.copyLog(a, r.out.Printf)
}

func (r *runner) unfollow() {
	if r.followed == "" {
		return
	}
	r.stopChanged()
	r.copy.stop()
	r.followed, r.changed, r.copy = "", nil, nil
}

// settle notes how the attempt ended.
func (r *runner) settle(s situation, a action) ([]state.ManagedEvent, error) {
	at := a.ended
	if at.IsZero() {
		at = time.Now()
	}
	at = later(at, s.attempt.RanAt)
	t := s.task
	s.attempt.Outcome, s.attempt.Reason, s.attempt.ExitCodes, s.attempt.EndedAt = string(a.outcome), a.reason, a.codes, at
	r.seen, r.mute = observation{}, time.Time{} // the next attempt has another agent
	r.does(api.ScheduleAlive)
	e := follows(s)
	if e != lost || t.Status == api.ManagedCancelling {
		return nil, nil
	}
	if a.outcome == outFailed || a.outcome == outSetup {
		if counts, _ := s.policy.again(a.codes, t.Restarts); counts {
			t.Restarts++
		}
	}
	event, err := move(t, e, a.reason, at)
	if a.outcome.lost() {
		event.At = time.Now() // when it was found out
	}
	return []state.ManagedEvent{event}, err
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// moved is the task's new state.
func moved(s situation, a action) ([]state.ManagedEvent, error) {
	at := time.Now()
	switch {
	case s.attempt == nil:
	case !s.attempt.EndedAt.IsZero() && s.attempt.ClosedAt.IsZero():
		at = s.attempt.EndedAt
	case a.event == fsm.ManagedSucceeded && reported(s.attempt) != nil: // learned after it was given up
		at = unix(s.attempt.Report.EndedAt)
	}
	event, err := move(s.task, a.event, a.reason, at)
	return []state.ManagedEvent{event}, err
}

// closePause is how long to wait before a cluster that could not be given back
// is tried again; it doubles.
const (
	closePause     = 5 * time.Second
	closePauseMost = 2 * time.Minute
)

// close gives the cluster back, for as long as it takes.
func (r *runner) close(ctx context.Context, s situation) error {
	r.tell(ctx, s)
	if err := r.down(ctx, s); err != nil {
		return err
	}
	r.callbacks.rest(ctx, r.index)
	if ctx.Err() != nil {
		return nil
	}
	s.attempt.ClosedAt = time.Now()
	return r.save(ctx, s)
}

// tell lets callbacks run while the cluster is there. A job that is to be ended is
// not kept running for them.
func (r *runner) tell(ctx context.Context, s situation) {
	a := s.attempt
	if !r.graph.tasks[r.index].callback || a.ClusterJob == 0 {
		return
	}
	if outcome(a.Outcome).ordered() {
		ectx, cancel := context.WithTimeout(ctx, deadline)
		if err := r.m.env.End(ectx, a, 0); err != nil {
			r.out.Printf("Cluster %s could not be asked to end its job: %v", a.ClusterName, err)
		}
		cancel()
	}
	r.callbacks.leave(ctx, a)
}

func (r *runner) down(ctx context.Context, s situation) error {
	for wait := closePause; ; wait = min(2*wait, closePauseMost) {
		err := r.m.env.Down(ctx, s.attempt, r.call(s))
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.m.log.WarnContext(ctx, "cluster of a managed job not given back", "job", r.id, "cluster", s.attempt.ClusterName, "err", err)
		r.out.Printf("Cluster %s could not be given back; trying again in %v: %v", s.attempt.ClusterName, wait, err)
		sleep(ctx, wait)
	}
}

// call is who asks, for what is done to the cluster.
func (r *runner) call(s situation) cluster.Call {
	return cluster.Call{
		RequestID: attemptKey(s.attempt), User: state.User{ID: s.job.UserHash, Name: s.job.UserName},
		Attempt: 2, Command: s.job.Entrypoint, Out: r.out,
	}
}

// attemptKey is the name under which an attempt's job is submitted. Nobody
// else's is like it.
func attemptKey(a *state.ManagedAttempt) string {
	return fmt.Sprintf("managed-%d-%d-%d", a.JobID, a.Task, a.Number)
}

// parseAttemptKey is what attemptKey made of an attempt; false: it is no such key.
func parseAttemptKey(key string) (job, task, number int, ok bool) {
	n, err := fmt.Sscanf(key, "managed-%d-%d-%d", &job, &task, &number)
	ok = err == nil && n == 3 && key == attemptKey(&state.ManagedAttempt{JobID: job, Task: task, Number: number})
	return job, task, number, ok
}

// remember keeps what a launch must know in a later life, in the attempt's row.
func (r *runner) remember(s situation) func(context.Context, []byte) error {
	return func(ctx context.Context, b []byte) error {
		if !json.Valid(b) {
			return errors.New("a launch keeps something that is no JSON")
		}
		return r.progress(ctx, s, b)
	}
}
