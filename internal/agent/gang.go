//go:build unix

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
)

// member is one rank of a job in one phase.
type member struct {
	place  place
	rank   int
	key    string
	source string // its output, relative to the job's log folder
}

// members lists a job's ranks in a phase.
func (d *driver) members(p phase) []member {
	var ms []member
	for rank, pl := range d.places {
		m := member{place: pl, rank: rank, key: fmt.Sprintf("%s-%d-%s-%d", d.a.keyPrefix(), d.j.id, p, rank)}
		switch {
		case p == phaseSetup && len(d.places) == 1:
			m.source = "tasks/setup.log"
		case p == phaseSetup:
			m.source = fmt.Sprintf("tasks/setup-%s.log", nodeName(pl.Index))
		case len(d.places) == 1:
			m.source = "tasks/run.log"
		default:
			m.source = fmt.Sprintf("tasks/%d-%s.log", rank, nodeName(pl.Index))
		}
		ms = append(ms, m)
	}
	return ms
}

// prefix is how a rank's lines begin in the merged log.
func (d *driver) prefix(m member, p phase, pid int) string {
	ip := ""
	if m.place.Index > 0 {
		ip = ", ip=" + m.place.IP
	}
	switch {
	case p == phaseSetup:
		return fmt.Sprintf("(setup pid=%d%s) ", pid, ip)
	case len(d.places) > 1:
		return fmt.Sprintf("(%s, rank=%d, pid=%d%s) ", nodeName(m.place.Index), m.rank, pid, ip)
	case d.spec.TaskName != "":
		return fmt.Sprintf("(%s, pid=%d) ", d.spec.TaskName, pid)
	}
	return fmt.Sprintf("(task, pid=%d) ", pid)
}

// prepare makes the nodes ready to start a phase. A job is not begun before all
// of them are; the verdict has codes if one refuses for good.
func (d *driver) prepare(ctx context.Context, p phase) (verdict, error) {
	ms, specs := d.members(p), d.rankSpecs(p)
	statuses := make([]rankStatus, len(ms))
	err := d.all(ctx, ms, func(ctx context.Context, i int, pr peer) error {
		if specs[i].Known {
			return nil
		}
		return pr.prepare(ctx, d.current(specs[i]))
	}, func(i int, err error) { statuses[i] = refused(err) })
	if err != nil || !anyOver(statuses) {
		return verdict{}, err
	}
	v := verdictOf(ms, statuses)
	for i := range statuses {
		if !statuses[i].over() { // it will not start
			v.codes[i], v.ended = codeEnded, append(v.ended, i)
		}
	}
	return v, nil
}

// rankSpecs says what each member of a phase runs.
func (d *driver) rankSpecs(p phase) []*rankSpec {
	script := d.spec.Run
	if p == phaseSetup {
		script = d.spec.Setup
	}
	ips := make([]string, len(d.places))
	for i, pl := range d.places {
		ips[i] = pl.IP
	}
	cluster := d.a.clusterSpec()
	var specs []*rankSpec
	for _, m := range d.members(p) {
		specs = append(specs, &rankSpec{
			Key: m.key, Script: script, Workdir: d.spec.Workdir,
			Env:    variables(cluster, &d.job, d.spec, ips, m.rank, m.place.GPUs, p),
			Known:  d.log.declared(m.source),
			Keep:   p == phaseSetup,
			Mounts: true, Uses: d.spec.Mounts,
			Output: filepath.Join(d.log.dir, m.source),
		})
	}
	return specs
}

// current gives an order the cluster's epoch of now: it may have been changed
// since the last try.
func (d *driver) current(s *rankSpec) *rankSpec {
	s.Epoch = d.a.clusterSpec().Epoch
	return s
}

// gang runs a phase on all the job's nodes. When one rank fails the others are
// ended. It can be called again after a crash: what has
// started is not started again. An error means that it did not come to an end.
func (d *driver) gang(ctx context.Context, p phase) (verdict, error) {
	ms, specs := d.members(p), d.rankSpecs(p)
	statuses := make([]rankStatus, len(ms))
	// Once one may have started, all are started, however long it takes.
	if err := d.all(ctx, ms, func(ctx context.Context, i int, pr peer) (err error) {
		if statuses[i], err = pr.start(ctx, d.current(specs[i])); err != nil {
			return err
		}
		d.note(flushStatus{Notes: strings.FieldsFunc(statuses[i].Note, func(r rune) bool { return r == '\n' })})
		if err := d.log.declare(d.a.ctx, ms[i].source, d.prefix(ms[i], p, statuses[i].PID)); err != nil {
			return err
		}
		d.collect(ms[i])
		return nil
	}, func(i int, err error) { statuses[i] = refused(err) }); err != nil {
		return verdict{}, err
	}
	return d.await(ctx, p, ms, statuses)
}

// await waits for all ranks; the first that fails takes the others with it. The
// end of run is the job's outcome: it does not wait for what the ranks left behind, as their machine may be
// taken away any moment; settle ends that.
func (d *driver) await(ctx context.Context, p phase, ms []member, statuses []rankStatus) (verdict, error) {
	failed, fail := context.WithCancel(ctx)
	defer fail()
	// What is left behind may write to mounted buckets, which have to have all of it.
	stores := d.a.mounts.any()
	for _, st := range statuses {
		if st.over() && st.Code != 0 {
			fail()
		}
	}
	err := d.all(ctx, ms, func(ctx context.Context, i int, pr peer) error {
		for !statuses[i].over() {
			wait := pr.wait
			if p == phaseRun && !stores {
				wait = pr.waitExit
			}
			st, err := waitOrFailed(ctx, failed, wait, ms[i].key)
			if errors.Is(err, errOtherFailed) {
				st, err = pr.end(ctx, ms[i].key, d.a.o.endGrace)
			}
			if err != nil {
				return err
			}
			d.heard(ms[i])
			if st.State == rankAbsent {
				st = rankStatus{State: rankLost, Code: codeLost, Reason: "the node has lost track of it"}
			}
			statuses[i] = st
		}
		if statuses[i].Code != 0 {
			fail()
		}
		if p == phaseSetup {
			d.ended(ms[i])
		}
		return nil
	}, func(i int, err error) {
		statuses[i] = refused(err)
		fail()
	})
	if err != nil {
		return verdict{}, err
	}
	return verdictOf(ms, statuses), nil
}

var errOtherFailed = errors.New("another rank failed")

// waitOrFailed waits for a rank, but no longer than until another one fails.
func waitOrFailed(ctx, failed context.Context, wait func(context.Context, string) (rankStatus, error), key string) (rankStatus, error) {
	st, err := wait(failed, key)
	if err != nil && failed.Err() != nil && ctx.Err() == nil {
		return st, errOtherFailed
	}
	return st, err
}

// refused is the status of a rank whose node will not have it.
func refused(err error) rankStatus {
	return rankStatus{State: rankLost, Code: codeLost, Reason: err.Error()}
}

func anyOver(statuses []rankStatus) bool {
	for _, st := range statuses {
		if st.over() {
			return true
		}
	}
	return false
}

// verdict is how a phase of a job ended.
type verdict struct {
	codes  []int  // exit codes, by rank
	ended  []int  // ranks that did not fail by themselves: they were ended because another one failed
	reason string // why it failed, if the codes do not say it all
}

func (v verdict) failed() bool {
	return slices.ContainsFunc(v.codes, func(c int) bool { return c != 0 })
}

// namedFailures bounds how many ranks that failed by themselves are named.
const namedFailures = 3

func verdictOf(ms []member, statuses []rankStatus) (v verdict) {
	var own, ended []string
	for i, st := range statuses {
		v.codes = append(v.codes, st.Code)
		on := fmt.Sprintf("rank %d on %s", ms[i].rank, nodeName(ms[i].place.Index))
		switch {
		case st.Ended:
			v.ended = append(v.ended, i)
			ended = append(ended, fmt.Sprint("rank ", ms[i].rank))
		case st.Reason != "" && v.reason == "":
			v.reason = on + ": " + st.Reason
		case st.Code != 0:
			own = append(own, fmt.Sprintf("%s failed with code %d", on, st.Code))
		}
	}
	if len(ended) == 0 {
		return v
	}
	if n := len(own) - namedFailures; n > 0 {
		own = append(own[:namedFailures], fmt.Sprintf("%d more failed", n))
	}
	if v.reason == "" {
		v.reason = strings.Join(own, ", ")
	}
	if len(ended) == len(statuses)-1 && len(ended) > 1 {
		ended = []string{"all other ranks"}
	}
	v.reason += "; sky then ended " + strings.Join(ended, ", ")
	return v
}

// all calls f for each member's node at the same time, again and again where it
// fails for now. What fails for good goes to refuse. The error is the context's.
func (d *driver) all(ctx context.Context, ms []member, f func(ctx context.Context, i int, pr peer) error, refuse func(i int, err error)) error {
	var wg sync.WaitGroup
	for i, m := range ms {
		run := func() {
			for try := 0; ctx.Err() == nil; try++ {
				pr, err := d.a.peer(m.place.Node)
				if err == nil {
					err = f(ctx, i, pr)
				}
				switch {
				case err == nil:
					d.heard(m)
					return
				case ctx.Err() != nil:
					return
				case !temporary(err):
					d.heard(m)
					refuse(i, err)
					return
				}
				if try >= 3 {
					d.silent(m, err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(min(100*time.Millisecond<<min(try, 10), 3*time.Second)):
				}
			}
		}
		if len(ms) == 1 {
			run()
		} else {
			wg.Go(run)
		}
	}
	wg.Wait()
	return ctx.Err()
}

// silent shows in the job's record that a node cannot be reached. Its ranks may
// well be running, so that is all that follows from it.
func (d *driver) silent(m member, err error) {
	what := "cannot be used"
	if isNotMounted(err) {
		_ = d.log.say(d.a.ctx, fmt.Sprintf("unmounted-%d", m.place.Index), fmt.Sprintf("skypilot: %s waits: %v", nodeName(m.place.Index), err))
	}
	if u, ok := errors.AsType[*agentclient.UnreachableError](err); ok {
		what, err = "cannot be reached", u.Err
	}
	d.mu.Lock()
	if d.unheard == nil {
		d.unheard = map[int]string{}
	}
	if _, known := d.unheard[m.place.Index]; known {
		d.mu.Unlock()
		return
	}
	d.unheard[m.place.Index] = fmt.Sprintf("%s %s: %v", nodeName(m.place.Index), what, err)
	d.mu.Unlock()
	d.tell()
	d.a.log.Warn("node cannot be used", "job", d.j.id, "node", nodeName(m.place.Index), "err", err)
}

// heard takes back that a node is silent.
func (d *driver) heard(m member) {
	d.mu.Lock()
	_, was := d.unheard[m.place.Index]
	delete(d.unheard, m.place.Index)
	d.mu.Unlock()
	if was {
		d.tell()
	}
}

// tell says in the job's record which node is silent, the first of several, or
// that none is.
func (d *driver) tell() {
	d.mu.Lock()
	defer d.mu.Unlock() // what is told last is true
	text := ""
	for _, i := range slices.Sorted(maps.Keys(d.unheard)) {
		text = d.unheard[i]
		break
	}
	if _, err := d.a.update(d.j.id, func(r *record) error {
		if r.Job.Status.Terminal() || r.Job.Reason == text && r.Job.Silent == text {
			return errEnded
		}
		r.Job.Reason, r.Job.Silent = text, text
		return nil
	}); err != nil && !errors.Is(err, errEnded) {
		d.a.log.Warn("reason not noted", "job", d.j.id, "err", err)
	}
}

// ended says that a rank's process is gone; its output is complete if it is
// here already.
func (d *driver) ended(m member) {
	if d.local(m) {
		d.log.finish(m.source)
	}
}

func (d *driver) local(m member) bool {
	pr, err := d.a.peer(m.place.Node)
	_, ok := pr.(localPeer)
	return err == nil && ok
}

// collect copies the output of a rank on another node to here, in the
// background, going on where an earlier copy ended.
func (d *driver) collect(m member) {
	if _, known := d.collecting.LoadOrStore(m.source, true); known || d.local(m) {
		return
	}
	d.copies.Go(func() {
		for try := 0; d.copyCtx.Err() == nil; try++ {
			err := d.copyOutput(m)
			if err == nil || !temporary(err) {
				d.log.finish(m.source)
				return
			}
			select {
			case <-d.copyCtx.Done():
			case <-time.After(min(100*time.Millisecond<<min(try, 10), 3*time.Second)):
			}
		}
	})
}

func (d *driver) copyOutput(m member) error {
	f, err := os.OpenFile(filepath.Join(d.log.dir, m.source), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	pr, err := d.a.peer(m.place.Node)
	if err != nil {
		return err
	}
	remote, ok := pr.(remotePeer)
	if !ok {
		return &agentapi.Error{Code: agentapi.CodeInvalid, Message: "the output is here"}
	}
	rc, err := remote.output(d.copyCtx, m.key, st.Size())
	if err != nil {
		return err
	}
	defer rc.Close()
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	_, err = io.CopyBuffer(onlyWriter{f}, rc, *buf)
	return err
}

// onlyWriter keeps io.Copy from giving the buffer's work to the file.
type onlyWriter struct{ io.Writer }

// copyBuffers are shared by all who copy logs, so that an idle one has none.
var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}
