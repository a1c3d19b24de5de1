package daemon

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// A duty is work that the servers of an installation do once each period, not
// once each. Whoever comes first takes the duty's lease and lets it run out, so
// that nobody else, nor the same server again, does it before the period is
// over; a server that dies during a duty delays it by one period.

// oncePer runs f unless some server did within the period.
func (d *daemon) oncePer(ctx context.Context, period time.Duration, name string, f func(context.Context)) {
	if d.store.Shared() {
		// A little less than the period: the servers' clocks tick apart.
		_, mine, err := d.store.Leases().Acquire(ctx, "duty/"+name, uuid.NewString(), period*9/10)
		if err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "periodic duty not begun", "duty", name, "err", err)
		}
		if err != nil || !mine {
			return
		}
	}
	f(ctx)
}
