// Package rest is what drivers share whose stores are reached by plain HTTP: requests
// with bodies that can be sent again, authorization that is renewed once, and errors of
// connections as package storage has them.
package rest

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/bounded"
	"github.com/skypilot-go/sky/internal/httpcall"
	"github.com/skypilot-go/sky/internal/storage"
)

// A Client sends the requests of one bucket.
type Client struct {
	At        storage.Location
	Endpoint  string // what paths are put behind
	Transport http.RoundTripper
	// Authorize signs a request. again is called if the store does not take what it was
	// signed with (401): if it is not nil, the request is made once more.
	Authorize func(ctx context.Context, r *http.Request) (again func(), err error)
	// Refused translates an answer without success.
	Refused func(c Call, r Refusal) error
	// Expired tells of other answers than 401 that what a request was signed with has run
	// out; it may be nil.
	Expired func(c Call, r Refusal) bool
	// BatchID is how the calls of a batch are numbered, as "<%d>".
	BatchID string
}

// A Call is one request, with what an error of it would be about.
type Call struct {
	Method string
	Path   string // escaped, behind the endpoint
	Query  url.Values
	Header http.Header
	Body   func() io.Reader // nil: none; called for each attempt
	Length int64            // of the body
	// Redirects are answers of success; they are not followed.
	Redirects bool

	Permission  string
	Key, Upload string
	Conditional bool
}

// A Refusal is what a store answered.
type Refusal struct {
	Status        int
	Header        http.Header
	Code, Message string // filled in by [Client.Refused]
	Text          []byte
}

func (r Refusal) Error() string {
	switch {
	case r.Message != "" && r.Code != "":
		return r.Message + " (" + r.Code + ")"
	case r.Message != "":
		return r.Message
	case r.Code != "":
		return r.Code
	}
	return fmt.Sprintf("HTTP %d", r.Status)
}

// After is how long the store wants to be left alone.
func (r Refusal) After() time.Duration { return After(r.Header) }

// After is how long a store wants to be left alone by the headers of an answer.
func After(h http.Header) time.Duration {
	return min(httpcall.RetryAfter(h, time.Now()), 5*time.Minute)
}

// Escaped is a key for a path: without slashes, between which somebody on the way may
// resolve dots.
func Escaped(key string) string { return url.PathEscape(key) }

// Renewals is how often a call is made again with newer credentials: those of a busy
// moment may run out before the call arrives.
const Renewals = 3

const (
	maxWords = 64 << 10 // of an error
	// MaxAnswer is how much is read of an answer that is held in memory: many times a page
	// of the longest names.
	MaxAnswer = 64 << 20
)

// Send makes a request. Its answer is one of success; the caller closes its body.
func (c *Client) Send(ctx context.Context, call Call) (*http.Response, error) {
	for try := 0; ; try++ {
		r, again, err := c.request(ctx, call)
		if err != nil {
			return nil, err
		}
		answer, err := c.Transport.RoundTrip(r)
		if err != nil {
			return nil, c.Broken(ctx, err)
		}
		if answer.StatusCode < 300 || call.Redirects && answer.StatusCode < 400 {
			return answer, nil
		}
		text, err := io.ReadAll(io.LimitReader(answer.Body, maxWords))
		answer.Body.Close()
		if err != nil {
			// Without its words, the answer does not say what it is about.
			return nil, c.Broken(ctx, fmt.Errorf("the answer broke off: %w", err))
		}
		refusal := Refusal{Status: answer.StatusCode, Header: answer.Header, Text: text}
		if try < Renewals && again != nil && (answer.StatusCode == http.StatusUnauthorized || c.Expired != nil && c.Expired(call, refusal)) {
			again()
			continue
		}
		return nil, c.Refused(call, refusal)
	}
}

func (c *Client) request(ctx context.Context, call Call) (r *http.Request, again func(), err error) {
	var body io.Reader
	if call.Body != nil {
		body = call.Body()
	}
	address := c.Endpoint + call.Path
	if len(call.Query) > 0 {
		address += "?" + call.Query.Encode()
	}
	if r, err = http.NewRequestWithContext(ctx, call.Method, address, body); err != nil {
		return nil, nil, &storage.InvalidError{Bucket: c.At, Key: call.Key, Err: err}
	}
	if call.Body != nil {
		if r.ContentLength = call.Length; call.Length == 0 {
			r.Body = http.NoBody
		}
	}
	for k, v := range call.Header {
		r.Header[k] = v
	}
	if r.Header.Get("Accept-Encoding") == "" {
		r.Header.Set("Accept-Encoding", "gzip") // what is stored compressed is wanted as it is
	}
	if c.Authorize != nil {
		again, err = c.Authorize(ctx, r)
	}
	return r, again, err
}

// Broken is an error of the connection.
func (c *Client) Broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("connecting to %s: %w", c.At.Store, cert)
	}
	return &storage.UnavailableError{Bucket: c.At, Err: err}
}

// Read makes a request and decodes its answer.
func (c *Client) Read(ctx context.Context, call Call, decode func([]byte) error) error {
	answer, err := c.Send(ctx, call)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := bounded.ReadAll(answer.Body, MaxAnswer, "the answer")
	if err == nil && decode != nil {
		err = decode(text)
	}
	if err != nil {
		return c.Broken(ctx, fmt.Errorf("reading the answer: %w", err))
	}
	return nil
}

// JSON makes a request: in is its body, out the answer; either may be nil.
func (c *Client) JSON(ctx context.Context, call Call, in, out any) error {
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		call = call.With(text)
		call.Header.Set("Content-Type", "application/json")
	}
	return c.Read(ctx, call, func(text []byte) error {
		if out == nil {
			return nil
		}
		return json.Unmarshal(text, out)
	})
}

// XML makes a request; out is the answer, or nil.
func (c *Client) XML(ctx context.Context, call Call, out any) error {
	return c.Read(ctx, call, func(text []byte) error {
		if out == nil {
			return nil
		}
		return xml.Unmarshal(bytes.TrimPrefix(text, []byte("\ufeff")), out)
	})
}

// With is the call with a body.
func (c Call) With(text []byte) Call {
	c.Body, c.Length = func() io.Reader { return bytes.NewReader(text) }, int64(len(text))
	if c.Header == nil {
		c.Header = http.Header{}
	}
	return c
}

// Content is the body of an answer, whose errors are those of package storage.
func (c *Client) Content(ctx context.Context, key string, answer *http.Response) io.ReadCloser {
	return &content{ctx: ctx, client: c, key: key, body: answer.Body, left: answer.ContentLength}
}

type content struct {
	ctx    context.Context // of the call that it belongs to
	client *Client
	key    string
	body   io.ReadCloser
	left   int64
}

func (c *content) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil { // what has arrived already is not read any more
		return 0, context.Cause(c.ctx)
	}
	n, err := c.body.Read(p)
	c.left -= int64(n)
	if err == io.EOF && c.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != io.EOF {
		err = c.client.Broken(c.ctx, fmt.Errorf("reading %q: %w", c.key, err))
	}
	return n, err
}

func (c *content) Close() error { return c.body.Close() }

// Range is the header that asks for a part of an object; "": all of it.
func Range(g storage.GetOptions) string {
	switch {
	case g.Length > 0:
		return fmt.Sprintf("bytes=%d-%d", g.Offset, g.Offset+g.Length-1)
	case g.Offset > 0:
		return fmt.Sprintf("bytes=%d-", g.Offset)
	}
	return ""
}

// Size is the size of the whole object that an answer is of, or a part of. An answer
// that is not what was asked for is an error, and its body is closed.
func (c *Client) Size(ctx context.Context, key string, answer *http.Response, g storage.GetOptions) (size int64, err error) {
	if size, err = sizeOf(answer, g); err != nil {
		answer.Body.Close()
		return 0, c.Broken(ctx, err)
	}
	if g.Offset >= size && Range(g) != "" {
		answer.Body.Close()
		return 0, &storage.InvalidError{Bucket: c.At, Key: key, Err: fmt.Errorf("it has %d bytes and is read at %d", size, g.Offset)}
	}
	return size, nil
}

func sizeOf(answer *http.Response, g storage.GetOptions) (int64, error) {
	if answer.ContentLength < 0 {
		return 0, errors.New("the answer does not say how long it is")
	}
	if Range(g) == "" {
		return answer.ContentLength, nil
	}
	var first, last, size int64
	given := answer.Header.Get("Content-Range")
	if _, err := fmt.Sscanf(given, "bytes %d-%d/%d", &first, &last, &size); err != nil || first != g.Offset || last-first+1 != answer.ContentLength {
		return 0, fmt.Errorf("asked for %d bytes at %d, got %q", g.Length, g.Offset, given)
	}
	return size, nil
}

// Rewound is a body from its start. A failure to go there is one of reading.
func Rewound(body io.ReadSeeker) io.Reader {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return errorReader{err}
	}
	return struct{ io.Reader }{body}
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

// Metadata reads what headers with a prefix hold.
func Metadata(h http.Header, prefix string) map[string]string {
	m := map[string]string{}
	for k, v := range h {
		if name, ok := strings.CutPrefix(strings.ToLower(k), prefix); ok {
			m[name] = strings.Join(v, ",")
		}
	}
	return m
}
