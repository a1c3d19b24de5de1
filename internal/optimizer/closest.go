package optimizer

import (
	"cmp"
	"slices"
	"strings"
)

// closest lists the names most like the given one, best first, at most limit.
// Names that differ in more than 40% of their characters are not alike.
func closest(name string, all []string, limit int) []string {
	type match struct {
		name string
		like float64
	}
	want := []rune(strings.ToLower(name))
	var found []match
	seen := map[string]bool{}
	for _, n := range all {
		if seen[n] {
			continue
		}
		seen[n] = true
		have := []rune(strings.ToLower(n))
		longest := max(len(want), len(have))
		if longest == 0 || abs(len(want)-len(have))*10 > longest*4 {
			continue
		}
		if like := 1 - float64(distance(want, have))/float64(longest); like >= 0.6 {
			found = append(found, match{n, like})
		}
	}
	slices.SortFunc(found, func(a, b match) int {
		return cmp.Or(cmp.Compare(b.like, a.like), cmp.Compare(a.name, b.name))
	})
	var out []string
	for _, m := range found[:min(limit, len(found))] {
		out = append(out, m.name)
	}
	return out
}

func abs(n int) int { return max(n, -n) }

// distance is the least number of characters to insert, delete, replace or
// swap with a neighbour to make b of a.
func distance(a, b []rune) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(row[j-1]+1, last[j]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
