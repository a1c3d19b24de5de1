package sshconn

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// stream gives a channel of a connection deadlines: a read that waits is left
// waiting in the background and its bytes go to the next one; a write that
// waits too long ends the stream.
type stream struct {
	net.Conn
	release func()
	once    sync.Once

	reading sync.Mutex
	pending chan chunk // of a read that goes on in the background
	rest    []byte
	end     error

	read, write timeLimit
}

type chunk struct {
	b   []byte
	err error
}

func newStream(c net.Conn, release func()) *stream {
	s := &stream{Conn: c, release: release}
	s.read.passed, s.write.passed = make(chan struct{}), make(chan struct{})
	return s
}

const chunkMost = 32 << 10

func (s *stream) Read(p []byte) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	passed := s.read.channel()
	select {
	case <-passed:
		return 0, os.ErrDeadlineExceeded
	default:
	}
	if len(s.rest) == 0 && s.end == nil {
		if s.pending == nil {
			s.pending = make(chan chunk, 1)
			go func(out chan<- chunk, b []byte) {
				n, err := s.Conn.Read(b)
				out <- chunk{b[:n], err}
			}(s.pending, make([]byte, min(max(len(p), 512), chunkMost)))
		}
		select {
		case c := <-s.pending:
			s.pending, s.rest, s.end = nil, c.b, c.err
		case <-passed:
			return 0, os.ErrDeadlineExceeded
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	if len(s.rest) > 0 || n > 0 {
		return n, nil
	}
	return n, s.end
}

func (s *stream) Write(p []byte) (int, error) {
	passed := s.write.channel()
	select {
	case <-passed:
		return 0, os.ErrDeadlineExceeded
	default:
	}
	if !s.write.set() {
		return s.Conn.Write(p)
	}
	written := make(chan struct{})
	var late sync.WaitGroup
	late.Go(func() {
		select {
		case <-written:
		case <-passed:
			s.Close()
		}
	})
	n, err := s.Conn.Write(p)
	close(written)
	late.Wait()
	select {
	case <-passed:
		if err != nil {
			err = os.ErrDeadlineExceeded
		}
	default:
	}
	return n, err
}

// CloseWrite says that nothing more will be sent; reading goes on.
func (s *stream) CloseWrite() error {
	if c, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

func (s *stream) Close() error {
	err := net.ErrClosed
	s.once.Do(func() {
		err = s.Conn.Close()
		s.release()
	})
	if err == io.EOF { // the other side was first
		err = nil
	}
	return err
}

func (s *stream) SetDeadline(t time.Time) error {
	s.read.to(t)
	s.write.to(t)
	return nil
}

func (s *stream) SetReadDeadline(t time.Time) error  { s.read.to(t); return nil }
func (s *stream) SetWriteDeadline(t time.Time) error { s.write.to(t); return nil }

// timeLimit is a deadline that can be waited for.
type timeLimit struct {
	mu     sync.Mutex
	timer  *time.Timer
	passed chan struct{}
}

func (l *timeLimit) channel() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.passed
}

func (l *timeLimit) set() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.timer != nil
}

// to sets the deadline; zero is never. Whoever waits already learns of a nearer
// one through the same channel.
func (l *timeLimit) to(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil && !l.timer.Stop() || isClosed(l.passed) {
		l.passed = make(chan struct{})
	}
	l.timer = nil
	if t.IsZero() {
		return
	}
	passed := l.passed
	d := time.Until(t)
	if d <= 0 {
		close(passed)
		return
	}
	l.timer = time.AfterFunc(d, func() { close(passed) })
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
