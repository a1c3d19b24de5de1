//go:build unix

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/notify"
	"github.com/skypilot-go/sky/internal/proc"
)

// openJob is a job that is not settled, in the agent's memory.
type openJob struct {
	id      int
	demand  demand
	ctx     context.Context // of its work; ends when it is cancelled
	cancel  context.CancelFunc
	done    chan struct{}    // closed when it is settled
	grown   notify.Broadcast // notified when its log grows or is complete
	logDone atomic.Bool

	// Guarded by Agent.mu.
	rec     *record
	places  []place // reserved, from the decision to start it until it is settled
	kept    []int   // nodes that are kept free for it, by index
	driving bool
}

// admit puts a stored job into memory.
func (a *Agent) admit(rec *record, spec *agentapi.JobSpec) *openJob {
	ctx, cancel := context.WithCancel(a.ctx)
	return &openJob{id: rec.Job.ID, demand: demandOf(spec), ctx: ctx, cancel: cancel, done: make(chan struct{}), rec: rec, places: rec.Places}
}

// submit queues a job; what it returns survives any crash.
func (a *Agent) submit(r *agentapi.SubmitRequest) (*agentapi.SubmitResponse, error) {
	if r.Key == "" {
		return nil, invalid("a job needs a key")
	}
	if rec, err := a.queue.byKey(r.Key); err == nil {
		return &agentapi.SubmitResponse{JobID: rec.Job.ID, Duplicate: true, SubmittedAt: rec.Job.SubmittedAt}, nil
	}
	a.submitting.RLock()
	defer a.submitting.RUnlock()
	a.mu.Lock()
	cluster, state := a.spec, a.state
	a.mu.Unlock()
	switch {
	case cluster == nil:
		return nil, invalid("the agent does not belong to a cluster yet")
	case r.Epoch < cluster.Epoch:
		return nil, stale(r.Epoch, cluster.Epoch)
	case state != agentapi.AgentRunning:
		return nil, &agentapi.Error{Code: agentapi.CodeStopping, Message: "the cluster is being stopped and takes no new jobs"}
	}
	spec := r.Spec
	spec.NumNodes = max(spec.NumNodes, 1)
	if why := impossible(demandOf(&spec), len(cluster.Nodes), cluster.Capacity); why != "" {
		return nil, invalid(why)
	}
	if hosts := max(cluster.Hosts, 1); spec.NumNodes%hosts != 0 {
		return nil, invalid(fmt.Sprintf("the job asks for %d machines, and jobs run on whole TPU slices here, of %d machines each", spec.NumNodes, hosts))
	}
	now := a.now()
	rec, fresh, err := a.queue.submit(r.Key, &spec, func(rec *record) {
		rec.Boot = proc.BootID()
		job := &rec.Job
		job.Status = api.JobInit
		_ = rec.move(evQueued, now)
		job.Name, job.User, job.UserHash = spec.Name, spec.User, spec.UserHash
		if job.Name == "" {
			job.Name = "-"
		}
		job.SubmittedAt, job.Report = seconds(now), r.Report
		job.Resources, job.NumNodes, job.Metadata = spec.Resources, spec.NumNodes, spec.Metadata
		job.LogDir = fmt.Sprintf("~/sky_logs/%d-%s", job.ID, fileName(job.Name))
		job.TaskID = spec.TaskID
		if job.TaskID == "" {
			job.TaskID = fmt.Sprintf("sky-%s_%s_%d", taskTime(now), cluster.Name, job.ID)
		}
	})
	if err != nil {
		return nil, err
	}
	if fresh {
		a.enqueue(rec, &spec)
	}
	return &agentapi.SubmitResponse{JobID: rec.Job.ID, Duplicate: !fresh, SubmittedAt: rec.Job.SubmittedAt}, nil
}

// enqueue makes a stored job known to the scheduler.
func (a *Agent) enqueue(rec *record, spec *agentapi.JobSpec) {
	j := a.admit(rec, spec)
	a.startLog(j, &rec.Job)
	a.mu.Lock()
	a.jobs[j.id] = j
	a.counts[rec.Job.Status]++
	a.hub.publish(jobEventOf(rec, a.now()))
	a.mu.Unlock()
	a.activity()
	a.kick()
}

// startLog begins the log of a new job. If it cannot, the driver will.
func (a *Agent) startLog(j *openJob, job *agentapi.Job) {
	dir := a.logDir(job)
	if err := moveAside(dir, a.now()); err != nil {
		a.log.Warn("old log folder not moved", "dir", dir, "err", err)
	}
	ctx, cancel := context.WithCancel(a.ctx)
	cancel() // no second try here
	l, err := openJobLog(dir, a.indexPath(j.id), a.log, a.watch, &j.grown)
	if err != nil {
		a.log.Warn("job log not begun", "job", j.id, "err", err)
		return
	}
	defer l.close()
	_ = l.say(ctx, "waiting", waitingLine(job.NumNodes))
}

// waitingLine carries the words by which those who show a log find its start.
func waitingLine(nodes int) string {
	if nodes == 1 {
		return "├── Waiting for task resources on 1 node."
	}
	return fmt.Sprintf("├── Waiting for task resources on %d nodes.", nodes)
}

// fileName makes a job's name usable as a part of a folder's name.
func fileName(name string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, name)
	return clean[:min(len(clean), 100)]
}

// update changes a job's record on disk, then in memory, and tells listeners.
func (a *Agent) update(id int, f func(*record) error) (*record, error) {
	rec, err := a.queue.update(id, f)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if j := a.jobs[id]; j != nil && rec.Rev > j.rec.Rev {
		if old := j.rec.Job.Status; old != rec.Job.Status {
			a.counts[old]--
			a.counts[rec.Job.Status]++
			if rec.Job.Status.Terminal() {
				a.jobEndedLocked()
				a.reportLocked(rec)
			}
		}
		news := rec.Settled != j.rec.Settled || !reflect.DeepEqual(rec.Job, j.rec.Job)
		j.rec = rec
		if news { // where it is going to be is none
			a.hub.publish(jobEventOf(rec, a.now()))
		}
	}
	return rec, nil
}

func jobEventOf(rec *record, now time.Time) agentapi.Event {
	job := rec.Job
	return agentapi.Event{Kind: agentapi.EventJobChanged, At: seconds(now), Job: &job}
}

func (a *Agent) recordOf(j *openJob) *record {
	a.mu.Lock()
	defer a.mu.Unlock()
	return j.rec
}

func (a *Agent) openJob(id int) *openJob {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.jobs[id]
}

// settled forgets a job that is settled on disk and gives its nodes to others.
func (a *Agent) settled(j *openJob) {
	a.mu.Lock()
	delete(a.jobs, j.id)
	a.mu.Unlock()
	j.logDone.Store(true)
	j.cancel()
	close(j.done)
	j.grown.Notify()
	a.kick()
}

// kick asks the scheduler to look at the queue.
func (a *Agent) kick() {
	select {
	case a.kicked <- struct{}{}:
	default:
	}
}

// scheduler starts jobs as nodes become free.
func (a *Agent) scheduler() {
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-a.kicked:
			a.schedule()
		}
	}
}

// schedule lets plan decide and starts a driver for each job that may run, and
// for each that only has to be cleared up.
func (a *Agent) schedule() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spec == nil {
		return
	}
	// The machines of a TPU slice are given to jobs together: they are one slot.
	hosts := max(a.spec.Hosts, 1)
	nodes := map[string]int{}
	free := make([]slot, len(a.spec.Nodes)/hosts)
	for i, n := range a.spec.Nodes {
		nodes[n.ID] = i
	}
	for i := range free {
		free[i] = slotOf(a.spec.Capacity)
	}
	var queue []waiting
	for _, j := range a.jobs {
		switch {
		case j.driving || len(j.places) > 0 || j.rec.Job.Status.Terminal():
			for _, p := range j.places {
				if i, ok := nodes[p.Node]; ok && i%hosts == 0 && i/hosts < len(free) {
					free[i/hosts].take(j.demand, p.GPUs)
				}
			}
			if !j.driving {
				a.startDriver(j)
			}
		case a.state == agentapi.AgentRunning:
			queue = append(queue, waiting{j.id, j.demand.slices(hosts), time.UnixMicro(int64(j.rec.Job.SubmittedAt * 1e6)), j.kept})
		}
	}
	slices.SortFunc(queue, func(x, y waiting) int { return x.id - y.id })
	grants, kept := plan(free, queue, a.now())
	for _, w := range queue {
		a.jobs[w.id].kept = kept[w.id]
	}
	for _, g := range grants {
		j := a.jobs[g.id]
		for k, s := range g.nodes {
			for i := s * hosts; i < (s+1)*hosts; i++ {
				n := a.spec.Nodes[i]
				j.places = append(j.places, place{Node: n.ID, Index: i, IP: n.IP, GPUs: g.gpus[k]})
			}
		}
		a.startDriver(j)
	}
}

func (a *Agent) startDriver(j *openJob) {
	j.driving = true
	a.wg.Go(func() { a.drive(j) })
}

// cancelWait bounds how long somebody waits for processes to end: their time
// between TERM and KILL and some more.
func cancelWait(grace time.Duration) time.Duration { return grace + 5*time.Second }

// cancel ends jobs, all at the same time, and returns those that it really
// ended. Their outcome is on disk before anything is done to them. Jobs with a
// grace time of their own are not waited for.
func (a *Agent) cancel(ctx context.Context, r *agentapi.CancelRequest) (*agentapi.CancelResponse, error) {
	if r.GraceSeconds > 0 {
		return a.cancelWithin(ctx, r, 0)
	}
	return a.cancelWithin(ctx, r, cancelWait(a.o.endGrace))
}

// cancelWithin is cancel that waits for the jobs for so long.
func (a *Agent) cancelWithin(ctx context.Context, r *agentapi.CancelRequest, wait time.Duration) (*agentapi.CancelResponse, error) {
	resp := &agentapi.CancelResponse{Cancelled: []int{}}
	ids := a.selected(r)
	jobs, errs := make([]*openJob, len(ids)), make([]error, len(ids))
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() {
			j := a.openJob(id)
			if j == nil {
				return
			}
			_, err := a.update(id, func(rec *record) error {
				rec.Grace = time.Duration(r.GraceSeconds) * time.Second
				return rec.move(evCancelled, a.now())
			})
			switch {
			case err == nil:
				jobs[i] = j
				j.cancel()
			case !errors.Is(err, errEnded) && !errors.Is(err, errNoJob):
				errs[i] = err
			}
		})
	}
	wg.Wait()
	a.kick()
	ctx, stop := context.WithTimeout(ctx, wait)
	defer stop()
	for i, j := range jobs {
		if j == nil {
			continue
		}
		resp.Cancelled = append(resp.Cancelled, ids[i])
		select {
		case <-j.done:
		case <-ctx.Done():
		}
	}
	if len(resp.Cancelled) == 0 {
		return resp, errors.Join(errs...)
	}
	return resp, nil // what failed can be asked for again
}

// selected resolves whom a CancelRequest means, in ascending order.
func (a *Agent) selected(r *agentapi.CancelRequest) []int {
	if len(r.IDs) > 0 {
		ids := slices.Clone(r.IDs)
		slices.Sort(ids)
		return slices.Compact(ids)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var ids []int
	latest := map[api.JobStatus]int{}
	for id, j := range a.jobs {
		job := &j.rec.Job
		if job.Status.Terminal() || r.UserHash != "" && job.UserHash != r.UserHash {
			continue
		}
		ids = append(ids, id)
		latest[job.Status] = max(latest[job.Status], id)
	}
	slices.Sort(ids)
	if r.All {
		return ids
	}
	for _, s := range []api.JobStatus{api.JobRunning, api.JobSettingUp} {
		if id := latest[s]; id > 0 {
			return []int{id}
		}
	}
	return nil
}

// recoverJobs takes up the jobs of an earlier agent.
func (a *Agent) recoverJobs() error {
	if err := a.queue.each(func(rec *record) error {
		a.counts[rec.Job.Status]++
		a.reportLocked(rec)
		return nil
	}); err != nil {
		return err
	}
	recs, err := a.queue.open()
	if err != nil {
		return err
	}
	boot := proc.BootID()
	for _, rec := range recs {
		spec, err := a.queue.spec(rec.Job.ID)
		if err != nil {
			return fmt.Errorf("job %d: %w", rec.Job.ID, err)
		}
		j := a.admit(rec, spec)
		a.jobs[j.id] = j
		if rec.Boot != boot && !rec.Job.Status.Terminal() {
			if _, err := a.update(j.id, func(r *record) error {
				r.Job.Reason = "the machine was restarted while the job was queued or running"
				return r.move(evDriverLost, a.now())
			}); err != nil {
				return err
			}
		}
		if st, err := os.Stat(filepath.Join(a.logDir(&rec.Job), "run.log")); rec.Job.Status == api.JobPending && (err != nil || st.Size() == 0) {
			// The crash came between the job and its log.
			if l, err := openJobLog(a.logDir(&rec.Job), a.indexPath(j.id), a.log, a.watch, &j.grown); err == nil {
				_ = l.say(a.ctx, "waiting", waitingLine(rec.Job.NumNodes))
				l.close()
			}
		}
	}
	return nil
}

// keyPrefix begins the keys of all ranks of this cluster.
func (a *Agent) keyPrefix() string {
	spec := a.clusterSpec()
	hash := fileName(spec.Hash)
	if hash == "" {
		hash = "0"
	}
	return hash[:min(len(hash), 40)]
}

func (a *Agent) clusterSpec() *agentapi.ClusterSpec {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spec == nil {
		return &agentapi.ClusterSpec{}
	}
	return a.spec
}

// explained is a job as callers see it: one that waits says what for.
func (a *Agent) explained(rec *record) agentapi.Job {
	job := rec.Job
	if job.Status == api.JobPending && job.Reason == "" {
		if j := a.openJob(job.ID); j != nil {
			a.mu.Lock()
			waits := !j.driving
			a.mu.Unlock()
			if waits {
				job.Reason = "waits for " + j.demand.String()
			}
		}
	}
	return job
}

// jobOf returns a job's record; id 0 is the latest.
func (a *Agent) jobOf(id int) (*record, error) {
	rec, err := a.queue.get(id)
	if errors.Is(err, errNoJob) {
		msg := fmt.Sprintf("there is no job %d on this cluster", id)
		if id == 0 {
			msg = "there is no job on this cluster yet"
		}
		return nil, &agentapi.Error{Code: agentapi.CodeNotFound, Message: msg}
	}
	return rec, err
}
