//go:build linux

package harness

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Relay passes TCP connections on to the first of its targets that answers, each
// connection to the next one. It can be cut, which also breaks what goes
// through it: a balancer, and the network between a server and its database.
type Relay struct {
	l       net.Listener
	targets []string
	next    atomic.Int64

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

// NewRelay listens on a port of its own until the test ends.
func NewRelay(t testing.TB, targets ...string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{l: l, targets: targets, conns: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { r.pass(c) })
		}
	})
	t.Cleanup(func() { l.Close(); r.Cut(true); wg.Wait() })
	return r
}

// Address is where it listens.
func (r *Relay) Address() string { return r.l.Addr().String() }

func (r *Relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut {
		return false
	}
	r.conns[c] = true
	return true
}

func (r *Relay) pass(client net.Conn) {
	defer client.Close()
	if !r.keep(client) {
		return
	}
	var server net.Conn
	first := int(r.next.Add(1))
	for i := range r.targets {
		c, err := net.DialTimeout("tcp", r.targets[(first+i)%len(r.targets)], time.Second)
		if err == nil {
			server = c
			break
		}
	}
	if server == nil {
		return
	}
	defer server.Close()
	if !r.keep(server) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(server, client); server.(*net.TCPConn).CloseWrite() })
	io.Copy(client, server)
	client.Close()
	wg.Wait()
	r.mu.Lock()
	delete(r.conns, client)
	delete(r.conns, server)
	r.mu.Unlock()
}

// Cut breaks the relay, or mends it.
func (r *Relay) Cut(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
	if cut {
		for c := range r.conns {
			c.Close()
		}
	}
}
