package sky

import (
	"bytes"
	"io"
	"slices"
)

// playback writes the lines of a stream that may come over several connections,
// each of which begins anew: with the stream's first line, or with its last
// lines at that time. No line is written twice.
type playback struct {
	w    io.Writer
	tail int // 0: connections begin with the first line; else with the last tail lines

	shown int      // lines written
	last  [][]byte // the latest of them, at most tail

	// Of the current connection.
	skip  int      // lines yet to skip
	held  [][]byte // lines that may have been written before
	hold  int      // how many to hold
	moved bool     // something new came
}

// begin prepares for a new connection.
func (p *playback) begin() {
	p.moved, p.skip, p.held = false, 0, nil
	if p.tail == 0 {
		p.skip = p.shown
	}
	p.hold = len(p.last)
}

// fresh reports whether what comes now is new.
func (p *playback) fresh() bool { return p.skip == 0 && p.hold == 0 }

// line takes one line, or a part of a very long one.
func (p *playback) line(l []byte) error {
	switch {
	case p.skip > 0:
		if endsLine(l) {
			p.skip--
		}
		return nil
	case p.hold > 0:
		// The connection sends at least as many old lines as were kept, so all of
		// them are here before anything is decided.
		p.held = append(p.held, slices.Clone(l))
		if len(p.held) == p.hold {
			return p.settle()
		}
		return nil
	}
	return p.write(l)
}

// settle writes those of the held lines that are new.
func (p *playback) settle() error {
	held := p.held
	p.held, p.hold = nil, 0
	for _, l := range held[overlap(p.last, held):] {
		if err := p.write(l); err != nil {
			return err
		}
	}
	return nil
}

// overlap is how many lines at the end of old are the beginning of next.
func overlap(old, next [][]byte) int {
	for n := min(len(old), len(next)); n > 0; n-- {
		if slices.EqualFunc(old[len(old)-n:], next[:n], bytes.Equal) {
			return n
		}
	}
	return 0
}

func (p *playback) write(l []byte) error {
	p.moved = true
	if endsLine(l) {
		p.shown++
	}
	if p.tail > 0 {
		if len(p.last) == p.tail {
			p.last = slices.Delete(p.last, 0, 1)
		}
		p.last = append(p.last, slices.Clone(l))
	}
	if _, err := p.w.Write(l); err != nil {
		return &outputError{err}
	}
	return nil
}

func endsLine(line []byte) bool {
	last := line[len(line)-1]
	return last == '\n' || last == '\r'
}

// outputError is a failure of the reader's side, which no retry mends.
type outputError struct{ err error }

func (e *outputError) Error() string { return e.err.Error() }
