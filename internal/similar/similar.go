// Package similar finds what somebody meant who misspelt a name: of a command,
// a key, a cluster.
package similar

import (
	"cmp"
	"slices"
	"strings"
)

// most is how many names are worth offering.
const most = 3

// Names returns the names that word is likely a misspelling or the beginning
// of, best first, three at most; of equally good ones the shorter first. Case, - and _
// make no difference.
func Names(word string, names []string) []string {
	type match struct {
		name     string
		distance int
	}
	var near []match
	w := fold(word)
	for _, n := range names {
		f := fold(n)
		d := distance(w, f)
		switch shorter := min(len(w), len(f)); {
		case len(w) >= 3 && strings.HasPrefix(f, w):
			d = 0
		case len(w) >= 5 && strings.Contains(f, w):
			d = 1
		case d >= shorter || d > max(1, (shorter+1)/3): // no letter in common, or too few
			continue
		}
		near = append(near, match{n, d})
	}
	slices.SortStableFunc(near, func(a, b match) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(len(a.name), len(b.name)))
	})
	var out []string
	for _, m := range near[:min(most, len(near))] {
		if m.distance <= near[0].distance+1 {
			out = append(out, m.name)
		}
	}
	return out
}

// Closest lists the names most like the given one, best first, at most limit, each once.
// Names that differ in more than 40% of their characters are not alike; case makes no
// difference.
func Closest(name string, all []string, limit int) []string {
	type match struct {
		name string
		like float64
	}
	want := strings.ToLower(name)
	var found []match
	seen := map[string]bool{}
	for _, n := range all {
		if seen[n] {
			continue
		}
		seen[n] = true
		have := strings.ToLower(n)
		longest := max(len(want), len(have))
		if longest == 0 {
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

// fold drops what people confuse without thinking: case, - and _.
func fold(s string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(s))
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
