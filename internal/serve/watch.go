package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/fsm"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/serve/probe"
	"github.com/skypilot-go/sky/internal/serve/replicas"
	"github.com/skypilot-go/sky/internal/state"
)

// How often a replica whose probes succeed is looked at beside them, and how soon
// after a probe that failed.
const (
	lookEvery  = 30 * time.Second
	lookBroken = 5 * time.Second
)

// watcher probes one replica, and looks whether its program runs and its machines are
// there.
type watcher struct {
	c       *controller
	r       row
	set     probe.Settings
	metric  string
	state   watched
	said    probe.Verdict // as the row has it
	looked  time.Time
	logKept func() // ends the copying of its log, once it is whole
}

// watch runs until the replica is lost or useless, or something else is to be done
// about it. v is its version.
func (c *controller) watch(ctx context.Context, r row, v, latest *version) {
	w := &watcher{c: c, r: r, state: r.watched(), set: v.spec.Probe.PacedBy(latest.spec.Probe), metric: v.spec.Scale.Metric}
	switch r.Status {
	case api.ReplicaReady:
		w.said = probe.Ready
	case api.ReplicaNotReady:
		w.said = probe.NotReady
	default:
		w.said = probe.Starting
	}
	w.logKept = sync.OnceFunc(c.keepLog(r))
	defer w.logKept()
	changed, stop := c.m.Clusters.Changed(r.at.ClusterHash)
	defer stop()
	for ctx.Err() == nil {
		if fact, over := w.look(ctx); over {
			c.report(ctx, report{id: r.ID, fact: fact})
			return
		}
		if w.r.at.Endpoint == "" {
			w.find(ctx, v.spec.Port)
		}
		if w.r.at.Endpoint != "" && w.probe(ctx) {
			return
		}
		due := w.state.History.Due(w.set)
		if w.r.at.Endpoint == "" || due.IsZero() {
			due = time.Now().Add(findAgain)
		}
		t := time.NewTimer(time.Until(due))
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-changed:
			w.looked = time.Time{}
		}
		t.Stop()
	}
}

// settingsOf is the version of a replica and the latest one; a replica whose own
// version cannot be read is treated as one of the latest.
func (c *controller) settingsOf(number int) (own, latest *version) {
	latest = c.latest()
	if own = c.version(number); own == nil {
		own = latest
	}
	return own, latest
}

// findAgain is how soon an address that was not known is asked for again.
const findAgain = time.Second

// find asks where the replica's port can be reached.
func (w *watcher) find(ctx context.Context, port int) {
	text, number := strconv.Itoa(port), api.Number(port)
	at, err := w.c.m.Clusters.Endpoints(ctx, api.EndpointsBody{Cluster: w.r.at.ClusterName, Port: &number})
	if err != nil {
		return
	}
	c, err := w.c.m.Store.Clusters().Get(ctx, w.r.at.ClusterName)
	if err != nil || c.Hash != w.r.at.ClusterHash {
		return
	}
	address, network := reachOf(c, at[text], text)
	if address == "" {
		return
	}
	w.r.at.Endpoint, w.state.Network = address, network
	w.save(ctx)
}

// save keeps what is known of the replica, for the next life of its watcher.
func (w *watcher) save(ctx context.Context) {
	b, err := json.Marshal(w.state)
	if err != nil {
		return
	}
	w.r.at.Probes = b
	at := w.r.at
	if err := w.c.m.Store.Services().SaveReplica(ctx, w.c.hold.Lease.Epoch, &at); err != nil {
		return // the next change is saved
	}
	w.c.report(ctx, report{id: w.r.ID, set: func(s *state.ServiceReplica) { s.Endpoint, s.Probes = at.Endpoint, at.Probes }})
}

// probe asks the replica once if it is time, and reports what is new. It tells
// whether the replica is given up.
func (w *watcher) probe(ctx context.Context) (over bool) {
	now := time.Now()
	if due := w.state.History.Due(w.set); now.Before(due) {
		return false
	}
	result := w.ask(ctx)
	if ctx.Err() != nil {
		return true
	}
	before := w.state.History
	var verdict probe.Verdict
	w.state.History, verdict = w.state.History.After(w.set, result, now)
	if before.FirstFailure != w.state.History.FirstFailure || before.FirstReady != w.state.History.FirstReady || before.FailingSince != w.state.History.FailingSince ||
		before.Failures != w.state.History.Failures { // a canary is judged by them
		w.save(ctx)
	}
	if !result.OK {
		w.looked = time.Time{} // why may be known
	} else if w.metric != "" {
		x, ok, err := w.prober(!w.c.m.dials(w.state.Network), nil).Metric(ctx, w.r.at.Endpoint, w.metric)
		w.c.setMetric(w.r.ID, x, ok && err == nil)
	}
	if verdict == w.said {
		return false
	}
	if verdict == probe.Ready && before.FirstReady.IsZero() {
		// Something answers; that its program runs is what lets it replace others.
		w.looked = time.Time{}
		if fact, over := w.look(ctx); over {
			w.c.report(ctx, report{id: w.r.ID, fact: fact})
			return true
		}
	}
	w.said = verdict
	fact := replicas.Fact{Detail: w.state.History.Explain(w.set)}
	switch verdict {
	case probe.Ready:
		fact.Event, fact.Detail = fsm.ReplicaReady, ""
	case probe.NotReady:
		fact.Event = fsm.ReplicaNotReady
	case probe.TooLate:
		fact.Event, fact.Failure, fact.Detail = fsm.ReplicaStop, replicas.TooLate, w.state.History.Reason
		over = true
	case probe.Unhealthy:
		fact.Event, fact.Failure, fact.Detail = fsm.ReplicaStop, replicas.Unhealthy, w.state.History.Reason
		if w.state.History.Timeout {
			fact.Failure = replicas.Hung
		}
		over = true
	default:
		return false
	}
	w.c.report(ctx, report{id: w.r.ID, fact: fact})
	return over
}

// look finds out whether the replica's program runs and its machines are there, when
// it is time for that; over: it is lost, and the fact says how.
func (w *watcher) look(ctx context.Context) (replicas.Fact, bool) {
	every := lookEvery
	if w.said != probe.Ready {
		every = lookBroken
	}
	if time.Since(w.looked) < every {
		return replicas.Fact{}, false
	}
	w.looked = time.Now().Add(rand.N(every / 4))
	c, err := w.c.m.Store.Clusters().Get(ctx, w.r.at.ClusterName)
	switch {
	case errors.Is(err, state.ErrNotFound) || err == nil && (c.Hash != w.r.at.ClusterHash || cluster.GivingBack(c)):
		return w.lost("its cluster is gone"), true
	case err != nil:
		return replicas.Fact{}, false
	}
	if c.Status != api.ClusterUp && c.Status != api.ClusterAutostopping {
		return w.confirm(ctx)
	}
	job, err := w.c.m.Clusters.AgentJob(ctx, c, w.r.at.ClusterJob)
	var refused *agentapi.Error
	switch {
	case err == nil && job.Status.Terminal():
		return replicas.Ended(job.Status, job.ExitCodes, job.Reason, w.outOfDisk()), true
	case err == nil:
		if n, err := w.c.m.Clusters.AgentNotice(ctx, c); err == nil && n != nil && n.Final() {
			return replicas.Fact{Event: fsm.ReplicaPreempt, Failure: replicas.Preempted, Detail: "the cloud announced it",
				Until: time.UnixMilli(int64(n.At * 1000))}, true
		}
		return replicas.Fact{}, false
	case errors.As(err, &refused) && refused.Code == agentapi.CodeNotFound:
		return replicas.Fact{Event: fsm.ReplicaStop, Failure: replicas.Crashed, Detail: "its cluster does not know its program any more"}, true
	}
	if w.said == probe.Ready { // it answers: what cannot be asked is its agent
		return replicas.Fact{}, false
	}
	return w.confirm(ctx)
}

// confirm asks the provider about the machines.
func (w *watcher) confirm(ctx context.Context) (replicas.Fact, bool) {
	c, err := w.c.m.Clusters.Confirm(ctx, w.r.at.ClusterName)
	switch {
	case err != nil:
		return replicas.Fact{}, false
	case c == nil || c.Hash != w.r.at.ClusterHash || cluster.GivingBack(c):
		return w.lost("its cluster is gone"), true
	case c.Status != api.ClusterUp && c.Status != api.ClusterAutostopping:
		return w.lost(c.LastEvent), true
	}
	return replicas.Fact{}, false
}

func (w *watcher) lost(why string) replicas.Fact {
	f := replicas.Fact{Event: fsm.ReplicaPreempt, Failure: replicas.MachineLost, Detail: why}
	if w.r.Spot {
		f.Failure = replicas.Preempted
	}
	return f
}

// lastWords is how much of the end of a program's log is looked at for why it ended.
const lastWords = 4 << 10

// outOfDisk reports whether a program that has ended was refused room on a disk. The text
// is that of the C library and of every language's errors for it.
func (w *watcher) outOfDisk() bool {
	w.logKept() // what was printed last is copied first
	l, err := w.c.m.Kept.Open(replicaLog(w.c.hash, w.r.ID))
	if err != nil {
		return false
	}
	defer l.Close()
	size, err := l.Size()
	if err != nil {
		return false
	}
	end, err := io.ReadAll(io.NewSectionReader(l, max(0, size-lastWords), lastWords))
	return err == nil && bytes.Contains(bytes.ToLower(end), []byte("no space left on device"))
}

// Pauses before a log whose stream broke is asked for again, and how many bytes of a
// replica's log are kept.
const (
	copyFirst = time.Second
	copyMost  = 15 * time.Second
	mostLog   = 64 << 20
)

// keepLog copies the log of a replica's program for as long as it is watched, so that
// it can be read when the replica is gone. The result ends that.
func (c *controller) keepLog(r row) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	most := int64(mostLog)
	pause := time.Duration(0)
	if c.m.Store.Shared() {
		most, pause = logstore.MaxLog-state.MaxPiece, logstore.GatherFor
	}
	stopping := make(chan struct{})
	go func() {
		defer close(done)
		last := false
		for wait := copyFirst; ctx.Err() == nil; wait = min(2*wait, copyMost) {
			n, err := logstore.Copy{
				Kept: c.m.Kept, Name: replicaLog(c.hash, r.ID), Most: most, Pause: pause, Wrote: func() { c.m.logs.Notify(c.hash) },
				Room: func(int64) error { return nil },
				From: func(ctx context.Context, offset int64) (io.ReadCloser, error) { return c.programLog(ctx, r, offset) },
			}.Once(ctx)
			if err == nil || last {
				return
			}
			if n > 0 {
				wait = copyFirst
			}
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			case <-stopping: // once more, since the log goes with the cluster
				last = true
			}
		}
	}()
	return func() {
		// What was printed last is what a crash is understood by.
		close(stopping)
		select {
		case <-done:
		case <-time.After(logGrace):
		}
		cancel()
		<-done
	}
}

// logGrace is how long the end of a program's log is waited for.
const logGrace = 2 * time.Second

// programLog follows the log of a replica's program from a byte on.
func (c *controller) programLog(ctx context.Context, r row, offset int64) (io.ReadCloser, error) {
	cl, err := c.m.Store.Clusters().Get(ctx, r.at.ClusterName)
	if err != nil {
		return nil, err
	}
	if cl.Hash != r.at.ClusterHash {
		return nil, fmt.Errorf("cluster %s is gone", r.at.ClusterName)
	}
	rc, start, err := c.m.Clusters.AgentLog(ctx, cl, r.at.ClusterJob, offset)
	if err == nil && start != offset {
		rc.Close()
		err = fmt.Errorf("the log of cluster %s begins at byte %d, not %d", r.at.ClusterName, start, offset)
	}
	return rc, err
}
