package kubernetes

import (
	"net/http"
	"sync/atomic"
	"time"
)

// clock knows how far an API server's clock is ahead of ours, as it said last
// with each answer.
type clock struct{ ahead atomic.Int64 }

func (c *clock) hear(r *http.Response) {
	if at, err := http.ParseTime(r.Header.Get("Date")); err == nil {
		c.ahead.Store(int64(time.Until(at)))
	}
}

// ours is a time of the cluster by our clock.
func (c *clock) ours(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return at.Add(-time.Duration(c.ahead.Load()))
}
