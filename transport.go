package sky

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/skypilot-go/sky/api"
)

// ConnectError means that nothing answers at the endpoint.
type ConnectError struct {
	Endpoint string
	Err      error
}

func (e *ConnectError) Error() string {
	return fmt.Sprintf("cannot reach the API server at %s: %v", e.Endpoint, plainCause(e.Err))
}
func (e *ConnectError) Unwrap() error { return e.Err }

// StatusError is an answer that is not a success and carries no error of a known
// class.
type StatusError struct {
	Code   int
	Detail string // the server's words
}

func (e *StatusError) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("the API server answered %d %s", e.Code, http.StatusText(e.Code))
	}
	return e.Detail
}

// plainCause drops the URL that net/http puts before the reason.
func plainCause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   16,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

// backoff is how long to wait between tries: from first, growing, up to max, in
// all not longer than total (0: no limit).
type backoff struct {
	first, max, total time.Duration
	factor, jitter    float64
}

var laterBackoff = backoff{first: 5 * time.Second, max: 25 * time.Second, total: 600 * time.Second, factor: 1.6, jitter: 0.4}

// wait is the pause after the n-th failure (from 0); r is random in [0,1).
func (b backoff) wait(n int, r float64) time.Duration {
	d := float64(b.first)
	for range n {
		if d *= b.factor; d >= float64(b.max) {
			d = float64(b.max)
			break
		}
	}
	return time.Duration(d * (1 + b.jitter*(2*r-1)))
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// request makes one HTTP request with the headers of the protocol.
func (c *Client) request(ctx context.Context, method, path string, query url.Values, body []byte) (*http.Request, error) {
	u := *c.base
	u.Path = strings.TrimRight(u.Path, "/") + path
	u.RawQuery = query.Encode()
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), r)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range c.headers() {
		req.Header[k] = v
	}
	c.trace(ctx, req.Header)
	return req, nil
}

// trace tells the server which trace the call belongs to: that of the span in
// ctx, or else the one that the environment names.
func (c *Client) trace(ctx context.Context, h http.Header) {
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
	if parent := c.env.Get("TRACEPARENT"); parent != "" && h.Get("traceparent") == "" {
		h.Set("traceparent", parent)
	}
}

// headers that every request and websocket carries.
func (c *Client) headers() http.Header {
	h := http.Header{}
	h.Set(api.HeaderAPIVersion, strconv.Itoa(api.Version))
	h.Set(api.HeaderVersion, api.ProductVersion)
	if t := c.env.Get("SKYPILOT_CLIENT_TYPE"); t != "" {
		h.Set(api.HeaderClientType, t)
	}
	switch {
	case c.token != "":
		h.Set("Authorization", "Bearer "+c.token)
	case c.basic != nil:
		pass, _ := c.basic.Password()
		r := http.Request{Header: h}
		r.SetBasicAuth(c.basic.Username(), pass)
	}
	if len(c.cookies) > 0 {
		r := http.Request{Header: h}
		for _, k := range c.cookies {
			r.AddCookie(k)
		}
	}
	return h
}

// do sends once. The caller closes the body.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, body []byte) (*http.Response, error) {
	return c.doAs(ctx, "", method, path, query, body)
}

// doAs is do for a call that is recorded under an id; "": one that the server
// chooses.
func (c *Client) doAs(ctx context.Context, id, method, path string, query url.Values, body []byte) (*http.Response, error) {
	req, err := c.request(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	if id != "" {
		req.Header.Set(api.HeaderRequestID, id)
	}
	res, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &ConnectError{Endpoint: c.Endpoint(), Err: err}
	}
	return res, nil
}

// doWithin is do, with a limit on the time until the answer begins.
func (c *Client) doWithin(ctx context.Context, limit time.Duration, id, method, path string, query url.Values, body []byte) (*http.Response, error) {
	if limit == 0 {
		return c.doAs(ctx, id, method, path, query, body)
	}
	within, cancel := context.WithCancelCause(ctx)
	slow := &ConnectError{c.Endpoint(), fmt.Errorf("no answer within %v", limit)}
	timer := time.AfterFunc(limit, func() { cancel(slow) })
	res, err := c.doAs(within, id, method, path, query, body)
	if !timer.Stop() && ctx.Err() == nil {
		err = slow
		if res != nil {
			res.Body.Close()
		}
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	res.Body = &cancelBody{res.Body, cancel}
	return res, nil
}

// cancelBody frees a request's context with its body.
type cancelBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *cancelBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// call sends and repeats while the server says 503, which promises that nothing
// was recorded. An answer of 400 and above becomes an error. Each try may take
// at most limit until the answer begins; 0 means no limit.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, body any, limit time.Duration) (*http.Response, error) {
	return c.callAs(ctx, "", method, path, query, body, limit)
}

// callAs is call under an id, by which the server knows a call that was recorded
// already: so it is also repeated when the connection breaks before the answer
// is here, until the server is there again, or a balancer has nobody to ask.
func (c *Client) callAs(ctx context.Context, id, method, path string, query url.Values, body any, limit time.Duration) (*http.Response, error) {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	var lost attempts
	sent := false // it may have been recorded
	for n := 0; ; n++ {
		res, err := c.doWithin(ctx, limit, id, method, path, query, raw)
		if err != nil {
			if sent = sent || !dialed(err); id == "" || !sent || ctx.Err() != nil {
				return nil, err
			}
			if lost.again(ctx, err) {
				continue
			}
			return nil, fmt.Errorf("%w. Before that the call was on its way, and it may have been accepted as request %s: see sky api status", err, id)
		}
		if id != "" && (res.StatusCode == http.StatusBadGateway || res.StatusCode == http.StatusGatewayTimeout) && lost.again(ctx, &StatusError{Code: res.StatusCode}) {
			res.Body.Close()
			continue
		}
		if res.StatusCode < 400 {
			return res, nil
		}
		err = answerError(res)
		wait := c.retry.wait(n, rand.Float64())
		if res.StatusCode != http.StatusServiceUnavailable || time.Since(start)+wait > c.retry.total {
			return nil, err
		}
		c.notify(err.Error() + " Trying again…")
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// dialed reports whether an error is that nobody listens at the endpoint.
func dialed(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// callJSON decodes a direct answer.
func callJSON[T any](ctx context.Context, c *Client, method, path string, query url.Values, body any) (T, error) {
	var v T
	res, err := c.call(ctx, method, path, query, body, 0)
	if err != nil {
		return v, err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&v); err != nil && !errors.Is(err, io.EOF) {
		return v, fmt.Errorf("the API server's answer to %s is not understood: %w", path, err)
	}
	return v, nil
}

// answerError reads an answer that is an error, and closes it.
func answerError(res *http.Response) error {
	defer res.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	if err := decodeDetail(body); err != nil {
		return err
	}
	switch res.StatusCode {
	case http.StatusUnauthorized:
		return &AuthError{Endpoint: res.Request.URL.Scheme + "://" + res.Request.URL.Host}
	case http.StatusForbidden:
		return &StatusError{res.StatusCode, "you may not do this: " + detailText(body, "forbidden by the API server")}
	}
	return &StatusError{res.StatusCode, detailText(body, "")}
}

// AuthError means that the server wants a login.
type AuthError struct{ Endpoint string }

func (e *AuthError) Error() string {
	return fmt.Sprintf("the API server at %s needs a login. Run: sky api login -e %[1]s", e.Endpoint)
}

// detailText is the text of {"detail": …}, in its several shapes.
func detailText(body []byte, otherwise string) string {
	var d struct {
		Detail  json.RawMessage `json:"detail"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(body, &d) != nil {
		return otherwise
	}
	var text string
	if json.Unmarshal(d.Detail, &text) == nil && text != "" {
		return text
	}
	var list []struct {
		Loc []any  `json:"loc"`
		Msg string `json:"msg"`
	}
	if json.Unmarshal(d.Detail, &list) == nil && len(list) > 0 {
		var parts []string
		for _, l := range list {
			parts = append(parts, strings.Trim(strings.TrimSuffix(fmt.Sprintln(l.Loc...), "\n")+": "+l.Msg, ": "))
		}
		return "the API server does not accept the request: " + strings.Join(parts, "; ")
	}
	if d.Message != "" {
		return d.Message
	}
	return otherwise
}
