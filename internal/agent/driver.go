//go:build unix

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
)

// goneAfter is how long the end of a job waits for a node that does not answer
// before its log is closed without it.
const goneAfter = 20 * time.Second

// driver takes one job through its life, from the reservation of nodes until
// nothing of it is left to do. Each step can be repeated, so the next agent
// calls drive again and continues where this one died.
type driver struct {
	a      *Agent
	j      *openJob
	spec   *agentapi.JobSpec
	places []place
	job    agentapi.Job // as it was when the driver began
	log    *jobLog

	copyCtx    context.Context // of the copies of other nodes' output
	copies     sync.WaitGroup
	collecting sync.Map // sources whose copies have begun

	mu      sync.Mutex
	unheard map[int]string // nodes that do not answer, by index, and why
}

// drive works on the job until it is settled or the agent ends.
func (a *Agent) drive(j *openJob) {
	rec := a.recordOf(j)
	spec, err := a.queue.spec(j.id)
	if err != nil {
		a.log.Error("job without a spec", "job", j.id, "err", err)
		spec = &agentapi.JobSpec{}
	}
	copyCtx, stop := context.WithCancel(a.ctx)
	d := &driver{a: a, j: j, spec: spec, places: j.places, job: rec.Job, copyCtx: copyCtx}
	defer d.copies.Wait()
	defer stop()
	if d.log = a.openLog(j, &rec.Job); d.log == nil {
		return // the agent ends
	}
	mergeCtx, stopMerge := context.WithCancel(a.ctx)
	var merging sync.WaitGroup
	merging.Go(func() { d.log.merge(mergeCtx) })
	endLog := sync.OnceFunc(func() {
		stopMerge()
		merging.Wait()
		d.log.close()
	})
	defer endLog()
	d.work(rec)
	if a.ctx.Err() != nil {
		return
	}
	d.settle(endLog)
}

// openLog opens the job's log, again and again while the disk is full; nil if
// the agent ends.
func (a *Agent) openLog(j *openJob, job *agentapi.Job) *jobLog {
	for {
		l, err := openJobLog(a.logDir(job), a.indexPath(j.id), a.log, a.watch, &j.grown)
		if err == nil {
			return l
		}
		a.log.Warn("job log not opened, trying again", "job", j.id, "err", err)
		select {
		case <-a.ctx.Done():
			return nil
		case <-time.After(retryAfter):
		}
	}
}

// work runs the phases until the job has an outcome.
func (d *driver) work(rec *record) {
	ctx := d.j.ctx
	if rec.Job.Silent != "" {
		d.tell() // an earlier life said so
	}
	if rec.Job.Status == api.JobPending {
		e, first := evRun, phaseRun
		if d.spec.Setup != "" {
			e, first = evSetup, phaseSetup
		}
		// On disk before anything is there: an agent that dies now clears it up later.
		if rec.Places == nil {
			if rec = d.move(func(r *record) error { r.Places = d.places; return nil }); rec == nil {
				return
			}
		}
		v, err := d.prepare(ctx, first)
		if err != nil {
			return
		}
		if v.failed() {
			d.finish(evFailed, v)
			return
		}
		if rec = d.move(func(r *record) error {
			r.Job.Reason = ""
			return r.move(e, d.a.now())
		}); rec == nil {
			return
		}
	}
	d.job = rec.Job
	if !rec.Job.Status.Terminal() {
		_ = d.log.say(d.a.ctx, "started", "└── Job started.")
	}
	if rec.Job.Status == api.JobSettingUp {
		v, err := d.gang(ctx, phaseSetup)
		if err != nil {
			return
		}
		if v.failed() {
			d.explain(ctx)
			d.finish(evSetupFailed, v)
			return
		}
		if rec = d.move(func(r *record) error { return r.move(evRun, d.a.now()) }); rec == nil {
			return
		}
		d.job = rec.Job
	}
	if rec.Job.Status != api.JobRunning {
		return
	}
	if d.spec.Run == "" {
		d.finish(evSucceeded, verdict{})
		return
	}
	v, err := d.gang(ctx, phaseRun)
	if err == nil && !v.failed() {
		v.reason, err = d.store(ctx)
	}
	switch {
	case err != nil:
	case v.failed() || v.reason != "":
		if v.failed() {
			d.explain(ctx)
		}
		d.finish(evFailed, v)
	default:
		d.finish(evSucceeded, v)
	}
}

func (d *driver) finish(e jobEvent, v verdict) {
	noticed := e != evSucceeded && d.a.leaving()
	d.move(func(r *record) error {
		r.Job.Noticed = noticed
		r.Job.ExitCodes, r.Job.EndedRanks, r.Job.Reason = v.codes, v.ended, v.reason
		return r.move(e, d.a.now())
	})
}

// move changes the job's record, as often as it takes on a full disk. It
// returns nil if the job has ended meanwhile or the agent ends.
func (d *driver) move(f func(*record) error) *record {
	for {
		rec, err := d.a.update(d.j.id, f)
		if err == nil {
			return rec
		}
		if errors.Is(err, errEnded) || d.a.ctx.Err() != nil {
			return nil
		}
		d.a.log.Warn("job not updated, trying again", "job", d.j.id, "err", err)
		select {
		case <-d.a.ctx.Done():
			return nil
		case <-time.After(retryAfter):
		}
	}
}

// settle clears up behind a job that has an outcome: its processes end, its log
// becomes complete, its nodes are free again.
func (d *driver) settle(endLog func()) {
	ms := slices.Concat(d.members(phaseSetup), d.members(phaseRun))
	for _, m := range ms {
		if d.log.declared(m.source) {
			d.collect(m)
		}
	}
	grace := cmp.Or(d.a.recordOf(d.j).Grace, d.a.o.endGrace)
	var ends sync.WaitGroup
	allEnded := make(chan struct{})
	left := make([]int, len(ms)) // processes that each rank left behind; complete once all have ended
	ends.Go(func() {
		_ = d.all(d.a.ctx, ms, func(ctx context.Context, i int, pr peer) error {
			st, err := pr.end(ctx, ms[i].key, grace)
			if err == nil {
				left[i] = st.Leftovers
				d.ended(ms[i])
			}
			return err
		}, func(int, error) {})
		close(allEnded)
	})
	d.closeLog(allEnded, func() string { return leftoversEnded(ms, left) }, grace, endLog)
	ends.Wait()
	if d.a.ctx.Err() != nil {
		return
	}
	d.noteEnd(len(ms) > 0)
	_ = d.all(d.a.ctx, ms, func(ctx context.Context, i int, pr peer) error {
		return pr.forget(ctx, ms[i].key)
	}, func(int, error) {})
	d.move(func(r *record) error {
		r.Settled = true
		return nil
	})
	if d.a.ctx.Err() != nil {
		return
	}
	_ = os.Remove(d.a.indexPath(d.j.id))
	d.a.settled(d.j)
}

// noteEnd makes the end of a cancelled job the time at which its processes were
// gone: until then it is when somebody asked for that.
func (d *driver) noteEnd(started bool) {
	if rec := d.a.recordOf(d.j); !started || rec.Job.Status != api.JobCancelled || rec.EndNoted {
		return
	}
	d.move(func(r *record) error {
		r.Job.EndedAt, r.EndNoted = max(r.Job.EndedAt, seconds(d.a.now())), true
		return nil
	})
}

// leftoversEnded says how many processes of a job were ended because they ran on
// when its commands were through; "" if none.
func leftoversEnded(ms []member, left []int) string {
	total := 0
	var where []string
	for i, n := range left {
		if n > 0 {
			total += n
			where = append(where, fmt.Sprintf("%s: %d", nodeName(ms[i].place.Index), n))
		}
	}
	text := ""
	switch total {
	case 0:
		return ""
	case 1:
		text = "Ended 1 background process that the job left running"
	default:
		text = fmt.Sprintf("Ended %d background processes that the job left running", total)
	}
	if len(left) > 2 { // setup and run have a rank on each node
		text += " (" + strings.Join(where, ", ") + ")"
	}
	return text + "."
}

// closeLog waits until all output is merged, ends the log with what was ended and
// with the verdict, and lets its followers go.
func (d *driver) closeLog(allEnded <-chan struct{}, leftovers func() string, grace time.Duration, endLog func()) {
	ctx, cancel := context.WithCancel(d.a.ctx)
	defer cancel()
	silent := make(chan struct{})
	go func() { // nodes that do not answer must not keep followers for ever
		select {
		case <-ctx.Done():
			return
		case <-allEnded:
		case <-time.After(grace + goneAfter):
		}
		select {
		case <-ctx.Done():
		case <-time.After(goneAfter):
			close(silent)
			d.log.finishAll()
		}
	}()
	if len(d.places) == 0 {
		d.log.finishAll()
	}
	if d.log.drain(ctx) != nil {
		return
	}
	select {
	case <-allEnded:
		if text := leftovers(); text != "" {
			_ = d.log.say(d.a.ctx, "leftovers", text)
		}
	case <-silent:
	case <-ctx.Done():
		return
	}
	if text := conclusion(&d.a.recordOf(d.j).Job); text != "" {
		_ = d.log.say(d.a.ctx, "ended", text)
	}
	endLog()
	d.j.logDone.Store(true)
	d.j.grown.Notify()
}

// conclusion is the last line of a failed job's log.
func conclusion(job *agentapi.Job) string {
	var b strings.Builder
	switch job.Status {
	case api.JobFailed, api.JobFailedSetup:
		what := "Job"
		if job.Status == api.JobFailedSetup {
			what = "Setup of job"
		}
		codes := make([]string, len(job.ExitCodes))
		for i, c := range job.ExitCodes {
			codes[i] = strconv.Itoa(c)
		}
		fmt.Fprintf(&b, "ERROR: %s %d failed. Return codes by rank: [%s]", what, job.ID, strings.Join(codes, ", "))
		if killed(job) {
			b.WriteString("\nCode 137 means that a process was killed from outside (SIGKILL), most often because the machine or container was out of memory: ask for more (resources: memory), or use less.")
		}
		if slices.Contains(job.ExitCodes, 139) {
			b.WriteString("\nCode 139 means that a process touched memory that was not its own (segmentation fault): look for a crashing native library, or for too little memory.")
		}
	case api.JobFailedDriver:
		fmt.Fprintf(&b, "ERROR: Job %d could not be brought to its end.", job.ID)
	default:
		return ""
	}
	if job.Reason != "" {
		b.WriteString("\nReason: " + job.Reason)
	}
	return b.String()
}

// killed reports whether a rank that sky did not end was killed.
func killed(job *agentapi.Job) bool {
	for rank, code := range job.ExitCodes {
		if code == codeEnded && !slices.Contains(job.EndedRanks, rank) {
			return true
		}
	}
	return false
}

// logDir is the folder of a job's logs.
func (a *Agent) logDir(job *agentapi.Job) string {
	return filepath.Join(a.o.Home, strings.TrimPrefix(job.LogDir, "~/"))
}

func (a *Agent) indexPath(id int) string {
	return filepath.Join(a.o.Dir, "logs", strconv.Itoa(id))
}

// moveAside makes room for a new job's logs where an earlier cluster on this
// machine left some.
func moveAside(dir string, now time.Time) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return os.Rename(dir, dir+".before-"+taskTime(now))
}
