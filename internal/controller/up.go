package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/agentclient"
	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/state"
)

// Ensure makes the controller run, with what it needs as it is now, and returns
// its cluster. It is safe to repeat after a crash at any point, and cheap when
// nothing is missing.
func (c *Controller) Ensure(ctx context.Context, call cluster.Call) (*state.Cluster, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	// The cluster belongs to the server, whoever asks.
	call = cluster.Call{
		RequestID: call.RequestID, User: c.Self, Attempt: call.Attempt, Command: call.Command,
		Out: call.Out, Config: c.Config(), Rest: call.Rest,
	}
	for try := 1; ; try++ {
		cl, err := c.ensure(ctx, call)
		// An agent that is about to stop its machine takes nothing any more: the
		// next launch waits for that and starts the machine again.
		stopping, leaving := errors.AsType[*agentapi.Error](err)
		if err == nil || ctx.Err() != nil || try == 3 || !leaving || stopping.Code != agentapi.CodeStopping {
			if err != nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return cl, err
		}
	}
}

func (c *Controller) ensure(ctx context.Context, call cluster.Call) (*state.Cluster, error) {
	cl, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	text, rest, err := c.Kind.plan(call.Config, cl != nil && cl.EverUp && !cluster.GivingBack(cl))
	if err != nil {
		return nil, err
	}
	k, err := c.pack(ctx, call.Config, rest)
	if err != nil {
		return nil, err
	}
	stamp := k.stamp()
	if cl != nil && cl.Status == api.ClusterUp && c.has(cl) == stamp {
		if _, err := c.ping(ctx, cl); err == nil {
			return cl, nil
		}
	}
	fmt.Fprintf(call.Out, "%s are looked after by the controller %s.\n", c.Kind.what, c.Name())
	for _, w := range k.warn {
		fmt.Fprintln(call.Out, "⚠", w)
	}
	if _, err := c.Executor.Launch(ctx, call, api.LaunchBody{Task: text, ClusterName: c.Name(), QuietOptimizer: cl != nil}); err != nil {
		return nil, fmt.Errorf("bringing up the %s: %w", c.Kind.name, err)
	}
	if cl, err = c.Clusters.Get(ctx, c.Name()); err != nil {
		return nil, err
	}
	call.Out.Spin("Setting up the " + c.Kind.name)
	defer call.Out.StopSpin()
	if err := c.address(ctx, cl, k); err != nil {
		return nil, err
	}
	build, err := c.equip(ctx, cl, k)
	if err != nil {
		return nil, fmt.Errorf("setting up the %s: %w", c.Kind.name, err)
	}
	if err := c.serve(ctx, call, cl, build); err != nil {
		return nil, err
	}
	if err := c.setRest(ctx, call, cl, rest); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.equipped[cl.Hash] = stamp
	c.mu.Unlock()
	call.Out.StopSpin()
	fmt.Fprintf(call.Out, "✓ The %s is ready.\n", c.Kind.name)
	return cl, nil
}

// has is the stamp of what this life of the server brought to the cluster.
func (c *Controller) has(cl *state.Cluster) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.equipped[cl.Hash]
}

// How long a server may take to answer after it was started, and how often that
// is looked at.
const (
	startTimeout = 2 * time.Minute
	startPoll    = 300 * time.Millisecond
)

// serve makes a server of that build run on the cluster. One of another build
// hands over to it: requests and jobs go on.
func (c *Controller) serve(ctx context.Context, call cluster.Call, cl *state.Cluster, build string) error {
	if err := c.note(ctx, cl, "build", build); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errSlow)
	defer cancel()
	asked := false // the one of another build to go
	for {
		health, err := c.ping(ctx, cl)
		switch {
		case err == nil && health.BuildID == build:
			return c.note(ctx, cl, "good", build)
		case err == nil && !asked:
			asked = true
			call.Out.Spin("Updating the " + c.Kind.name)
			if err := c.run(ctx, cl, c.Kind.dir+"/sky api stop"); err != nil && ctx.Err() == nil {
				return fmt.Errorf("updating the %s: %w", c.Kind.name, err)
			}
		case err != nil:
			if err := c.start(ctx, cl); err != nil && ctx.Err() == nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), errSlow) {
				return context.Cause(ctx)
			}
			return c.slow(context.WithoutCancel(ctx), call, cl)
		case <-time.After(startPoll):
		}
	}
}

var errSlow = errors.New("it did not answer in time")

// slow says why a server of the build that was wanted does not answer. If the
// one before does, that is good enough.
func (c *Controller) slow(ctx context.Context, call cluster.Call, cl *state.Cluster) error {
	if health, err := c.ping(ctx, cl); err == nil {
		fmt.Fprintf(call.Out, "⚠ The %s stays with sky %s (build %s): this version does not start there. See: sky logs %s\n", c.Kind.name, health.Version, health.BuildID, cl.Name)
		return nil
	}
	return &api.Error{
		Type:    api.ErrRuntime,
		Message: fmt.Sprintf("The server on the %s %s does not start: %s", c.Kind.name, cl.Name, c.lastWords(ctx, cl)),
		Hint:    "All that it said: sky logs " + cl.Name,
	}
}

// lastWords is the end of what the server printed.
func (c *Controller) lastWords(ctx context.Context, cl *state.Cluster) string {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	const unknown = "it said nothing"
	head, err := c.Remote.Head(cl)
	if err != nil {
		return unknown
	}
	job, err := c.serverJob(ctx, cl)
	if err != nil || job == nil {
		return unknown
	}
	rc, _, err := head.Log(ctx, job.ID, agentclient.LogOptions{Tail: 5})
	if err != nil {
		return unknown
	}
	defer rc.Close()
	b, _ := io.ReadAll(io.LimitReader(rc, 4<<10))
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return unknown
	}
	return string(b)
}

// start submits the job that keeps a server running, unless it runs.
func (c *Controller) start(ctx context.Context, cl *state.Cluster) error {
	job, err := c.serverJob(ctx, cl)
	if err != nil {
		return err
	}
	if job != nil && !job.Status.Terminal() {
		return nil
	}
	head, err := c.Remote.Head(cl)
	if err != nil {
		return err
	}
	_, err = head.Submit(ctx, agentapi.SubmitRequest{Key: uuid.NewString(), Epoch: cl.Epoch, Spec: agentapi.JobSpec{
		Name: c.Kind.job, User: c.Self.Name, UserHash: c.Self.ID, NumNodes: 1, Run: c.Kind.script(), Resources: "1x[CPU:1+]",
	}})
	return err
}

// setRest arms the cluster's own stop. The agent counts from when the server has
// ended, which it does when there is nothing to do.
func (c *Controller) setRest(ctx context.Context, call cluster.Call, cl *state.Cluster, r *rest) error {
	if r.never {
		return c.Clusters.SetAutostop(ctx, cl.Name, agentapi.Autostop{IdleMinutes: -1})
	}
	if p, ok := c.Providers.Get(cl.Offer.Cloud); ok && !r.down {
		reason, lacks := cloud.Lacking(p, cl.Offer, cloud.FeatureStop)
		if _, can := cloud.As[cloud.Stopper](p); lacks || !can {
			fmt.Fprintf(call.Out, "⚠ The %s will not stop when idle: %s cannot stop machines%s. To give it back: sky down %s\n", c.Kind.name, p.DisplayName(), because(reason), cl.Name)
			return c.Clusters.SetAutostop(ctx, cl.Name, agentapi.Autostop{IdleMinutes: -1})
		}
	}
	waitFor := api.WaitForJobsAndSSH
	if r.waitFor != "" {
		waitFor = api.WaitFor(r.waitFor)
	}
	return c.Clusters.SetAutostop(ctx, cl.Name, agentapi.Autostop{IdleMinutes: 1, Down: r.down, WaitFor: waitFor})
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// run runs a command on the head node, in its home folder.
func (c *Controller) run(ctx context.Context, cl *state.Cluster, command string) error {
	head, err := c.Remote.Head(cl)
	if err != nil {
		return err
	}
	said, code, err := head.Run(ctx, agentapi.ShellQuery{Command: command})
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("%s: %s", command, bytes.TrimSpace(said))
	}
	return nil
}
