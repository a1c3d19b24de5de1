package sky

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"sync"
)

// Control is a line of a request's stream that is not text but tells the client
// what to show. Text may hold markup such as "[bold cyan]…[/]".
type Control struct {
	Code ControlCode
	Text string
}

// ControlCode names what a control line asks for.
type ControlCode string

const (
	SpinInit   ControlCode = "rich_init"   // a spinner with this text, not shown yet
	SpinStart  ControlCode = "rich_start"  // show it
	SpinStop   ControlCode = "rich_stop"   // hide it
	SpinExit   ControlCode = "rich_exit"   // forget it
	SpinUpdate ControlCode = "rich_update" // change its text
	Heartbeat  ControlCode = "heartbeat"   // the request is alive
	Retry      ControlCode = "retry"       // ask again at once
	SpanEnd    ControlCode = "sky_span"    // a part of the work has ended; the text is an [api.Span] as JSON

	progressed ControlCode = "sky_progress" // for programs
)

var controlCodes = map[ControlCode]bool{
	SpinInit: true, SpinStart: true, SpinStop: true, SpinExit: true, SpinUpdate: true, Heartbeat: true, Retry: true, SpanEnd: true, progressed: true,
}

const (
	payloadOpen, payloadClose = "<sky-payload>", "</sky-payload>"
	maxLine                   = 1 << 20 // longer lines are passed on in parts
)

// decoder cuts a stream into text lines and control lines. Feed it with chunks
// as they come; emit and control are called in the stream's order.
type decoder struct {
	// emit gets each text line with its end, "\n" or "\r"; a very long line comes
	// in several parts of which only the last has an end.
	emit func(line []byte) error
	// control gets every control line of a known code.
	control func(Control) error
	// interactive, if not nil, gets the session of a line that wants a terminal.
	interactive func(session string) error

	buf     []byte
	partial bool // the beginning of the current line was passed on
}

// Write implements io.Writer. The end of a stream that has no line end is never
// passed on.
func (d *decoder) Write(p []byte) (int, error) {
	d.buf = append(d.buf, p...)
	rest := d.buf
	for {
		i := bytes.IndexAny(rest, "\n\r")
		if i < 0 || rest[i] == '\r' && i+1 == len(rest) {
			break // no end yet, or one that may still become \r\n
		}
		line, end := rest[:i], rest[i]
		rest = rest[i+1:]
		if end == '\r' && rest[0] == '\n' {
			end, rest = '\n', rest[1:]
		}
		if err := d.line(line, end); err != nil {
			return 0, err
		}
	}
	if len(rest) > maxLine && !bytes.Contains(rest, []byte("<sky-")) {
		n := len(rest) - len(payloadOpen) // a marker may straddle the cut
		if err := d.emit(rest[:n:n]); err != nil {
			return 0, err
		}
		rest, d.partial = rest[n:], true
	}
	d.buf = append(d.buf[:0], rest...)
	return len(p), nil
}

func (d *decoder) line(line []byte, end byte) error {
	if !d.partial {
		if c, ok := parseControl(line); ok {
			if !controlCodes[c.Code] {
				return nil
			}
			return d.control(c)
		}
		if m := interactiveLine().FindSubmatch(line); m != nil && d.interactive != nil {
			return d.interactive(string(m[1]))
		}
	}
	d.partial = false
	return d.emit(append(line[:len(line):len(line)], end))
}

// interactiveLine asks the client to connect its terminal to a session, for a
// login that needs a person.
var interactiveLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`<sky-interactive session="([^"]+)"/>`) })

var codePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)^<([a-z_]+)>(.*)</([a-z_]+)>$`) })

// parseControl reports whether line holds a payload; a line that does is consumed
// whole, even when its payload makes no sense.
func parseControl(line []byte) (Control, bool) {
	_, rest, ok := strings.Cut(string(line), payloadOpen)
	if !ok {
		return Control{}, false
	}
	raw, _, ok := strings.Cut(rest, payloadClose)
	if !ok {
		return Control{}, false
	}
	var text string
	if json.Unmarshal([]byte(raw), &text) != nil {
		return Control{}, true
	}
	m := codePattern().FindStringSubmatch(text)
	if m == nil || m[1] != m[3] {
		return Control{}, true
	}
	return Control{ControlCode(m[1]), m[2]}, true
}
