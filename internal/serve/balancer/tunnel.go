package balancer

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/skypilot-go/sky/internal/serve/balancer/balancerapi"
)

// connectTimeout bounds how long connecting through the server takes: it may have to
// log in to a machine first.
const connectTimeout = 20 * time.Second

// dialOf is how a replica of a service is reached: by its address, or through the
// server where this balancer is not in the replica's network.
func (b *Balancer) dialOf(service string, r balancerapi.Replica) dialFunc {
	if r.Network == "" || slices.Contains(b.opt.Networks, r.Network) {
		return b.opt.Dial
	}
	if b.opt.Connect == nil {
		return func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("the replica is in network " + r.Network + ", and this load balancer has no way there")}
		}
	}
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		far, err := b.opt.Connect(ctx, service, r.ID)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
		return newTunnel(far), nil
	}
}

// A tunnel is a connection that has no file descriptor of its own, such as a channel of
// ssh or a websocket. It has the deadlines that those may lack, and knows whether it
// is still open.
type tunnel struct {
	net.Conn          // the near end of a pipe
	far      net.Conn // what carries the bytes
	unread   atomic.Bool
	ended    atomic.Bool
	finished atomic.Bool // nothing more will be written
	pipe     net.Conn    // the other end of the pipe
}

// tunnelBuffer is what each direction of a tunnel moves at a time.
const tunnelBuffer = 16 << 10

func newTunnel(far net.Conn) *tunnel {
	near, pipe := net.Pipe()
	t := &tunnel{Conn: near, far: far, pipe: pipe}
	go t.receive()
	go t.send()
	return t
}

// receive moves what comes until either side ends.
func (t *tunnel) receive() {
	defer t.pipe.Close()
	buf := make([]byte, tunnelBuffer)
	for {
		n, err := t.far.Read(buf)
		if n > 0 {
			t.unread.Store(true)
			if _, err := t.pipe.Write(buf[:n]); err != nil {
				return
			}
			t.unread.Store(false)
		}
		if err != nil {
			t.ended.Store(true)
			return
		}
	}
}

// send moves what is written until the tunnel is closed, which closes what carries it.
func (t *tunnel) send() {
	buf := make([]byte, tunnelBuffer)
	for {
		n, err := t.pipe.Read(buf)
		if n > 0 {
			if _, err := t.far.Write(buf[:n]); err != nil {
				break
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && t.finished.Load() {
			if half, ok := t.far.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
				return // the answer still comes; Close ends that
			}
			break
		}
		if err != nil {
			break
		}
	}
	t.far.Close()
	t.pipe.Close()
}

// Alive reports whether an unused connection is still open and silent.
func (t *tunnel) Alive() bool { return !t.ended.Load() && !t.unread.Load() }

// CloseWrite says that nothing more will be written; reading goes on.
func (t *tunnel) CloseWrite() error {
	t.finished.Store(true)
	return t.pipe.SetReadDeadline(time.Unix(1, 0)) // what was written has been read
}

func (t *tunnel) Close() error {
	err := t.Conn.Close()
	if t.finished.Load() { // nobody else does any more
		t.far.Close()
	}
	return err
}
