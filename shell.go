package sky

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// ShellOptions say what to run on a node, and whether in a terminal.
type ShellOptions struct {
	Cluster    string
	Node       int    // 0 is the head
	Command    string // "" is a login shell
	TTY        bool
	Rows, Cols int
	Term       string // the terminal's type
}

// Shell opens a shell on a node. What travels both ways are the frames of
// package agentapi. The connection ends with ctx.
func (c *Client) Shell(ctx context.Context, o ShellOptions) (net.Conn, error) {
	q := url.Values{
		"cluster_name": {o.Cluster}, "node": {strconv.Itoa(o.Node)}, "tty": {strconv.FormatBool(o.TTY)}, "command": {o.Command},
	}
	if o.TTY {
		q.Set("rows", strconv.Itoa(o.Rows))
		q.Set("cols", strconv.Itoa(o.Cols))
		q.Set("term", o.Term)
	}
	return c.websocket(ctx, "/shell", q)
}

// SSH connects to the sshd of a node through the server, which may be the only one
// to reach it: what an ssh ProxyCommand passes on. Node 0 is the head. The
// connection ends with ctx.
func (c *Client) SSH(ctx context.Context, cluster string, node int) (net.Conn, error) {
	return c.websocket(ctx, "/kubernetes-pod-ssh-proxy", url.Values{"cluster_name": {cluster}, "worker": {strconv.Itoa(node)}})
}

// Forward connects to a port of a host as a node sees it; host "" is the node itself.
// Node 0 is the head. The connection ends with ctx.
func (c *Client) Forward(ctx context.Context, cluster string, node int, host string, port int) (*ForwardConn, error) {
	ws, err := c.openSocket(ctx, "/port-forward", url.Values{
		"cluster_name": {cluster}, "node": {strconv.Itoa(node)}, "host": {host}, "port": {strconv.Itoa(port)},
	})
	if err != nil {
		return nil, err
	}
	return &ForwardConn{netConn(ctx, ws), ctx, ws}, nil
}

// A ForwardConn is a connection to a port of a node.
type ForwardConn struct {
	net.Conn
	ctx context.Context
	ws  *websocket.Conn
}

// CloseWrite says that nothing more will be sent; reading goes on.
func (f *ForwardConn) CloseWrite() error { return f.ws.Write(f.ctx, websocket.MessageBinary, nil) }

// InteractiveAuth connects to a session in which a person logs in somewhere, as
// a request's stream asked. What travels are the raw bytes of a terminal; the
// server ends the connection.
func (c *Client) InteractiveAuth(ctx context.Context, session string) (net.Conn, error) {
	return c.websocket(ctx, "/ssh-interactive-auth", url.Values{"session_id": {session}})
}

func (c *Client) websocket(ctx context.Context, path string, q url.Values) (net.Conn, error) {
	ws, err := c.openSocket(ctx, path, q)
	if err != nil {
		return nil, err
	}
	return netConn(ctx, ws), nil
}

// maxMessage is less than what the server takes in one message.
const maxMessage = 256 << 10

// messages is a websocket as a connection. What is written becomes messages of at most
// maxMessage bytes, none of them empty.
type messages struct{ net.Conn }

func netConn(ctx context.Context, ws *websocket.Conn) net.Conn {
	return messages{websocket.NetConn(ctx, ws, websocket.MessageBinary)}
}

func (m messages) Write(p []byte) (written int, err error) {
	for written < len(p) && err == nil {
		var n int
		n, err = m.Conn.Write(p[written:min(len(p), written+maxMessage)])
		written += n
	}
	return written, err
}

func (c *Client) openSocket(ctx context.Context, path string, q url.Values) (*websocket.Conn, error) {
	u := c.dialed()
	u.Path = strings.TrimRight(u.Path, "/") + path
	u.RawQuery = q.Encode()
	h := c.headers()
	c.trace(ctx, h)
	o := outage{c: c}
	defer o.over()
	for { // until there is a connection; one that breaks cannot be taken up again
		ws, err := c.dialWebsocket(ctx, u.String(), h, path)
		if err == nil {
			ws.SetReadLimit(-1)
			return ws, nil
		}
		if err := o.again(ctx, err, false); err != nil {
			return nil, err
		}
	}
}

func (c *Client) dialWebsocket(ctx context.Context, address string, h http.Header, path string) (*websocket.Conn, error) {
	// The handshake's context would end the connection: websocket.NetConn bounds that.
	dialing, giveUp := context.WithCancelCause(ctx)
	s := c.watch(dialing, time.Time{}, giveUp)
	defer s.stop()
	ws, res, err := websocket.Dial(dialing, address, &websocket.DialOptions{HTTPClient: c.http, HTTPHeader: h})
	if err == nil {
		return ws, nil
	}
	defer giveUp(nil)
	if res != nil && c.knownAnew(res.StatusCode, h) {
		ws, res, err = websocket.Dial(dialing, address, &websocket.DialOptions{HTTPClient: c.http, HTTPHeader: h})
		if err == nil {
			return ws, nil
		}
	}
	if res != nil && res.StatusCode != http.StatusSwitchingProtocols {
		return nil, refusal(res, path, err)
	}
	return nil, c.severed(dialing, err)
}

// refusal is the server's reason. The websocket client keeps the beginning of the
// answer's body.
func refusal(res *http.Response, path string, err error) error {
	e := answerError(res)
	if s, ok := errors.AsType[*StatusError](e); ok && s.Detail == "" {
		return fmt.Errorf("connecting to %s: %w", path, err)
	}
	return e
}
