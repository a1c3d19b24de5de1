package kubernetes

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
)

// mindful lets a call that was told to come back later give up when it has not
// so long: what is known then is that the API server asks to slow down, and not
// that it does not answer. Otherwise the library waits and asks again, ten times.
type mindful struct {
	next  http.RoundTripper
	busy  *busy
	clock *clock
}

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

// busy knows when an API server last asked to slow down.
type busy struct{ at atomic.Int64 }

func (b *busy) lately(d time.Duration) bool { return time.Since(time.Unix(0, b.at.Load())) < d }

func (m *mindful) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := m.answered(r)
	if err == nil {
		m.clock.hear(res)
	}
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

// silence is how long an API server that took a call may say nothing. It ends
// calls itself after a minute; what stands before it may not.
const silence = 90 * time.Second

var errSilence = fmt.Errorf("no answer within %v", silence)

// answered is the answer to a call that does not hang for ever: all of it within
// [silence], or of a watch its beginning. Commands in pods are left alone, as
// their connections become something else.
func (m *mindful) answered(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/exec") {
		return m.next.RoundTrip(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	limit := time.AfterFunc(silence, func() { cancel(errSilence) })
	res, err := m.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		limit.Stop()
		if context.Cause(ctx) == errSilence {
			err = errSilence
		}
		cancel(nil)
		return nil, err
	}
	if r.URL.Query().Get("watch") != "" {
		limit.Stop()
	}
	res.Body = &limitedBody{res.Body, ctx, func() { limit.Stop(); cancel(nil) }}
	return res, nil
}

// limitedBody ends what bounds its reading.
type limitedBody struct {
	io.ReadCloser
	ctx context.Context
	end func()
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && context.Cause(b.ctx) == errSilence {
		err = errSilence
	}
	return n, err
}

func (b *limitedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
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
