package provision

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/skypilot-go/sky/internal/state"
)

// How long a lease holds without renewal, and how often it is renewed.
const (
	leaseTTL   = 7 * time.Second
	leaseRenew = time.Second
)

// clusterLease is the lease of whoever changes a cluster; package cluster takes
// the same one.
func clusterLease(name string) string { return "cluster/" + name }

// errLeaseLost is the cause of a context whose lease was taken over.
var errLeaseLost = errors.New("another server took over")

// alone runs f while it holds a lease; it does not wait for one, and reports
// whether f ran. f's context ends when the lease is lost.
func (e *Engine) alone(ctx context.Context, name string, f func(context.Context) error) (bool, error) {
	// A name of its own: this server's launches hold the same lease under the
	// server's.
	lease, ok, err := e.records.Acquire(ctx, name, "settle/"+uuid.NewString(), leaseTTL)
	if err != nil || !ok {
		return false, err
	}
	held, lost := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(leaseRenew)
		defer t.Stop()
		for {
			select {
			case <-held.Done():
				return
			case <-t.C:
			}
			if _, err := e.records.Renew(held, lease, leaseTTL); errors.Is(err, state.ErrConflict) {
				lost(errLeaseLost)
				return
			}
		}
	}()
	err = f(held)
	lost(nil)
	<-done
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = e.records.Release(release, lease) // else it runs out by itself
	return true, err
}
