package downstream

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
)

// maxHead is the longest head of a request that is parsed here, and maxBody the
// longest body.
const (
	maxHead = 4 << 10
	maxBody = 64 << 10
)

// headEnd is the length of a head with its empty line; -1: it is not there yet.
func headEnd(b []byte) int {
	if i := bytes.Index(b, []byte("\r\n\r\n")); i >= 0 {
		return i + 4
	}
	return -1
}

// parse reads a head that is as plain as nearly all are. For any other it reports
// false: what is rare, odd or wrong is net/http's, whose parser has seen it all. So
// nothing may be accepted here that net/http would refuse or read in another way.
func parse(raw []byte) (r *http.Request, closes, ok bool) {
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
	r = &http.Request{Method: method, URL: u, Proto: proto, ProtoMajor: 1, ProtoMinor: 1, RequestURI: target, Body: http.NoBody}
	lines := 0
	if more {
		lines = 1 + strings.Count(rest, "\r\n")
	}
	if lines > 100 {
		return nil, false, false
	}
	r.Header = make(http.Header, lines)
	values := make([]string, lines)
	host, length := false, false
	for i := range lines {
		line, rest, _ = strings.Cut(rest, "\r\n")
		name, value, colon := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !colon || !plainName(name) || !plainValue(value) {
			return nil, false, false
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		switch name {
		case "Host":
			if host || !plainHost(value) {
				return nil, false, false
			}
			host, r.Host = true, value
			continue
		case "Content-Length":
			n, err := strconv.ParseUint(value, 10, 32)
			if err != nil || length || n > maxBody || value[0] == '+' {
				return nil, false, false
			}
			length, r.ContentLength = true, int64(n)
		case "Connection":
			switch {
			case strings.EqualFold(value, "close"):
				closes = true
			case !strings.EqualFold(value, "keep-alive"):
				return nil, false, false
			}
		case "Transfer-Encoding", "Upgrade", "Expect", "Trailer", "Http2-Settings":
			return nil, false, false
		}
		values[i] = value
		if before := r.Header[name]; before != nil {
			r.Header[name] = append(before, value)
		} else {
			r.Header[name] = values[i : i+1 : i+1]
		}
	}
	r.Close = closes
	return r, closes, host
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

func plainName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}

func plainValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
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
