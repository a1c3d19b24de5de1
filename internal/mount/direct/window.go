//go:build linux

package direct

const (
	kib = 1 << 10
	mib = 1 << 20

	// rangeSize is the most that one request reads.
	rangeSize = 8 * mib
	// maxWindow is how far ahead a reader looks at most.
	maxWindow = 512 * mib
	// near is how far from its expected place a read may be and still be one of a
	// sequence: the kernel reads ahead by several requests, in any order.
	near = 2 * mib
	// jumpSize is read where a read is none of a sequence.
	jumpSize = 256 * kib
)

// A window decides how much is read ahead, by the reads that were seen. The zero value
// has seen none.
type window struct {
	next  int64 // where the next read of a sequence begins
	size  int64 // how far ahead to look; 0: not at all
	since int64 // bytes of the sequence that were read since size changed
	seen  bool
}

// see notes a read and returns how many bytes from its beginning are wanted: those of the
// read itself and those ahead of it.
func (w *window) see(off, n int64) int64 {
	end := off + n
	switch {
	case !w.seen && off == 0: // most who begin at the beginning read on
		w.size, w.since, w.next = rangeSize, 0, end
	case w.seen && off >= w.next-near && off <= w.next+near:
		w.since += max(0, end-w.next)
		w.next = max(w.next, end)
		switch {
		case w.size == 0 && w.since >= jumpSize:
			w.size, w.since = mib, 0
		case w.size > 0 && w.since >= w.size/2:
			w.size, w.since = min(2*w.size, maxWindow), 0
		}
	default:
		w.size, w.since, w.next = 0, 0, end
	}
	w.seen = true
	return n + w.size
}

// A span is a range of an object.
type span struct{ at, n int64 }

func (s span) end() int64 { return s.at + s.n }

// missing is what of the range from off on has to be asked for, given the spans that are
// there or under way, in order. Requests have at most rangeSize bytes; a small remainder
// is not asked for by itself unless it is the end or belongs to the read itself.
func missing(off, wanted, must, size int64, have []span) []span {
	var out []span
	end := min(off+wanted, size)
	for at := off; at < end; {
		// The first span that covers at, and the next one that begins behind it.
		next := end
		covered := false
		for _, s := range have {
			if s.at <= at && at < s.end() {
				at, covered = s.end(), true
				break
			}
			if s.at > at {
				next = min(next, s.at)
			}
		}
		if covered {
			continue
		}
		n := min(next-at, rangeSize)
		if at >= off+must && n < rangeSize && wanted > rangeSize && at+n == off+wanted && at+n < size {
			break // the window moves on; later it is worth a request
		}
		out = append(out, span{at, n})
		at += n
	}
	return out
}
