package agent

import "bytes"

// A piece is a range of a source's bytes on its way into the merged log. What
// it becomes there depends on these values and the bytes alone, so that a piece
// of which only a part was written can be finished after a crash.
type piece struct {
	brk    bool // end the line that another source left open
	prefix bool // begin with the source's prefix
	skip   bool // the first byte ends a line that brk has ended already
	back   bool // after a carriage return, as of a progress bar, the prefix comes again
}

// pieceFor decides how a piece begins. logOpen: the merged log does not end
// with a newline; srcOpen: the source's part before the piece does not; mine:
// the last bytes of the log are from this source; first is the piece's first byte.
func pieceFor(logOpen, srcOpen, mine bool, first byte) piece {
	if srcOpen && mine {
		return piece{back: true}
	}
	return piece{brk: logOpen, prefix: true, skip: srcOpen && first == '\n', back: true}
}

// render appends to dst what the piece of these bytes looks like in the log:
// each line gets the prefix. The last line may be without an end.
func (p piece) render(dst, data []byte, prefix string) []byte {
	if p.brk {
		dst = append(dst, '\n')
	}
	if p.skip {
		data = data[1:]
	}
	for start := p.prefix; len(data) > 0; start = true {
		line := data
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			line = data[:i+1]
		}
		data = data[len(line):]
		if start {
			dst = append(dst, prefix...)
		}
		if p.back && prefix != "" {
			dst = appendBack(dst, line, prefix)
		} else {
			dst = append(dst, line...)
		}
	}
	return dst
}

// appendBack appends a line with the prefix after each carriage return that does
// not belong to its end: what a terminal shows next would overwrite the prefix.
func appendBack(dst, line []byte, prefix string) []byte {
	for {
		i := bytes.IndexByte(line, '\r') + 1
		if i == 0 {
			return append(dst, line...)
		}
		dst = append(dst, line[:i]...)
		if line = line[i:]; len(line) == 0 || line[0] != '\r' && line[0] != '\n' {
			dst = append(dst, prefix...)
		}
	}
}

// cut says how much of unread bytes to take: whole lines if there are any. A
// line without an end is taken when it fills the whole buffer or is stale.
func cut(data []byte, full, stale bool) int {
	if i := bytes.LastIndexByte(data, '\n'); i >= 0 {
		return i + 1
	}
	if full || stale {
		return len(data)
	}
	return 0
}
