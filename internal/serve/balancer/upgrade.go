package balancer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/downstream"
	"github.com/skypilot-go/sky/internal/serve/balancer/upstream"
)

func newBytes(b []byte) io.Reader { return bytes.NewReader(b) }

// upgraded joins a client and a replica that have agreed on another protocol, such
// as WebSocket. The bytes are moved by goroutines of their own, and the handler
// returns, since what net/http has for a request is more than a silent connection
// needs.
func (x *exchange) upgraded(r *replica, c *upstream.Conn, resp *http.Response, stop func() bool) result {
	client, rw, err := x.w.(http.Hijacker).Hijack()
	if err != nil {
		return result{outcome: failed, err: fmt.Errorf("taking over the connection: %w", err)}
	}
	if !stop() { // the client is gone
		client.Close()
		x.status = statusClientGone
		return result{err: errors.New("the client left"), outcome: unknown}
	}
	client = downstream.Bare(client)
	client.SetDeadline(time.Time{})
	x.times.end()
	x.status, x.sent = http.StatusSwitchingProtocols, true
	var head bytes.Buffer
	fmt.Fprintf(&head, "HTTP/1.1 101 %s\r\n", http.StatusText(http.StatusSwitchingProtocols))
	if x.cookie != nil {
		resp.Header.Add("Set-Cookie", x.cookie.String())
	}
	resp.Header.Write(&head)
	head.WriteString("\r\n")
	early, _ := c.R.Peek(c.R.Buffered())
	head.Write(early)
	late, _ := rw.Reader.Peek(rw.Reader.Buffered())
	x.out.Add(int64(len(early)))
	x.in.Add(int64(len(late)))
	late = bytes.Clone(late)
	// What follows must not hold on to the request: it may last for days.
	u := &upgrade{s: x.s, r: r, c: c, g: x.got, client: client, head: head.Bytes(), late: late, end: x.ended()}
	x.handedOn = true
	x.s.counts.upgraded.Add(1)
	r.untrack(c)
	if !r.track(u) || !x.s.track(u) {
		u.Close()
	}
	go u.run()
	return result{}
}

// An upgrade is a connection that has another protocol than HTTP.
type upgrade struct {
	s          *service
	r          *replica
	g          grant
	c          *upstream.Conn
	client     net.Conn
	head, late []byte
	end        ended
}

// Close ends both sides.
func (u *upgrade) Close() error {
	u.client.Close()
	return u.c.Close()
}

func (u *upgrade) run() {
	_, err := u.client.Write(u.head)
	if err == nil && len(u.late) > 0 {
		_, err = u.c.Conn.Write(u.late)
	}
	u.head, u.late = nil, nil
	u.c.R = nil // its buffer is as large as all the rest
	var in, out int64
	if err == nil {
		in, out = upstream.Relay(u.client, u.c.Conn)
	}
	u.Close()
	u.end.in += in
	u.end.out += out
	u.r.untrack(u)
	u.s.untrack(u)
	u.s.counts.upgraded.Add(-1)
	u.s.release(u.g, succeeded)
	u.end.record(u.s, u.g)
	u.s.leave()
}
