package kubernetes

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/bounded"
)

// retryAfterTransport lets a call that was asked to come back later give up when it has not
// so long: what is known then is that the API server asks to slow down, and not
// that it does not answer. Otherwise the library waits and asks again, ten times.
type retryAfterTransport struct {
	next  http.RoundTripper
	busy  *busy
	clock *clock
}

func (m *retryAfterTransport) RoundTrip(r *http.Request) (*http.Response, error) {
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

// What an API server may send: all of it is held at once. A list of 5,000 nodes has
// 100 MB.
const (
	maxAnswer = 512 << 20
	maxEvent  = 16 << 20
)

var errSilence = fmt.Errorf("no answer within %v", silence)

// answered is the answer to a call that does not hang for ever: all of it within
// [silence], or of a watch its beginning. Commands in pods are left alone, as
// their connections become something else.
func (m *retryAfterTransport) answered(r *http.Request) (*http.Response, error) {
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
	body := bounded.ReadCloser(res.Body, maxAnswer, "an answer of the API server")
	if r.URL.Query().Get("watch") != "" {
		limit.Stop()
		body = bounded.LineReadCloser(res.Body, maxEvent, "an event of the API server")
	}
	res.Body = &limitedBody{body, ctx, func() { limit.Stop(); cancel(nil) }}
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
func (m *retryAfterTransport) WrappedRoundTripper() http.RoundTripper { return m.next }
