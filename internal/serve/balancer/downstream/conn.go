package downstream

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/plain"
)

// A conn is a client's connection.
type conn struct {
	s      *Server
	nc     *net.TCPConn
	remote string
	buf    []byte // what was read: buf[at:end] is not used yet
	at     int
	end    int
	header http.Header // of the request
	w      writer

	mu      sync.Mutex
	ctx     *requestContext // of the request; nil: there is none
	since   time.Time       // the request's begin, or the last one's end
	reading bool            // its body is not complete: who reads that learns of the end
	watched chan struct{}   // closed when nobody watches any more; nil: nobody does
	handed  bool
}

func newConn(s *Server, nc *net.TCPConn) *conn {
	c := &conn{s: s, nc: nc, remote: nc.RemoteAddr().String(), buf: make([]byte, maxHead), since: time.Now(), header: http.Header{}}
	c.w.c = c
	c.w.header = http.Header{}
	return c
}

// serve serves requests until the connection ends or is handed over.
func (c *conn) serve() {
	defer func() {
		c.s.forget(c)
		if !c.handed {
			c.nc.Close()
		}
	}()
	for {
		n := plain.HeadEnd(c.buf[c.at:c.end])
		for n < 0 {
			if c.at > 0 {
				c.end = copy(c.buf, c.buf[c.at:c.end])
				c.at = 0
			}
			if c.end == len(c.buf) { // a long one
				c.handOver()
				return
			}
			k, err := c.nc.Read(c.buf[c.end:])
			if err != nil {
				return
			}
			from := max(0, c.end-3)
			c.end += k
			if n = plain.HeadEnd(c.buf[from:c.end]); n >= 0 {
				n += from
			} else if c.end >= 4 && !looksPlain(c.buf[:c.end]) || bytes.Contains(c.buf[:c.end], []byte("\n\n")) {
				c.handOver()
				return
			}
		}
		ctx := &requestContext{}
		r, closes, ok := parse(ctx, c.buf[c.at:c.at+n], c.header)
		if !ok {
			c.handOver()
			return
		}
		c.at += n
		if c.at == c.end {
			c.at, c.end = 0, 0
		}
		if !c.request(ctx, r, closes) {
			return
		}
	}
}

// looksPlain reports whether the beginning of a request may be that of a plain one:
// others, like HTTP/2, may wait for an answer before their head is complete.
func looksPlain(b []byte) bool {
	for i, x := range b {
		if x == ' ' {
			return i > 0 && string(b[:i]) != "PRI"
		}
		if x < 'A' || x > 'Z' || i > 20 {
			return false
		}
	}
	return true
}

// handOver gives the connection to the other server.
func (c *conn) handOver() {
	c.mu.Lock()
	c.handed = true
	c.mu.Unlock()
	before := append([]byte(nil), c.buf[c.at:c.end]...)
	c.s.handed.give(&Begun{c.nc, before})
}

// request serves one request, and reports whether another may follow.
func (c *conn) request(ctx *requestContext, r *http.Request, closes bool) (again bool) {
	r.RemoteAddr = c.remote
	var body *bodyReader
	if r.ContentLength > 0 {
		body = &bodyReader{c, int(r.ContentLength)}
		r.Body = body
	}
	c.begin(ctx, body != nil)
	c.w.reset(r.Method == http.MethodHead, closes || c.s.closing.Load())
	whole := c.call(r)
	quiet := c.finish(ctx)
	if !whole || !quiet {
		return false
	}
	if body != nil && body.left > 0 { // the handler has not read all of it
		c.w.closes = true
	}
	return c.w.end() == nil && !c.w.closes && !c.s.closing.Load()
}

// call calls the handler; whole is false if it gave up half way.
func (c *conn) call(r *http.Request) (whole bool) {
	defer func() {
		if whole {
			return
		}
		if p := recover(); p != http.ErrAbortHandler && c.s.rest.ErrorLog != nil {
			c.s.rest.ErrorLog.Printf("panic serving %s: %v\n%s", c.remote, p, debug.Stack())
		}
	}()
	c.s.handler.ServeHTTP(&c.w, r)
	return true
}

// begin notes that a request is served.
func (c *conn) begin(ctx *requestContext, reading bool) {
	c.mu.Lock()
	c.ctx, c.since, c.reading = ctx, time.Now(), reading
	c.mu.Unlock()
}

// finish notes that it was; it reports false if the client is gone.
func (c *conn) finish(ctx *requestContext) bool {
	c.mu.Lock()
	c.ctx, c.since = nil, time.Now()
	watched := c.watched
	if watched != nil {
		c.nc.SetReadDeadline(time.Unix(1, 0)) // ends the watching
	}
	c.mu.Unlock()
	if watched != nil {
		<-watched
		c.mu.Lock()
		c.watched = nil
		c.nc.SetReadDeadline(time.Time{})
		c.mu.Unlock()
	}
	return ctx.Err() == nil
}

// check does what time asks for.
func (c *conn) check(now time.Time, idle time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch age := now.Sub(c.since); {
	case c.ctx == nil && idle > 0 && age > idle && !c.handed:
		c.nc.Close()
	case c.ctx != nil && !c.reading && age >= watchAfter && c.watched == nil:
		c.watched = make(chan struct{})
		go func(ctx *requestContext, done chan struct{}) {
			defer close(done)
			if left(c.nc) {
				ctx.cancel()
			}
		}(c.ctx, c.watched)
	}
}

func (c *conn) closeIfIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx == nil && !c.handed {
		c.nc.Close()
	}
}

// bodyReader reads the body of a request.
type bodyReader struct {
	c    *conn
	left int
}

func (b *bodyReader) Read(p []byte) (n int, err error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(len(p), b.left)]
	if b.c.at < b.c.end {
		n = copy(p, b.c.buf[b.c.at:b.c.end])
		if b.c.at += n; b.c.at == b.c.end {
			b.c.at, b.c.end = 0, 0
		}
	} else {
		n, err = b.c.nc.Read(p)
	}
	if b.left -= n; b.left == 0 {
		b.c.mu.Lock()
		b.c.reading = false
		b.c.mu.Unlock()
		return n, io.EOF
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *bodyReader) Close() error { return nil }
