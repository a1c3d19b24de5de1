package wrap

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/trace"
)

// RetryOptions say how often and how soon.
type RetryOptions struct {
	Tries int           // in all; 0: 4
	First time.Duration // before the second try; doubles each time; 0: 1 s
	Most  time.Duration // between two tries; 0: 30 s
	Only  []Method      // the methods that are repeated; nil: all
}

// Retry repeats calls that were throttled or got no answer. Everything else is
// an answer. A wait is between half and all of its length, so that callers who
// were refused together do not come back together.
func Retry(o RetryOptions) Layer {
	if o.Tries == 0 {
		o.Tries = 4
	}
	if o.First == 0 {
		o.First = time.Second
	}
	if o.Most == 0 {
		o.Most = 30 * time.Second
	}
	return func(ctx context.Context, m Method, next func(context.Context) error) error {
		if o.Only != nil && !slices.Contains(o.Only, m) {
			return next(ctx)
		}
		wait := o.First
		for try := 1; ; try++ {
			err := next(ctx)
			if err == nil || try == o.Tries || !passing(err) || ctx.Err() != nil {
				return err
			}
			if sleep(ctx, wait/2+rand.N(wait/2+1)) != nil {
				return err // says more than that somebody stopped waiting
			}
			wait = min(2*wait, o.Most)
		}
	}
}

// passing reports whether an error may be gone the next time. What was waited for as
// long as makes sense is not waited for again.
func passing(err error) bool {
	var slow *cloud.ThrottledError
	var silent *cloud.UnreachableError
	var overdue *cloud.OverdueError
	return (errors.As(err, &slow) || errors.As(err, &silent)) && !errors.As(err, &overdue)
}

// Rate lets through so many calls a second; burst can be saved up. Callers wait
// for their turn.
func Rate(perSecond float64, burst int) Layer {
	var mu sync.Mutex
	var next time.Time // when the next call would go through if none were saved up
	each := time.Duration(float64(time.Second) / perSecond)
	saved := time.Duration(max(burst, 1)-1) * each
	return func(ctx context.Context, _ Method, call func(context.Context) error) error {
		mu.Lock()
		now := time.Now()
		if earliest := now.Add(-saved); next.Before(earliest) {
			next = earliest
		}
		wait := next.Sub(now)
		next = next.Add(each)
		mu.Unlock()
		if wait > 0 {
			if err := sleep(ctx, wait); err != nil {
				return fmt.Errorf("waiting for a turn to call the cloud: %w", err)
			}
		}
		return call(ctx)
	}
}

// DefaultDeadlines are generous: a call that takes longer will never end. How
// long getting machines may take is learned, and bounded by who asks for them.
func DefaultDeadlines() map[Method]time.Duration {
	return map[Method]time.Duration{
		Check: 15 * time.Second, Offers: time.Minute, Nodes: time.Minute, Stop: 15 * time.Minute, Terminate: 15 * time.Minute,
	}
}

// Deadlines bounds calls. A method without one is bounded by its context only.
func Deadlines(of map[Method]time.Duration) Layer {
	return func(ctx context.Context, m Method, next func(context.Context) error) error {
		limit, ok := of[m]
		if !ok {
			return next(ctx)
		}
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		err := next(limited)
		if err != nil && limited.Err() != nil && ctx.Err() == nil {
			return &cloud.UnreachableError{Err: fmt.Errorf("%s took longer than %v: %w", m, limit, err)}
		}
		return err
	}
}

// Metrics reports how long each call took and how it ended.
func Metrics(record func(m Method, took time.Duration, err error)) Layer {
	return func(ctx context.Context, m Method, next func(context.Context) error) error {
		start := time.Now()
		err := next(ctx)
		record(m, time.Since(start), err)
		return err
	}
}

// Traces makes each call a span.
func Traces(name string) Layer {
	return func(ctx context.Context, m Method, next func(context.Context) error) error {
		return trace.Do(ctx, name+" "+string(m), next)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
