package sky

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/skypilot-go/sky/api"
)

// StreamOptions say how much of a stream to show.
type StreamOptions struct {
	Tail   int  // begin with the last Tail lines; 0 means all
	Follow bool // go on until the end; otherwise only what is there now
	// Control, if not nil, gets the control lines (spinners) as they come.
	Control func(Control)
	// Progress, if not nil, hears how far uploads, copies and deletions of buckets are, a few
	// times a second.
	Progress func(api.TransferProgress)
	// Interactive, if not nil, connects a person's terminal to a session of the
	// server (see [Client.InteractiveAuth]) and returns when it is over.
	Interactive func(ctx context.Context, session string) error
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
	if o.Progress != nil {
		q.Set("progress", "true")
	}
	return c.follow(ctx, call{method: http.MethodGet, path: "/api/stream", query: q}, w, o, o.Tail, nil)
}

// StreamServerLog copies a log file of the server: a path below ~/sky_logs, or
// "~/.sky/api_server/server.log".
func (c *Client) StreamServerLog(ctx context.Context, path string, w io.Writer, o StreamOptions) error {
	q := url.Values{"follow": {boolean(o.Follow)}, "format": {"console"}, "log_path": {path}}
	if o.Tail > 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	return c.follow(ctx, call{method: http.MethodGet, path: "/api/stream", query: q}, w, o, o.Tail, nil)
}

// follow reads the stream that a call gives until it ends well, and makes the
// call again when it breaks or the server asks for that, without writing a line
// twice. tail is how many last lines a connection begins with; 0 means all. opened,
// if not nil, hears of each connection.
func (c *Client) follow(ctx context.Context, k call, w io.Writer, o StreamOptions, tail int, opened func(*http.Response)) error {
	trouble := outage{c: c}
	defer trouble.over()
	p := &playback{w: w, tail: max(0, tail)}
	for {
		p.begin()
		err := c.try(ctx, k, &trouble, func(res *http.Response) error {
			if opened != nil {
				opened(res)
			}
			return play(ctx, res, p, o)
		})
		if out, ok := errors.AsType[*outputError](err); ok {
			return out.err
		}
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if p.moved {
			trouble.over()
		}
		if errors.Is(err, errRetry) {
			if p.moved {
				continue
			}
			err = &ConnectError{c.Endpoint(), err}
		}
		if err := trouble.again(ctx, err, true); err != nil {
			return err
		}
	}
}

// errRetry says that the server is to be asked again.
var errRetry = errors.New("the API server keeps asking to try again")

// play reads one connection.
func play(ctx context.Context, res *http.Response, p *playback, o StreamOptions) error {
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
		switch {
		case k.Code == progressed:
			var far api.TransferProgress
			if o.Progress != nil && json.Unmarshal([]byte(k.Text), &far) == nil {
				o.Progress(far)
			}
		case o.Control != nil:
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
	if _, err := io.Copy(d, res.Body); err != nil {
		return err
	}
	return p.settle()
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
	k := call{method: http.MethodPost, path: l.path, query: l.query, body: l.body}
	return l.c.follow(ctx, k, w, o, l.tail, func(res *http.Response) { l.id = res.Header.Get(api.HeaderRequestID) })
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
