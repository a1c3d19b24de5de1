//go:build linux

package cached

import (
	"slices"
	"time"
)

// A candidate is content of the cache that may be dropped: it is in the bucket, and no
// file is open.
type candidate struct {
	path  string
	bytes int64
	used  time.Time
}

// victims chooses what is dropped, the least used first, so that the cache has at most
// limit bytes of the total, as far as that is possible; and all that nobody used since
// oldest.
func victims(all []candidate, total, limit int64, oldest time.Time) []candidate {
	slices.SortFunc(all, func(a, b candidate) int { return a.used.Compare(b.used) })
	n := 0
	for n < len(all) && (total > limit || all[n].used.Before(oldest)) {
		total -= all[n].bytes
		n++
	}
	return all[:n]
}
