package execution

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/provision"
	"github.com/skypilot-go/sky/task"
)

// Waits between rounds of retry-until-up: doubling, with jitter so that many
// waiters do not ask at once.
const (
	retryFirst = 5 * time.Second
	retryMost  = 5 * time.Minute
)

// untilUp runs a round of getting machines, and with retry again and again
// while there are none to be had. Other failures end it, and so do those that
// no waiting mends. A round begins early when room was made or is said to be
// there, now or at a time; a request that waits keeps nobody else from running.
func untilUp[T any](ctx context.Context, x *Executor, call cluster.Call, t *task.Task, retry bool, round func(context.Context) (T, error)) (T, error) {
	c, err := settings(call, t)
	if err != nil {
		var none T
		return none, err
	}
	began, limit := time.Now(), patience(c)
	wait := retryFirst
	for {
		got, err := round(ctx)
		var unplaced *provision.UnplacedError
		if err == nil || !retry || !errors.As(err, &unplaced) || !unplaced.Retryable() {
			return got, err
		}
		pause := wait/2 + rand.N(wait/2)
		if limit > 0 {
			left := limit - time.Since(began)
			if left <= 0 {
				return got, err
			}
			pause = min(pause, left)
		}
		if at := unplaced.Expected(); time.Until(at) > 0 {
			pause = min(pause, time.Until(at))
		}
		fmt.Fprintf(call.Out, "%v\n", err)
		call.Out.Spin(fmt.Sprintf("Nothing to be had; trying again in %v, or as soon as there is room", pause.Round(time.Second)))
		rest(call, func() { x.Provision.AwaitRoom(ctx, unplaced, pause) })
		if ctx.Err() != nil {
			return got, context.Cause(ctx)
		}
		wait = min(2*wait, retryMost)
	}
}

// rest waits without being in anybody's way.
func rest(call cluster.Call, wait func()) {
	if call.Rest == nil {
		wait()
		return
	}
	call.Rest(wait)
}
