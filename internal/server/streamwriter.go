package server

import (
	"net/http"
	"time"
)

// stalledAfter is how long a reader may take nothing before it is cut off.
const stalledAfter = 10 * time.Minute

const textPlain = "text/plain; charset=utf-8"

// A stream is the body of an answer without an end in sight: what is written
// leaves with Flush, and a reader that stalls does not hold it for ever. It is
// for one writer at a time.
type stream struct {
	w    http.ResponseWriter // has buffers of its own
	rc   *http.ResponseController
	held int // bytes that were written and may not have left
	err  error
}

// heldByHTTP is how much the HTTP server holds back at least; what is less does
// not wait for the reader.
const heldByHTTP = 2 << 10

func newStream(w http.ResponseWriter) *stream {
	return &stream{w: w, rc: http.NewResponseController(w)}
}

// begin sends the headers. Proxies are asked to hold nothing back.
func (s *stream) begin(contentType string) {
	h := s.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
	s.err = s.rc.Flush()
}

func (s *stream) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if s.held += len(p); s.held >= heldByHTTP {
		s.deadline()
		s.held = 0
	}
	n, err := s.w.Write(p)
	s.err = err
	return n, err
}

// Flush sends what was written. The package of requests calls it after a burst.
func (s *stream) Flush() {
	if s.err != nil {
		return
	}
	s.deadline()
	s.held = 0
	s.err = s.rc.Flush()
}

// Close sends what is left; the connection may be used for the next request.
func (s *stream) Close() {
	s.Flush()
	_ = s.rc.SetWriteDeadline(time.Time{})
}

func (s *stream) deadline() { _ = s.rc.SetWriteDeadline(time.Now().Add(stalledAfter)) }

// prompt is a stream that begins with the first byte and sends every write at
// once, for writers that do not flush.
type prompt struct {
	*stream
	began bool
}

func (p *prompt) start() {
	if !p.began {
		p.began = true
		p.begin(textPlain)
	}
}

func (p *prompt) Write(b []byte) (int, error) {
	p.start()
	n, err := p.stream.Write(b)
	p.Flush()
	return n, err
}

// Flush sends nothing before the first byte: until then the writer may fail.
func (p *prompt) Flush() {
	if p.began {
		p.stream.Flush()
	}
}
