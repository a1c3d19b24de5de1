package balancer

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// hopByHop reports whether a header is about one connection and not about the
// message. Its name is canonical.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// connectionNames are the headers that a Connection header declares to be about
// the connection.
func connectionNames(h http.Header) []string {
	var out []string
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			switch name = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name)); name {
			case "", "Close", "Keep-Alive", "Upgrade":
			default:
				out = append(out, name)
			}
		}
	}
	return out
}

// hasToken reports whether a header that is a list has an element.
func hasToken(values []string, token string) bool {
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(textproto.TrimString(t), token) {
				return true
			}
		}
	}
	return false
}

// toReplica reports whether a header of a request is left out on its way to a
// replica, apart from those that the Connection header names.
func leftOut(name string) bool {
	if hopByHop(name) {
		return true
	}
	switch name {
	case "Content-Length", "Expect", "Host", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Traceparent":
		return true
	}
	return false
}

// forwarded appends the headers that a balancer adds, names and values in turn.
func (x *exchange) forwarded(to []string) []string {
	r, trust := x.r, x.conf.TrustForwarded
	client, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		client = r.RemoteAddr
	}
	before, host, proto := "", r.Host, "http"
	if r.TLS != nil {
		proto = "https"
	}
	if trust {
		if before = strings.Join(r.Header["X-Forwarded-For"], ", "); before != "" {
			client = before + ", " + client
		}
		host = or(r.Header.Get("X-Forwarded-Host"), host)
		proto = or(r.Header.Get("X-Forwarded-Proto"), proto)
		if f := strings.Join(r.Header["Forwarded"], ", "); f != "" {
			to = append(to, "Forwarded", f)
		}
	}
	return append(to, "X-Forwarded-For", client, "X-Forwarded-Host", host, "X-Forwarded-Proto", proto, "Traceparent", x.trace)
}

// traceparent is the client's, if it is a valid one, else the beginning of a trace
// that nobody samples, so that logs of both sides can be put together.
func traceparent(h http.Header) string {
	if v := h["Traceparent"]; len(v) == 1 && validTrace(v[0]) {
		return v[0]
	}
	var b [24]byte
	for i := 0; i < len(b); i += 8 {
		binary.NativeEndian.PutUint64(b[i:], rand.Uint64())
	}
	var out [55]byte
	copy(out[:], "00-")
	hex.Encode(out[3:], b[:16])
	out[35] = '-'
	hex.Encode(out[36:], b[16:])
	copy(out[52:], "-00")
	return string(out[:])
}

// validTrace reports whether a value is a traceparent of version 00 or one that
// begins like it.
func validTrace(v string) bool {
	if len(v) < 55 || v[2] != '-' || v[35] != '-' || v[52] != '-' || v[:2] == "ff" || len(v) > 55 && (v[:2] == "00" || v[55] != '-') || len(v) > 256 {
		return false
	}
	for i := range 55 {
		if c := v[i]; i != 2 && i != 35 && i != 52 && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return strings.Trim(v[3:35], "0") != "" && strings.Trim(v[36:52], "0") != ""
}

// copyAnswer sets the headers of an answer as the client gets them.
func copyAnswer(to, from http.Header) {
	drop := connectionNames(from)
	for name, values := range from {
		if hopByHop(name) || slices.Contains(drop, name) {
			continue
		}
		to[name] = values
	}
	if _, ok := from["Content-Type"]; !ok {
		to["Content-Type"] = nil // or net/http would guess one
	}
}
