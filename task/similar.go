package task

import "strings"

// closest returns the word most like s, if any is alike enough for "did you
// mean".
func closest(s string, words []string) (string, bool) {
	best, ratio := "", 0.0
	for _, w := range words {
		if r := similarity(w, s); r > ratio {
			best, ratio = w, r
		}
	}
	return best, ratio >= 0.6
}

// closestFold is closest without regard to case.
func closestFold(s string, words []string) (string, bool) {
	lower := make([]string, len(words))
	for i, w := range words {
		lower[i] = strings.ToLower(w)
	}
	near, ok := closest(strings.ToLower(s), lower)
	for i, w := range lower {
		if w == near {
			return words[i], ok
		}
	}
	return near, ok
}

// similarity is the Ratcliff–Obershelp ratio of two texts: twice the number
// of characters in matching blocks by the number of all characters.
func similarity(a, b string) float64 {
	x, y := []rune(a), []rune(b)
	if len(x)+len(y) == 0 {
		return 1
	}
	return 2 * float64(commonRunes(x, y)) / float64(len(x)+len(y))
}

// commonRunes counts the characters of the longest common block and, again,
// of what stands left and right of it.
func commonRunes(x, y []rune) int {
	bestX, bestY, size := 0, 0, 0
	row := make([]int, len(y)+1) // row[j+1]: length of the block that ends at x[i], y[j]
	for i := range x {
		diagonal := 0
		for j := range y {
			above := row[j+1]
			if x[i] == y[j] {
				row[j+1] = diagonal + 1
				if row[j+1] > size {
					size = row[j+1]
					bestX, bestY = i+1-size, j+1-size
				}
			} else {
				row[j+1] = 0
			}
			diagonal = above
		}
	}
	if size == 0 {
		return 0
	}
	return size + commonRunes(x[:bestX], y[:bestY]) + commonRunes(x[bestX+size:], y[bestY+size:])
}
