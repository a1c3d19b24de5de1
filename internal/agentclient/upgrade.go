package agentclient

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/skypilot-go/sky/api/agentapi"
	"github.com/skypilot-go/sky/internal/bounded"
)

// Shell opens a shell stream: frames of package agentapi both ways. Cancelling
// the context closes it, and closing it ends what runs in it.
func (c *Client) Shell(ctx context.Context, q agentapi.ShellQuery) (io.ReadWriteCloser, error) {
	return c.Upgrade(ctx, agentapi.PathShell, agentapi.ShellProtocol, ShellValues(q))
}

// Sync opens a stream of package filesync's protocol.
func (c *Client) Sync(ctx context.Context) (io.ReadWriteCloser, error) {
	return c.Upgrade(ctx, agentapi.PathSync, agentapi.SyncProtocol, nil)
}

// Server connects to the API server that runs on the node in a home folder, which
// is relative to the agent's. If none does the error is an [*agentapi.Error] with
// the code CodeNotFound.
func (c *Client) Server(ctx context.Context, home string) (net.Conn, error) {
	return c.Upgrade(ctx, agentapi.PathServer, agentapi.ServerProtocol, url.Values{"home": {home}})
}

// Dial connects to a TCP address as the node sees it.
func (c *Client) Dial(ctx context.Context, address string) (net.Conn, error) {
	return c.Upgrade(ctx, agentapi.PathDial, agentapi.DialProtocol, url.Values{"address": {address}})
}

// DialLasting is Dial whose connection outlives ctx, which bounds connecting alone.
func (c *Client) DialLasting(ctx context.Context, address string) (net.Conn, error) {
	return lasting(ctx, func(ctx context.Context) (net.Conn, error) { return c.Dial(ctx, address) })
}

// ServerLasting is Server whose connection outlives ctx, which bounds connecting alone.
func (c *Client) ServerLasting(ctx context.Context, home string) (net.Conn, error) {
	return lasting(ctx, func(ctx context.Context) (net.Conn, error) { return c.Server(ctx, home) })
}

// lasting opens a connection that ends with its context under one that ends only while
// ctx does and it is not open.
func lasting(ctx context.Context, open func(context.Context) (net.Conn, error)) (net.Conn, error) {
	long, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, cancel)()
	conn, err := open(long)
	if err != nil {
		cancel()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}
	return conn, err
}

// ShellValues encodes q as the query of [agentapi.PathShell].
func ShellValues(q agentapi.ShellQuery) url.Values {
	v := url.Values{}
	if q.Command != "" {
		v.Set("command", q.Command)
	}
	if q.TTY {
		v.Set("tty", "1")
		v.Set("term", q.Term)
		v.Set("rows", strconv.Itoa(q.Rows))
		v.Set("cols", strconv.Itoa(q.Cols))
	}
	if q.Node != 0 {
		v.Set("node", strconv.Itoa(q.Node))
	}
	return v
}

// Upgrade turns a connection of its own into a raw stream. The stream is a
// net.Conn and ends when the context does.
func (c *Client) Upgrade(ctx context.Context, route, protocol string, q url.Values, params ...string) (net.Conn, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, c.lost(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	up, err := c.switchProtocol(conn, route, protocol, q, params)
	if err != nil {
		stop()
		conn.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	up.stop = stop
	return up, nil
}

func (c *Client) switchProtocol(conn net.Conn, route, protocol string, q url.Values, params []string) (*upgraded, error) {
	ctx := context.Background() // the caller closes conn when its context ends
	method, path := fill(route, params)
	req, err := http.NewRequest(method, (&url.URL{Scheme: "https", Host: c.address, Path: path, RawQuery: q.Encode()}).String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", protocol)
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if err := req.Write(conn); err != nil {
		return nil, c.lost(ctx, err)
	}
	br := bufio.NewReaderSize(bounded.Reader(conn, maxHead, "its answer's head"), 4<<10)
	resp, err := http.ReadResponse(br, req)
	if err != nil {
		return nil, c.lost(ctx, err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, refusal(resp)
	}
	_ = conn.SetDeadline(time.Time{})
	return &upgraded{Conn: conn, br: br}, nil
}

// upgraded gives first what was read together with the answer's head.
type upgraded struct {
	net.Conn
	br   *bufio.Reader
	stop func() bool
}

func (u *upgraded) Read(p []byte) (int, error) {
	if u.br != nil {
		if u.br.Buffered() > 0 {
			return u.br.Read(p)
		}
		u.br = nil
	}
	return u.Conn.Read(p)
}

// CloseWrite says that nothing more will be sent; reading goes on.
func (u *upgraded) CloseWrite() error {
	if cw, ok := u.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return nil
}

func (u *upgraded) Close() error {
	u.stop()
	return u.Conn.Close()
}
