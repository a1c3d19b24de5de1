package config

import (
	"cmp"
	"slices"
	"strings"
)

// closest returns up to three of the known words that word is likely a
// misspelling of, best first.
func closest(word string, known []string) []string {
	type match struct {
		word     string
		distance int
	}
	var near []match
	w := fold(word)
	for _, k := range known {
		f := fold(k)
		limit := max(1, min(len(w), len(f))/3)
		if d := distance(w, f); d <= limit {
			near = append(near, match{k, d})
		}
	}
	slices.SortStableFunc(near, func(a, b match) int { return cmp.Compare(a.distance, b.distance) })
	var out []string
	for _, m := range near[:min(3, len(near))] {
		if m.distance <= near[0].distance+1 {
			out = append(out, m.word)
		}
	}
	return out
}

// fold drops what people confuse without thinking: case, - and _.
func fold(s string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(s))
}

func didYouMean(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(words, " or ") + "?"
}

// distance counts the letters to change, insert, drop or swap.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return len(a) + len(b)
	}
	var before, above, row [65]int
	for j := range len(b) + 1 {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above = above, row
	}
	return above[len(b)]
}
