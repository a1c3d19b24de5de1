// Package plain parses the headers of messages that are plain, as nearly all are.
// Whatever is rare, odd or wrong it refuses: net/http, whose parser has seen it all,
// reads that. So nothing may be accepted here that net/http would refuse or read in
// another way.
package plain

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strings"
)

// HeadEnd is the length of a head with its empty line; -1: it is not there yet.
func HeadEnd(b []byte) int {
	if i := bytes.Index(b, []byte("\r\n\r\n")); i >= 0 {
		return i + 4
	}
	return -1
}

// maxLines bounds the headers of a message.
const maxLines = 100

// Header parses lines of headers, without the empty line at their end, into h in place
// of what is there. each sees every header, whose name is canonical, and says whether
// it is plain and whether it belongs into h.
func Header(h http.Header, text string, each func(name, value string, before []string) (ok, keep bool)) bool {
	clear(h)
	lines := 0
	if text != "" {
		lines = 1 + strings.Count(text, "\r\n")
	}
	if lines > maxLines {
		return false
	}
	values := make([]string, lines)
	for i := range lines {
		var line string
		line, text, _ = strings.Cut(text, "\r\n")
		name, value, colon := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !colon || !isName(name) || !IsValue(value) {
			return false
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		before := h[name]
		ok, keep := each(name, value, before)
		if !ok {
			return false
		}
		if !keep {
			continue
		}
		values[i] = value
		if before != nil {
			h[name] = append(before, value)
		} else {
			h[name] = values[i : i+1 : i+1]
		}
	}
	return true
}

func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}

// IsValue reports whether text has no control characters but tabs.
func IsValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
