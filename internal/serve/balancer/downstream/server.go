// Package downstream serves HTTP/1.1 to the clients of a balancer: those requests
// that are plain, which nearly all are, with half the work that net/http has with
// them. Every other connection goes to a net/http server, with all that it has
// sent: HTTP/2, upgrades, long or chunked bodies, long heads, errors.
//
// A connection has one goroutine, which reads a request, calls the handler and
// writes the answer. Only of requests that take long somebody watches whether the
// client is still there.
package downstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A Server serves plain requests itself.
type Server struct {
	handler  http.Handler
	rest     *http.Server // for all other connections
	listener net.Listener
	idle     time.Duration
	handed   *handedOver

	mu       sync.Mutex
	conns    map[*conn]struct{}
	closing  atomic.Bool
	stop     chan struct{}
	stopOnce sync.Once
}

const (
	sweepEvery = 100 * time.Millisecond
	// watchAfter is how long a request takes before its client is watched.
	watchAfter = 100 * time.Millisecond
)

// New serves the connections of a listener with the handler h, and with the server
// rest those that are not plain. idle is how long a connection may be silent between
// requests and within a head.
func New(h http.Handler, rest *http.Server, l net.Listener, idle time.Duration) *Server {
	return &Server{handler: h, rest: rest, listener: l, idle: idle, conns: map[*conn]struct{}{}, stop: make(chan struct{}),
		handed: &handedOver{addr: l.Addr(), conns: make(chan net.Conn), closed: make(chan struct{})}}
}

// Serve accepts connections until the listener is closed.
func (s *Server) Serve() error {
	go s.rest.Serve(s.handed)
	go s.sweep()
	for {
		nc, err := s.listener.Accept()
		if err != nil {
			if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() || !errors.Is(err, net.ErrClosed) && !s.closing.Load() {
				time.Sleep(10 * time.Millisecond) // no file descriptors, for example
				continue
			}
			return err
		}
		tcp, ok := nc.(*net.TCPConn)
		if !ok || !supported {
			s.handed.give(nc)
			continue
		}
		c := newConn(s, tcp)
		s.mu.Lock()
		s.conns[c] = struct{}{}
		s.mu.Unlock()
		go c.serve()
	}
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// sweep closes connections that are silent for too long, and has the clients of
// long requests watched.
func (s *Server) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		now := time.Now()
		s.mu.Lock()
		all := make([]*conn, 0, len(s.conns))
		for c := range s.conns {
			all = append(all, c)
		}
		s.mu.Unlock()
		for _, c := range all {
			c.check(now, s.idle)
		}
	}
}

// Shutdown closes connections once their request has ended, or all when ctx ends.
// The listener is closed already.
func (s *Server) Shutdown(ctx context.Context) error {
	s.closing.Store(true)
	var err error
	for tick := 5 * time.Millisecond; ; tick = min(2*tick, 200*time.Millisecond) {
		s.mu.Lock()
		n := len(s.conns)
		for c := range s.conns {
			c.closeIfIdle()
		}
		s.mu.Unlock()
		if n == 0 {
			break
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(tick):
		}
		if err != nil {
			break
		}
	}
	if rerr := s.rest.Shutdown(ctx); err == nil {
		err = rerr
	}
	s.stopOnce.Do(func() { close(s.stop) })
	return err
}

// Close closes all connections.
func (s *Server) Close() error {
	s.closing.Store(true)
	s.mu.Lock()
	for c := range s.conns {
		c.nc.Close()
	}
	s.mu.Unlock()
	s.stopOnce.Do(func() { close(s.stop) })
	return s.rest.Close()
}

// handedOver is a listener of connections that somebody else has accepted.
type handedOver struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (h *handedOver) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		c.Close()
	}
}

func (h *handedOver) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *handedOver) Close() error   { h.once.Do(func() { close(h.closed) }); return nil }
func (h *handedOver) Addr() net.Addr { return h.addr }

// Begun is a connection of which something was read already.
type Begun struct {
	net.Conn
	before []byte
}

func (b *Begun) Read(p []byte) (int, error) {
	if len(b.before) > 0 {
		n := copy(p, b.before)
		if b.before = b.before[n:]; len(b.before) == 0 {
			b.before = nil
		}
		return n, nil
	}
	return b.Conn.Read(p)
}

// CloseWrite tells the other side that nothing more comes.
func (b *Begun) CloseWrite() error { return b.Conn.(*net.TCPConn).CloseWrite() }

// Bare is the connection itself, once all that was read before has been read again.
func Bare(c net.Conn) net.Conn {
	if b, ok := c.(*Begun); ok && b.before == nil {
		return b.Conn
	}
	return c
}
