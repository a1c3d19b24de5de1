package ignore

import "strings"

// A rule is one line of an ignore file.
type rule struct {
	glob    string // the pattern without "!", and without leading and trailing "/"
	negate  bool   // "!": what matches is kept
	dirOnly bool   // trailing "/": matches folders only
	whole   bool   // had a "/" elsewhere: matches the path from the file's folder, not just the name
	plain   string // set when a comparison will do: see kind
	kind    ruleKind
}

type ruleKind uint8

const (
	byGlob   ruleKind = iota
	byEqual           // no wildcard
	bySuffix          // "*" and then no wildcard, on names only
	byPrefix          // no wildcard and then "*", on names only
)

// Parse reads the lines of an ignore file.
func Parse(data []byte) Rules {
	text := strings.TrimPrefix(string(data), "\ufeff")
	var rules Rules
	for line := range strings.SplitSeq(text, "\n") {
		if r, ok := parseLine(strings.TrimSuffix(line, "\r")); ok {
			rules = append(rules, r)
		}
	}
	return rules
}

func parseLine(line string) (rule, bool) {
	if strings.HasPrefix(line, "#") {
		return rule{}, false
	}
	line = trimSpaces(line)
	var r rule
	if rest, ok := strings.CutPrefix(line, "!"); ok {
		r.negate, line = true, rest
	}
	if rest, ok := strings.CutSuffix(line, "/"); ok {
		r.dirOnly, line = true, rest
	}
	if line == "" {
		return rule{}, false
	}
	r.whole = strings.Contains(line, "/")
	r.glob = strings.TrimPrefix(line, "/")
	r.classify()
	return r, true
}

// trimSpaces removes spaces at the end, but not one behind a backslash.
func trimSpaces(line string) string {
	end := 0 // of what stays
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
			end = min(i+1, len(line))
		case ' ':
		default:
			end = i + 1
		}
	}
	return line[:end]
}

func (r *rule) classify() {
	const wild = `*?[\`
	g := r.glob
	switch {
	case !strings.ContainsAny(g, wild):
		r.kind, r.plain = byEqual, g
	case r.whole:
	case g[0] == '*' && !strings.ContainsAny(g[1:], wild):
		r.kind, r.plain = bySuffix, g[1:]
	case g[len(g)-1] == '*' && !strings.ContainsAny(g[:len(g)-1], wild):
		r.kind, r.plain = byPrefix, g[:len(g)-1]
	}
}

// matches reports whether the rule speaks of this entry; path is relative to
// the folder of the ignore file and ends in name.
func (r *rule) matches(path, name string, dir bool) bool {
	if r.dirOnly && !dir {
		return false
	}
	text := name
	if r.whole {
		text = path
	}
	switch r.kind {
	case byEqual:
		return text == r.plain
	case bySuffix:
		return strings.HasSuffix(text, r.plain)
	case byPrefix:
		return strings.HasPrefix(text, r.plain)
	}
	return globMatch(r.glob, text, r.whole)
}
