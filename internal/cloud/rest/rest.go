// Package rest calls the HTTP APIs of clouds: JSON in and out, credentials on each
// call, a pace that the cloud allows, and errors that say whether a call may have
// had its effect.
package rest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/bounded"
	"github.com/skypilot-go/sky/internal/httpcall"
)

const (
	maxAnswer = 64 << 20 // more than the longest answer of an API
	maxPages  = 10_000   // of a list
)

// Options say which API is called, and how.
type Options struct {
	// Cloud is the name of the API for people, as in "no answer from Lambda".
	Cloud string
	// Endpoint is what every path is put behind, such as
	// "https://cloud.lambda.ai/api/v1".
	Endpoint string
	// Host is that of calls, which tells the service where Endpoint is another server that
	// answers for several; "": Endpoint's.
	Host string
	// Authorize adds the credentials to a call, as Bearer, Header, Basic and Sign do;
	// nil: none are needed.
	Authorize func(*http.Request) error
	// Refusal reads an answer that is not 2xx. It returns nil for what is not the
	// API's own, as an answer of a proxy, which proves nothing about the effect.
	// nil: ReadError.
	Refusal func(status int, header http.Header, body []byte) error
	// TokenHeader is the header that makes a call safe to repeat, as
	// "Idempotency-Key"; "": the API has none.
	TokenHeader string
	// Paces bound how often calls are made. All that fit a call count.
	Paces []Pace
	// Timeout bounds each call, besides the caller's context; 0: 30 seconds.
	Timeout time.Duration
	// Busy is how often a call that was answered with 429 is made again; 0: 3,
	// negative: never.
	Busy int
	// Transport makes the calls; nil: one of its own.
	Transport http.RoundTripper
	// Unverified says that its own believes every certificate of the server.
	Unverified bool
	// Log hears of every call; nil: nobody. It is never told credentials, queries or
	// bodies.
	Log *slog.Logger
}

// Client calls one API with one set of credentials.
type Client struct {
	o    Options
	http *http.Client
	pace pacer
}

// New returns a client. It does no I/O.
func New(o Options) *Client {
	o.Endpoint = strings.TrimRight(o.Endpoint, "/")
	if o.Refusal == nil {
		o.Refusal = ReadError
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Busy == 0 {
		o.Busy = 3
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Transport == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = 16
		if o.Unverified {
			transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
		}
		o.Transport = transport
	}
	return &Client{o: o, http: &http.Client{
		Transport: o.Transport,
		// A redirect would carry the credentials to somebody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, pace: pacer{paces: o.Paces}}
}

// Close drops the connections that are kept.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Call is what is asked of an API.
type Call struct {
	Method, Path string
	Query        url.Values
	Header       http.Header
	Body         any           // url.Values are sent as a form, Raw as it is, everything else as JSON; nil: none
	Token        string        // makes the call safe to repeat, where the API has a header for that
	Timeout      time.Duration // of a call that the API answers late on purpose; 0: as Options say
	Reply        *Reply        // if not nil, it is filled in with what the answer had besides its body
}

// Reply is what an answer had besides its body. It is zero if there was none.
type Reply struct {
	Status int
	Header http.Header
}

// RetryAfter is how long the API wants to be left alone; 0: it does not say.
func (r *Reply) RetryAfter() time.Duration { return httpcall.RetryAfter(r.Header, time.Now()) }

// Raw is a body that is sent as it is.
type Raw struct {
	Type string // of its content
	Data []byte
}

// Text is an answer that is taken as it is, of APIs that do not always answer in JSON.
type Text string

// Do makes a call that is no more than a method, a path and a body.
func Do[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	return Send[T](ctx, c, Call{Method: method, Path: path, Body: body})
}

// Send makes a call and decodes its answer. A call that is one too many is made
// again, later; every other error is the caller's to judge.
func Send[T any](ctx context.Context, c *Client, call Call) (T, error) {
	var zero, out T
	var text []byte
	header := call.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Accept", "application/json")
	if call.Token != "" && c.o.TokenHeader != "" {
		header.Set(c.o.TokenHeader, call.Token)
	}
	switch body := call.Body.(type) {
	case nil:
	case url.Values:
		text = []byte(body.Encode())
		header.Set("Content-Type", "application/x-www-form-urlencoded")
	case Raw:
		text = body.Data
		header.Set("Content-Type", body.Type)
	default:
		var err error
		if text, err = json.Marshal(body); err != nil {
			return zero, err
		}
		header.Set("Content-Type", "application/json")
	}
	path := call.Path
	if len(call.Query) > 0 {
		path += "?" + call.Query.Encode()
	}
	for try := 0; ; try++ {
		answer, after, err := c.once(ctx, call, path, header, text)
		if err != nil {
			if after >= 0 && try < c.o.Busy && sleep(ctx, later(after, try)) == nil {
				continue
			}
			return zero, err
		}
		if len(bytes.TrimSpace(answer)) == 0 {
			return out, nil
		}
		if text, ok := any(&out).(*Text); ok {
			*text = Text(answer)
			return out, nil
		}
		if err := json.Unmarshal(answer, &out); err != nil {
			return zero, c.lost(fmt.Errorf("the answer is not what the API promises: %w", err))
		}
		return out, nil
	}
}

// notBusy is what once returns for answers other than 429.
const notBusy time.Duration = -1

// once makes a call. After an answer of 429 it returns how long the API wants us to
// stay away, 0 if it does not say.
func (c *Client) once(ctx context.Context, call Call, path string, header http.Header, body []byte) (answer []byte, after time.Duration, err error) {
	method := call.Method
	if err := c.pace.wait(ctx, method, path); err != nil {
		return nil, notBusy, err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(call.Timeout, c.o.Timeout))
	defer cancel()
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.o.Endpoint+path, reader)
	if err != nil {
		return nil, notBusy, fmt.Errorf("%q is not the address of an endpoint", c.o.Endpoint)
	}
	req.Header = header.Clone()
	if c.o.Host != "" {
		req.Host = c.o.Host
	}
	if c.o.Authorize != nil {
		if err := c.o.Authorize(req); err != nil {
			return nil, notBusy, err
		}
	}
	began := time.Now()
	status := 0
	defer func() {
		where, _, _ := strings.Cut(path, "?")
		c.o.Log.DebugContext(ctx, "cloud call", "cloud", c.o.Cloud, "method", method, "path", where, "status", status, "took", time.Since(began).Round(time.Millisecond))
	}()
	resp, err := c.http.Do(req)
	if err != nil {
		var u *url.Error // holds the whole URL, which helps nobody
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, notBusy, c.lost(fmt.Errorf("%s %s: %w", method, c.o.Endpoint, err))
	}
	defer resp.Body.Close()
	status = resp.StatusCode
	if call.Reply != nil {
		*call.Reply = Reply{resp.StatusCode, resp.Header}
	}
	answer, err = bounded.ReadAll(resp.Body, maxAnswer, "an answer")
	if err != nil {
		return nil, notBusy, c.lost(err)
	}
	if status/100 == 2 {
		return answer, notBusy, nil
	}
	after = notBusy
	if status == http.StatusTooManyRequests {
		after = httpcall.RetryAfter(resp.Header, time.Now())
	}
	if err := c.o.Refusal(status, resp.Header, answer); err != nil {
		return nil, after, err
	}
	return nil, after, c.lost(broken(status, answer))
}

func (c *Client) lost(err error) error { return &NoAnswerError{Cloud: c.o.Cloud, Err: err} }

// All gathers the pages of a list. page returns the items behind a token, "" for
// the first page, and the token of the next page, "" for none.
func All[T any](ctx context.Context, page func(ctx context.Context, token string) (items []T, next string, err error)) ([]T, error) {
	var all []T
	token := ""
	for range maxPages {
		items, next, err := page(ctx, token)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
		if next == "" {
			return all, nil
		}
		if next == token {
			return nil, fmt.Errorf("page %q of a list is followed by itself", token)
		}
		token = next
	}
	return nil, &bounded.TooMuchError{What: "a list", Most: maxPages, Unit: "pages"}
}

// Counted gathers the pages of a list that says how long it is. page returns the items behind
// the first so many, and how many there are in all; nil: the answer does not say. Pages may be
// shorter than what was asked for.
func Counted[T any](ctx context.Context, c *Client, page func(ctx context.Context, have int) (items []T, total *int, err error)) ([]T, error) {
	have := 0
	return All(ctx, func(ctx context.Context, _ string) (items []T, next string, err error) {
		items, total, err := page(ctx, have)
		have += len(items)
		switch {
		case err != nil:
		case total == nil || have < *total && len(items) == 0:
			err = c.lost(errors.New("a list is shorter than it says, or does not say how long it is"))
		case have < *total:
			next = strconv.Itoa(have)
		}
		return items, next, err
	})
}

// Await asks for something that goes on by itself, such as an operation by its id,
// until it is done. The pauses grow up to most. When ctx ends, the error is its
// cause, also if that cut a call off.
func Await[T any](ctx context.Context, most time.Duration, ask func(ctx context.Context) (v T, done bool, err error)) (T, error) {
	for pause := min(most, firstPause); ; pause = min(2*pause, most) {
		v, done, err := ask(ctx)
		if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = context.Cause(ctx)
		}
		if done || err != nil {
			return v, err
		}
		if err := sleep(ctx, pause); err != nil {
			return v, err
		}
	}
}
