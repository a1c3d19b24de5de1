// Package agentclient talks to a node's agent.
//
// A Client is safe for concurrent use and keeps connections open between
// calls. What the agent refuses is an [*agentapi.Error]; an agent that cannot
// be reached, or goes away in the middle of an answer, is an
// [*UnreachableError]. Deadlines are the caller's, through the context.
package agentclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/bounded"
)

// Dialer connects to an agent's address.
type Dialer func(ctx context.Context, address string) (net.Conn, error)

// Client talks to one agent.
type Client struct {
	address string
	tlsc    *tls.Config
	dial    Dialer
	http    *http.Client
	trans   *http.Transport
	sem     bounded.Semaphore // of long answers
}

// An UnreachableError means that there was no complete answer. Whether the call
// had an effect is unknown; calls that matter may be repeated.
type UnreachableError struct {
	Address string
	Err     error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("the agent at %s does not answer: %v", e.Address, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

const (
	handshakeTimeout = 10 * time.Second
	maxAnswer        = 64 << 20 // of a call that is not a stream
	maxEvent         = 16 << 20 // of an event: an agent tells of all jobs at once
	maxRefusal       = 64 << 10
	maxHead          = 64 << 10 // of an answer, before its body
	maxOutput        = 4 << 20  // of a command
)

// An agent may send eventBurst events at once and eventRate in a second; the rest
// waits on its side.
const (
	eventBurst = 2000
	eventRate  = 200
)

// New makes a client for the agent at address (host:port). It does no I/O.
// Without dial, connections are plain TCP.
func New(address string, tlsc *tls.Config, dial Dialer) *Client {
	if dial == nil {
		d := &net.Dialer{Timeout: handshakeTimeout, KeepAlive: 15 * time.Second}
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", address)
		}
	}
	tlsc = tlsc.Clone()
	tlsc.NextProtos = []string{"http/1.1"}
	c := &Client{address: address, tlsc: tlsc, dial: dial, sem: bounded.NewSemaphore()}
	c.trans = &http.Transport{
		DialTLSContext:      func(ctx context.Context, _, _ string) (net.Conn, error) { return c.connect(ctx) },
		MaxIdleConnsPerHost: 2,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		WriteBufferSize:     4 << 10,
		ReadBufferSize:      4 << 10,

		MaxResponseHeaderBytes: maxHead,
	}
	c.http = &http.Client{Transport: c.trans}
	return c
}

// Address is where the agent is.
func (c *Client) Address() string { return c.address }

// Share makes the client take s for long answers, as do the clients of the other
// agents of a cluster. It is called before the client is used.
func (c *Client) Share(s bounded.Semaphore) { c.sem = s }

// Close drops idle connections. Streams that are open stay open.
func (c *Client) Close() { c.trans.CloseIdleConnections() }

func (c *Client) connect(ctx context.Context) (net.Conn, error) {
	raw, err := c.dial(ctx, c.address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	conn := tls.Client(raw, c.tlsc)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

// Info asks the agent about itself.
func (c *Client) Info(ctx context.Context) (*agentapi.Info, error) {
	return do[agentapi.Info](ctx, c, agentapi.PathInfo, nil)
}

// Configure tells the agent which cluster it belongs to; idempotent.
func (c *Client) Configure(ctx context.Context, spec agentapi.ClusterSpec) (*agentapi.Info, error) {
	return do[agentapi.Info](ctx, c, agentapi.PathCluster, spec)
}

// Submit queues a job; the same key again gives the same job.
func (c *Client) Submit(ctx context.Context, r agentapi.SubmitRequest) (*agentapi.SubmitResponse, error) {
	return do[agentapi.SubmitResponse](ctx, c, agentapi.PathSubmit, r)
}

// Jobs lists all jobs, newest first.
func (c *Client) Jobs(ctx context.Context) ([]agentapi.Job, error) {
	jobs, err := do[[]agentapi.Job](ctx, c, agentapi.PathJobs, nil)
	if err != nil {
		return nil, err
	}
	return *jobs, nil
}

// Job returns one job; id 0 is the latest.
func (c *Client) Job(ctx context.Context, id int) (*agentapi.Job, error) {
	return do[agentapi.Job](ctx, c, agentapi.PathJob, nil, jobID(id))
}

// Cancel ends jobs and returns which ones it really ended, when their
// processes are gone or their time to go is over.
func (c *Client) Cancel(ctx context.Context, r agentapi.CancelRequest) (*agentapi.CancelResponse, error) {
	return do[agentapi.CancelResponse](ctx, c, agentapi.PathCancel, r)
}

// Reported says that how these jobs ended is stored: the agent stops telling it.
func (c *Client) Reported(ctx context.Context, ids []int) error {
	return c.Call(ctx, agentapi.PathReported, agentapi.ReportedRequest{IDs: ids}, nil)
}

// Autostop sets when the cluster gives itself back.
func (c *Client) Autostop(ctx context.Context, a agentapi.Autostop) (*agentapi.Info, error) {
	return do[agentapi.Info](ctx, c, agentapi.PathAutostop, a)
}

// Notice passes on what the cloud announced about the node's machine.
func (c *Client) Notice(ctx context.Context, n agentapi.Notice) (*agentapi.Info, error) {
	return do[agentapi.Info](ctx, c, agentapi.PathNotice, n)
}

// Shutdown ends the agent and everything it started. It answers when hooks and
// jobs have ended, just before the agent exits.
func (c *Client) Shutdown(ctx context.Context, r agentapi.ShutdownRequest) (*agentapi.Info, error) {
	return do[agentapi.Info](ctx, c, agentapi.PathShutdown, r)
}

// Mounts makes buckets be mounted on the node; idempotent.
func (c *Client) Mounts(ctx context.Context, r agentapi.MountsRequest) (*agentapi.MountsAnswer, error) {
	return do[agentapi.MountsAnswer](ctx, c, agentapi.PathMounts, r)
}

// Callback runs a script beside the cluster's jobs and waits for its end. The same
// key again is the same run.
func (c *Client) Callback(ctx context.Context, key string, r agentapi.CallbackRequest) (*agentapi.CallbackResult, error) {
	return do[agentapi.CallbackResult](ctx, c, agentapi.PathCallback, r, key)
}

// Events calls f with every event until the context ends, f fails or the agent
// goes away; it never returns nil. The first event is a Hello.
func (c *Client) Events(ctx context.Context, f func(agentapi.Event) error) error {
	resp, err := c.Open(ctx, agentapi.PathEvents, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bounded.NewLines(resp.Body, maxEvent, "an event", c.sem)
	for p := bounded.NewPace(eventBurst, eventRate); ; {
		if err := p.Wait(ctx); err != nil {
			return c.lost(ctx, err)
		}
		var e agentapi.Event
		err := lines.Decode(ctx, &e)
		if err == nil {
			err = checkEvent(&e)
		}
		if err != nil {
			return c.lost(ctx, err)
		}
		if err := f(e); err != nil {
			return err
		}
	}
}

// LogOptions says which part of a log is wanted.
type LogOptions struct {
	Offset int64 // from this byte; counts if Tail is 0
	Tail   int   // > 0: from this many lines before the end
	Follow bool  // until the job has ended and all its output is there
}

// Log reads the merged log of a job (0: the latest) from start, a byte offset.
func (c *Client) Log(ctx context.Context, id int, o LogOptions) (rc io.ReadCloser, start int64, err error) {
	q := url.Values{}
	if o.Offset > 0 {
		q.Set("offset", strconv.FormatInt(o.Offset, 10))
	}
	if o.Tail > 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	if o.Follow {
		q.Set("follow", "1")
	}
	resp, err := c.Open(ctx, agentapi.PathLog, q, jobID(id))
	if err != nil {
		return nil, 0, err
	}
	start, err = strconv.ParseInt(resp.Header.Get(agentapi.HeaderLogOffset), 10, 64)
	if err != nil {
		resp.Body.Close()
		return nil, 0, fmt.Errorf("the agent at %s did not say where the log starts", c.address)
	}
	return &body{c: c, ctx: ctx, rc: resp.Body}, start, nil
}

// LogFiles reads a tar of a job's log folder; paths are relative to ~/sky_logs.
func (c *Client) LogFiles(ctx context.Context, id int) (io.ReadCloser, error) {
	return c.stream(ctx, agentapi.PathLogFiles, jobID(id))
}

// HookLog reads what the hooks of an event (stop, down, preemption) printed.
func (c *Client) HookLog(ctx context.Context, event string) (io.ReadCloser, error) {
	return c.stream(ctx, agentapi.PathHookLogs, event)
}

func (c *Client) stream(ctx context.Context, route string, params ...string) (io.ReadCloser, error) {
	resp, err := c.Open(ctx, route, nil, params...)
	if err != nil {
		return nil, err
	}
	return &body{c: c, ctx: ctx, rc: resp.Body}, nil
}

func jobID(id int) string {
	if id == 0 {
		return "latest"
	}
	return strconv.Itoa(id)
}

// body names the agent when a stream breaks off.
type body struct {
	c   *Client
	ctx context.Context // of the one request that this body answers
	rc  io.ReadCloser
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.rc.Read(p)
	if err != nil && err != io.EOF {
		err = b.c.lost(b.ctx, err)
	}
	return n, err
}

func (b *body) Close() error { return b.rc.Close() }

// Call sends in (nil: no body) as JSON to a route such as "POST /v1/jobs/{id}",
// whose wildcards are filled with params, and decodes the answer into out
// (nil: ignored).
func (c *Client) Call(ctx context.Context, route string, in, out any, params ...string) error {
	resp, err := c.request(ctx, route, nil, in, params)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return c.decode(ctx, resp.Body, out)
}

// Get is Call of a route that is only read from, with a query.
func (c *Client) Get(ctx context.Context, route string, q url.Values, out any, params ...string) error {
	resp, err := c.Open(ctx, route, q, params...)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return c.decode(ctx, resp.Body, out)
}

// decode reads the whole of an answer. One that is no JSON came from no agent, or
// not from one that is in order.
func (c *Client) decode(ctx context.Context, body io.Reader, out any) error {
	err := c.sem.Message(ctx, body, maxAnswer, "its answer", out)
	if err == nil {
		err = check(out)
	}
	if err != nil {
		return c.lost(ctx, err)
	}
	return nil
}

// Open is Call for routes whose answer is a stream.
func (c *Client) Open(ctx context.Context, route string, q url.Values, params ...string) (*http.Response, error) {
	return c.request(ctx, route, q, nil, params)
}

func do[T any](ctx context.Context, c *Client, route string, in any, params ...string) (*T, error) {
	out := new(T)
	if err := c.Call(ctx, route, in, out, params...); err != nil {
		return nil, err
	}
	return out, nil
}

func (c *Client) request(ctx context.Context, route string, q url.Values, in any, params []string) (*http.Response, error) {
	var rd io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		rd = bytes.NewReader(data)
	}
	method, path := fill(route, params)
	req, err := http.NewRequestWithContext(ctx, method, (&url.URL{Scheme: "https", Host: c.address, Path: path, RawQuery: q.Encode()}).String(), rd)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.lost(ctx, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, refusal(resp)
	}
	return resp, nil
}

// fill splits a route of agentapi and puts params in place of its wildcards.
func fill(route string, params []string) (method, path string) {
	method, path, _ = strings.Cut(route, " ")
	for _, p := range params {
		from := strings.IndexByte(path, '{')
		to := strings.IndexByte(path, '}')
		path = path[:from] + p + path[to+1:]
	}
	return method, path
}

func refusal(resp *http.Response) error {
	defer resp.Body.Close()
	e := &agentapi.Error{}
	if err := bounded.JSON(resp.Body, maxRefusal, "a refusal", e); err != nil || e.Code == "" {
		e = &agentapi.Error{Code: agentapi.CodeInternal, Message: "the agent answered " + resp.Status}
	}
	return e
}

// lost is the error of a broken exchange: the context's if that is why.
func (c *Client) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return &UnreachableError{Address: c.address, Err: err}
}
