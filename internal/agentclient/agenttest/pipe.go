//go:build unix

package agenttest

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// newPipe is a connection in memory. Unlike [net.Pipe] it holds what was written
// and not read yet, as a network does: both ends may write at the same time.
func newPipe() (net.Conn, net.Conn) {
	a, b := newStream(), newStream()
	return &end{in: a, out: b}, &end{in: b, out: a}
}

// stream is one direction.
type stream struct {
	mu       sync.Mutex
	change   *sync.Cond
	data     []byte
	closed   bool // nothing more comes, or nobody reads any more
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

type end struct{ in, out *stream }

func (e *end) Read(p []byte) (int, error) {
	s := e.in
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.data) == 0 {
		switch {
		case s.closed:
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
		if s.closed {
			return n, io.ErrClosedPipe
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
