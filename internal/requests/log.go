package requests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/logstore"
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
	kept     bool                // where room is limited
	size     int64               // with an appender, how long the log is
	room     func(n int64) error // takes what is kept from what its user may have; may be nil
	lost     int                 // lines that there was no room for
	why      string              // there was none
	wrote    func()              // tell followers; may be nil
}

// MaxLog is how many bytes of a request's log are kept.
const MaxLog = 64 << 20

var errLogClosed = errors.New("the request has ended, its log is closed")

// keptLog writes a log that is kept, which is made at the first line. If it
// exists an earlier attempt wrote it; if that died within a line the line is
// ended, so that readers never see a line change, and its spinner too.
// What the log takes is asked of room before.
func keptLog(logs logstore.Logs, name string, room func(n int64) error, wrote func()) *Log {
	l := &Log{wrote: wrote, kept: true, room: room}
	l.open = func() (io.Writer, error) {
		a, err := logs.Append(name)
		if err != nil {
			return nil, err
		}
		if err := mend(logs, name, a); err != nil {
			a.Close()
			return nil, err
		}
		l.size = a.Size()
		return &insistent{Appender: a, logs: logs, name: name}, nil
	}
	return l
}

// mend ends what an earlier attempt left open.
func mend(logs logstore.Logs, name string, a logstore.Appender) error {
	if a.Size() == 0 {
		return nil
	}
	l, err := logs.Open(name)
	if err != nil {
		return err
	}
	defer l.Close()
	last := make([]byte, 1)
	if _, err := l.ReadAt(last, a.Size()-1); err != nil {
		return err
	}
	var end []byte
	if lineEnd(last) == 0 {
		end = []byte("\n")
	}
	_, err = a.Write(append(end, spinExit.line("")...))
	return err
}

// insistent goes on behind what somebody else wrote: the attempt before this
// one, whose server is about to notice that the request is no longer its own.
type insistent struct {
	logstore.Appender
	logs logstore.Logs
	name string
}

func (w *insistent) Write(p []byte) (int, error) {
	n, err := w.Appender.Write(p)
	for errors.Is(err, logstore.ErrTaken) {
		a, aerr := w.logs.Append(w.name)
		if aerr != nil {
			return n, errors.Join(err, aerr)
		}
		w.Appender.Close()
		w.Appender = a
		var more int
		more, err = a.Write(p[n:])
		n += more
	}
	return n, err
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

// Progress tells programs how far a transfer is.
func (l *Log) Progress(p api.TransferProgress) {
	text, err := json.Marshal(p)
	if err != nil { // a number that JSON has not
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.put(progressed.line(string(text)))
	}
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

// put appends whole lines in one write. That there is no room is no failure of the
// request: the log says later how many lines it lacks.
func (l *Log) put(lines []byte) error {
	if !l.kept {
		return l.append(lines)
	}
	all := append(l.missing(), lines...)
	err := l.take(int64(len(all)))
	if err == nil {
		err = l.append(all)
	}
	if why := noRoom(err); why != "" {
		l.lost, l.why = l.lost+bytes.Count(lines, []byte("\n")), why
		return nil
	}
	if err == nil {
		l.lost = 0
	}
	return err
}

// take asks whether n bytes more may be kept.
func (l *Log) take(n int64) error {
	if l.size+n > MaxLog {
		return logstore.ErrFull
	}
	if l.room == nil {
		return nil
	}
	return l.room(n)
}

// missing is a line that says how many lines are missing; nothing if none are.
func (l *Log) missing() []byte {
	if l.lost == 0 {
		return nil
	}
	return fmt.Appendf(nil, "(%s: %d lines of this log are missing)\n", l.why, l.lost)
}

// noRoom says why lines are not kept; "": that is not what err says.
func noRoom(err error) string {
	full, limited := errors.AsType[*diskspace.NoRoomError](err)
	switch {
	case errors.Is(err, logstore.ErrFull):
		return fmt.Sprintf("a log has at most %s", diskspace.Bytes(MaxLog))
	case limited && full.By == diskspace.ByUser:
		return "logs of one user's requests have at most " + diskspace.Bytes(full.Most)
	case limited && full.By == diskspace.ByAll:
		return "logs of requests have at most " + diskspace.Bytes(full.Most)
	case limited, diskspace.Full(err):
		return "the disk was full"
	}
	return ""
}

func (l *Log) append(lines []byte) error {
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
	l.size += int64(n)
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
	if l.kept && l.lost > 0 {
		_ = l.append(l.missing()) // beyond the limits; on a full disk this is missing, too
	}
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
	if c, ok := l.w.(logstore.Appender); ok {
		c.Close()
	}
}

// logName is what a request's log is called in the log store.
func (e *Engine) logName(id string) string { return id + ".log" }
