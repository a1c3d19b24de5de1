//go:build linux

package direct

import (
	"github.com/skypilot-go/sky/internal/mount/readahead"
	"github.com/skypilot-go/sky/internal/storage"
)

const mib = 1 << 20

const kib = 1 << 10

// small is the size up to which a file is held in memory while it is written, so that it
// may be written in any order.
const small = 8 * mib

// partSize is the size of part n of a file whose size is not known: 10,000 parts make 336
// GB. Where all parts have one size it is 16 MB, which makes 160 GB.
func partSize(n int, caps storage.Caps) int64 {
	size := int64(16 * mib)
	if !caps.SamePart {
		sizes := []int64{8 * mib, 16 * mib, 32 * mib, 48 * mib, 64 * mib}
		size = sizes[min(max(0, (n-1)/2000), len(sizes)-1)]
	}
	size = max(size, caps.MinPart)
	if caps.MaxPart > 0 {
		size = min(size, caps.MaxPart)
	}
	return size
}

// A step is how a range of the old content comes into the new one: it is read and written
// again, or copied inside the store.
type step struct {
	readahead.Span
	copied bool
}

// copySize is the most that one part copies inside the store.
const copySize = 1 << 30

// keepOld plans how the range of the old content comes behind so many bytes that wait to
// be uploaded as part n: parts have a least size, so that some bytes may have to be read.
func keepOld(r readahead.Span, waiting int64, n int, caps storage.Caps) []step {
	least := max(caps.MinPart, 1)
	if !caps.CopyPart || caps.SamePart || r.N < 2*max(least, mib) {
		return []step{{Span: r}}
	}
	var out []step
	if waiting > 0 && waiting < least { // what waits is filled up to be a part
		out = append(out, step{Span: readahead.Span{At: r.At, N: least - waiting}})
		r.At, r.N = r.At+least-waiting, r.N-(least-waiting)
	}
	for r.N >= least {
		take := min(r.N, copySize)
		if rest := r.N - take; rest > 0 && rest < least {
			take = r.N - least
		}
		out = append(out, step{Span: readahead.Span{At: r.At, N: take}, copied: true})
		r.At, r.N = r.At+take, r.N-take
	}
	if r.N > 0 {
		out = append(out, step{Span: r})
	}
	return out
}
