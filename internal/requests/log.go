package requests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// Log is the output of a request: lines of text and, between them, control
// lines for the client's spinner. It takes whole lines: the beginning of one
// is kept until the rest comes. Its methods may be called concurrently.
type Log struct {
	mu       sync.Mutex
	open     func() (io.Writer, error) // at the first line
	w        io.Writer
	part     []byte // of a line that has not ended
	torn     bool   // the last write ended within a line
	spinner  string // text of the spinner that is shown
	spinning bool
	closed   bool
	wrote    func() // tell followers; may be nil
}

var errLogClosed = errors.New("the request has ended, its log is closed")

// fileLog writes the file at path, which is made at the first line. If it
// exists an earlier attempt wrote it; if that died within a line the line is
// ended, so that readers never see a line change, and its spinner too.
func fileLog(path string, wrote func()) *Log {
	l := &Log{wrote: wrote}
	l.open = func() (io.Writer, error) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
		if err != nil {
			return nil, err
		}
		if err := mend(f); err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	}
	return l
}

// mend ends what an earlier attempt left open.
func mend(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil {
		return err
	}
	var end []byte
	if lineEnd(last) == 0 {
		end = []byte("\n")
	}
	_, err = f.Write(append(end, spinExit.line("")...))
	return err
}

// streamLog writes to w, for calls whose response is the log.
func streamLog(w io.Writer) *Log {
	return &Log{open: func() (io.Writer, error) { return w, nil }}
}

// Write appends p. A line that p does not end is kept until a later Write or
// the request's end.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, errLogClosed
	}
	n := lineEnd(p)
	if n == 0 {
		l.part = append(l.part, p...)
		return len(p), nil
	}
	lines := p[:n]
	if len(l.part) > 0 {
		lines = append(l.part, lines...)
	}
	l.part = append([]byte(nil), p[n:]...)
	if err := l.put(lines); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Printf appends a line; the line feed may be left out.
func (l *Log) Printf(format string, a ...any) {
	line := fmt.Appendf(nil, format, a...)
	if !bytes.HasSuffix(line, []byte("\n")) {
		line = append(line, '\n')
	}
	l.Write(line)
}

// Spin shows a spinner with this text, or changes the text of the one shown.
// The text may hold rich markup.
func (l *Log) Spin(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	switch {
	case !l.spinning:
		l.spinning = l.put(append(spinInit.line(text), spinStart.line("")...)) == nil
	case text != l.spinner:
		l.put(spinUpdate.line(text))
	}
	l.spinner = text
}

// StopSpin removes the spinner, if there is one.
func (l *Log) StopSpin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopSpin()
}

func (l *Log) stopSpin() {
	if l.spinning && !l.closed {
		l.put(spinExit.line(""))
		l.spinning = false
	}
}

// put appends whole lines in one write.
func (l *Log) put(lines []byte) error {
	if l.w == nil {
		w, err := l.open()
		if err != nil {
			return fmt.Errorf("writing the request's log: %w", err)
		}
		l.w = w
	}
	if l.torn {
		lines = append([]byte("\n"), lines...)
	}
	n, err := l.w.Write(lines)
	if n > 0 {
		l.torn = n < len(lines) && lineEnd(lines[n-1:n]) == 0
	}
	if l.wrote != nil {
		l.wrote()
	}
	if err != nil {
		return fmt.Errorf("writing the request's log: %w", err)
	}
	return nil
}

// close ends a line that has not ended and the spinner, and refuses what comes
// later.
func (l *Log) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if len(l.part) > 0 {
		l.put(append(l.part, '\n'))
		l.part = nil
	}
	l.stopSpin()
	l.abandonLocked()
}

// abandon refuses what comes later, and leaves the file as it is: the log now
// belongs to another attempt.
func (l *Log) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.abandonLocked()
}

func (l *Log) abandonLocked() {
	l.closed = true
	if c, ok := l.w.(*os.File); ok {
		c.Close()
	}
}

// logPath is the file of a request's log.
func (e *Engine) logPath(id string) string { return filepath.Join(e.o.LogDir, id+".log") }
