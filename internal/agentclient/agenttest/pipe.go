//go:build unix

package agenttest

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// newPipe is a connection in memory. Unlike [net.Pipe] it holds what was written
// and not read yet, as a network does: both ends may write at the same time.
func newPipe() (net.Conn, net.Conn) {
	a, b := newStream(), newStream()
	return &end{in: a, out: b}, &end{in: b, out: a}
}

// Lose cuts the network between the ends of a connection that [Node.Dial] made:
// nothing arrives any more, and neither end learns of it, not even that the other
// one closes.
func Lose(conn net.Conn) {
	e := conn.(*end)
	for _, s := range []*stream{e.in, e.out} {
		s.mu.Lock()
		s.lost, s.data = true, nil
		s.change.Broadcast()
		s.mu.Unlock()
	}
}

// CutAfter returns conn with a fault: before the first write that exceeds a total of
// limit bytes it calls fault. If that returns an error, the write fails with it.
func CutAfter(conn net.Conn, limit int64, fault func() error) net.Conn {
	return &faulty{Conn: conn, left: limit, fault: fault}
}

// faulty is a connection with one writer.
type faulty struct {
	net.Conn
	left  int64
	fault func() error // nil: it has happened
}

func (f *faulty) Write(p []byte) (int, error) {
	if f.left -= int64(len(p)); f.left < 0 && f.fault != nil {
		fault := f.fault
		f.fault = nil
		if err := fault(); err != nil {
			return 0, err
		}
	}
	return f.Conn.Write(p)
}

// stream is one direction.
type stream struct {
	mu       sync.Mutex
	change   *sync.Cond
	data     []byte
	closed   bool // nothing more comes, or nobody reads any more
	lost     bool // what is written does not arrive
	deadline time.Time
	alarm    *time.Timer
}

// window is how much may be on the way.
const window = 256 << 10

func newStream() *stream {
	s := &stream{}
	s.change = sync.NewCond(&s.mu)
	return s
}

type end struct {
	in, out *stream
	closed  atomic.Bool // by its owner
}

// over reports whether the end knows that a stream has been closed.
func (e *end) over(s *stream) bool { return s.closed && !s.lost || e.closed.Load() }

func (e *end) Read(p []byte) (int, error) {
	s := e.in
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.data) == 0 {
		switch {
		case e.over(s):
			return 0, io.EOF
		case s.late():
			return 0, os.ErrDeadlineExceeded
		}
		s.change.Wait()
	}
	n := copy(p, s.data)
	s.data = s.data[n:]
	s.change.Broadcast()
	return n, nil
}

func (e *end) Write(p []byte) (n int, err error) {
	s := e.out
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(p) > 0 {
		switch {
		case e.over(s):
			return n, io.ErrClosedPipe
		case s.lost:
			return n + len(p), nil
		}
		if room := window - len(s.data); room > 0 {
			k := min(room, len(p))
			s.data, p, n = append(s.data, p[:k]...), p[k:], n+k
			s.change.Broadcast()
			continue
		}
		s.change.Wait()
	}
	return n, nil
}

func (e *end) Close() error {
	e.closed.Store(true)
	for _, s := range []*stream{e.in, e.out} {
		s.mu.Lock()
		s.closed = true
		if s.alarm != nil {
			s.alarm.Stop()
		}
		s.change.Broadcast()
		s.mu.Unlock()
	}
	return nil
}

func (s *stream) late() bool { return !s.deadline.IsZero() && !time.Now().Before(s.deadline) }

// SetReadDeadline wakes a reader up in time.
func (e *end) SetReadDeadline(t time.Time) error {
	s := e.in
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alarm != nil {
		s.alarm.Stop()
	}
	s.deadline = t
	// A timer that is due at once is not set: under the race detector, Go 1.26 runs
	// such timers of a synctest bubble in one context, even several at a time.
	if !t.IsZero() && !s.late() {
		s.alarm = time.AfterFunc(time.Until(t), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.change.Broadcast()
		})
	}
	s.change.Broadcast()
	return nil
}

// SetWriteDeadline does nothing: who does not read is closed by the other side.
func (e *end) SetWriteDeadline(time.Time) error { return nil }

func (e *end) SetDeadline(t time.Time) error { return e.SetReadDeadline(t) }

func (e *end) LocalAddr() net.Addr  { return address{} }
func (e *end) RemoteAddr() net.Addr { return address{} }
