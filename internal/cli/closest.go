package cli

import (
	"slices"
	"strings"
)

// closest lists the names that were probably meant by word, best first: those it
// begins, and those that differ by a few letters.
func closest(word string, names []string) []string {
	type match struct {
		name string
		far  int
	}
	var found []match
	limit := max(1, (len(word)+1)/3)
	for _, n := range names {
		d := distance(strings.ToLower(word), strings.ToLower(n))
		if len(word) >= 3 && strings.HasPrefix(n, word) {
			d = 0
		}
		if d <= limit {
			found = append(found, match{n, d})
		}
	}
	slices.SortStableFunc(found, func(a, b match) int { return a.far - b.far })
	out := make([]string, 0, 3)
	for _, m := range found[:min(3, len(found))] {
		out = append(out, m.name)
	}
	return out
}

// distance counts the letters to insert, delete, change or swap with a neighbour.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, prev, cur := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(x); i++ {
		cur[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(y)]
}
