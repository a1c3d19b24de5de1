package requests

import (
	"io"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/api"
	"github.com/skypilot-go/sky/internal/logstore"
	"github.com/skypilot-go/sky/internal/state"
)

// buffers hold a piece of a log on its way to one reader.
var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// streamer writes one request's log to one reader.
type streamer struct {
	w      io.Writer
	o      StreamOptions
	filter plain

	at      int64     // offset in the log
	begun   bool      // the tail was found
	printed bool      // something of the log was sent
	midLine bool      // what was sent ends within a line
	text    string    // of the spinner that is shown
	last    time.Time // when something was sent
	burst   time.Time // when the log was last found to have grown
	dirty   bool      // sent, not flushed
	err     error
}

func newStreamer(w io.Writer, o StreamOptions) *streamer {
	s := &streamer{w: w, o: o, last: time.Now()}
	if !o.Plain {
		s.filter.open = progressOpen
	}
	return s
}

// send writes bytes that are shown as they are.
func (s *streamer) send(p []byte) {
	if s.err != nil || len(p) == 0 {
		return
	}
	_, s.err = s.w.Write(p)
	s.midLine = lineEnd(p[len(p)-1:]) == 0
	s.last = time.Now()
	s.dirty = true
}

// wait shows the spinner with a text, or removes it.
func (s *streamer) wait(text string) {
	if text == s.text || s.midLine {
		return
	}
	switch {
	case s.o.Plain:
		if text != "" {
			s.send([]byte(text + strings.Repeat(" ", plainWidth) + "\n"))
		}
	case text == "":
		s.send(spinExit.line(""))
	case s.text == "":
		s.send(append(spinInit.line(text), spinStart.line("")...))
	default:
		s.send(spinUpdate.line(text))
	}
	s.text = text
}

// copy sends what the log has: whole lines, or if it has ended all of it.
func (s *streamer) copy(file logstore.Log, ended bool) {
	first := !s.begun
	s.begun = true
	if file == nil {
		return
	}
	if first && s.o.Tail > 0 {
		s.skip(file)
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for s.err == nil {
		n, err := file.ReadAt(*buf, s.at)
		if err != nil && err != io.EOF {
			s.err = err
			return
		}
		whole := lineEnd((*buf)[:n])
		if whole == 0 && (n == len(*buf) || ended) {
			whole = n // a line longer than the buffer, or one that nobody will end
		}
		if whole == 0 {
			return
		}
		p := (*buf)[:whole]
		s.at += int64(whole)
		if s.text != "" {
			s.wait("")
		}
		s.printed = true
		s.send(s.filtered(p))
	}
}

// filtered is what of p the reader wants.
func (s *streamer) filtered(p []byte) []byte {
	if s.o.Plain || !s.o.Progress {
		return s.filter.filter(p)
	}
	return p
}

// skip goes to where the last lines begin.
func (s *streamer) skip(file logstore.Log) {
	size, err := file.Size()
	if err == nil {
		s.at, err = tailOffset(file, size, s.o.Tail)
	}
	s.err = err
}

// beat sends a heartbeat if it is time.
func (s *streamer) beat(now time.Time) {
	if s.quiet(now) <= 0 {
		if s.midLine {
			s.last = now // a control line would swallow the line's beginning
			return
		}
		s.send(heartbeat.line(""))
	}
}

// quiet is how long until a heartbeat is due.
func (s *streamer) quiet(now time.Time) time.Duration { return silence - now.Sub(s.last) }

// endLine ends a line that nobody will end: clients do not show one without.
func (s *streamer) endLine() {
	s.send(s.filter.rest())
	if s.midLine {
		s.send([]byte("\n"))
	}
}

// finish ends the stream of a request.
func (s *streamer) finish(row *state.Request) error {
	s.endLine()
	s.wait("")
	if row.Status == api.RequestCancelled {
		s.send([]byte(cancelledLine(row.ID)))
	}
	s.flush()
	return s.err
}

func cancelledLine(id string) string { return "Request " + id + " was cancelled.\n" }

// again ends the stream such that the client asks again.
func (s *streamer) again() error {
	if s.midLine {
		s.send([]byte("\n"))
	}
	if !s.o.Plain {
		s.send(retry.line(""))
	}
	s.flush()
	return s.err
}

func (s *streamer) flush() {
	if f, ok := s.w.(interface{ Flush() }); ok && s.dirty && s.err == nil {
		f.Flush()
	}
	s.dirty = false
}
