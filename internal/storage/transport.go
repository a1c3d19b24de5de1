package storage

import (
	"context"
	"net"
	"net/http"
	"time"
)

const (
	connectWithin = 15 * time.Second
	// A connection on which nothing moves for this long is given up. Stores that
	// copy inside send something meanwhile.
	stalledAfter = 2 * time.Minute
)

// NewTransport makes the connections of one caller: as many at once as are used,
// kept for the next request, and given up when nothing moves on them. It speaks
// HTTP/1.1, as one connection of HTTP/2 is slower than many. The proxy variables
// of the environment count. Close idle connections when it is not needed any more.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: connectWithin, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &movingConn{Conn: c}, nil
		},
		TLSHandshakeTimeout:   connectWithin,
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       time.Minute,
		MaxIdleConnsPerHost:   512,
		DisableCompression:    true, // an object is what it is
		Protocols:             http1(),
		WriteBufferSize:       128 << 10,
		ReadBufferSize:        128 << 10,
	}
}

func http1() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	return &p
}

// A movingConn fails when nothing moves on it.
type movingConn struct{ net.Conn }

func (c *movingConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(stalledAfter)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *movingConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(stalledAfter)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
