package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/state"
)

// Settle closes the attempts that a crash or a cloud's silence left open. What
// belongs to a cluster on record is that cluster's business; the rest is given
// back, and so is what failed attempts left. An attempt that cannot be settled now
// stays open, and its error is joined to the others.
func (e *Engine) Settle(ctx context.Context) error {
	open, err := e.records.Open(ctx)
	if err != nil || len(open) == 0 {
		return err
	}
	h := e.history(ctx)
	var errs []error
	for _, a := range open {
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
		if err := e.settle(ctx, a, h); err != nil {
			errs = append(errs, fmt.Errorf("settling an attempt to launch %s in %v: %w", a.ClusterName, a.Offer.Place, err))
		}
	}
	return errors.Join(errs...)
}

func (e *Engine) settle(ctx context.Context, a state.Attempt, h *History) error {
	const died = "the server died during the attempt; its machines were given back"
	c, err := e.ownerOf(ctx, &a)
	if err != nil {
		return err
	}
	why := cmp.Or(a.Message, died)
	if c == nil {
		return e.undo(ctx, a, nil, h, why, nil)
	}
	// Somebody may be at work on the cluster; then the attempt is theirs.
	_, err = e.alone(ctx, clusterLease(a.ClusterName), func(ctx context.Context) error {
		c, err := e.ownerOf(ctx, &a)
		switch {
		case err != nil:
			return err
		case c == nil || !about(c, &a) || a.Message != "" && !c.EverUp:
			return e.undo(ctx, a, nil, h, why, nil)
		case c.Status != api.ClusterInit:
			return e.end(ctx, a, state.AttemptEnd{Outcome: OK, Message: "found out after the server died"})
		}
		return nil // its launch is resumed, or somebody takes it down
	})
	return err
}

// ownerOf is the cluster for which an attempt was made, or nil if it is gone.
func (e *Engine) ownerOf(ctx context.Context, a *state.Attempt) (*state.Cluster, error) {
	c, err := e.records.Cluster(ctx, a.ClusterName)
	switch {
	case errors.Is(err, state.ErrNotFound) || err == nil && c.Hash != a.ClusterHash:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return c, nil
}

// about reports whether a cluster's record names the machines of an attempt.
func about(c *state.Cluster, a *state.Attempt) bool {
	return c.Offer.Cloud == a.Offer.Cloud && c.NameOnCloud == a.NameOnCloud
}
