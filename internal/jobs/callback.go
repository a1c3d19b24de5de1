package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/state"
)

// An event_callback is a user's script, which runs where the job's owner may run
// things: on the head of the job's cluster, through its agent. A change for which
// there is no such node is only told to a runner that an administrator set up, or
// to nobody. On a server without logins the owner of the job is the owner of the
// server, and the script runs there.
//
// How each callback ended is an event of the job, CALLBACK, written when it has.
// So the events are the record of which are still due: a server that takes the
// job over runs those, and one that a crash cut off is run again, or on a node,
// whose agent knows it by its number, waited for. The callbacks of a task run one
// after the other, in the order of its changes.

// callbackLimit bounds one run of a task's event_callback, and how long a cluster
// is kept for callbacks that are due.
const callbackLimit = 5 * time.Minute

// callbackCode is the code of events that tell how a callback ended.
const callbackCode = "CALLBACK"

// CallbackPlace says where callbacks run besides the nodes of their jobs.
type CallbackPlace struct {
	Here   bool     // on the server's own machine, as its account: it is the owner's
	Runner []string // program, with arguments, for those that have no node; nil: they are not run
}

// callback is one run of a script.
type callback struct {
	number int // among the task's, from 0
	name   string
	status api.ManagedStatus
	script string
	env    map[string]string
	node   *state.ManagedAttempt // whose cluster's head it runs on; nil: none
}

// callbacks runs the callbacks of one job.
type callbacks struct {
	c *controller

	mu      sync.Mutex
	ctx     context.Context // of the runs; nil: nothing has begun
	cancel  context.CancelFunc
	tellers map[int]*teller // by task
	owner   state.User
	wg      sync.WaitGroup
}

// teller runs the callbacks of one task.
type teller struct {
	known  int // callbacks that the task's events so far mean
	noted  int // of them, how many have ended in an earlier life
	ran    int // how often the task began to run
	queue  []callback
	done   chan struct{} // closed when the queue is empty; nil: nothing runs
	gone   int           // attempts up to this one have no node any more
	cancel context.CancelFunc
}

// called is the callback that an event of a task means; "" for none. ran is how
// often the task began to run before it.
func called(code string, ran int) string {
	switch {
	case code == "STARTED" && ran > 0:
		return "RECOVERED"
	case slices.Contains([]string{"SUBMITTED", "STARTING", "STARTED", "RECOVERING", "SUCCEEDED", "FAILED", "CANCELLING", "CANCELLED"}, code):
		return code
	}
	return ""
}

// nodeFor is the attempt whose cluster's head a callback runs on; nil: there is
// none, not yet or not any more.
func nodeFor(name string, a *state.ManagedAttempt) *state.ManagedAttempt {
	if a == nil || name == "SUBMITTED" || name == "STARTING" || a.ClusterJob == 0 || !a.ClosedAt.IsZero() {
		return nil
	}
	switch outcome(a.Outcome) {
	case outLost, outHung, outRefused:
		return nil
	}
	at := *a
	return &at
}

// begin queues what earlier lives of the job's controller left to be told.
func (b *callbacks) begin(ctx context.Context, c *controller, now state.ManagedAdopted) error {
	if b.c != nil || !slices.ContainsFunc(c.graph.tasks, func(t traits) bool { return t.callback }) {
		return nil
	}
	events, err := c.m.store.ManagedJobs().Events(ctx, c.id, -1, 0) // newest first
	if err != nil {
		return err
	}
	b.c, b.tellers = c, map[int]*teller{}
	b.owner = state.User{ID: now.Job.UserHash, Name: now.Job.UserName}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	for _, e := range events {
		if e.Code == callbackCode {
			b.teller(e.Task).noted++
		}
	}
	for _, e := range slices.Backward(events) {
		b.add(now.Job, latest(now, e.Task), e)
	}
	return nil
}

func (b *callbacks) teller(task int) *teller {
	t := b.tellers[task]
	if t == nil {
		t = &teller{}
		b.tellers[task] = t
	}
	return t
}

// add queues the callback that an event means.
func (b *callbacks) add(j *state.ManagedJob, a *state.ManagedAttempt, e state.ManagedEvent) {
	if b.c == nil || !b.c.graph.tasks[e.Task].callback || e.Code == callbackCode {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.teller(e.Task)
	name := called(e.Code, t.ran)
	if e.Code == "STARTED" {
		t.ran++
	}
	if name == "" {
		return
	}
	number := t.known
	t.known++
	if number < t.noted {
		return
	}
	of, err := taskOf(j, e.Task)
	if err != nil {
		return // it could not have run
	}
	if a != nil && a.Task != e.Task {
		a = nil
	}
	env := map[string]string{}
	maps.Copy(env, of.Envs)
	for k, v := range of.Secrets {
		env[k] = v.Reveal()
	}
	maps.Copy(env, map[string]string{
		"SKYPILOT_TASK_ID": runID(j, j.Tasks[e.Task]), "SKYPILOT_TASK_IDS": variables(j)["SKYPILOT_TASK_IDS"],
		"TASK_ID": strconv.Itoa(e.Task), "TASK_NAME": of.Name, "JOB_ID": strconv.Itoa(j.ID), "JOB_STATUS": name, "EVENT_TYPE": "Spot", "CLUSTER_NAME": "",
	})
	if a != nil {
		env["CLUSTER_NAME"] = a.ClusterName
	}
	t.queue = append(t.queue, callback{number, name, e.Status, of.EventCallback, env, nodeFor(name, a)})
	if t.done == nil {
		t.done = make(chan struct{})
		b.wg.Go(func() { b.work(e.Task, t) })
	}
}

// work runs what is queued until nothing is.
func (b *callbacks) work(task int, t *teller) {
	for {
		b.mu.Lock()
		if len(t.queue) == 0 || b.ctx.Err() != nil {
			close(t.done)
			t.done = nil
			b.mu.Unlock()
			return
		}
		cb := t.queue[0]
		if cb.node != nil && cb.node.Number <= t.gone {
			cb.node = nil
		}
		ctx, cancel := context.WithTimeout(b.ctx, callbackLimit)
		t.cancel = cancel
		b.mu.Unlock()
		said := b.run(ctx, task, cb)
		cancel()
		if b.ctx.Err() != nil {
			continue // the next life runs it, or waits for it
		}
		b.note(task, cb, said)
		b.mu.Lock()
		t.queue, t.cancel = t.queue[1:], nil
		b.mu.Unlock()
	}
}

// note writes down how a callback ended. It tries as long as this is our job: a
// callback that is not on record is run again.
func (b *callbacks) note(task int, cb callback, said string) {
	e := state.ManagedEvent{JobID: b.c.id, Task: task, Status: cb.status, Code: callbackCode, Reason: "callback for " + cb.name + " " + said, At: time.Now()}
	for b.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(b.ctx, deadline)
		err := b.c.m.store.ManagedJobs().Note(ctx, e)
		cancel()
		if err == nil {
			b.c.out.Printf("Task %d: %s", task, e.Reason)
			return
		}
		b.c.m.log.Warn("end of an event callback not noted; trying again", "job", b.c.id, "err", err)
		sleep(b.ctx, failAgain)
	}
}

// run runs a callback where it may run, and says how it ended.
func (b *callbacks) run(ctx context.Context, task int, cb callback) string {
	place := b.c.m.callbackPlace(ctx, b.owner)
	var output, said string
	switch {
	case place.Here:
		output, said = b.here(ctx, task, cb, []string{"bash"}, homeEnvironment())
	case cb.node != nil:
		output, said = b.onNode(ctx, task, cb)
	case len(place.Runner) > 0:
		output, said = b.here(ctx, task, cb, place.Runner, pathEnvironment())
	default:
		return "not run: no node"
	}
	var lines []string
	for line := range strings.Lines(output) {
		lines = append(lines, fmt.Sprintf("(callback for %s) %s", cb.name, strings.TrimRight(line, "\r\n")))
	}
	b.c.out.Print(lines...)
	return said
}

// callbackAgain is how soon an agent that did not answer is asked again.
const callbackAgain = 3 * time.Second

// onNode runs a callback on the head of the job's cluster.
func (b *callbacks) onNode(ctx context.Context, task int, cb callback) (output, said string) {
	r := agentapi.CallbackRequest{Script: cb.script, Env: cb.env, TimeoutSeconds: int(callbackLimit.Seconds()), Log: fmt.Sprintf("jobs-callback-%d-%d.log", b.c.id, task)}
	key := fmt.Sprintf("%d-%d-%d", b.c.id, task, cb.number)
	for {
		out, err := b.c.m.env.Callback(ctx, cb.node, key, r)
		refused, final := errors.AsType[*agentapi.Error](err)
		switch {
		case err == nil && out.TimedOut:
			return out.Output, fmt.Sprintf("ended: it ran for more than %v on cluster %s", callbackLimit, cb.node.ClusterName)
		case err == nil:
			return out.Output, ran(out.Code) + " on cluster " + cb.node.ClusterName
		case errors.Is(err, errNoNode):
			return "", "not run: no node"
		case final:
			return "", "not run: " + refused.Message
		case ctx.Err() != nil:
			return "", "not seen to end: no node that answers"
		}
		sleep(ctx, callbackAgain)
	}
}

// errNoNode says that the cluster of an attempt is gone.
var errNoNode = errors.New("the cluster is gone")

func ran(code int) string {
	if code == 0 {
		return "ran"
	}
	return fmt.Sprintf("failed with exit code %d", code)
}

// leave lets the callbacks that are due on a cluster end before it is given back,
// for so long. Those of a cluster that is lost are not waited for.
func (b *callbacks) leave(ctx context.Context, a *state.ManagedAttempt) {
	t, done := b.busy(a.Task)
	if done == nil || b.c.m.callbackPlace(ctx, b.owner).Here {
		return
	}
	if nodeFor("", a) != nil {
		timer := time.NewTimer(callbackLimit)
		defer timer.Stop()
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t.gone = max(t.gone, a.Number)
	if t.cancel != nil && len(t.queue) > 0 && t.queue[0].node != nil && t.queue[0].node.Number <= t.gone {
		t.cancel()
	}
}

// busy is the teller of a task and what closes when it has nothing to do; nil: it
// has nothing now.
func (b *callbacks) busy(task int) (*teller, chan struct{}) {
	if b.c == nil {
		return nil, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.tellers[task]; t != nil {
		return t, t.done
	}
	return nil, nil
}

// rest waits for all callbacks of a task: what is due when a job is done, nobody
// looks after any more.
func (b *callbacks) rest(ctx context.Context, task int) {
	if _, done := b.busy(task); done != nil {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
}

// end lets the callbacks that wait run, or with now none any more: what is due
// then is run in the next life.
func (b *callbacks) end(now bool) {
	if b.c == nil {
		return
	}
	if now {
		b.cancel()
	}
	b.wg.Wait()
	b.cancel()
}
