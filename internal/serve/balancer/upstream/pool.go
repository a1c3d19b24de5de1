// Package upstream speaks HTTP/1.1 with replicas, for a balancer. Unlike
// net/http's Transport it has no goroutine of its own: whoever has a connection
// writes a request and reads the answer, which takes half the processor time.
package upstream

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A Conn is a connection to a replica.
type Conn struct {
	net.Conn
	R *bufio.Reader
	// Reused is true of a connection that has had a request before. Its other end
	// may have closed it meanwhile.
	Reused bool

	head      headReader
	answer    http.Response // the last one that was plain, and its body
	body      knownBody
	pool      *Pool
	idleSince time.Time
	closed    atomic.Bool
}

// Close ends the connection. It may be called more than once, and by anybody.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	return c.Conn.Close()
}

// A Pool has the connections to one replica.
type Pool struct {
	addr string
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	keep time.Duration

	mu     sync.Mutex
	idle   []*Conn // the latest last
	closed bool
}

// maxIdle bounds the unused connections of a pool.
const maxIdle = 256

// NewPool is empty. Unused connections are kept for the time keep.
func NewPool(addr string, keep time.Duration, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *Pool {
	return &Pool{addr: addr, keep: keep, dial: dial}
}

// Get is an unused connection that is still open, else a new one. fresh wants a
// new one.
func (p *Pool) Get(ctx context.Context, fresh bool) (*Conn, error) {
	now := time.Now()
	for !fresh {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			break
		}
		c := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		idle := now.Sub(c.idleSince)
		// A connection that was used a moment ago is hardly ever closed; asking the
		// kernel each time would cost a tenth of the throughput.
		if idle > p.keep || idle > 50*time.Millisecond && !alive(c.Conn) {
			c.Close()
			continue
		}
		c.Reused = true
		return c, nil
	}
	nc, err := p.dial(ctx, "tcp", p.addr)
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: nc, pool: p}
	c.R = bufio.NewReader(&c.head)
	c.head.from = nc
	return c, nil
}

// Put gives back a connection whose answer was read to its end.
func (c *Conn) Put() {
	p := c.pool
	if c.closed.Load() || c.R.Buffered() > 0 { // more than was asked for
		c.Close()
		return
	}
	c.idleSince = time.Now()
	p.mu.Lock()
	if p.closed || len(p.idle) >= maxIdle {
		p.mu.Unlock()
		c.Close()
		return
	}
	p.idle = append(p.idle, c)
	p.mu.Unlock()
}

// Sweep closes what was unused for too long.
func (p *Pool) Sweep(now time.Time) {
	p.mu.Lock()
	n := 0
	for n < len(p.idle) && now.Sub(p.idle[n].idleSince) > p.keep {
		n++
	}
	old := append([]*Conn(nil), p.idle[:n]...)
	p.idle = append(p.idle[:0], p.idle[n:]...)
	p.mu.Unlock()
	for _, c := range old {
		c.Close()
	}
}

// Idle is how many connections are unused.
func (p *Pool) Idle() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}

// Close closes the unused connections, and the others once they are given back.
func (p *Pool) Close() {
	p.mu.Lock()
	old := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, c := range old {
		c.Close()
	}
}
