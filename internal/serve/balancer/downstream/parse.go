package downstream

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/serve/balancer/plain"
)

// maxHead is the longest head of a request that is parsed here, and maxBody the
// longest body.
const (
	maxHead = 4 << 10
	maxBody = 64 << 10
)

// noRequest is what requests are made from: a context can be given to a copy only.
var noRequest = &http.Request{}

// parse reads a head that is as plain as nearly all are. For any other it reports
// false: what is rare, odd or wrong is net/http's, whose parser has seen it all. So
// nothing may be accepted here that net/http would refuse or read in another way. The
// headers are put into h.
func parse(ctx context.Context, raw []byte, h http.Header) (r *http.Request, closes, ok bool) {
	head := string(raw[:len(raw)-4]) // all strings of the request are a part of it
	line, rest, more := strings.Cut(head, "\r\n")
	method, line, _ := strings.Cut(line, " ")
	target, proto, _ := strings.Cut(line, " ")
	if proto != "HTTP/1.1" || !plainMethod(method) || !plainTarget(target) {
		return nil, false, false
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, false, false
	}
	r = noRequest.WithContext(ctx)
	r.Method, r.URL, r.Proto, r.ProtoMajor, r.ProtoMinor, r.RequestURI, r.Body = method, u, proto, 1, 1, target, http.NoBody
	if !more {
		rest = ""
	}
	host := false
	r.Header = h
	ok = plain.Header(h, rest, func(name, value string, before []string) (ok, keep bool) {
		switch name {
		case "Host":
			ok = !host && plainHost(value)
			host, r.Host = true, value
			return ok, false
		case "Content-Length":
			n, err := strconv.ParseUint(value, 10, 32)
			r.ContentLength = int64(n)
			return err == nil && before == nil && n <= maxBody, true
		case "Connection":
			closes = closes || strings.EqualFold(value, "close")
			return strings.EqualFold(value, "close") || strings.EqualFold(value, "keep-alive"), true
		case "Transfer-Encoding", "Upgrade", "Expect", "Trailer", "Http2-Settings":
			return false, false
		}
		return true, true
	})
	r.Close = closes
	return r, closes, ok && host
}

func plainMethod(s string) bool {
	for i := range len(s) {
		if s[i] < 'A' || s[i] > 'Z' {
			return false
		}
	}
	return s != "" && s != "CONNECT" && s != "PRI"
}

func plainTarget(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f || s[i] == '#' {
			return false
		}
	}
	return s != "" && s[0] == '/'
}

func plainHost(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != ':' && c != '[' && c != ']' && c != '_' {
			return false
		}
	}
	return s != ""
}
