package ignore

import "strings"

// class reads the "[…]" that p starts with. It returns what follows it and
// whether the first byte of s is in it; ok is false when it never ends or
// names an unknown class.
func class(p, s string) (rest string, in, ok bool) {
	var c byte
	if s != "" {
		c = s[0]
	}
	i := 1
	negate := i < len(p) && (p[i] == '!' || p[i] == '^')
	if negate {
		i++
	}
	for first := true; ; first = false {
		if i >= len(p) {
			return "", false, false
		}
		if p[i] == ']' && !first {
			return p[i+1:], in != negate, true
		}
		if p[i] == '[' && i+1 < len(p) && p[i+1] == ':' {
			if end := strings.Index(p[i+2:], ":]"); end >= 0 {
				member, known := named[p[i+2:i+2+end]]
				if !known {
					return "", false, false
				}
				in = in || member(c)
				i += end + 4
				continue
			}
		}
		start, next, good := classByte(p, i)
		if !good {
			return "", false, false
		}
		end := start
		if next+1 < len(p) && p[next] == '-' && p[next+1] != ']' {
			if end, next, good = classByte(p, next+1); !good {
				return "", false, false
			}
		}
		in = in || c == start || start <= c && c <= end // git counts the start of an inverted range
		i = next
	}
}

func classByte(p string, i int) (b byte, next int, ok bool) {
	if p[i] == '\\' {
		if i++; i >= len(p) {
			return 0, i, false
		}
	}
	return p[i], i + 1, true
}

func lower(c byte) bool { return 'a' <= c && c <= 'z' }
func upper(c byte) bool { return 'A' <= c && c <= 'Z' }
func digit(c byte) bool { return '0' <= c && c <= '9' }
func graph(c byte) bool { return '!' <= c && c <= '~' }
func alnum(c byte) bool { return lower(c) || upper(c) || digit(c) }

var named = map[string]func(byte) bool{
	"alnum": alnum,
	"alpha": func(c byte) bool { return lower(c) || upper(c) },
	"blank": func(c byte) bool { return c == ' ' || c == '\t' },
	"cntrl": func(c byte) bool { return c < ' ' || c == 127 },
	"digit": digit,
	"graph": graph,
	"lower": lower,
	"print": func(c byte) bool { return c == ' ' || graph(c) },
	"punct": func(c byte) bool { return graph(c) && !alnum(c) },
	"space": func(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' },
	"upper": upper,
	"xdigit": func(c byte) bool {
		return digit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
	},
}
