package execution

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/optimizer"
	"github.com/skypilot-go/sky/internal/pki"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/internal/remote"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/trace"
	"github.com/skypilot-go/sky/internal/volumes"
	"github.com/skypilot-go/sky/task"
)

// autostoppingPoll is how often a launch looks whether a cluster that is
// stopping itself is through with it.
const autostoppingPoll = 500 * time.Millisecond

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
	if body.CloneDiskFrom != nil && *body.CloneDiskFrom != "" {
		return nil, &api.Error{Type: api.ErrNotSupported, Message: "Cloning a disk (--clone-disk-from) is not possible yet."}
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
	if body.Dryrun {
		return l.dryrun(ctx)
	}
	if done, result, err := l.resumed(ctx); done {
		return result, err
	}
	if err := call.Files.Check(t); err != nil {
		return nil, err
	}
	c, err := untilUp(ctx, x, call, t, body.RetryUntilUp, l.bringUp)
	if err != nil {
		return nil, err
	}
	job := &submission{x: x, call: call, cluster: c, task: t, setup: !body.NoSetup && !(body.Fast && l.found), held: held}
	if err := job.check(); err != nil {
		return nil, giveBack(c, err)
	}
	if err := job.syncFiles(ctx, true); err != nil {
		return nil, err
	}
	if err := trace.Do(ctx, "set autostop", func(ctx context.Context) error { return l.autostop(ctx, c) }); err != nil {
		return nil, err
	}
	return job.submit(ctx)
}

// giveBack adds to an error that is about the task how to get rid of the cluster.
func giveBack(c *state.Cluster, err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok && e.Hint == "" {
		e.Hint = staysUp(c)
	}
	return err
}

func staysUp(c *state.Cluster) string {
	return "The cluster stays up. If you do not need it, give it back: sky down " + c.Name
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
		if err := mountable(ranked(plan)[0][0].Cloud, l.task); err != nil {
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

// bringUp returns the cluster, up, with agents that answer.
func (l *launch) bringUp(ctx context.Context) (*state.Cluster, error) {
	if err := l.waitAutostopping(ctx); err != nil {
		return nil, err
	}
	l.call.Out.Spin("Waiting for other requests on cluster " + l.name)
	ctx, unlock, err := l.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c, err := l.x.Store.Clusters().Get(ctx, l.name)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return l.createAnew(ctx)
	case err != nil:
		return nil, err
	}
	if err := l.mine(c); err != nil {
		return nil, err
	}
	if !l.call.Scope.Sees(c.Workspace) || !l.call.Scope.Owns(c.UserHash) { // it was made while this request waited
		return nil, &api.Error{Type: api.ErrPermissionDenied, Message: fmt.Sprintf("Cluster %q belongs to %s.", c.Name, c.UserName)}
	}
	if cluster.GivingBack(c) || c.Status == api.ClusterInit && !c.EverUp {
		return l.takeOver(ctx, c)
	}
	if err := l.fits(c); err != nil {
		return nil, err
	}
	if err := l.x.warnVolumes(ctx, l.call, c, l.task); err != nil {
		return nil, err
	}
	if c.Status == api.ClusterUp && len(c.Nodes) > 0 {
		if up, err := l.reuse(ctx, c); err == nil {
			l.found = true
			return up, nil
		} else if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		} else if lost, ok := errors.AsType[*provision.LostError](err); ok && l.held != nil {
			return nil, lost // its holder goes where there is room
		}
		l.call.Out.Spin("The agents of cluster " + l.name + " do not answer; looking at its machines")
	}
	return l.x.bring(ctx, l.call, l.task, c, provision.Exactly(c.Offer), true)
}

// fits checks that a cluster which exists can take the task, and the autostop
// that comes with it.
func (l *launch) fits(c *state.Cluster) error {
	if err := fits(c, l.task, false); err != nil {
		return err
	}
	if err := mountable(c.Offer.Cloud, l.task); err != nil {
		return err
	}
	warnSmaller(l.call, c, l.task, false)
	if want, ok := autostopOf(l.task); ok {
		return l.x.Clusters.CanAutostop(c, want.IdleMinutes, want.Down)
	}
	return nil
}

// mine refuses held clusters to users, and other clusters to a holder.
func (l *launch) mine(c *state.Cluster) error {
	if err := l.x.Clusters.Here(c); err != nil {
		return err
	}
	switch {
	case l.held != nil && c.Holder != l.held.Holder:
		return &api.Error{Type: api.ErrInvalidClusterName, Message: fmt.Sprintf("The name %q belongs to another cluster.", c.Name)}
	case l.held == nil:
		return cluster.RefuseHeld(c)
	}
	return nil
}

// reuse makes sure that the agents of a cluster on record as UP are there and
// of this build.
func (l *launch) reuse(ctx context.Context, c *state.Cluster) (*state.Cluster, error) {
	ectx, end := provision.Tell(ctx, l.call.Out, "reaching the agents on cluster "+c.Name)
	err := l.x.Provision.WhileStanding(ectx, c, func(ctx context.Context) error { return l.x.Remote.Ensure(ctx, c) })
	end()
	if err != nil {
		return nil, err
	}
	nodes := c.Nodes
	return l.x.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		c.Nodes, c.AgentBuild = nodes, l.x.BuildID
		c.LastUse = command(l.call, c.LastUse)
		return nil
	})
}

// takeOver deals with a record whose launch never ended: our own, cut off by a
// crash, goes on; somebody else's is given back first. So is what was being given
// back already.
func (l *launch) takeOver(ctx context.Context, c *state.Cluster) (*state.Cluster, error) {
	if c.Notes.LaunchedBy == l.call.RequestID && !c.EverUp {
		offers, err := l.offers(ctx)
		if err != nil {
			return nil, err
		}
		// Provisioning takes up what the earlier life was doing.
		return l.x.bring(ctx, l.call, l.task, c, offers, false)
	}
	if err := l.x.Clusters.Release(ctx, l.call.Out, c, "its launch never ended; launched anew"); err != nil {
		return nil, fmt.Errorf("giving back what the earlier cluster %s left: %w", c.Name, err)
	}
	return l.createAnew(ctx)
}

// lossesInLaunch is how many times in a row a launch may lose its machines before
// their agents run.
const lossesInLaunch = 3

// createAnew is create, again if the machines were taken away before their agents ran.
func (l *launch) createAnew(ctx context.Context) (*state.Cluster, error) {
	for try := 1; ; try++ {
		c, err := l.create(ctx)
		lost, ok := errors.AsType[*provision.LostError](err)
		if !ok || try == lossesInLaunch || ctx.Err() != nil {
			return c, err
		}
		fmt.Fprintf(l.call.Out, "%v; launching again\n", lost)
	}
}

// create plans, writes the record, and gets the machines.
func (l *launch) create(ctx context.Context) (*state.Cluster, error) {
	offers, err := l.offers(ctx)
	if err != nil {
		return nil, err
	}
	best := offers[0][0]
	if err := mountable(best.Cloud, l.task); err != nil {
		return nil, err
	}
	p, ok := l.x.Providers.Get(best.Cloud)
	if !ok {
		return nil, fmt.Errorf("this version of sky knows no cloud %q", best.Cloud)
	}
	settings, err := settings(l.call, l.task)
	if err != nil {
		return nil, err
	}
	certs, err := pki.NewAuthority(l.name)
	if err != nil {
		return nil, err
	}
	first := l.task.Resources[0]
	c := &state.Cluster{
		Name: l.name, Hash: uuid.NewString(),
		NameOnCloud: task.NameOnCloud(l.name, l.call.User.ID, p.Features().MaxNameLength),
		Status:      api.ClusterInit, Epoch: 0,
		UserHash: l.call.User.ID, UserName: l.call.User.Name, Workspace: settings.ActiveWorkspace(),
		LaunchedAt: time.Now(), StatusUpdatedAt: time.Now(),
		Offer: best, NumNodes: max(l.task.NumNodes, 1),
		Ports: first.Ports, Labels: first.Labels, Machine: machineSpec(l.task.Resources),
		Certs: state.Seal(certs), AutostopMinutes: -1,
		LastUse: command(l.call, ""), CreationCmd: l.call.Command, CreationYAML: l.task.UserYAML,
		Notes:     state.ClusterNotes{LaunchedBy: l.call.RequestID},
		LastEvent: "launching",
	}
	if login := login(l.task); login != nil {
		c.Notes.Registry = login.Server
	}
	l.x.Clusters.Mark(c)
	if l.held != nil {
		c.Holder = l.held.Holder
	}
	if err := l.x.Store.Clusters().CreateWith(ctx, c, l.volumes.Hold(c)); err != nil {
		return nil, volumes.NotThere(err)
	}
	return l.x.bring(ctx, l.call, l.task, c, offers, false)
}

// lock waits for the cluster's lock. What is done under it is not part of the
// wait's span.
func (l *launch) lock(ctx context.Context) (_ context.Context, unlock func(), err error) {
	_, span := trace.Start(ctx, "wait for the lock")
	defer func() { span.End(err) }()
	_, end := provision.Tell(ctx, l.call.Out, "waiting for other requests on cluster "+l.name)
	defer end()
	return l.x.Clusters.Lock(ctx, l.name)
}

// offers are what can run the task, in tiers, best first; the plan is shown.
func (l *launch) offers(ctx context.Context) ([][]cloud.Offer, error) {
	_, plan, err := l.plan(ctx)
	if err != nil {
		return nil, err
	}
	planned := plan.Tasks[0].Candidates
	fitting := slices.DeleteFunc(slices.Clone(planned), func(c optimizer.Candidate) bool { return !takesItsTask(c) })
	if len(fitting) == 0 {
		return nil, &api.Error{Type: api.ErrResourcesMismatch,
			Message: fmt.Sprintf("The machines of the plan (%s) have none of the accelerators that the task asks for. Nothing was rented.", planned[0].Offer.InstanceType),
			Hint:    "Name the accelerators. Which there are: sky gpus list"}
	}
	plan.Tasks[0].Candidates = fitting
	return l.held.order(ranked(plan)), nil
}

func (l *launch) plan(ctx context.Context) (optimizer.Problem, *optimizer.Plan, error) {
	l.call.Out.Spin("Optimizing")
	use, err := l.x.bindVolumes(ctx, l.call, l.task, l.name, l.body.PlanOptions)
	if err != nil {
		return optimizer.Problem{}, nil, err
	}
	l.volumes = use
	p, plan, err := l.x.plan(ctx, l.call, &task.Dag{Name: l.task.Name, Tasks: []*task.Task{l.task}}, l.body.OptimizeTarget, l.body.PlanOptions)
	if err != nil {
		return p, nil, err
	}
	l.call.Out.StopSpin()
	if !l.body.QuietOptimizer {
		plan.Table(l.call.Out, false)
	}
	if l.body.Explain {
		explain(l.call.Out, p, plan)
	}
	return p, plan, nil
}

// ranked is a plan's candidates in the tiers in which they may be tried: entries
// of ordered resources stay apart, and so do what has no known price and the machine
// sky runs on.
func ranked(plan *optimizer.Plan) [][]cloud.Offer {
	t := &plan.Tasks[0]
	ordered := t.Task.Preference == task.Ordered
	var tiers [][]cloud.Offer
	for i, c := range t.Candidates {
		if i == 0 || c.Unpriced != t.Candidates[i-1].Unpriced || c.LastResort != t.Candidates[i-1].LastResort || ordered && c.Resources != t.Candidates[i-1].Resources {
			tiers = append(tiers, nil)
		}
		tiers[len(tiers)-1] = append(tiers[len(tiers)-1], c.Offer)
	}
	return tiers
}

// bring gets the machines of a cluster on record and sets up their agents.
// keep says that they have been up before: nothing is terminated then. On
// failure of a cluster that never was up, machines and record go.
func (x *Executor) bring(ctx context.Context, call cluster.Call, t *task.Task, c *state.Cluster, offers [][]cloud.Offer, keep bool) (*state.Cluster, error) {
	up, err := x.getMachines(ctx, call, t, c, offers, keep)
	if err == nil {
		call.Out.StopSpin()
		fmt.Fprintf(call.Out, "✓ Cluster launched: %s.\n", up.Name)
		return up, nil
	}
	if errors.Is(context.Cause(ctx), state.ErrHandover) {
		return nil, context.Cause(ctx)
	}
	var left *provision.LeftoverError
	if keep || errors.As(err, &left) {
		return nil, x.launchError(c, err, keep)
	}
	// Never up: nothing may stay behind, even if the request was cancelled. The
	// record says by now where the last attempt was.
	if now, gerr := x.Store.Clusters().Get(context.WithoutCancel(ctx), c.Name); gerr == nil && now.Hash == c.Hash {
		c = now
	}
	if rerr := x.Clusters.Release(context.WithoutCancel(ctx), call.Out, c, "launch failed: "+err.Error()); rerr != nil {
		return nil, &provision.LeftoverError{Cluster: c.Name, Place: c.Offer.Place, Err: rerr, Cause: err}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, x.launchError(c, err, keep)
}

// getMachines marks the record as INIT, gets the machines and sets up their agents.
func (x *Executor) getMachines(ctx context.Context, call cluster.Call, t *task.Task, c *state.Cluster, offers [][]cloud.Offer, keep bool) (*state.Cluster, error) {
	from := c.Status
	c, err := x.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		if c.Status == api.ClusterStopped {
			cluster.SwitchedOn(c)
		}
		c.Status, c.StatusUpdatedAt = api.ClusterInit, time.Now()
		c.Epoch++
		c.Notes.BroughtUpBy = call.RequestID
		cluster.Keep(c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	x.event(ctx, c, "STATUS_CHANGE", from, "getting machines")
	call.Out.Spin(fmt.Sprintf("Launching cluster %s (%s)", c.Name, nodes(c.NumNodes)))
	return x.provisionAndInstall(ctx, call, t, c, offers, keep)
}

func (x *Executor) provisionAndInstall(ctx context.Context, call cluster.Call, t *task.Task, c *state.Cluster, offers [][]cloud.Offer, keep bool) (*state.Cluster, error) {
	key, err := x.Remote.PublicKey(c.UserHash)
	if err != nil {
		return nil, err
	}
	cfg, err := settings(call, t)
	if err != nil {
		return nil, err
	}
	options := ways(cfg)
	mounted, err := x.Volumes.Mounted(ctx, c, placed(cfg, c))
	if err != nil {
		return nil, err
	}
	if mounted != nil && keep {
		if err := x.Store.Volumes().Attached(ctx, c.Hash, command(call, c.LastUse)); err != nil {
			return nil, err
		}
	}
	if p, ok := x.Providers.Get(c.Offer.Cloud); ok && keep {
		if err := x.Clusters.SameAccount(ctx, c, p); err != nil {
			return nil, err
		}
	}
	offer, got, err := x.Provision.Provision(ctx, provision.Request{
		Cluster: c, Nodes: c.NumNodes, Tiers: offers, Keep: keep, AuthorizedKey: key, Out: call.Out,
		EndGrace: endGrace(t), Settings: placed(cfg, c), Options: options,
		Login: loginOf(t, c), Volumes: mounted,
	})
	if err != nil {
		return nil, err
	}
	c, err = x.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		c.Offer, c.Nodes = offer, carryAgents(got, c.Nodes)
		x.noteContainer(c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	x.usage(ctx, c)
	if remote.Unmanned(c) {
		fmt.Fprintf(call.Out, "⚠ without_agents is set for %s: the nodes of cluster %s count as records of an emulator; no agent is started and nothing can run there.\n", c.Offer.Cloud, c.Name)
	} else {
		call.Out.Spin("Starting the agents on cluster " + c.Name)
	}
	containers, err := containers(call, t, cfg, c)
	if err != nil {
		return nil, err
	}
	if err := trace.Do(ctx, "start agents", func(ctx context.Context) error {
		ctx, end := provision.Tell(ctx, call.Out, "starting the agents on cluster "+c.Name)
		defer end()
		return x.Provision.WhileStanding(ctx, c, func(ctx context.Context) error { return x.Remote.Install(ctx, c, containers) })
	}); err != nil {
		return nil, err
	}
	if err := x.firstRun(ctx, call, c, placed(cfg, c)(c.Offer.Place)); err != nil {
		return nil, err
	}
	ready, owner := c.Nodes, x.account(ctx, c)
	c, err = x.Store.Clusters().Update(ctx, c.Name, c.Hash, func(c *state.Cluster) error {
		if len(owner) > 0 {
			c.Owner = owner
		}
		c.Nodes, c.AgentBuild = ready, x.BuildID
		c.Status, c.StatusUpdatedAt, c.EverUp = api.ClusterUp, time.Now(), true
		c.LastUse = command(call, c.LastUse)
		c.LastEvent = "all machines run and the agent answers"
		if remote.Unmanned(c) {
			c.LastEvent = "all machines run"
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	x.event(ctx, c, "STATUS_CHANGE", api.ClusterInit, c.LastEvent)
	x.Clusters.Woken()
	return c, nil
}

// carryAgents keeps the agents' addresses that are known already.
func carryAgents(got, known []cloud.Node) []cloud.Node {
	for i := range got {
		for _, k := range known {
			if k.ID == got[i].ID && got[i].Reach.Agent == "" {
				got[i].Reach.Agent = k.Reach.Agent
			}
		}
	}
	return got
}

// launchError says what a failed launch left.
func (x *Executor) launchError(c *state.Cluster, err error, keep bool) error {
	var unplaced *provision.UnplacedError
	if lost, ok := errors.AsType[*provision.LostError](err); ok {
		unplaced = lost.Unplaced(c.Offer, c.NumNodes, time.Since(c.StatusUpdatedAt))
		err = unplaced
	}
	if errors.As(err, &unplaced) {
		var history []string
		for _, a := range unplaced.Attempts {
			history = append(history, a.Error())
		}
		e := unavailable(err, history)
		if keep {
			e.Attributes["no_failover"] = true
			e.Hint = fmt.Sprintf("The cluster's disks are kept. Try again with: sky start %s; give it back with: sky down %s", c.Name, c.Name)
		} else {
			if unplaced.Retryable() {
				e.Hint = "To keep trying until there is room: sky launch --retry-until-up"
			}
		}
		e.Details = unplaced.Details()
		return e
	}
	var apiErr *api.Error
	if errors.As(err, &apiErr) {
		return err
	}
	e := &api.Error{Type: api.ErrRuntime, Message: fmt.Sprintf("Launching cluster %q failed: %v", c.Name, err), Err: err}
	if keep {
		e.Hint = fmt.Sprintf("Its machines may run and cost money. Try again with: sky start %s; switch them off with: sky stop %[1]s", c.Name)
	}
	return e
}

func (l *launch) waitAutostopping(ctx context.Context) error {
	for {
		c, err := l.x.Store.Clusters().Get(ctx, l.name)
		if errors.Is(err, state.ErrNotFound) || err == nil && c.Status != api.ClusterAutostopping {
			return nil
		}
		if err != nil {
			return err
		}
		l.call.Out.Spin("Cluster " + l.name + " is stopping itself; waiting until it is through")
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(autostoppingPoll):
		}
	}
}

func (x *Executor) event(ctx context.Context, c *state.Cluster, kind string, from api.ClusterStatus, reason string) {
	err := x.Store.Clusters().AddEvent(ctx, state.ClusterEvent{
		ClusterHash: c.Hash, ClusterName: c.Name, Type: kind, Reason: reason, Starting: from, Ending: c.Status, At: time.Now(),
	})
	if err != nil {
		x.Log.WarnContext(ctx, "cluster event not stored", "cluster", c.Name, "err", err)
	}
}

func (x *Executor) usage(ctx context.Context, c *state.Cluster) {
	if err := x.Store.Clusters().OpenUsage(ctx, c.Hash, time.Now()); err != nil {
		x.Log.WarnContext(ctx, "usage not stored", "cluster", c.Name, "err", err)
	}
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

func command(call cluster.Call, fallback string) string {
	if call.Command == "" {
		return fallback
	}
	return call.Command
}

// account is whose the machines of a cluster are; nil where there are no
// accounts, or nobody can tell at the moment.
func (x *Executor) account(ctx context.Context, c *state.Cluster) []string {
	p, ok := x.Providers.Get(c.Offer.Cloud)
	if !ok {
		return nil
	}
	who, err := x.Clusters.Account(ctx, p)
	if err != nil {
		x.Log.WarnContext(ctx, "the owner of a cluster is not known", "cluster", c.Name, "err", err)
	}
	return who
}
