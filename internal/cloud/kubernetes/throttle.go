package kubernetes

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// mindful lets a call that was told to come back later give up when it has not
// so long: what is known then is that the API server asks to slow down, and not
// that it does not answer. Otherwise the library waits and asks again, ten times.
type mindful struct {
	next http.RoundTripper
	busy *busy
}

// busy knows when an API server last asked to slow down.
type busy struct{ at atomic.Int64 }

func (b *busy) lately(d time.Duration) bool { return time.Since(time.Unix(0, b.at.Load())) < d }

func (m *mindful) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := m.next.RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusTooManyRequests {
		return res, err
	}
	m.busy.at.Store(time.Now().UnixNano())
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
	until, limited := r.Context().Deadline()
	if limited && time.Until(until) < time.Duration(seconds)*time.Second+answerTime {
		res.Header.Del("Retry-After")
	}
	return res, nil
}

// WrappedRoundTripper lets the library look for what is below.
func (m *mindful) WrappedRoundTripper() http.RoundTripper { return m.next }

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
