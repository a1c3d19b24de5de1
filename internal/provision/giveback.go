package provision

import (
	"context"
	"fmt"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/state"
)

// cleanupTimeout bounds giving back what a failed attempt created.
const cleanupTimeout = 15 * time.Minute

// mostPause is the longest pause between tries to give machines back.
const mostPause = 30 * time.Second

// cleanupContext is for undoing what was begun under ctx: it goes on when ctx is
// cancelled, and ends when the server hands over, since the next one undoes it.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	stop := context.AfterFunc(ctx, func() {
		if handedOver(ctx) {
			cancel()
		}
	})
	return cleanup, func() { stop(); cancel() }
}

// giveBack terminates a cluster's machines until the cloud lists none of them,
// or ctx ends. Only that is proof: a call that was asked to be through may have
// been overtaken by one whose answer was lost. Whoever watches is told what is
// known meanwhile.
func (e *Engine) giveBack(ctx context.Context, p cloud.Provider, id cloud.ClusterID, o cloud.Offer, nodes int, h *History, note func(state.Step), watch *overdue) error {
	pause := firstPause
	for {
		err := act(ctx, step{name: stepTerminate, limit: h.Deadline(stepTerminate, o, nodes), note: note}, func(ctx context.Context) error {
			return p.Terminate(ctx, id)
		})
		if err == nil {
			var listed []cloud.Node
			listed, err = run(ctx, step{name: stepList, limit: h.Deadline(stepList, o, nodes), note: note}, func(ctx context.Context) ([]cloud.Node, error) {
				return p.Nodes(ctx, id)
			})
			if err == nil {
				left := alive(listed)
				if left == 0 {
					return nil
				}
				err = fmt.Errorf("%s still listed as %s", count(left, "machine is", "machines are"), id.Name)
			}
		}
		watch.saw(err)
		if ClassOf(Outcome(err)) == BadCredentials || !sleep(ctx, pause) {
			return err
		}
		pause = min(2*pause, mostPause)
	}
}

// How often a cluster's machines are looked for after the cloud said that they
// are gone.
const (
	proofPause = 250 * time.Millisecond
	proofMost  = 5 * time.Second
)

// GiveBack terminates a cluster's machines and looks until the cloud lists none
// of them. What the cloud refuses is returned as it is; machines that stay
// although it was not, for [GoneWithin], are a [*RemainError]. late, if given, is
// told when they are not gone that long after the call, whatever the reason.
func (e *Engine) GiveBack(ctx context.Context, c *state.Cluster, late func(string)) error {
	p, ok := e.providers.Get(c.Offer.Cloud)
	if !ok {
		return fmt.Errorf("cluster %q is on %q, which this version of sky does not know", c.Name, c.Offer.Cloud)
	}
	id := e.ClusterID(c)
	h := e.history(ctx)
	watch := e.watchOver(ctx, c.Name, c.Offer.Place, late)
	defer watch.stop()
	var until time.Time
	for pause := proofPause; ; pause = min(2*pause, proofMost) {
		if err := p.Terminate(ctx, id); err != nil {
			return err
		}
		if until.IsZero() {
			until = time.Now().Add(GoneWithin)
		}
		nodes, err := run(ctx, step{name: stepList, limit: h.Deadline(stepList, c.Offer, c.NumNodes)}, func(ctx context.Context) ([]cloud.Node, error) {
			return p.Nodes(ctx, id)
		})
		if err != nil {
			return fmt.Errorf("the machines were ended, but whether they are gone could not be found out: %w", err)
		}
		left := alive(nodes)
		if left == 0 {
			if c.EverUp {
				e.Freed()
			}
			return e.removeImage(ctx, c.Machine.Clone)
		}
		remain := &RemainError{Place: c.Offer.Place, Left: left, Of: c.Machines()}
		watch.saw(remain)
		if time.Now().After(until) || !sleep(ctx, pause) {
			return remain
		}
	}
}

func alive(nodes []cloud.Node) int {
	n := 0
	for _, node := range nodes {
		if node.State != cloud.NodeGone {
			n++
		}
	}
	return n
}

// undo gives back what an attempt has and ends its record, or leaves the record
// open. It takes as long as ctx lasts, at most [cleanupTimeout].
func (e *Engine) undo(ctx context.Context, a state.Attempt, steps []state.Step, h *History, why string, late func(string)) error {
	p, ok := e.providers.Get(a.Offer.Cloud)
	if !ok {
		return nil // stays open until a version of sky that knows the cloud runs
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	if a.Message == "" {
		if err := e.records.Abandon(ctx, a.Token, why); err != nil {
			return err
		}
	}
	id := cloud.ClusterID{Installation: e.install, Name: a.NameOnCloud, Hash: a.ClusterHash}
	watch := e.watchOver(ctx, a.ClusterName, a.Offer.Place, late)
	defer watch.stop()
	if err := e.giveBack(ctx, p, id, a.Offer, a.Nodes, h, func(s state.Step) { steps = append(steps, s) }, watch); err != nil {
		return fmt.Errorf("giving back what an attempt to launch %s in %v left: %w", a.ClusterName, a.Offer.Place, err)
	}
	return e.end(ctx, a, state.AttemptEnd{Outcome: Cancelled, Message: why, Steps: steps})
}
