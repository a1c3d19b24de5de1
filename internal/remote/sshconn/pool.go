// Package sshconn keeps ssh connections to machines: one to each, shared by all
// that goes there, looked after while it is open and made anew when it breaks.
// It needs no ssh program.
//
// Keys of hosts are what a cloud told, or what the host showed on first contact;
// they are checked ever after. See [Target] for the ways to log in.
package sshconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Options say where keys are and how patient connections are. Zero durations
// have sensible values.
type Options struct {
	Home        string              // of the user, for ~/.ssh
	KnownHosts  string              // file for host keys; "": nothing is remembered
	AgentSocket string              // of a running ssh-agent, for targets with OwnKeys
	Password    func(Target) string // on file for a target with OwnKeys; "": none

	Timeout   time.Duration // of each step: connecting, logging in, opening a channel; 0: 15 s
	KeepAlive time.Duration // between questions whether the host is there; 0: 10 s
	Idle      time.Duration // an unused connection is closed after this; 0: 10 min
}

// Pool holds the connections. Its methods may be called concurrently.
type Pool struct {
	o      Options
	hosts  hostKeys
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu    sync.Mutex
	nodes map[string]*node
}

// New returns a pool without connections.
func New(o Options) *Pool {
	set := func(d *time.Duration, usual time.Duration) {
		if *d == 0 {
			*d = usual
		}
	}
	set(&o.Timeout, 15*time.Second)
	set(&o.KeepAlive, 10*time.Second)
	set(&o.Idle, 10*time.Minute)
	p := &Pool{o: o, hosts: hostKeys{path: o.KnownHosts}, nodes: map[string]*node{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Close ends all connections.
func (p *Pool) Close() {
	p.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.nodes {
		n.drop()
	}
}

// KnownHosts is the file in which host keys are recorded, and Alias the name
// they have there: what another ssh program needs to check the same keys.
func (p *Pool) KnownHosts() string    { return p.o.KnownHosts }
func (p *Pool) Alias(t Target) string { return t.alias() }
func (p *Pool) Remembers(t Target) bool {
	keys, err := p.hosts.recorded(t.alias())
	return err == nil && len(keys) > 0
}

// ForgetHosts removes the host keys whose alias begins with prefix.
func (p *Pool) ForgetHosts(prefix string) error { return p.hosts.forget(prefix) }

// Drop closes the connection to a target, if there is one.
func (p *Pool) Drop(t Target) {
	p.mu.Lock()
	n := p.nodes[t.key()]
	delete(p.nodes, t.key())
	p.mu.Unlock()
	if n != nil {
		n.drop()
	}
}

// Pauses before a host that could not be connected to is tried again.
const (
	backOffFirst = 200 * time.Millisecond
	backOffMost  = 5 * time.Second
	// sessionsAtOnce stays below what an sshd allows on one connection (10).
	sessionsAtOnce = 8
)

// node is one target's place in the pool.
type node struct {
	mu      sync.Mutex
	conn    *conn
	dialing *dialing // nil: nobody dials
	wait    time.Duration
	next    time.Time // not before this is it dialled again
	last    error
}

// dialing is one try that everybody who wants the connection waits for.
type dialing struct {
	done chan struct{}
	conn *conn
	err  error
}

// conn is an open connection.
type conn struct {
	client   *ssh.Client
	sessions chan struct{}
	gone     chan struct{} // closed when it is over

	mu   sync.Mutex
	uses int
	used time.Time
}

func (n *node) drop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conn != nil {
		n.conn.client.Close()
		n.conn = nil
	}
}

// connect returns the connection to a target, which it makes if there is none.
// The caller releases it.
func (p *Pool) connect(ctx context.Context, t Target) (*conn, error) {
	p.mu.Lock()
	n := p.nodes[t.key()]
	if n == nil {
		n = &node{}
		p.nodes[t.key()] = n
	}
	p.mu.Unlock()

	n.mu.Lock()
	if c := n.conn; c != nil {
		select {
		case <-c.gone:
			n.conn = nil
		default:
			c.take()
			n.mu.Unlock()
			return c, nil
		}
	}
	d, last := n.dialing, n.last
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		n.dialing = d
		go p.redial(t, n, d, time.Until(n.next))
	}
	n.mu.Unlock()
	select {
	case <-d.done:
		if d.err != nil {
			return nil, d.err
		}
		d.conn.take()
		return d.conn, nil
	case <-ctx.Done():
		err := context.Cause(ctx)
		if last != nil {
			err = fmt.Errorf("%w (before that: %w)", err, last)
		}
		return nil, &UnreachableError{t.String(), "connecting", err}
	}
}

// redial is the one try; it outlives those who wait for it.
func (p *Pool) redial(t Target, n *node, d *dialing, pause time.Duration) {
	if pause > 0 {
		select {
		case <-p.ctx.Done():
		case <-time.After(pause):
		}
	}
	client, err := p.dial(p.ctx, t)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dialing = nil
	n.last = err
	if err != nil {
		n.wait = min(max(2*n.wait, backOffFirst), backOffMost)
		n.next = time.Now().Add(n.wait)
		d.err = err
		close(d.done)
		return
	}
	c := &conn{client: client, sessions: make(chan struct{}, sessionsAtOnce), gone: make(chan struct{}), used: time.Now()}
	n.wait, n.conn, d.conn = 0, c, c
	close(d.done)
	go func() {
		client.Wait()
		close(c.gone)
	}()
	go p.lookAfter(c)
}

// lookAfter asks now and then whether the host is there, and ends a connection
// that nobody uses any more.
func (p *Pool) lookAfter(c *conn) {
	t := time.NewTicker(p.o.KeepAlive)
	defer t.Stop()
	for {
		select {
		case <-c.gone:
			return
		case <-p.ctx.Done():
			c.client.Close()
			return
		case <-t.C:
		}
		if c.unused(p.o.Idle) || !p.answers(c) {
			c.client.Close()
			return
		}
	}
}

func (p *Pool) answers(c *conn) bool {
	answer := make(chan error, 1)
	go func() {
		_, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil)
		answer <- err
	}()
	select {
	case err := <-answer:
		return err == nil
	case <-time.After(p.o.Timeout):
		return false
	}
}

func (c *conn) take() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses++
}

func (c *conn) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses--
	c.used = time.Now()
}

func (c *conn) unused(limit time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.uses == 0 && time.Since(c.used) > limit
}

// open does something that opens a channel on the target's connection. A
// connection that turns out to be broken is made anew once; one on which
// nothing happens any more is given up.
func open[T io.Closer](ctx context.Context, p *Pool, t Target, what string, session bool, f func(*conn) (T, error)) (T, *conn, error) {
	var zero T
	for try := 1; ; try++ {
		c, err := p.connect(ctx, t)
		if err != nil {
			return zero, nil, err
		}
		if session {
			err = c.takeSession(ctx)
		}
		var v T
		if err == nil {
			if v, err = channel(ctx, c, p.o.Timeout, f); err == nil {
				return v, c, nil
			}
			if session {
				<-c.sessions
			}
		}
		c.release()
		var refused *ssh.OpenChannelError
		if errors.As(err, &refused) {
			return zero, nil, err
		}
		if ctx.Err() != nil || try == 2 {
			return zero, nil, &UnreachableError{t.String(), what, err}
		}
		c.client.Close()
		<-c.gone
	}
}

// channel calls f, which cannot be cancelled, and waits for it as long as ctx
// and the timeout allow.
func channel[T io.Closer](ctx context.Context, c *conn, timeout time.Duration, f func(*conn) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f(c)
		done <- result{v, err}
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	var err error
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = noAnswer(timeout)
		c.client.Close()
	}
	go func() { // it may still come
		if late := <-done; late.err == nil {
			late.v.Close()
		}
	}()
	var zero T
	return zero, err
}

// takeSession waits until there may be another session on the connection.
func (c *conn) takeSession(ctx context.Context) error {
	select {
	case c.sessions <- struct{}{}:
		return nil
	case <-c.gone:
		return io.EOF
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Dial connects to an address as seen from the target.
func (p *Pool) Dial(ctx context.Context, t Target, address string) (net.Conn, error) {
	ch, c, err := open(ctx, p, t, "connecting to "+address+" from there", false,
		func(c *conn) (net.Conn, error) { return c.client.Dial("tcp", address) })
	if err != nil {
		var refused *ssh.OpenChannelError
		if errors.As(err, &refused) {
			return nil, refusedChannel(t, address, refused)
		}
		return nil, err
	}
	return newStream(ch, c.release), nil
}

// ErrNoForwarding means that an sshd forbids connections through it.
var ErrNoForwarding = errors.New("its sshd forbids connections through it (AllowTcpForwarding)")

func refusedChannel(t Target, address string, e *ssh.OpenChannelError) error {
	if e.Reason == ssh.Prohibited {
		return fmt.Errorf("%s: %w", t, ErrNoForwarding)
	}
	return &UnreachableError{t.String(), "connecting to " + address + " from there", errors.New(e.Message)}
}
