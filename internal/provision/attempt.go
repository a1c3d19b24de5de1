package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
	"github.com/skypilot-go/sky/internal/trace"
)

// persistence is how often a call is made that gets no proper answer, and how
// long the first pause is; pauses double.
const (
	persistence = 3
	firstPause  = time.Second
)

// noteTimeout bounds one write to the database that must not be left out.
const noteTimeout = 30 * time.Second

// try makes one attempt, and gives back whatever a failure left. It returns the
// whole cluster or an error.
func (s *search) try(ctx context.Context, f *flight) (_ []cloud.Node, err error) {
	ctx, span := trace.Start(ctx, "attempt")
	span.Set("sky.place", f.attempt.Offer.Place.String())
	span.Set("sky.instance_type", f.attempt.Offer.InstanceType)
	span.Set("sky.spot", f.attempt.Offer.Spot)
	defer func() { span.End(err) }()
	ran := 0
	if s.r.Keep {
		ran = s.ranBefore(ctx, f)
		err = s.roseWhileOff(ctx, f, ran)
	}
	var nodes []cloud.Node
	if err == nil {
		nodes, err = s.launch(ctx, f)
	}
	if err == nil {
		return nodes, nil
	}
	if handedOver(ctx) {
		return nil, err // stays open, and is taken up again
	}
	a := f.attempt
	outcome := Outcome(err)
	if ctx.Err() != nil {
		outcome = Cancelled
	} else {
		s.e.log.WarnContext(ctx, "attempt failed", "cluster", a.ClusterName, "place", a.Offer.Place.String(), "outcome", outcome, "err", err)
	}
	cleanup, cancel := cleanupContext(ctx)
	defer cancel()
	abandon := func(ctx context.Context) error { return s.e.records.Abandon(ctx, a.Token, err.Error()) }
	// What a cloud refused outright needs a note only if something stays: taken up
	// again after a crash it is refused again.
	noted := !refusedOutright(outcome)
	if noted {
		if aerr := abandon(cleanup); aerr != nil {
			return nil, &LeftoverError{Cluster: a.ClusterName, Place: a.Offer.Place, Err: aerr, Cause: err}
		}
	}
	if s.r.Keep {
		s.stopStarted(cleanup, f, ran)
	} else if cerr := s.giveBack(cleanup, f); cerr != nil {
		if handedOver(ctx) {
			return nil, err
		}
		if !noted { // the time for cleaning up may be over
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
			defer cancel()
			cerr = errors.Join(cerr, abandon(late))
		}
		return nil, &LeftoverError{Cluster: a.ClusterName, Place: a.Offer.Place, Err: cerr, Cause: err}
	}
	end := state.AttemptEnd{Outcome: outcome, Message: err.Error(), Steps: f.steps, Credentials: s.e.stamp(a.Offer.Cloud)}
	if outcome != Cancelled {
		b := ruledOut(a.Offer, err)
		end.RuledOut = &b
	}
	if derr := s.e.end(cleanup, a, end); derr != nil {
		return nil, errors.Join(err, derr)
	}
	return nil, err
}

// giveBack gives back what the attempt has made.
func (s *search) giveBack(ctx context.Context, f *flight) error {
	watch := s.e.watchOver(ctx, f.attempt.ClusterName, f.attempt.Offer.Place, s.late)
	defer watch.stop()
	ctx, end := reportProgress(ctx, s.out, fmt.Sprintf("giving back what the attempt in %v left", f.attempt.Offer.Place))
	defer end()
	return s.e.giveBack(ctx, f.p, f.spec.ID, f.attempt.Offer, f.attempt.Nodes, s.history, f.note, watch)
}

// late tells the user that machines are not gone in time.
func (s *search) late(text string) { s.out.say("⚠ %s", text) }

func (f *flight) note(step state.Step) { f.steps = append(f.steps, step) }

// step is a call of this attempt.
func (s *search) step(f *flight, name, doing string) step {
	o := f.attempt.Offer
	return step{name: name, limit: s.history.Deadline(name, o, s.r.Nodes), usual: s.history.Usual(name, o), doing: doing, out: s.out, note: f.note}
}

// launch asks for the machines until all of them run. When the answer is lost
// it looks what became of the call: a whole cluster is a success whatever was
// said.
func (s *search) launch(ctx context.Context, f *flight) ([]cloud.Node, error) {
	at := f.attempt.Offer.Place
	_, err := persist(ctx, func() (struct{}, error) {
		return struct{}{}, act(ctx, s.step(f, stepPrepare, fmt.Sprintf("preparing %v", at)), func(ctx context.Context) error {
			return f.p.Prepare(ctx, f.spec)
		})
	})
	if err != nil {
		return nil, err
	}
	return persist(ctx, func() ([]cloud.Node, error) {
		doing := fmt.Sprintf("getting %s in %v", machines(f.attempt.Offer.Machines(s.r.Nodes)), at)
		step := s.step(f, stepLaunch, doing)
		if p, ok := cloud.As[cloud.LaunchLimiter](f.p); ok {
			step.limit = max(step.limit, p.LaunchLimit(f.spec))
		}
		nodes, err := run(ctx, step, func(ctx context.Context) ([]cloud.Node, error) {
			return f.p.Launch(ctx, f.spec)
		})
		if err == nil {
			if err = whole(nodes, &f.spec); err == nil {
				return nodes, nil
			}
		}
		if ctx.Err() != nil {
			return nil, err
		}
		switch Outcome(err) {
		case Timeout, Unreachable:
			found, lerr := s.list(ctx, f)
			if lerr == nil && whole(found, &f.spec) == nil {
				return found, nil
			}
		}
		return nil, err
	})
}

// persist repeats a call that got no proper answer.
func persist[T any](ctx context.Context, call func() (T, error)) (T, error) {
	pause := firstPause
	for again := 1; ; again++ {
		v, err := call()
		switch Outcome(err) {
		case Unreachable, Throttled:
		default:
			return v, err
		}
		if again == persistence || !sleep(ctx, pause) {
			return v, err
		}
		pause *= 2
	}
}

// sleep reports whether ctx outlasted d.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (s *search) list(ctx context.Context, f *flight) ([]cloud.Node, error) {
	return run(ctx, s.step(f, stepList, ""), func(ctx context.Context) ([]cloud.Node, error) {
		return f.p.Nodes(ctx, f.spec.ID)
	})
}

// whole reports what a cluster lacks to be all there, in one place and running.
func whole(nodes []cloud.Node, spec *cloud.LaunchSpec) error {
	g := &GangError{Place: spec.Offer.Place, Want: spec.Offer.Machines(spec.Nodes)}
	here := cloud.BlockPlace(spec.Offer.Place)
	alive := 0
	for _, n := range nodes {
		if n.State == cloud.NodeGone {
			g.Gone++
			g.Reason = n.Reason
			continue
		}
		alive++
		if n.State == cloud.NodeRunning && here.Matches(&cloud.Offer{Place: n.Place}) {
			g.Running++
		}
	}
	if g.Running == g.Want && alive == g.Want {
		return nil
	}
	g.Missing = g.Want - g.Running
	return g
}

// ranBefore counts the machines that ran before anything was tried; when that
// cannot be told, all of them might.
func (s *search) ranBefore(ctx context.Context, f *flight) int {
	nodes, err := s.list(ctx, f)
	if err != nil {
		return f.attempt.Offer.Machines(s.r.Nodes)
	}
	n := 0
	for _, node := range nodes {
		if node.State == cloud.NodeRunning {
			n++
		}
	}
	return n
}

// stopStarted stops what a failed start has switched on. What ran before is left alone:
// it may be doing work.
func (s *search) stopStarted(ctx context.Context, f *flight, ran int) {
	stopper, ok := cloud.As[cloud.Stopper](f.p)
	if !ok || ran > 0 {
		return
	}
	err := act(ctx, s.step(f, stepStop, "stopping what has started"), func(ctx context.Context) error { return stopper.Stop(ctx, f.spec.ID) })
	if err != nil {
		s.out.say("Some machines of cluster %s may be running and could not be stopped: %v", f.attempt.ClusterName, err)
	}
}
