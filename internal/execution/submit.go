package execution

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/buckets"
	"github.com/skypilot-go/sky/internal/cloud/facts"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/filesync"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/trace"
	"github.com/skypilot-go/sky/internal/upload"
	"github.com/skypilot-go/sky/task"
)

// Workdir is where a task's working folder lands on every node.
const Workdir = "~/sky_workdir"

// submission brings one task's files and job to a cluster that is up.
type submission struct {
	x       *Executor
	call    cluster.Call
	cluster *state.Cluster
	task    *task.Task
	setup   bool
	held    *Held // nil: not for a holder
}

// runnable refuses what this version cannot run yet, before anything is
// rented.
func (x *Executor) runnable(t *task.Task) error {
	var what string
	switch {
	case t.Git != nil:
		what = "a git repository as workdir"
	case len(t.SecretRefs) > 0 || len(t.ManagedSecrets) > 0:
		what = "secrets kept by the server"
	}
	if what == "" {
		if slices.ContainsFunc(t.Resources, func(r task.Resources) bool { return !reflect.DeepEqual(r.Volumes, t.Resources[0].Volumes) }) {
			return &api.Error{Type: api.ErrValue, Message: "The requests of a task (any_of, ordered) have the same volumes or none: machines of each would have other disks.", Hint: "Write volumes above any_of."}
		}
		return buckets.Runnable(t)
	}
	return &api.Error{Type: api.ErrNotSupported, Message: fmt.Sprintf("This version of sky cannot do this yet: %s.", what)}
}

func isURL(s string) bool { return strings.Contains(s, "://") }

// check refuses what the cluster's nodes cannot take, before anything is sent.
func (s *submission) check() error {
	if remote.Agentless(s.cluster) {
		return s.checkAgentless()
	}
	return mountable(s.cluster.Offer.Cloud, s.task)
}

// mountable refuses file mounts that the nodes of a cloud cannot take.
func mountable(cloud string, t *task.Task) error {
	of, ok := facts.Find(cloud)
	if !ok || !of.SharesFiles {
		return nil
	}
	destinations := []string{}
	for _, dst := range slices.Concat(slices.Collect(maps.Keys(t.FileMounts)), slices.Collect(maps.Keys(t.StorageMounts))) {
		destinations = append(destinations, onNode(dst))
	}
	slices.Sort(destinations)
	for _, dst := range destinations {
		if !strings.HasPrefix(dst, "~/") && !strings.HasPrefix(dst, "/tmp/") && dst != "~" {
			return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf(
				"file_mounts: %s is outside the home folder. The nodes of %s share this machine's file system, so only paths below ~/ and /tmp/ can be written; use ~/%s, say.",
				dst, of.Display, path.Base(dst))}
		}
	}
	for _, dst := range slices.Sorted(maps.Keys(t.StorageMounts)) {
		if t.StorageMounts[dst].Mode != "COPY" && !strings.HasPrefix(onNode(dst), "~/") {
			return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf(
				"file_mounts: a bucket cannot be mounted at %s. The nodes of %s share this machine's file system, so buckets are mounted below the node's home folder; use ~/%s, say.",
				dst, of.Display, path.Base(dst))}
		}
	}
	return nil
}

// checkAgentless refuses to bring anything to nodes that are no machines.
func (s *submission) checkAgentless() error {
	if s.task.Run == "" && s.task.Setup == "" && s.task.Workdir == "" && len(s.task.FileMounts) == 0 && len(s.task.StorageMounts) == 0 {
		return nil
	}
	return &api.Error{
		Type:    api.ErrNotSupported,
		Message: fmt.Sprintf("The nodes of cluster %q are records of an emulator and no machines (without_agents is set for %s): no file can be copied there and nothing can run.", s.cluster.Name, s.cluster.Offer.Cloud),
		Hint:    "Launch without run, setup, workdir and file_mounts, or take without_agents out of the configuration.",
	}
}

// mount is one thing to copy; src is its name in the task.
type mount struct{ dst, src string }

// onNode is a destination on nodes: a relative one is below the working folder.
func onNode(dst string) string {
	if !strings.HasPrefix(dst, "/") && !strings.HasPrefix(dst, "~") {
		return path.Join(Workdir, dst)
	}
	return dst
}

// mounts are the file mounts in a stable order, but for buckets.
func mounts(t *task.Task) []mount {
	var out []mount
	for _, dst := range slices.Sorted(maps.Keys(t.FileMounts)) {
		if src := t.FileMounts[dst]; !isURL(src) {
			out = append(out, mount{onNode(dst), src})
		}
	}
	return out
}

// syncFiles copies the working folder and, with all, the file mounts to every
// node.
func (s *submission) syncFiles(ctx context.Context, all bool) error {
	if s.task.Workdir != "" {
		src, err := s.call.Files.Source(s.task, s.task.Workdir)
		if err == nil {
			err = s.sync(ctx, "workdir", filesync.Options{Src: src, Dst: Workdir, Ignore: true, Contents: true})
		}
		if err != nil {
			return err
		}
	}
	if err := s.mountBuckets(ctx); err != nil || !all {
		return err
	}
	for _, m := range mounts(s.task) {
		src, err := s.call.Files.Source(s.task, m.src)
		if err != nil {
			return err
		}
		e, err := filesync.Stat(src)
		if err != nil {
			return upload.Error(src, err)
		}
		isDir := e.Mode.IsDir()
		if err := s.sync(ctx, "file mount", filesync.Options{Src: src, Dst: m.dst, Ignore: isDir, Contents: isDir}); err != nil {
			return err
		}
	}
	return s.bring(ctx)
}

// mountBuckets mounts buckets on every node.
func (s *submission) mountBuckets(ctx context.Context) (err error) {
	if len(s.task.StorageMounts) == 0 {
		return nil
	}
	ctx, span := trace.Start(ctx, "mount buckets")
	defer func() { span.End(err) }()
	call, err := s.x.bucketCall(s.call, s.task)
	if err != nil {
		return err
	}
	return s.x.Buckets.Mount(ctx, call, s.cluster, s.task, onNode)
}

// bring copies buckets to every node.
func (s *submission) bring(ctx context.Context) (err error) {
	if !usesBuckets(s.task) {
		return nil
	}
	ctx, span := trace.Start(ctx, "copy buckets")
	defer func() { span.End(err) }()
	call, err := s.x.bucketCall(s.call, s.task)
	if err != nil {
		return err
	}
	return s.x.Buckets.Bring(ctx, call, s.cluster, s.task, onNode)
}

func (s *submission) sync(ctx context.Context, what string, o filesync.Options) error {
	far := &syncing{out: s.call.Out, what: fmt.Sprintf("%s: %s -> %s", what, o.Src, o.Dst), nodes: make([]filesync.Progress, len(s.cluster.Nodes))}
	far.out.Spin("Syncing " + far.what)
	if o.Contents {
		o.Mirror = s.call.User.ID + " " + o.Src.String()
	}
	ctx, span := trace.Start(ctx, "copy "+what)
	stats, err := s.x.Remote.Sync(ctx, s.cluster, o, far.saw)
	span.End(err)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return s.syncError(o, err)
	}
	s.call.Out.StopSpin()
	fmt.Fprintf(s.call.Out, "✓ Synced %s: %s -> %s (%s)\n", what, o.Src, o.Dst, upload.Summary(stats))
	for _, note := range upload.Notes(o.Src, stats.Left, stats.Files+stats.Links) {
		fmt.Fprintln(s.call.Out, "  "+note)
	}
	return nil
}

func (s *submission) syncError(o filesync.Options, err error) error {
	var full *filesync.NoSpaceError
	if errors.As(err, &full) {
		return &api.Error{Type: api.ErrRuntime, Err: err,
			Message: fmt.Sprintf("The disk of cluster %q is full: %v", s.cluster.Name, err),
			Hint:    fmt.Sprintf("Make room on it (sky ssh %s) and run this again.", s.cluster.Name)}
	}
	return upload.Error(o.Src, err)
}

// autostop applies what the task says about autostop and hooks.
func (l *launch) autostop(ctx context.Context, c *state.Cluster) error {
	want, ok := autostopOf(l.task)
	if !ok && l.task.Hooks == nil {
		return l.x.Clusters.WithoutAutostop(ctx, c)
	}
	if !ok { // hooks alone keep what is set
		want = agentapi.Autostop{IdleMinutes: c.AutostopMinutes, Down: c.AutostopDown, WaitFor: api.WaitForJobsAndSSH}
	}
	if l.task.Hooks != nil {
		hooks := []agentapi.Hook{}
		for _, h := range l.task.Hooks {
			hooks = append(hooks, agentapi.Hook{Run: h.Run, Events: h.Events, Timeout: h.Timeout})
		}
		want.Hooks = &hooks
	}
	if err := l.x.Clusters.SetAutostop(ctx, c.Name, want); err != nil {
		return err
	}
	l.x.Clusters.TellAutostop(l.call.Out, c, want)
	return nil
}

// endGrace is how long the task's hooks may take when its nodes are taken back.
func endGrace(t *task.Task) (d time.Duration) {
	for _, h := range t.Hooks {
		if len(h.Events) == 0 || slices.Contains(h.Events, "preemption") {
			d += cmp.Or(time.Duration(h.Timeout)*time.Second, agentapi.HookTimeout)
		}
	}
	return d
}

// takeAutostop writes into a task what a client sent beside it, as earlier ones
// do, so that plans know of it. What the task says itself holds.
func takeAutostop(t *task.Task, body api.LaunchBody) {
	a := task.Autostop{Enabled: true, Down: body.Down}
	switch {
	case t.Resources[0].Autostop != nil, body.IdleMinutesAutostop == nil && !body.Down:
		return
	case body.IdleMinutesAutostop != nil:
		a.Enabled, a.IdleMinutes = *body.IdleMinutesAutostop >= 0, max(0, *body.IdleMinutesAutostop)
	}
	for i := range t.Resources {
		if t.Resources[i].Autostop == nil {
			t.Resources[i].Autostop = &a
		}
	}
}

// autostopOf is the autostop that a task asks for; false if it asks for none.
func autostopOf(t *task.Task) (agentapi.Autostop, bool) {
	a := agentapi.Autostop{WaitFor: api.WaitForJobsAndSSH}
	switch r := t.Resources[0]; {
	case r.Autostop != nil && !r.Autostop.Enabled:
		a.IdleMinutes = -1
		return a, true
	case r.Autostop != nil:
		a.IdleMinutes, a.Down = r.Autostop.IdleMinutes, r.Autostop.Down
		if r.Autostop.WaitFor != "" {
			a.WaitFor = api.WaitFor(r.Autostop.WaitFor)
		}
	default:
		return a, false
	}
	if a.IdleMinutes == 0 {
		a.IdleMinutes = 1
	}
	return a, true
}

// submit queues the job under the request's id, so that it never runs twice.
func (s *submission) submit(ctx context.Context) (_ *api.LaunchResult, err error) {
	ctx, span := trace.Start(ctx, "submit the job")
	defer func() { span.End(err) }()
	result := &api.LaunchResult{Handle: s.x.Clusters.Handle(s.cluster)}
	spec := s.spec()
	if spec.Run == "" && spec.Setup == "" {
		fmt.Fprintln(s.call.Out, "The task has nothing to run; the cluster is ready.")
		return result, nil
	}
	if s.held != nil && s.held.Replaces != nil {
		if err := s.x.Clusters.AgentCancel(ctx, s.cluster, s.held.Replaces); err != nil {
			return nil, submitError(s.cluster, fmt.Errorf("ending jobs of earlier attempts: %w", err))
		}
	}
	// From here on the job may run: a later life must know.
	p := Progress{Submitting: s.cluster.Hash}
	if err := save(ctx, s.call, p); err != nil {
		return nil, err
	}
	s.call.Out.Spin("Submitting the job")
	resp, err := s.queue(ctx, spec)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, submitError(s.cluster, err)
	}
	p.JobID, p.SubmittedAt = resp.JobID, resp.SubmittedAt
	if err := save(ctx, s.call, p); err != nil {
		return nil, err
	}
	s.call.Out.StopSpin()
	fmt.Fprintf(s.call.Out, "✓ Job submitted, ID: %d\n", resp.JobID)
	result.JobID, result.SubmittedAt = &resp.JobID, resp.SubmittedAt
	return result, nil
}

// How often a job is sent to an agent that does not answer, and the pause
// between: agents are restarted meanwhile.
const (
	submitTries = 8
	submitPause = 500 * time.Millisecond
)

// queue sends the job to the head agent. One that died is brought back; the
// request's id as key makes sending twice harmless.
func (s *submission) queue(ctx context.Context, spec agentapi.JobSpec) (*agentapi.SubmitResponse, error) {
	for try := 1; ; try++ {
		head, err := s.x.Remote.Head(s.cluster)
		if err != nil {
			return nil, err
		}
		resp, err := head.Submit(ctx, agentapi.SubmitRequest{Key: s.call.RequestID, Epoch: s.cluster.Epoch, Spec: spec, Report: s.held != nil})
		var refused *agentapi.Error
		if err == nil || errors.As(err, &refused) || ctx.Err() != nil || try == submitTries {
			return resp, err
		}
		fresh, rerr := s.x.Clusters.Refresh(ctx, s.cluster.Name)
		if rerr == nil && (fresh == nil || fresh.Hash != s.cluster.Hash || fresh.Status != api.ClusterUp) {
			return nil, err // the cluster is no longer what it was
		}
		if rerr == nil {
			s.cluster = fresh
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(submitPause):
		}
	}
}

func submitError(c *state.Cluster, err error) error {
	var e *agentapi.Error
	if errors.As(err, &e) {
		switch e.Code {
		case agentapi.CodeInvalid:
			return &api.Error{Type: api.ErrValue, Message: fmt.Sprintf("Cluster %q does not take the job: %s", c.Name, e.Message), Err: err,
				Hint: staysUp(c)}
		case agentapi.CodeNoSpace:
			return &api.Error{Type: api.ErrRuntime, Err: err,
				Message: fmt.Sprintf("The disk of cluster %q is full: %s", c.Name, e.Message),
				Hint:    fmt.Sprintf("The cluster stays up. Make room on it (sky ssh %s) and run this again.", c.Name)}
		case agentapi.CodeStaleEpoch:
			return &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("Cluster %q was launched anew meanwhile; the job was not submitted.", c.Name), Err: err}
		}
	}
	return &api.Error{Type: api.ErrRuntime, Err: err,
		Message: fmt.Sprintf("The job could not be submitted to cluster %q: %v", c.Name, err),
		Hint:    "See what became of it with: sky status --refresh " + c.Name}
}

// spec is the job as the agents want it.
func (s *submission) spec() agentapi.JobSpec {
	t := s.task
	spec := agentapi.JobSpec{
		Name: t.Name, TaskName: t.Name,
		User: s.call.User.Name, UserHash: s.call.User.ID,
		NumNodes: s.cluster.Offer.Machines(max(t.NumNodes, 1)), Run: t.Run,
		Metadata: map[string]string{},
	}
	spec.Envs, spec.Secrets = t.Variables()
	if s.setup {
		spec.Setup = t.Setup
	}
	if s.held != nil {
		spec.TaskID = s.held.TaskID
		maps.Copy(spec.Envs, s.held.Envs)
	}
	if commit, ok := t.Metadata["git_commit"].(string); ok {
		spec.Metadata["git_commit"] = commit
	}
	for _, dst := range slices.Sorted(maps.Keys(t.StorageMounts)) {
		if t.StorageMounts[dst].Mode != "COPY" {
			spec.Mounts = append(spec.Mounts, onNode(dst))
		}
	}
	display := "CPU:1+"
	for _, a := range chosen(s.cluster, t).Accelerators {
		name, have := device(s.cluster.Offer.Accelerators, a.Name) // the agent knows devices by their names alone
		if have == 0 {
			name = a.Name
		}
		spec.Accelerators = map[string]float64{name: a.Count}
		display = fmt.Sprintf("%s:%v", name, a.Count)
	}
	spec.Resources = fmt.Sprintf("%dx[%s]", max(t.NumNodes, 1), display)
	return spec
}

// chosen is the first of the task's requests that the cluster satisfies.
func chosen(c *state.Cluster, t *task.Task) task.Resources {
	for _, r := range t.Resources {
		if mismatch(c, t, r, false) == "" {
			return r
		}
	}
	return t.Resources[0]
}
