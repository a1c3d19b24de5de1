package provision

import (
	"cmp"
	"context"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// first is what is tried first, because an earlier call may have left machines
// there: as earlier, whose record is taken up if it has no end yet. One that
// ended well has its machines; they are found under its name.
type first struct {
	earlier state.Attempt
}

func (f *first) open() bool { return f.earlier.Outcome == "" }

// resume looks at what earlier calls for this incarnation of the cluster did. An
// attempt that a crash cut off is taken up again, under its own token; if there
// are several, the one that has all its machines. The others are given back, and
// so is what attempts left that had failed already.
func (s *search) resume(ctx context.Context) error {
	attempts, err := s.e.records.OfCluster(ctx, s.r.Cluster.Hash)
	if err != nil || len(attempts) == 0 {
		return err
	}
	if s.r.Keep {
		return s.supersede(ctx, attempts)
	}
	s.names.base = attempts[0].NameOnCloud
	var open, abandoned []state.Attempt
	for _, a := range attempts {
		switch {
		case a.Outcome == "":
			if a.Message == "" {
				open = append(open, a)
			} else {
				abandoned = append(abandoned, a)
			}
			s.names.mark(a.Offer.Cloud, a.NameOnCloud)
		case a.Nodes > 1 || !refusedOutright(a.Outcome):
			s.names.mark(a.Offer.Cloud, a.NameOnCloud)
		}
	}
	if len(open) == 0 {
		if a := had(attempts); a != nil {
			s.first = &first{earlier: *a}
			s.plan.Take(a.Offer)
		}
	} else {
		at := s.mostComplete(ctx, open)
		s.first = &first{earlier: open[at]}
		s.plan.Take(open[at].Offer)
		abandoned = append(append(abandoned, open[:at]...), open[at+1:]...)
	}
	for _, a := range abandoned {
		if err := s.undo(ctx, a, nil, cmp.Or(a.Message, "the server died during the attempt; another one was taken up")); err != nil {
			if handedOver(ctx) {
				return context.Cause(ctx)
			}
			s.out.say("What an earlier attempt in %v left could not be given back yet: %v", a.Offer.Place, err)
		}
	}
	return nil
}

// had is the latest attempt that got its machines and has them still: none
// under the same name has failed since, which would have given them back.
func had(attempts []state.Attempt) *state.Attempt {
	failed := map[string]bool{}
	for i := len(attempts) - 1; i >= 0; i-- {
		a := &attempts[i]
		key := a.Offer.Cloud + "/" + a.NameOnCloud
		switch {
		case a.Outcome != OK:
			failed[key] = true
		case !failed[key]:
			return a
		}
	}
	return nil
}

// giveUpFirst gives back what an earlier call left, if this one is called off
// before it took that up.
func (s *search) giveUpFirst(ctx context.Context) error {
	if s.first == nil || !s.first.open() || handedOver(ctx) {
		return context.Cause(ctx)
	}
	a := s.first.earlier
	if err := s.undo(ctx, a, nil, "called off before it was taken up again"); err != nil && !handedOver(ctx) {
		return &LeftoverError{Cluster: a.ClusterName, Place: a.Offer.Place, Err: err, Cause: context.Cause(ctx)}
	}
	return context.Cause(ctx)
}

// supersede ends records of attempts at the machines of a cluster that has been
// up: the attempt that follows takes them up.
func (s *search) supersede(ctx context.Context, attempts []state.Attempt) error {
	for _, a := range attempts {
		if a.Outcome != "" || a.Offer.Cloud != s.r.Cluster.Offer.Cloud || a.NameOnCloud != s.r.Cluster.NameOnCloud {
			continue
		}
		s.superseded = true
		if err := s.e.end(ctx, a, state.AttemptEnd{Outcome: Cancelled, Message: "the server died during the attempt; a later one took it up"}); err != nil {
			return err
		}
	}
	return nil
}

// mostComplete is the index of the attempt with all its machines, else of the
// latest: the cluster's record names that one.
func (s *search) mostComplete(ctx context.Context, open []state.Attempt) int {
	if len(open) == 1 {
		return 0
	}
	for i, a := range open {
		p, ok := s.e.providers.Get(a.Offer.Cloud)
		if !ok {
			continue
		}
		spec := cloud.LaunchSpec{ID: cloud.ClusterID{Installation: s.e.install, Name: a.NameOnCloud, Hash: a.ClusterHash}, Offer: a.Offer, Nodes: s.r.Nodes}
		nodes, err := run(ctx, step{name: stepList, limit: s.history.Deadline(stepList, a.Offer, a.Nodes)}, func(ctx context.Context) ([]cloud.Node, error) {
			return p.Nodes(ctx, spec.ID)
		})
		if err == nil && whole(nodes, &spec) == nil {
			return i
		}
	}
	return len(open) - 1
}
