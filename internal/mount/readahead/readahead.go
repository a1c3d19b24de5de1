//go:build linux

// Package readahead decides what is read ahead of whoever reads a file.
package readahead

const (
	kib = 1 << 10
	mib = 1 << 20

	// RangeSize is the most that one request reads.
	RangeSize = 8 * mib
	// MaxWindow is how far ahead a reader looks at most.
	MaxWindow = 512 * mib
	// Near is how far from its expected place a read may be and still be one of a
	// sequence: the kernel reads ahead by several requests, in any order.
	Near = 2 * mib
	// JumpSize is read where a read is none of a sequence.
	JumpSize = 256 * kib
)

// A Window decides how much is read ahead, by the reads that were seen. The zero value
// has seen none.
type Window struct {
	next  int64 // where the next read of a sequence begins
	size  int64 // how far ahead to look; 0: not at all
	since int64 // bytes of the sequence that were read since size changed
	seen  bool
}

// See notes a read and returns how many bytes from its beginning are wanted: those of the
// read itself and those ahead of it.
func (w *Window) See(off, n int64) int64 {
	end := off + n
	switch {
	case !w.seen && off == 0: // most who begin at the beginning read on
		w.size, w.since, w.next = RangeSize, 0, end
	case w.seen && off >= w.next-Near && off <= w.next+Near:
		w.since += max(0, end-w.next)
		w.next = max(w.next, end)
		switch {
		case w.size == 0 && w.since >= JumpSize:
			w.size, w.since = mib, 0
		case w.size > 0 && w.since >= w.size/2:
			w.size, w.since = min(2*w.size, MaxWindow), 0
		}
	default:
		w.size, w.since, w.next = 0, 0, end
	}
	w.seen = true
	return n + w.size
}

// A Span is a range of an object.
type Span struct{ At, N int64 }

// End is the first byte behind the range.
func (s Span) End() int64 { return s.At + s.N }

// Missing is what of the range from off on has to be asked for, given the spans that are
// there or under way, in order. Requests have at most RangeSize bytes; a small remainder
// is not asked for by itself unless it is the end or belongs to the read itself.
func Missing(off, wanted, must, size int64, have []Span) []Span {
	var out []Span
	end := min(off+wanted, size)
	for at := off; at < end; {
		// The first span that covers at, and the next one that begins behind it.
		next := end
		covered := false
		for _, s := range have {
			if s.At <= at && at < s.End() {
				at, covered = s.End(), true
				break
			}
			if s.At > at {
				next = min(next, s.At)
			}
		}
		if covered {
			continue
		}
		n := min(next-at, RangeSize)
		if at >= off+must && n < RangeSize && wanted > RangeSize && at+n == off+wanted && at+n < size {
			break // the window moves on; later it is worth a request
		}
		out = append(out, Span{at, n})
		at += n
	}
	return out
}

// Jumped reports whether the last read belongs to no sequence.
func (w *Window) Jumped() bool { return w.size == 0 }
