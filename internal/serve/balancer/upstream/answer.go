package upstream

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/serve/balancer/plain"
)

// plainAnswer reads the head of an answer that is plain: there as a whole, with a
// Content-Length. nil: net/http must read it, nothing was taken. The answer is valid
// until the connection's next request.
func (c *Conn) plainAnswer(method string) *http.Response {
	if _, err := c.R.Peek(1); err != nil { // waits for it
		return nil
	}
	raw, _ := c.R.Peek(c.R.Buffered())
	n := plain.HeadEnd(raw)
	if n < 0 {
		return nil
	}
	resp, ok := parseAnswer(string(raw[:n-4]), &c.answer)
	if !ok {
		return nil
	}
	c.R.Discard(n)
	if resp.ContentLength == 0 || method == http.MethodHead {
		resp.Body = http.NoBody
	} else {
		c.body = knownBody{c.R, resp.ContentLength}
		resp.Body = &c.body
	}
	return resp
}

// parseAnswer parses a head without its empty line into resp.
func parseAnswer(head string, resp *http.Response) (*http.Response, bool) {
	line, rest, more := strings.Cut(head, "\r\n")
	code, ok := strings.CutPrefix(line, "HTTP/1.1 ")
	if !more || !ok || len(code) < 4 || code[3] != ' ' || !plain.IsValue(code) {
		return nil, false
	}
	status, err := strconv.ParseUint(code[:3], 10, 16)
	if err != nil || status < 200 || status == http.StatusNoContent || status == http.StatusNotModified {
		return nil, false
	}
	h := resp.Header
	if h == nil {
		h = http.Header{}
	}
	*resp = http.Response{Header: h, Status: code, StatusCode: int(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1}
	ok = plain.Header(h, rest, func(name, value string, before []string) (ok, keep bool) {
		switch name {
		case "Content-Length":
			n, err := strconv.ParseUint(value, 10, 63)
			resp.ContentLength = int64(n)
			return err == nil && before == nil, true
		case "Connection":
			resp.Close = strings.EqualFold(value, "close")
			return before == nil && (resp.Close || strings.EqualFold(value, "keep-alive")), !resp.Close
		case "Transfer-Encoding", "Trailer", "Upgrade":
			return false, false
		}
		return true, true
	})
	return resp, ok && resp.ContentLength >= 0
}

// knownBody is a body of a known length.
type knownBody struct {
	r    *bufio.Reader
	left int64
}

// Whole takes the body of an answer if all of it has come already. It is valid until
// its connection is read again.
func Whole(resp *http.Response) (body []byte, ok bool) {
	if resp.Body == http.NoBody {
		return nil, true
	}
	b, ok := resp.Body.(*knownBody)
	if !ok || b.left > int64(b.r.Buffered()) {
		return nil, false
	}
	body, err := b.r.Peek(int(b.left))
	if err != nil {
		return nil, false
	}
	b.r.Discard(len(body))
	b.left = 0
	return body, true
}

func (b *knownBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	switch b.left -= int64(n); {
	case b.left == 0:
		err = io.EOF
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *knownBody) Close() error { return nil }
