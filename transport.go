package sky

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
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

// Refused reports whether an error is that nobody listens at the endpoint.
func Refused(err error) bool { return refused(err) }

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

// request makes one HTTP request with the headers of the protocol.
func (c *Client) request(ctx context.Context, method, path string, query url.Values, body []byte) (*http.Request, error) {
	u := c.dialed()
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
	default:
		c.owner.show(h)
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
	req, err := c.request(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	return c.send(req)
}

// send makes one try of a request; that no answer came is a [*ConnectError].
func (c *Client) send(req *http.Request) (*http.Response, error) {
	res, err := c.http.Do(req)
	if err == nil && c.knownAnew(res.StatusCode, req.Header) {
		again := req.Clone(req.Context())
		if req.GetBody != nil {
			if again.Body, err = req.GetBody(); err != nil {
				return res, nil
			}
		}
		res.Body.Close()
		res, err = c.http.Do(again)
	}
	if err != nil {
		c.owner.forget()
		return nil, c.severed(req.Context(), err)
	}
	return res, nil
}

// knownAnew is [owner.renew] for calls that show who owns the server, and nothing else.
func (c *Client) knownAnew(status int, h http.Header) bool {
	return h.Get("Authorization") == "" && c.owner.renew(status, h)
}

// severed is the error of a connection that gave err: why the caller or the watch
// over the call ended it, or else a [*ConnectError].
func (c *Client) severed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &ConnectError{Endpoint: c.Endpoint(), Err: err}
}

// A call is one exchange with the server, repeated as [retry] says.
type call struct {
	method, path string
	query        url.Values
	body         []byte
	form         string                    // type of the body; "": JSON
	stream       func() (io.Reader, error) // the body, anew for each try; nil: body
	// id is that of the request that the call makes; the server takes a call once
	// under one id. "": the call makes none, or the server chooses its id.
	id string
	// idempotent calls may reach the server twice. Those with an id are.
	idempotent bool
	// recorded calls are answered with the record of a request; that of one that
	// failed comes with the status 500.
	recorded bool
	// limit, if not 0, bounds the time until the answer begins.
	limit time.Duration
}

// exchange makes a call until take has read the whole answer, which is a success
// (200 to 399). take is called again for each try; what it returns is final
// unless it comes from the connection. An error that came from the server is
// one of [*api.Error], [*AuthError] and [*StatusError].
func (c *Client) exchange(ctx context.Context, k call, take func(*http.Response) error) error {
	o := outage{c: c}
	defer o.over()
	idempotent := k.idempotent || k.id != "" || k.method == http.MethodGet
	for {
		err := c.try(ctx, k, &o, take)
		if err == nil {
			return nil
		}
		final := o.again(ctx, err, idempotent)
		switch {
		case final == nil:
			continue
		case ctx.Err() != nil || !o.maybe || failureOf(err) == answered:
		case k.id != "" && k.method != http.MethodGet:
			final = fmt.Errorf("%w. The call may have been accepted as request %s: see sky api status", final, k.id)
		case !idempotent:
			final = fmt.Errorf("%w. The call may have been carried out: look before you repeat it", final)
		}
		return final
	}
}

// try is one try of a call.
func (c *Client) try(ctx context.Context, k call, o *outage, take func(*http.Response) error) error {
	trying, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if k.limit > 0 {
		t := time.AfterFunc(k.limit, func() { cancel(&ConnectError{c.Endpoint(), &silentError{k.limit}}) })
		defer t.Stop()
		answer := take
		take = func(res *http.Response) error {
			t.Stop()
			return answer(res)
		}
	}
	req, err := c.request(c.traced(trying, o), k.method, k.path, k.query, k.body)
	if err != nil {
		return err
	}
	if k.stream != nil {
		body, err := k.stream()
		if err != nil {
			return err
		}
		req.Body, req.ContentLength = io.NopCloser(body), -1
		req.GetBody = func() (io.ReadCloser, error) {
			body, err := k.stream()
			return io.NopCloser(body), err
		}
	}
	if k.form != "" {
		req.Header.Set("Content-Type", k.form)
	}
	if k.id != "" {
		req.Header.Set(api.HeaderRequestID, k.id)
	}
	return c.answer(req, o.since, cancel, func(res *http.Response) error {
		if res.StatusCode >= 400 && !(k.recorded && res.StatusCode == http.StatusInternalServerError) {
			return answerError(res)
		}
		return take(res)
	})
}

// answer sends a request, watches the server meanwhile and gives its answer to
// take. giveUp ends the request.
func (c *Client) answer(req *http.Request, since time.Time, giveUp context.CancelCauseFunc, take func(*http.Response) error) error {
	s := c.watch(req.Context(), since, giveUp)
	defer s.stop()
	res, err := c.send(req)
	if err != nil {
		return err
	}
	s.hear()
	body := &heardBody{ReadCloser: res.Body, c: c, ctx: req.Context(), s: s}
	res.Body = body
	defer res.Body.Close()
	if err := take(res); err != nil {
		return cmp.Or(body.err, err)
	}
	return nil
}

// traced ends the report of an outage once there is a connection again.
func (c *Client) traced(ctx context.Context, o *outage) context.Context {
	if o.wait == nil {
		return ctx
	}
	w := o.wait
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { w.end() }})
}

// heardBody is an answer's body that tells the watch what comes and keeps the
// error of the connection.
type heardBody struct {
	io.ReadCloser
	c   *Client
	ctx context.Context
	s   *silence
	err error
}

func (b *heardBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.s.hear()
	}
	if err != nil && err != io.EOF {
		b.err = b.c.severed(b.ctx, err)
		err = b.err
	}
	return n, err
}

// readJSON decodes the answer of a call into v; an empty one leaves it as it is.
func readJSON(path string, v any) func(*http.Response) error {
	return func(res *http.Response) error {
		raw, err := io.ReadAll(res.Body)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(raw)) == 0 {
			return nil
		}
		if err := json.Unmarshal(raw, v); err != nil {
			return fmt.Errorf("the API server's answer to %s is not understood: %w", path, err)
		}
		return nil
	}
}

// callJSON makes a call that is answered directly. It is repeated if it is a GET.
func callJSON[T any](ctx context.Context, c *Client, method, path string, query url.Values, body any) (T, error) {
	return exchangeJSON[T](ctx, c, call{method: method, path: path, query: query}, body)
}

// postAgain is callJSON for a POST that may be carried out twice.
func postAgain[T any](ctx context.Context, c *Client, path string, body any) (T, error) {
	return exchangeJSON[T](ctx, c, call{method: http.MethodPost, path: path, idempotent: true}, body)
}

func exchangeJSON[T any](ctx context.Context, c *Client, k call, body any) (v T, err error) {
	if body != nil {
		if k.body, err = json.Marshal(body); err != nil {
			return v, err
		}
	}
	err = c.exchange(ctx, k, func(res *http.Response) error {
		var fresh T
		v = fresh
		return readJSON(k.path, &v)(res)
	})
	return v, err
}

// copyTo writes the answer of a call to w. A call whose answer breaks off is
// repeated only as long as nothing was written.
func (c *Client) copyTo(ctx context.Context, k call, w io.Writer) error {
	out := &countedWriter{w: w}
	return c.exchange(ctx, k, func(res *http.Response) error {
		_, err := io.Copy(out, res.Body)
		if err != nil && out.n > 0 {
			return fmt.Errorf("the answer to %s broke off after %d bytes: %v", k.path, out.n, err) // not %w: what was written stays
		}
		return err
	})
}

type countedWriter struct {
	w io.Writer
	n int64
}

func (w *countedWriter) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.n += int64(n)
	return n, err
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
