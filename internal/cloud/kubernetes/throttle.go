package kubernetes

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// busy knows when an API server last asked to slow down.
type busy struct{ at atomic.Int64 }

func (b *busy) lately(d time.Duration) bool { return time.Since(time.Unix(0, b.at.Load())) < d }

const (
	// answerTime is what an answer is given at least.
	answerTime = 500 * time.Millisecond
	// busyPatience is how long a check asks an API server that has too much to do:
	// it is there, and knows us.
	busyPatience = 12 * time.Second
)

// unlessBusy repeats f while the API server asks to slow down, for a while.
func unlessBusy(ctx context.Context, f func() error) error {
	limit := time.Now().Add(busyPatience)
	for {
		err := f()
		if !is[*cloud.ThrottledError](err) || time.Now().After(limit) || pause(ctx, time.Second) != nil {
			return err
		}
	}
}
