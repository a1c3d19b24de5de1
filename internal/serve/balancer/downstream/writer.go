package downstream

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A writer writes an answer. What is written is collected until it is flushed or
// the answer ends, so that a short answer is one packet.
type writer struct {
	c       *conn
	header  http.Header
	head    bool // the request was HEAD
	closes  bool // the connection ends with the answer
	status  int
	begun   bool // the head is in buf or was sent
	chunked bool
	none    bool  // an answer of this status has no body
	left    int64 // of Content-Length; -1: there is none
	buf     *[]byte
	err     error
}

// collected are buffers of answers, which a connection has only while it writes.
var collected = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// maxCollected is how much is collected.
const maxCollected = 16 << 10

func (w *writer) reset(head, closes bool) {
	clear(w.header)
	*w = writer{c: w.c, header: w.header, head: head, closes: closes, left: -1}
}

func (w *writer) Header() http.Header { return w.header }

// SetWriteDeadline is what [http.ResponseController] looks for.
func (w *writer) SetWriteDeadline(due time.Time) error { return w.c.nc.SetWriteDeadline(due) }

func (w *writer) take() *[]byte {
	if w.buf == nil {
		w.buf = collected.Get().(*[]byte)
		*w.buf = (*w.buf)[:0]
	}
	return w.buf
}

func (w *writer) WriteHeader(status int) {
	if w.status != 0 {
		return
	}
	if status >= 100 && status < 200 {
		b := w.take()
		*b = w.fields(statusLine(*b, status), true)
		*b = append(*b, "\r\n"...)
		w.Flush()
		return
	}
	w.status = status
}

func statusLine(b []byte, status int) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(status)...)
	return append(b, "\r\n"...)
}

// begin writes the head. length is that of the body if nothing more follows; -1: not known.
func (w *writer) begin(length int) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.begun = true
	h := w.header
	w.none = w.status == http.StatusNoContent || w.status == http.StatusNotModified
	if v := h["Content-Length"]; len(v) > 0 {
		n, err := strconv.ParseUint(v[0], 10, 63)
		if err != nil || len(v) > 1 || w.status == http.StatusNoContent {
			delete(h, "Content-Length")
		} else {
			w.left = int64(n)
		}
	}
	b := w.take()
	out := w.fields(statusLine(*b, w.status), false)
	switch {
	case w.left >= 0 || w.none:
	case length >= 0 && !w.head:
		out = append(out, "Content-Length: "...)
		out = append(strconv.AppendInt(out, int64(length), 10), "\r\n"...)
		w.left = int64(length)
	case !w.head:
		w.chunked = true
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	}
	if h["Date"] == nil {
		out = append(out, "Date: "...)
		out = time.Now().UTC().AppendFormat(out, http.TimeFormat)
		out = append(out, "\r\n"...)
	}
	if slices.ContainsFunc(h["Connection"], func(v string) bool { return strings.EqualFold(v, "close") }) {
		w.closes = true
	}
	if w.closes {
		out = append(out, "Connection: close\r\n"...)
	}
	*b = append(out, "\r\n"...)
}

// fields appends the headers.
func (w *writer) fields(b []byte, informational bool) []byte {
	for name, values := range w.header {
		if name == "Connection" || name == "Transfer-Encoding" || informational && name == "Content-Length" || strings.HasPrefix(name, http.TrailerPrefix) || w.announced(name) {
			continue
		}
		for _, v := range values {
			b = field(b, name, v)
		}
	}
	return b
}

// announced reports whether a header is one of the trailers.
func (w *writer) announced(name string) bool {
	return name != "Trailer" && slices.Contains(w.header["Trailer"], name)
}

func field(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	at := len(b)
	b = append(b, value...)
	for i := at; i < len(b); i++ {
		if b[i] == '\r' || b[i] == '\n' {
			b[i] = ' '
		}
	}
	return append(b, "\r\n"...)
}

var errTooMuch = errors.New("the answer is longer than its Content-Length")

func (w *writer) Write(p []byte) (int, error) {
	if !w.begun {
		w.begin(-1)
	}
	if w.err != nil {
		return 0, w.err
	}
	if w.head || w.none || len(p) == 0 {
		return len(p), nil
	}
	if w.left >= 0 {
		if int64(len(p)) > w.left {
			w.err, w.closes = errTooMuch, true
			return 0, w.err
		}
		w.left -= int64(len(p))
	}
	b := w.take()
	if w.chunked {
		*b = append(strconv.AppendInt(*b, int64(len(p)), 16), "\r\n"...)
	}
	if len(*b)+len(p) <= maxCollected {
		*b = append(*b, p...)
		if w.chunked {
			*b = append(*b, "\r\n"...)
		}
		return len(p), nil
	}
	parts := net.Buffers{*b, p}
	if w.chunked {
		parts = append(parts, lineEnd)
	}
	_, w.err = parts.WriteTo(w.c.nc)
	w.give()
	return len(p), w.err
}

var lineEnd = []byte("\r\n")

// give returns the buffer.
func (w *writer) give() {
	if w.buf != nil {
		if cap(*w.buf) <= 2*maxCollected {
			*w.buf = (*w.buf)[:0]
			collected.Put(w.buf)
		}
		w.buf = nil
	}
}

// Flush sends what was collected.
func (w *writer) Flush() {
	if !w.begun && w.status != 0 {
		w.begin(-1)
	}
	if w.buf == nil {
		return
	}
	if len(*w.buf) > 0 && w.err == nil {
		_, w.err = w.c.nc.Write(*w.buf)
	}
	w.give()
}

// end ends the answer.
func (w *writer) end() error {
	if !w.begun {
		w.begin(0)
	}
	if w.chunked {
		b := w.take()
		*b = append(*b, "0\r\n"...)
		for name, values := range w.header {
			bare, prefixed := strings.CutPrefix(name, http.TrailerPrefix)
			if !prefixed && !w.announced(name) {
				continue
			}
			for _, v := range values {
				*b = field(*b, bare, v)
			}
		}
		*b = append(*b, "\r\n"...)
	} else if w.left > 0 && !w.head && !w.none {
		w.closes = true // less than it said: the client must not wait for the rest
	}
	w.Flush()
	return w.err
}
