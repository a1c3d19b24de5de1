package execution

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/trace"
	"github.com/skypilot-go/sky/internal/volumes"
	"github.com/skypilot-go/sky/task"
)

// Launch brings a cluster up (or takes the one that exists), copies files and
// submits the job.
func (x *Executor) Launch(ctx context.Context, call cluster.Call, body api.LaunchBody) (*api.LaunchResult, error) {
	return x.launch(ctx, call, body, nil)
}

func (x *Executor) launch(ctx context.Context, call cluster.Call, body api.LaunchBody, held *Held) (*api.LaunchResult, error) {
	t, err := oneTask(body.Task, "launch")
	if err != nil {
		return nil, err
	}
	name := body.ClusterName
	if name == "" {
		// From the request's id: the same name when the request is resumed.
		name = fmt.Sprintf("sky-%s-%s", strings.ReplaceAll(call.RequestID, "-", "")[:4], task.CleanUser(call.User.Name))
	}
	if err := validName(name); err != nil {
		return nil, err
	}
	if err := x.runnable(t); err != nil {
		return nil, err
	}
	if t.Service != nil || t.Pool != nil {
		fmt.Fprintln(call.Out, "The service section is ignored by sky launch; services start with: sky serve up")
	}
	if held == nil && call.Attempt <= 1 { // what was accepted before goes on
		if err := call.MayBegin(t.Config); err != nil {
			return nil, err
		}
	}
	takeAutostop(t, body)
	l := &launch{x: x, call: call, body: body, task: t, name: name, held: held}
	if from := body.CloneDiskFrom; from != nil && *from != "" {
		if err := l.cloneSource(ctx, *from); err != nil {
			return nil, err
		}
	}
	if body.Dryrun {
		if err := x.checkBuckets(ctx, call, t, body.PlanOptions, true); err != nil {
			return nil, err
		}
		return l.dryrun(ctx)
	}
	if done, result, err := l.resumed(ctx); done {
		return result, err
	}
	if err := call.Files.Check(t); err != nil {
		return nil, err
	}
	// Before anything is rented: machines that wait for an upload cost money.
	if err := x.checkBuckets(ctx, call, t, api.PlanOptions{}, held == nil); err != nil {
		return nil, err
	}
	if err := l.prepareBuckets(ctx); err != nil {
		return nil, err
	}
	c, err := untilUp(ctx, x, call, t, body.RetryUntilUp, l.bringUp)
	if err != nil {
		return nil, err
	}
	job := &submission{x: x, call: call, cluster: c, task: t, setup: !body.NoSetup && !(body.Fast && l.found), held: held}
	if err := l.prepare(ctx, job); err != nil {
		if ctx.Err() != nil || held != nil {
			return nil, err
		}
		return nil, giveBack(c, err)
	}
	return job.submit(ctx)
}

// prepare makes the cluster ready for the job. Where it fails the cluster stays up.
func (l *launch) prepare(ctx context.Context, job *submission) error {
	if err := job.check(); err != nil {
		return err
	}
	if err := l.holdBuckets(ctx, job.cluster); err != nil {
		return err
	}
	if err := l.giveCredentials(ctx, job.cluster); err != nil {
		return err
	}
	if err := job.syncFiles(ctx, true); err != nil {
		return err
	}
	return trace.Do(ctx, "set autostop", func(ctx context.Context) error { return l.autostop(ctx, job.cluster) })
}

// launch is one run of the launch request.
type launch struct {
	x     *Executor
	call  cluster.Call
	body  api.LaunchBody
	task  *task.Task
	name  string
	found bool // the cluster was up already

	held    *Held // nil: a user's own cluster
	volumes *volumes.Use
	clone   *cloud.DiskImage // the disk that the machines start with a copy of; nil: none
}

// giveBack adds to an error behind which a cluster stays up how to get rid of it.
func giveBack(c *state.Cluster, err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		e.Hint = strings.TrimSpace(e.Hint + " " + staysUp(c))
	}
	return err
}

func staysUp(c *state.Cluster) string {
	return "The cluster stays up. If you do not need it, give it back: sky down " + c.Name
}

// dryrun plans and rents nothing. The result has neither a job nor a handle, and
// the plan if it was asked for.
func (l *launch) dryrun(ctx context.Context) (*api.LaunchResult, error) {
	result := &api.LaunchResult{}
	if c, err := l.x.Store.Clusters().Get(ctx, l.name); err == nil && len(l.body.AssumeEnabled) == 0 {
		if err := l.fits(c); err != nil {
			return nil, err
		}
		fmt.Fprintf(l.call.Out, "Running on cluster: %s\n", l.name)
	} else {
		p, plan, err := l.plan(ctx)
		if err != nil {
			return nil, err
		}
		best := ranked(plan)[0][0]
		if err := mountable(best.Cloud, l.task); err != nil {
			return nil, err
		}
		if err := l.sayBuckets(ctx, best); err != nil {
			return nil, err
		}
		if l.body.WantPlan {
			result.Plan = planOf(p, plan, l.body.Explain)
		}
	}
	fmt.Fprintln(l.call.Out, "Dryrun finished.")
	return result, nil
}

// resumed finds out whether an earlier life of this request got as far as
// submitting its job, so that the job never runs twice.
func (l *launch) resumed(ctx context.Context) (done bool, result *api.LaunchResult, err error) {
	p := load(l.call)
	if p.Submitting == "" {
		return false, nil, nil
	}
	c, err := l.x.Store.Clusters().Get(ctx, l.name)
	switch {
	case err == nil && c.Hash == p.Submitting && p.JobID != 0:
		return true, &api.LaunchResult{JobID: &p.JobID, SubmittedAt: p.SubmittedAt, Handle: l.x.Clusters.Handle(c)}, nil
	case err == nil && c.Hash == p.Submitting:
		return false, nil, nil // submitting again under the same key is harmless
	case err != nil && !errors.Is(err, state.ErrNotFound):
		return true, nil, err
	case p.JobID != 0:
		return true, &api.LaunchResult{JobID: &p.JobID, SubmittedAt: p.SubmittedAt, Handle: &api.Handle{ClusterName: l.name}}, nil
	}
	return true, nil, &api.Error{
		Type:    api.ErrRuntime,
		Message: fmt.Sprintf("The server was restarted while it submitted this job to cluster %q, and the cluster is gone by now. The job may have run; it is not started again.", l.name),
		Hint:    "Launch it again if it did not run.",
	}
}
