package upstream

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// A Head is the beginning of a request.
type Head struct {
	Method, Target, Host string
	Header               http.Header
	Skip                 func(name string) bool // headers that are left out; names are canonical
	Extra                []string               // names and values in turn, which are added
	// Length is that of the body; -1: it is sent in chunks.
	Length int64
}

// buffers are for requests that are written in one piece.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// WriteRequest sends the head and as much of the body as is there already.
func (c *Conn) WriteRequest(h *Head, body []byte) (n int, err error) {
	p := buffers.Get().(*[]byte)
	b := append((*p)[:0], h.Method...)
	b = append(append(append(b, ' '), h.Target...), " HTTP/1.1\r\nHost: "...)
	b = append(append(b, h.Host...), "\r\n"...)
	for name, values := range h.Header {
		if h.Skip(name) {
			continue
		}
		for _, v := range values {
			b = field(b, name, v)
		}
	}
	for i := 0; i < len(h.Extra); i += 2 {
		b = field(b, h.Extra[i], h.Extra[i+1])
	}
	switch {
	case h.Length > 0 || h.Length == 0 && h.Method != "GET" && h.Method != "HEAD":
		b = strconv.AppendInt(append(b, "Content-Length: "...), h.Length, 10)
		b = append(b, "\r\n"...)
	case h.Length < 0:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	b = append(b, "\r\n"...)
	if len(body) > 0 && len(b)+len(body) <= 16<<10 {
		b, body = append(b, body...), nil
	}
	n, err = c.Conn.Write(b)
	if cap(b) <= 16<<10 {
		*p = b
		buffers.Put(p)
	}
	if err == nil && len(body) > 0 {
		var m int
		m, err = c.Conn.Write(body)
		n += m
	}
	return n, err
}

// field appends a header. Line ends, which nothing that was parsed can have, would
// end it; they become spaces.
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

// maxHead bounds the heads of an answer, which are held in memory.
const maxHead = 1 << 20

// headReader reads from a connection, not more than maxHead while a head is read.
type headReader struct {
	from  io.Reader
	limit bool
	left  int
}

func (r *headReader) Read(p []byte) (int, error) {
	if !r.limit {
		return r.from.Read(p)
	}
	if r.left <= 0 {
		return 0, fmt.Errorf("the headers of the answer are longer than %d KiB", maxHead>>10)
	}
	n, err := r.from.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// maxInformational bounds the answers 1xx before the real one.
const maxInformational = 16

var lineEnd = []byte("\r\n")

// ReadResponse reads the head of the answer to a request with this method. Answers
// 1xx before it go to informational, except 100, which means nothing here.
func (c *Conn) ReadResponse(method string, informational func(*http.Response)) (*http.Response, error) {
	c.head.limit, c.head.left = true, maxHead
	defer func() { c.head.limit = false }()
	if resp := c.plainAnswer(method); resp != nil {
		return resp, nil
	}
	req := &http.Request{Method: method}
	for range maxInformational {
		resp, err := http.ReadResponse(c.R, req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, nil
		}
		if resp.StatusCode != http.StatusContinue {
			informational(resp)
		}
	}
	return nil, fmt.Errorf("more than %d answers 1xx", maxInformational)
}

// Send copies a body that is longer than what was sent with the head. With a
// length of -1 it is sent in chunks, and trailer at its end.
func (c *Conn) Send(body io.Reader, length int64, buf []byte, trailer func() http.Header, sent func(n int)) error {
	var head [20]byte
	left := length
	for {
		n, err := body.Read(buf)
		if n > 0 {
			sent(n)
			if length >= 0 {
				if left -= int64(n); left < 0 {
					return fmt.Errorf("the body is longer than its Content-Length of %d", length)
				}
				if _, werr := c.Conn.Write(buf[:n]); werr != nil {
					return werr
				}
			} else {
				h := append(strconv.AppendInt(head[:0], int64(n), 16), "\r\n"...)
				chunk := net.Buffers{h, buf[:n], lineEnd}
				if _, werr := chunk.WriteTo(c.Conn); werr != nil {
					return werr
				}
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return &BodyError{err}
		}
	}
	if length >= 0 {
		if left > 0 {
			return &BodyError{io.ErrUnexpectedEOF}
		}
		return nil
	}
	end := []byte("0\r\n")
	for name, values := range trailer() {
		for _, v := range values {
			end = field(end, name, v)
		}
	}
	_, err := c.Conn.Write(append(end, "\r\n"...))
	return err
}

// A BodyError means that the client's side of a request failed, not the replica.
type BodyError struct{ Err error }

func (e *BodyError) Error() string { return "reading the body of the request: " + e.Err.Error() }
func (e *BodyError) Unwrap() error { return e.Err }
