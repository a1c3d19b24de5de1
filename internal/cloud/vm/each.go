package vm

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/cloud"
)

// atOnce is how many calls of one cluster are in flight.
const atOnce = 8

// OneByOne makes machines on a cloud whose calls make one: a call for each rank,
// several at once. After a refusal no other call is begun, and those in flight are
// waited for. An answer without an id is none. It returns the ids of what was made, and the
// error.
func OneByOne(ctx context.Context, d Driver, ranks []int, create func(ctx context.Context, rank int) (id string, err error)) ([]string, error) {
	var mu sync.Mutex
	var ids []string
	var again error
	var refused atomic.Bool
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, rank := range ranks {
		g.Go(func() error {
			if refused.Load() {
				return nil
			}
			id, err := settled(ctx, func(ctx context.Context) (string, error) { return create(ctx, rank) })
			if err == nil && id == "" {
				err = &cloud.UnreachableError{Err: errors.New("the cloud said yes, and not which machine it made")}
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				ids = append(ids, id)
			case kind(d, err).changed():
				again = err
			default:
				refused.Store(true)
				return err
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return ids, err
	}
	return ids, again
}

// OneByOneWith is [OneByOne] for machines that are made with something that is prepared once for
// a launch, and anew after a refusal: part of it may be gone.
func OneByOneWith[T any](ctx context.Context, d Driver, l *Launch, ranks []int, prepare func() (T, error), create func(ctx context.Context, with T, rank int) (id string, err error)) ([]string, error) {
	with, known := l.Memory.(T)
	if !known {
		var err error
		if with, err = prepare(); err != nil {
			return nil, err
		}
		l.Memory = with
	}
	ids, err := OneByOne(ctx, d, ranks, func(ctx context.Context, rank int) (string, error) { return create(ctx, with, rank) })
	if err != nil {
		l.Memory = nil
	}
	return ids, err
}

// settled is [cloud.Settled] for a call with an answer.
func settled[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	answer := make(chan T, 1)
	if err := cloud.Settled(ctx, func(ctx context.Context) error {
		a, err := call(ctx)
		answer <- a
		return err
	}); err != nil {
		var zero T
		return zero, err
	}
	return <-answer, nil
}

// Each makes a call for each machine, several at once, even if one fails. Machines
// that changed meanwhile are no failure, unless it is the only one.
func Each(ctx context.Context, d Driver, machines []Machine, call func(context.Context, Machine) error) error {
	if len(machines) == 1 {
		return call(ctx, machines[0])
	}
	errs := make([]error, len(machines))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, m := range machines {
		g.Go(func() error {
			if err := call(ctx, m); err != nil && !kind(d, err).changed() {
				errs[i] = err
			}
			return nil
		})
	}
	g.Wait()
	return errors.Join(errs...)
}
