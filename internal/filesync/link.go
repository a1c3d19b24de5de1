package filesync

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A link is one end of a connection during one sync: it writes frames from a
// queue, watches for progress, tells the peer when slow work goes on, and cuts
// blocked reads and writes short when its context ends.
type link struct {
	conn    io.ReadWriter
	in      *bufio.Reader
	out     chan []byte
	timeout time.Duration
	fail    context.CancelCauseFunc

	work  atomic.Uint64 // grows with work done here: files, bytes hashed
	moved atomic.Uint64 // grows with bytes in and out
	wire  atomic.Int64  // bytes written

	skip    atomic.Int32 // frames not to try to compress
	wasted  atomic.Int32 // tries in a row that did not help
	cut     atomic.Bool  // the connection was interrupted
	quit    chan struct{}
	written chan struct{}
	helpers sync.WaitGroup
}

const (
	queueLen  = 8
	writeStep = 64 << 10 // so that a slow connection shows progress
	maxPing   = 5 * time.Second
)

// newLink starts the goroutines of a link; close ends them. The context ends
// when ctx does or when the link fails, which is then its cause.
func newLink(ctx context.Context, conn io.ReadWriter, in *bufio.Reader, timeout time.Duration) (*link, context.Context) {
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	ctx, fail := context.WithCancelCause(ctx)
	l := &link{conn: conn, in: in, timeout: timeout, fail: fail,
		out: make(chan []byte, queueLen), quit: make(chan struct{}), written: make(chan struct{})}
	l.helpers.Go(func() { l.watch(ctx) })
	go l.write(ctx)
	return l, ctx
}

// send queues a frame that is not yet sealed.
func (l *link) send(ctx context.Context, f []byte) error {
	if len(l.out) > 1 { // the peer or the way to it is slower than we are
		f = l.compress(f)
	}
	select {
	case l.out <- seal(f):
		return nil
	case <-ctx.Done():
		putBuffer(f)
		return context.Cause(ctx)
	}
}

// compress packs a frame, but tries less and less often on what does not
// shrink.
func (l *link) compress(f []byte) []byte {
	if l.skip.Load() > 0 {
		l.skip.Add(-1)
		return f
	}
	f, ok := pack(f)
	if ok {
		l.wasted.Store(0)
	} else if len(f) > 16<<10 {
		l.skip.Store(1 << min(l.wasted.Add(1), 5))
	}
	return f
}

// write is the only writer of the connection.
func (l *link) write(ctx context.Context) {
	defer close(l.written)
	ping := time.NewTicker(min(maxPing, l.timeout/4))
	defer ping.Stop()
	var told uint64
	for {
		var f []byte
		select {
		case next, open := <-l.out:
			if !open {
				return
			}
			f = next
		case <-ping.C:
			now := l.work.Load()
			if now == told {
				continue
			}
			told = now
			f = seal(newFrame(framePing))
		case <-ctx.Done():
			return
		}
		for p := f; len(p) > 0; {
			n, err := l.conn.Write(p[:min(len(p), writeStep)])
			l.moved.Add(1)
			l.wire.Add(int64(n))
			if err != nil {
				l.fail(err)
				return
			}
			p = p[n:]
		}
		putBuffer(f)
	}
}

// read returns the next frame that is not a ping.
func (l *link) read() (kind byte, payload []byte, err error) {
	for {
		kind, payload, err = readFrame(l.in)
		l.moved.Add(1)
		if err != nil || kind != framePing {
			return kind, payload, err
		}
		putBuffer(payload)
	}
}

// watch interrupts the connection when the context ends, and ends it when
// nothing moves any more.
func (l *link) watch(ctx context.Context) {
	tick := time.NewTicker(max(l.timeout/16, time.Millisecond))
	defer tick.Stop()
	last, since := uint64(0), time.Now()
	for {
		select {
		case <-l.quit:
			return
		case <-ctx.Done():
			l.interrupt()
			return
		case now := <-tick.C:
			if sum := l.work.Load() + l.moved.Load(); sum != last {
				last, since = sum, now
			} else if now.Sub(since) >= l.timeout {
				l.fail(&StalledError{After: l.timeout})
			}
		}
	}
}

func (l *link) interrupt() {
	l.cut.Store(true)
	if c, ok := l.conn.(net.Conn); ok && c.SetDeadline(time.Unix(1, 0)) == nil {
		return
	}
	if c, ok := l.conn.(io.Closer); ok {
		c.Close()
	}
}

// flush ends the queue: what is in it is written, nothing may follow.
func (l *link) flush() {
	close(l.out)
	<-l.written
}

// close ends the goroutines. The connection can be used again if the link has
// not failed. It returns why it has.
func (l *link) close(ctx context.Context) error {
	err := context.Cause(ctx)
	close(l.quit)
	l.helpers.Wait()
	l.fail(nil)
	if c, ok := l.conn.(net.Conn); ok && err == nil && l.cut.Load() {
		err = c.SetDeadline(time.Time{})
	}
	return err
}
