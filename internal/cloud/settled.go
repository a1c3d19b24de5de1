package cloud

import (
	"context"
	"time"
)

// settleTime is how long a call may still take to come to its end when it is
// cancelled.
const settleTime = 3 * time.Second

// Settled runs a call that creates something to its end even if ctx ends, within
// a few seconds: a cloud does what it was asked for although nobody listens any
// more, and what appears after it was looked for would be left over.
func Settled(ctx context.Context, f func(context.Context) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	done := make(chan error, 1)
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer cancel()
		done <- f(call)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(settleTime):
		cancel()
		return context.Cause(ctx)
	}
}
