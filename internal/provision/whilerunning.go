package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

const (
	// standingEvery is how often the cloud is asked whether machines still run while
	// something is brought onto them.
	standingEvery = 10 * time.Second
	// unlistedLooks is how many looks in a row a machine must be missing from a list:
	// lists may be late.
	unlistedLooks = 3
)

// A LostError means that machines of a cluster were taken away while something was
// brought onto them.
type LostError struct {
	Cluster string
	Err     *GangError
}

func (e *LostError) Error() string {
	return fmt.Sprintf("cluster %s lost machines while it was set up: %v", e.Cluster, e.Err)
}
func (e *LostError) Unwrap() error { return e.Err }

// Unplaced is the error for a cluster of which nothing is kept.
func (e *LostError) Unplaced(o cloud.Offer, nodes int, took time.Duration) *UnplacedError {
	return &UnplacedError{Cluster: e.Cluster, Nodes: nodes, Attempts: []*AttemptError{
		{Offer: o, Outcome: Outcome(e), Took: took, Err: e},
	}}
}

// WhileRunning runs do, which brings something onto the cluster's machines, and
// ends its context as soon as the cloud says that one of them runs no more: nobody
// waits for the boot of a machine that was taken away. If do fails and a machine
// runs no more, the error is a [*LostError]. Not knowing changes nothing.
func (e *Engine) WhileRunning(ctx context.Context, c *state.Cluster, do func(context.Context) error) error {
	p, ok := e.providers.Get(c.Offer.Cloud)
	if !ok {
		return do(ctx)
	}
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	seen := standing{of: slices.Clone(c.Nodes), place: c.Offer.Place}
	ask := func(ctx context.Context) *GangError {
		ctx, cancel := context.WithTimeout(ctx, noteTimeout)
		defer cancel()
		nodes, err := p.Nodes(ctx, e.ClusterID(c))
		if err != nil {
			return nil
		}
		return seen.look(nodes)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep(watched, standingEvery) {
			if g := ask(watched); g != nil {
				cancel(g)
			}
		}
	}()
	err := do(watched)
	lost, _ := errors.AsType[*GangError](context.Cause(watched))
	cancel(nil)
	<-done
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case lost == nil:
		lost = ask(ctx)
	}
	if lost == nil {
		return err
	}
	return &LostError{Cluster: c.Name, Err: lost}
}

// standing is what the looks at a cluster's machines have shown so far.
type standing struct {
	of       []cloud.Node
	place    cloud.Place
	unlisted int // looks in a row that did not list all of them
}

// look returns what a cluster lacks; nil: nothing, or lists may be late. It is pure
// but for the count.
func (s *standing) look(nodes []cloud.Node) *GangError {
	g := &GangError{Place: s.place, Want: len(s.of)}
	absent := 0
	for _, n := range s.of {
		i := slices.IndexFunc(nodes, func(m cloud.Node) bool { return m.ID == n.ID })
		switch {
		case i < 0:
			absent++
		case nodes[i].State == cloud.NodeGone, nodes[i].State == cloud.NodeStopped, nodes[i].State == cloud.NodeStopping:
			g.Gone++
			g.Reason = nodes[i].Reason
		default:
			g.Running++
		}
	}
	g.Missing = g.Want - g.Running
	if absent == 0 {
		s.unlisted = 0
	} else if s.unlisted++; s.unlisted >= unlistedLooks {
		g.Gone += absent
	}
	if g.Gone == 0 {
		return nil
	}
	return g
}
