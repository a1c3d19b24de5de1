package requests

import (
	"io"
	"sync"
	"time"
)

// liveWriter sends heartbeats while its function is silent.
type liveWriter struct {
	mu      sync.Mutex
	w       io.Writer
	midLine bool
	last    time.Time
	err     error
}

func newLiveWriter(w io.Writer) *liveWriter { return &liveWriter{w: w, last: time.Now()} }

func (l *liveWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.write(p)
}

func (l *liveWriter) write(p []byte) (int, error) {
	if l.err != nil || len(p) == 0 {
		return 0, l.err
	}
	var n int
	n, l.err = l.w.Write(p)
	l.midLine = lineEnd(p[len(p)-1:]) == 0
	l.last = time.Now()
	if f, ok := l.w.(interface{ Flush() }); ok && l.err == nil {
		f.Flush()
	}
	return n, l.err
}

// broken reports whether the reader is gone.
func (l *liveWriter) broken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err != nil
}

// control sends a control line, on a line of its own.
func (l *liveWriter) control(c control) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := c.line("")
	if l.midLine {
		line = append([]byte("\n"), line...)
	}
	l.write(line)
}

// keepAlive sends heartbeats until the result is called. It is a timer, not a
// goroutine: most of those who follow a log wait for it.
func (l *liveWriter) keepAlive() (stop func()) {
	var timer *time.Timer
	ended := false
	l.mu.Lock()
	defer l.mu.Unlock()
	timer = time.AfterFunc(silence, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if ended {
			return
		}
		if time.Since(l.last) >= silence {
			if l.midLine { // a control line would swallow the line's beginning
				l.last = time.Now()
			} else {
				l.write(heartbeat.line(""))
			}
		}
		timer.Reset(silence - time.Since(l.last))
	})
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		ended = true
		timer.Stop()
	}
}
