//go:build linux

package cached

import "github.com/skypilot-go/sky/internal/mount/readahead"

// blockSize is the unit in which the cache knows what it has of an object.
const blockSize = 1 << 20

// present is a set of blocks.
type present []byte

func blocks(size int64) int64 { return (size + blockSize - 1) / blockSize }

func newPresent(size int64) present { return make(present, (blocks(size)+7)/8) }

func (p present) has(block int64) bool {
	return block/8 < int64(len(p)) && p[block/8]&(1<<(block%8)) != 0
}

func (p present) add(block int64) {
	if block/8 < int64(len(p)) {
		p[block/8] |= 1 << (block % 8)
	}
}

// spans are the ranges that are there, of an object of that size.
func (p present) spans(size int64) []readahead.Span {
	var out []readahead.Span
	for b := int64(0); b < blocks(size); b++ {
		if !p.has(b) {
			continue
		}
		at := b * blockSize
		n := min(blockSize, size-at)
		if len(out) > 0 && out[len(out)-1].End() == at {
			out[len(out)-1].N += n
		} else {
			out = append(out, readahead.Span{At: at, N: n})
		}
	}
	return out
}

// covers reports whether all of a range is there.
func (p present) covers(off, n int64) bool {
	for b := off / blockSize; b*blockSize < off+n; b++ {
		if !p.has(b) {
			return false
		}
	}
	return true
}

// count is how many blocks there are.
func (p present) count() int64 {
	var n int64
	for _, b := range p {
		for ; b != 0; b &= b - 1 {
			n++
		}
	}
	return n
}
