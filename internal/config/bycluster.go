package config

import "github.com/skypilot-go/sky/internal/yaml11"

// byCluster returns the value of the first entry of a list by cluster name
// whose pattern matches, or nil.
func byCluster(list *yaml11.Node, cluster string) *yaml11.Node {
	for _, item := range list.Items {
		for _, e := range item.Entries {
			if wildcard(e.Key.Text, cluster) {
				return e.Value
			}
		}
	}
	return nil
}

// wildcard matches shell patterns: * ? [abc] [!a-z].
func wildcard(pattern, name string) bool {
	p, n := []rune(pattern), []rune(name)
	// star is where to resume after the last *, and how much it has eaten.
	pi, ni, star, eaten := 0, 0, -1, 0
	for ni < len(n) {
		if pi < len(p) && p[pi] == '*' {
			star, eaten = pi, ni
			pi++
			continue
		}
		if width := matchOne(p[pi:], n[ni]); width > 0 {
			pi += width
			ni++
			continue
		}
		if star < 0 {
			return false
		}
		eaten++
		pi, ni = star+1, eaten
	}
	for pi < len(p) && p[pi] == '*' {
		pi++
	}
	return pi == len(p)
}

// matchOne matches one character with the head of a pattern and returns the
// width of that head, 0 if it does not match.
func matchOne(p []rune, c rune) int {
	switch {
	case len(p) == 0:
		return 0
	case p[0] == '?':
		return 1
	case p[0] == '[':
		if width, ok := matchSet(p, c); width > 0 {
			if ok {
				return width
			}
			return 0
		}
	}
	if p[0] == c {
		return 1
	}
	return 0
}

// matchSet matches [abc], [a-z] or [!…]. Width 0 means that p opens no set.
func matchSet(p []rune, c rune) (width int, ok bool) {
	i := 1
	negate := i < len(p) && p[i] == '!'
	if negate {
		i++
	}
	for first := i; i < len(p); i++ {
		if p[i] == ']' && i > first {
			return i + 1, ok != negate
		}
		if i+2 < len(p) && p[i+1] == '-' && p[i+2] != ']' {
			ok = ok || p[i] <= c && c <= p[i+2]
			i += 2
			continue
		}
		ok = ok || p[i] == c
	}
	return 0, false
}
