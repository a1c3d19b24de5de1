package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// errLost is the cause of an attempt's context when another was quicker or the
// search is over.
var errLost = errors.New("another attempt was quicker")

// search is one call of Provision: attempts, one at a time or a few, until one
// has the whole cluster. Only its own goroutine changes it.
type search struct {
	e       *Engine
	r       Request
	o       Options
	history *History
	plan    *Planner
	names   names
	out     *progress

	flights    map[string]*flight // by token
	landed     chan *flight
	asked      map[string]bool // offers whose cloud was asked for room, by name
	batch      int             // of the offers asked about last
	held       *cloud.Offer    // not to be tried beside another
	rises      []rise          // of offers whose price rose
	first      *first          // what an earlier call was doing
	superseded bool            // an earlier call for the same machines did not end
	winner     *flight
	failed     *UnplacedError
	stop       error // why no more is tried
}

// flight is an attempt under way.
type flight struct {
	attempt state.Attempt
	p       cloud.Provider
	spec    cloud.LaunchSpec
	cancel  context.CancelCauseFunc
	started time.Time
	due     time.Time // when it has taken longer than most
	steps   []state.Step
	nodes   []cloud.Node
	err     error
}

func (e *Engine) newSearch(ctx context.Context, r Request) *search {
	s := &search{
		e: e, r: r, o: r.Options, history: e.history(ctx), out: &progress{w: r.Out},
		flights: map[string]*flight{}, landed: make(chan *flight), names: newNames(r.Cluster.NameOnCloud),
		failed: &UnplacedError{Cluster: r.Cluster.Name, Nodes: r.Nodes},
	}
	if r.Keep {
		s.plan = NewPlanner(r.Tiers, nil, nil)
		return s
	}
	var lately []Refusal
	if !s.o.Forget {
		lately = s.history.Refusals(e.stamp)
	}
	chances := NewChances(s.history.Seen(), s.history.now, s.o.HalfLife)
	slow := s.history.slowness()
	rank := func(offers []cloud.Offer) []cloud.Offer {
		return s.o.Ranking.Rank([][]cloud.Offer{offers}, chances, slow, r.Extra)[0]
	}
	s.plan = NewPlanner(s.o.Ranking.Rank(r.Tiers, chances, slow, r.Extra), lately, rank)
	return s
}

func (s *search) do(ctx context.Context) (cloud.Offer, []cloud.Node, error) {
	if err := s.resume(ctx); err != nil {
		return cloud.Offer{}, nil, err
	}
	for {
		for s.wantsMore(ctx) {
			s.startNext(ctx)
		}
		if len(s.flights) == 0 {
			break
		}
		due, stop := s.nextDue(ctx)
		select {
		case f := <-s.landed:
			s.land(ctx, f)
		case <-due:
		}
		stop()
	}
	switch {
	case s.winner != nil:
		f := s.winner
		return f.attempt.Offer, f.nodes, s.keep(context.WithoutCancel(ctx), f)
	case s.stop != nil:
		return cloud.Offer{}, nil, s.stop
	case ctx.Err() != nil:
		return cloud.Offer{}, nil, s.giveUpFirst(ctx)
	}
	s.failed.Closed = s.plan.Closed()
	return cloud.Offer{}, nil, s.failed
}

// startNext starts an attempt at the best offer left.
func (s *search) startNext(ctx context.Context) {
	if s.first != nil {
		f := s.first
		s.first = nil
		s.start(ctx, f.earlier.Offer, f)
		return
	}
	var o cloud.Offer
	if len(s.flights) == 0 && s.held != nil {
		o, s.held = *s.held, nil
	} else {
		s.ask(ctx)
		var ok bool
		if o, ok = s.plan.Next(); !ok {
			return
		}
	}
	planned, unagreed := s.unagreed(&o)
	switch {
	case len(s.flights) > 0 && (unagreed || s.tooDear(&o)):
		s.held = &o
	case unagreed:
		s.stop = &RoseError{Offer: o, Planned: planned, Nodes: s.r.Nodes}
	default:
		s.start(ctx, o, nil)
	}
}

// start notes an attempt and lets it fly. before is what an earlier call did
// there, nil for nothing.
func (s *search) start(ctx context.Context, o cloud.Offer, before *first) {
	p, ok := s.e.providers.Get(o.Cloud)
	if !ok {
		s.refused(o, 0, &cloud.InvalidError{Place: cloud.Place{Cloud: o.Cloud}, Err: fmt.Errorf("this version of sky knows no cloud %q", o.Cloud)})
		return
	}
	o.MaxHourlyCost = s.most(o)
	a := state.Attempt{
		Token: uuid.NewString(), ClusterHash: s.r.Cluster.Hash, ClusterName: s.r.Cluster.Name,
		Offer: o, Nodes: s.r.Nodes, StartedAt: s.e.records.Now(),
	}
	switch {
	case before != nil && before.open():
		a = before.earlier
	case before != nil: // the machines are there, under this name
		a.NameOnCloud = before.earlier.NameOnCloud
	case s.r.Keep:
		a.NameOnCloud = s.r.Cluster.NameOnCloud
	default:
		a.NameOnCloud = s.names.take(o.Cloud, p.Features().MaxNameLength)
	}
	if err := s.begin(ctx, &a, before != nil && before.open()); err != nil {
		s.stop = err
		return
	}
	id := cloud.ClusterID{Installation: s.e.install, Name: a.NameOnCloud, Hash: a.ClusterHash}
	now := time.Now()
	f := &flight{
		attempt: a, p: p, started: now, due: now.Add(s.history.Usual(stepLaunch, o)),
		spec: cloud.LaunchSpec{
			ID: id, Offer: o, Nodes: s.r.Nodes, Token: a.Token, Resumed: before != nil || s.superseded,
			MachineSpec: s.r.Cluster.Machine, ImageID: s.r.Cluster.Machine.ImageID(o.Place, p.Features().Containers),
			Labels: s.r.Cluster.Labels, AuthorizedKey: s.r.AuthorizedKey,
			DisplayName: s.r.Cluster.Name, User: s.r.Cluster.UserName,
			UserID: s.r.Cluster.UserHash, Workspace: s.r.Cluster.Workspace,
			EndGrace: s.r.EndGrace, Login: s.r.Login, Listens: s.r.Cluster.Ports,
		},
	}
	if s.r.Keep { // disks are there, and the image that they were made of is gone
		f.spec.Clone, f.spec.ImageID = nil, keptImage(s.r.Cluster.Machine).ImageID(o.Place, p.Features().Containers)
	}
	if OpensPorts(p, s.r.Cluster) {
		f.spec.Ports = s.r.Cluster.Ports
	}
	if s.r.Settings != nil {
		f.spec.Settings = s.r.Settings(o.Place)
	}
	if s.r.Volumes != nil {
		f.spec.Volumes = s.r.Volumes(o.Place, id)
	}
	s.tell(&o)
	actx, cancel := context.WithCancelCause(ctx)
	f.cancel = cancel
	s.flights[a.Token] = f
	go func() {
		defer cancel(nil)
		f.nodes, f.err = s.try(actx, f)
		s.landed <- f
	}()
}

// begin writes an attempt down, if that was not done by an earlier call, and in
// the same write where its machines are about to be.
func (s *search) begin(ctx context.Context, a *state.Attempt, begun bool) error {
	switch {
	case s.r.Keep && begun:
		return nil
	case s.r.Keep:
		return s.e.records.Begin(ctx, *a)
	case !begun:
		return s.e.records.BeginPlacing(ctx, *a)
	}
	err := s.record(ctx, a)
	if err != nil {
		s.e.end(ctx, *a, state.AttemptEnd{Outcome: Cancelled, Message: "the cluster's record could not be changed"})
	}
	return err
}

// record makes the cluster's record say where machines are about to be: from it
// alone they can be found and given back.
func (s *search) record(ctx context.Context, a *state.Attempt) error {
	if s.r.Keep {
		return nil
	}
	_, err := s.e.records.UpdateCluster(ctx, s.r.Cluster.Name, s.r.Cluster.Hash, func(c *state.Cluster) error {
		c.Offer, c.NameOnCloud = a.Offer, a.NameOnCloud
		return nil
	})
	return err
}

// tell says what is tried, and why now if that is not obvious.
func (s *search) tell(o *cloud.Offer) {
	text := fmt.Sprintf("Trying %v: %s %s", o.Place, count(o.Machines(s.r.Nodes), "machine", "machines"), machine(*o))
	if len(s.flights) > 0 {
		text += ", beside an attempt that takes long"
	}
	if r := s.plan.Lately(o); r != nil && r.Since.IsZero() {
		text += fmt.Sprintf(" (although %s says: %s)", o.Cloud, r.Message)
	} else if r != nil {
		text += fmt.Sprintf(" (refused %s ago: %s)", took(s.history.now.Sub(r.Since)), ClassOf(r.Outcome))
	}
	s.out.show(text)
}

// land takes in how an attempt came out.
func (s *search) land(ctx context.Context, f *flight) {
	delete(s.flights, f.attempt.Token)
	o := f.attempt.Offer
	switch {
	case f.err == nil && s.winner == nil:
		s.winner = f
		s.callOff()
	case f.err == nil: // had as well, a moment too late
		if err := s.undo(ctx, f.attempt, f.steps, "another attempt was quicker"); err != nil {
			s.out.say("The machines of a slower attempt in %v could not be given back yet: %v", o.Place, err)
		}
	case handedOver(ctx):
		s.stop = context.Cause(ctx)
	case s.winner != nil || s.stop != nil:
		if is[*LeftoverError](f.err) {
			s.out.say("The machines of a slower attempt in %v could not be given back yet: %v", o.Place, f.err)
		}
	case ctx.Err() != nil || is[*LeftoverError](f.err):
		s.stop = f.err
		s.callOff()
	default:
		if dearer, ok := errors.AsType[*cloud.PriceError](f.err); ok {
			s.rose(o, time.Since(f.started), dearer)
		} else {
			s.refused(o, time.Since(f.started), f.err)
		}
		if f.provenEmpty() {
			s.names.free(o.Cloud, f.attempt.NameOnCloud)
		}
	}
}

// provenEmpty reports whether the attempt cannot have made a machine: a cloud
// that lists new machines late may still hide one of a gang that was refused in
// the middle.
func (f *flight) provenEmpty() bool {
	for _, step := range f.steps {
		if step.Name == stepLaunch {
			return f.spec.Offer.Machines(f.spec.Nodes) == 1 && refusedOutright(Outcome(f.err))
		}
	}
	return true
}

// refused notes an attempt that failed and left nothing.
func (s *search) refused(o cloud.Offer, took time.Duration, err error) {
	s.failed.Attempts = append(s.failed.Attempts, &AttemptError{Offer: o, Outcome: Outcome(err), Took: took, Err: err})
	s.plan.Refused(o, err)
	if s.r.Keep {
		s.stop = s.failed
		s.callOff()
		return
	}
	s.out.say("✗ %v: %s: %v", o.Place, ClassOf(Outcome(err)), words(err))
}

// callOff ends the attempts under way; they give back what they have.
func (s *search) callOff() {
	for _, f := range s.flights {
		f.cancel(errLost)
	}
}

// keep makes the winner's machines the cluster's.
func (s *search) keep(ctx context.Context, f *flight) error {
	if err := s.record(ctx, &f.attempt); err != nil {
		if errors.Is(err, state.ErrNotFound) {
			err = errors.Join(err, s.undo(ctx, f.attempt, f.steps, "the cluster's record is gone"))
		}
		return err
	}
	return s.e.end(ctx, f.attempt, state.AttemptEnd{Outcome: OK, Steps: f.steps, Credentials: s.e.stamp(f.attempt.Offer.Cloud)})
}

// undo gives back what an attempt has, whether or not ctx was cancelled.
func (s *search) undo(ctx context.Context, a state.Attempt, steps []state.Step, why string) error {
	cleanup, cancel := cleanupContext(ctx)
	defer cancel()
	cleanup, end := reportProgress(cleanup, s.out, fmt.Sprintf("giving back what an attempt in %v left", a.Offer.Place))
	defer end()
	return s.e.undo(cleanup, a, steps, s.history, why, s.late)
}

// handedOver reports whether another server goes on with the work.
func handedOver(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), state.ErrHandover)
}

// end settles an attempt's record. That somebody else did is fine.
func (e *Engine) end(ctx context.Context, a state.Attempt, end state.AttemptEnd) error {
	err := e.records.End(ctx, a.Token, end)
	if errors.Is(err, state.ErrConflict) || errors.Is(err, state.ErrNotFound) {
		return nil
	}
	return err
}
