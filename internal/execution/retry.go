package execution

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/skypilot-go/sky/internal/cluster"
	"github.com/skypilot-go/sky/internal/provision"
)

// Waits between rounds of retry-until-up: doubling, with jitter so that many
// waiters do not ask at once.
const (
	retryFirst = 5 * time.Second
	retryMost  = 5 * time.Minute
)

// untilUp runs a round of getting machines, and with retry again and again
// while there are none to be had. Other failures end it, and so do those that
// no waiting mends.
func untilUp[T any](ctx context.Context, call cluster.Call, retry bool, round func(context.Context) (T, error)) (T, error) {
	wait := retryFirst
	for {
		got, err := round(ctx)
		var unplaced *provision.UnplacedError
		if err == nil || !retry || !errors.As(err, &unplaced) || !unplaced.Retryable() {
			return got, err
		}
		pause := wait/2 + rand.N(wait/2)
		fmt.Fprintf(call.Out, "%v\n", err)
		call.Out.Spin(fmt.Sprintf("Nothing to be had; trying again in %v", pause.Round(time.Second)))
		select {
		case <-ctx.Done():
			return got, context.Cause(ctx)
		case <-time.After(pause):
		}
		wait = min(2*wait, retryMost)
	}
}
