package ignore

import "strings"

// maxSteps bounds the work of one match, so that a hostile pattern such as
// "*a*a*a*a*b" cannot stop a walk.
const maxSteps = 1 << 16

// globMatch matches text as git does. With paths set, "*", "?" and classes do
// not match "/", and "**" between slashes or at an end matches any folders.
// A malformed pattern matches nothing.
func globMatch(pattern, text string, paths bool) bool {
	steps := maxSteps
	return wild(pattern, text, paths, true, &steps)
}

// wild matches p against s; start says that p begins a path element.
func wild(p, s string, paths, start bool, steps *int) bool {
	for p != "" {
		if *steps--; *steps < 0 {
			return false
		}
		switch c := p[0]; c {
		case '*':
			stars := len(p) - len(strings.TrimLeft(p, "*"))
			rest := p[stars:]
			if paths && stars >= 2 && start {
				if after := strings.TrimPrefix(rest, `\`); rest == "" || strings.HasPrefix(after, "/") {
					// git takes "no folder at all" only for a plain slash.
					return anyFolders(after, s, len(after) == len(rest), steps)
				}
			}
			return star(rest, s, paths, steps)
		case '?':
			if s == "" || paths && s[0] == '/' {
				return false
			}
			p, s, start = p[1:], s[1:], false
		case '[':
			rest, in, ok := class(p, s)
			if !ok || s == "" || !in || paths && s[0] == '/' {
				return false
			}
			p, s, start = rest, s[1:], false
		default:
			if c == '\\' {
				if p = p[1:]; p == "" {
					return false
				}
				c = p[0]
			}
			if s == "" || s[0] != c {
				return false
			}
			p, s, start = p[1:], s[1:], c == '/'
		}
	}
	return s == ""
}

// anyFolders matches "**" followed by rest, which is empty or starts with "/".
// None says that "**" may stand for no folder.
func anyFolders(rest, s string, none bool, steps *int) bool {
	if rest == "" {
		return s != ""
	}
	rest = rest[1:]
	for {
		if none && wild(rest, s, true, true, steps) {
			return true
		}
		if *steps < 0 {
			return false
		}
		none = true
		slash := strings.IndexByte(s, '/')
		if slash < 0 {
			return false
		}
		s = s[slash+1:]
	}
}

// star matches a "*" followed by rest.
func star(rest, s string, paths bool, steps *int) bool {
	if rest == "" {
		return !paths || !strings.Contains(s, "/")
	}
	for i := 0; ; i++ {
		if wild(rest, s[i:], paths, false, steps) {
			return true
		}
		if *steps < 0 || i == len(s) || paths && s[i] == '/' {
			return false
		}
	}
}
