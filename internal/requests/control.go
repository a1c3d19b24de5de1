package requests

import (
	"bytes"
	"cmp"
	"encoding/json"
)

// Control lines steer the client's spinner. They stand between the lines of a
// log, each on a line of its own.

type control string

const (
	spinInit   control = "rich_init"
	spinStart  control = "rich_start"
	spinUpdate control = "rich_update"
	spinExit   control = "rich_exit"
	heartbeat  control = "heartbeat"
	retry      control = "retry"
	span       control = "sky_span"     // a part of the work has ended; only if the request asks for a timeline
	progressed control = "sky_progress" // its text is JSON; only for those who ask for it
)

const (
	payloadOpen  = "<sky-payload>"
	payloadClose = "</sky-payload>"
)

// line is the control line with a text. The text cannot end the line or the
// payload early: JSON writes its "<" and line ends as escapes.
func (c control) line(text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil { // a string always marshals
		quoted = []byte(`""`)
	}
	var b bytes.Buffer
	b.WriteString(payloadOpen + `"<` + string(c) + ">")
	b.Write(quoted[1 : len(quoted)-1])
	b.WriteString("</" + string(c) + `>"` + payloadClose + "\n")
	return b.Bytes()
}

// isControl reports whether a line, or its beginning, is a control line.
func isControl(line []byte) bool { return bytes.HasPrefix(line, []byte(payloadOpen)) }

// lineEnd is the length of the part of p that is whole lines: up to the last
// line feed, or carriage return of a progress line.
func lineEnd(p []byte) int { return bytes.LastIndexAny(p, "\n\r") + 1 }

// progressOpen is how a control line begins that tells programs of progress.
const progressOpen = payloadOpen + `"<` + string(progressed) + ">"

// plain passes a log on without its control lines. Pieces of it may be cut
// anywhere.
type plain struct {
	open  string // what the lines begin with that are left out; "": all control lines
	begin []byte // of a line that may become a control line
	in    lineKind
}

type lineKind int

const (
	lineStart lineKind = iota // nothing decided about this line yet
	lineText
	lineControl
)

// filter returns what of p is to be shown.
func (f *plain) filter(p []byte) []byte {
	out := make([]byte, 0, len(p)+len(f.begin))
	open := cmp.Or(f.open, payloadOpen)
	for len(p) > 0 {
		end := bytes.IndexAny(p, "\n\r") + 1
		part := p
		if end > 0 {
			part = p[:end]
		}
		p = p[len(part):]
		if f.in == lineStart {
			f.begin = append(f.begin, part...)
			if end == 0 && len(f.begin) < len(open) && bytes.HasPrefix([]byte(open), f.begin) {
				continue // too short to tell
			}
			f.in = lineText
			if bytes.HasPrefix(f.begin, []byte(open)) {
				f.in = lineControl
			}
			part, f.begin = f.begin, nil
		}
		if f.in == lineText {
			out = append(out, part...)
		}
		if end > 0 {
			f.in = lineStart
		}
	}
	return out
}

// rest is what filter held back, at the end of the log.
func (f *plain) rest() []byte {
	defer func() { f.begin = nil }()
	return f.begin
}
