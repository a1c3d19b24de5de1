package sky

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api"
)

// StreamOptions say how much of a stream to show.
type StreamOptions struct {
	Tail   int  // begin with the last Tail lines; 0 means all
	Follow bool // go on until the end; otherwise only what is there now
	// Control, if not nil, gets the control lines (spinners) as they come.
	Control func(Control)
	// Interactive, if not nil, connects a person's terminal to a session of the
	// server (see [Client.InteractiveAuth]) and returns when it is over.
	Interactive func(ctx context.Context, session string) error
}

// streamBackoff is the pause between tries to take a stream up again.
var streamBackoff = backoff{first: time.Second, max: 5 * time.Second, factor: 1.6, jitter: 0.2}

// maxFailures in a row end a stream: about a quarter of a minute, so that a
// server that is restarted is waited for.
const maxFailures = 6

// attempts counts failures in a row.
type attempts struct{ failed int }

// again tells whether err is worth another try, after a pause.
func (a *attempts) again(ctx context.Context, err error) bool {
	if a.failed++; a.failed >= maxFailures || !transient(err) {
		return false
	}
	return sleep(ctx, streamBackoff.wait(a.failed-1, rand.Float64())) == nil
}

func transient(err error) bool {
	if s, ok := errors.AsType[*StatusError](err); ok {
		return s.Code >= 500 && s.Code != http.StatusServiceUnavailable
	}
	_, lost := errors.AsType[*ConnectError](err)
	return lost
}

// StreamRequest copies the log of a request (id or prefix; "" is the latest one)
// to w, as [Request.Stream] does.
func (c *Client) StreamRequest(ctx context.Context, id string, w io.Writer, o StreamOptions) error {
	q := url.Values{"follow": {boolean(o.Follow)}, "format": {"console"}}
	if id != "" {
		q.Set("request_id", id)
	}
	if o.Tail > 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	open := func(ctx context.Context) (*http.Response, error) {
		return c.openStream(ctx, http.MethodGet, "/api/stream", q, nil)
	}
	return c.follow(ctx, open, w, o, o.Tail)
}

// StreamServerLog copies a log file of the server: a path below ~/sky_logs, or
// "~/.sky/api_server/server.log".
func (c *Client) StreamServerLog(ctx context.Context, path string, w io.Writer, o StreamOptions) error {
	q := url.Values{"follow": {boolean(o.Follow)}, "format": {"console"}, "log_path": {path}}
	if o.Tail > 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	open := func(ctx context.Context) (*http.Response, error) {
		return c.openStream(ctx, http.MethodGet, "/api/stream", q, nil)
	}
	return c.follow(ctx, open, w, o, o.Tail)
}

func (c *Client) openStream(ctx context.Context, method, path string, q url.Values, body []byte) (*http.Response, error) {
	res, err := c.do(ctx, method, path, q, body)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, answerError(res)
	}
	return res, nil
}

// follow reads the stream that open gives until it ends well, and opens it again
// when it breaks or the server asks for that, without writing a line twice. tail
// is how many last lines a connection begins with; 0 means all.
func (c *Client) follow(ctx context.Context, open func(context.Context) (*http.Response, error), w io.Writer, o StreamOptions, tail int) error {
	var tries attempts
	p := &playback{w: w, tail: max(0, tail)}
	for {
		err := c.play(ctx, open, p, o)
		if p.moved {
			tries = attempts{}
		}
		switch {
		case err == nil || ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case errors.Is(err, errRetry):
			if !p.moved && !tries.again(ctx, &ConnectError{c.Endpoint(), err}) {
				return err
			}
		case !tries.again(ctx, err):
			return err
		}
	}
}

// errRetry is the server's wish to be asked again.
var errRetry = errors.New("the API server keeps asking to try again")

// play reads one connection.
func (c *Client) play(ctx context.Context, open func(context.Context) (*http.Response, error), p *playback, o StreamOptions) error {
	p.begin()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	res, err := open(ctx)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	d := &decoder{emit: p.line, control: func(k Control) error {
		switch {
		case k.Code == Retry:
			return errRetry
		case k.Code == Heartbeat && p.skip == 0:
			if err := p.settle(); err != nil {
				return err
			}
			p.moved = true
		case p.fresh():
			p.moved = true
		default:
			return nil
		}
		if o.Control != nil {
			o.Control(k)
		}
		return nil
	}}
	if o.Interactive != nil {
		d.interactive = func(session string) error {
			if !p.fresh() {
				return nil // it was over before the connection broke
			}
			return o.Interactive(ctx, session)
		}
	}
	_, err = io.Copy(d, res.Body)
	if err == nil {
		err = p.settle()
	}
	if out, ok := errors.AsType[*outputError](err); ok {
		return out.err
	}
	if err == nil || errors.Is(err, errRetry) {
		return err
	}
	return &ConnectError{c.Endpoint(), err}
}

// LogStream is a log that the server sends while it is written. Its request
// exists once the stream was opened.
type LogStream struct {
	c     *Client
	path  string
	query url.Values
	body  []byte
	tail  int // last lines that were asked for; 0 means all
	id    string
}

// ID is the id of the latest connection's request; "" before Stream.
func (l *LogStream) ID() string { return l.id }

// Stream copies the log to w until it ends. A broken connection is taken up
// again without repeating a line.
func (l *LogStream) Stream(ctx context.Context, w io.Writer, o StreamOptions) error {
	open := func(ctx context.Context) (*http.Response, error) {
		res, err := l.c.openStream(ctx, http.MethodPost, l.path, l.query, l.body)
		if err == nil {
			l.id = res.Header.Get(api.HeaderRequestID)
		}
		return res, err
	}
	return l.c.follow(ctx, open, w, o, l.tail)
}

// ExitCode waits for what the log's request ended with: for a job's log the exit
// code of sky logs (see api.JobStatus.ExitCode).
func (l *LogStream) ExitCode(ctx context.Context) (int, error) {
	if l.id == "" {
		return 0, fmt.Errorf("the log of %s was not opened", l.path)
	}
	code, err := RequestOf[*int](l.c, l.id).Get(ctx)
	if err != nil || code == nil {
		return 0, err
	}
	return *code, nil
}

func boolean(b bool) string {
	if b {
		return "True"
	}
	return "False"
}
