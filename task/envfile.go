package task

import (
	"strings"
	"unicode/utf8"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

var (
	envFileKey       = lazyregexp.New(`^(?:export[ \t]+)?([^\s='"#]+|'[^'\n]+')[ \t]*`)
	envFileReference = lazyregexp.New(`\$\{([^}:]*)(?::-([^}]*))?\}`)
)

// ParseEnvFile reads KEY=VALUE lines: "export" in front, comments, 'raw' and
// "escaped" values over several lines, ${NAME} and ${NAME:-default} of
// earlier lines or of lookup except in raw values. KEY alone takes its value
// from lookup.
func ParseEnvFile(name string, data []byte, lookup func(string) (string, bool)) (map[string]string, error) {
	p := envFile{source: newSource(name, data), lookup: lookup, vars: map[string]string{}}
	if !utf8.Valid(data) {
		return nil, &Error{File: name, Message: "not a UTF-8 text file"}
	}
	rest := strings.ReplaceAll(strings.TrimPrefix(p.Text, "\ufeff"), "\r\n", "\n")
	for line := 1; rest != ""; {
		body, after, _ := strings.Cut(rest, "\n")
		trimmed := strings.TrimLeft(body, " \t\f\v")
		if trimmed == "" || trimmed[0] == '#' {
			rest, line = after, line+1
			continue
		}
		from := rest[len(body)-len(trimmed):]
		used, err := p.binding(from, line, len(body)-len(trimmed)+1)
		if err != nil {
			return nil, err
		}
		line += strings.Count(from[:used], "\n")
		rest = from[used:]
		if strings.HasPrefix(rest, "\n") {
			rest, line = rest[1:], line+1
		}
	}
	return p.vars, nil
}

type envFile struct {
	*source
	lookup func(string) (string, bool)
	vars   map[string]string
}

// binding reads one KEY=VALUE at the start of s and returns its length
// without the line's end.
func (p *envFile) binding(s string, line, col int) (int, error) {
	m := envFileKey.FindStringSubmatch(s)
	if m == nil {
		return 0, p.errorAt(line, col, "", "this line should be KEY=VALUE")
	}
	key, at := strings.Trim(m[1], "'"), len(m[0])
	if key == "export" && !strings.HasPrefix(s[at:], "=") {
		return 0, p.errorAt(line, col, "", "export needs KEY=VALUE behind it")
	}
	lineEnd := func(i int) int {
		if n := strings.IndexByte(s[i:], '\n'); n >= 0 {
			return i + n
		}
		return len(s)
	}
	if !strings.HasPrefix(s[at:], "=") {
		end := lineEnd(at)
		if tail := s[at:end]; tail != "" && tail[0] != '#' {
			return 0, p.errorAt(line, col+at, key, "expected = after %s", key)
		}
		value, ok := p.lookup(key)
		if !ok {
			return 0, p.errorAt(line, col, key, "%s has no value here and is not set in the environment either", key)
		}
		p.vars[key] = value
		return end, nil
	}
	at++
	at += len(s[at:]) - len(strings.TrimLeft(s[at:], " \t"))
	if at < len(s) && (s[at] == '\'' || s[at] == '"') {
		quote := s[at]
		end := closingQuote(s, at)
		if end < 0 {
			return 0, p.errorAt(line, col+at, key, "the value of %s begins with a quote that is never closed", key)
		}
		value := s[at+1 : end]
		if quote == '"' {
			value = p.expand(unescape(value))
		} else {
			value = strings.NewReplacer(`\\`, `\`, `\'`, `'`).Replace(value)
		}
		stop := lineEnd(end + 1)
		if tail := strings.TrimLeft(s[end+1:stop], " \t"); tail != "" && tail[0] != '#' {
			return 0, p.errorAt(line+strings.Count(s[:end], "\n"), 1, key, "there is more text after the closing quote of %s", key)
		}
		p.vars[key] = value
		return stop, nil
	}
	end := lineEnd(at)
	value := s[at:end]
	if strings.HasPrefix(value, "#") {
		value = ""
	}
	for i := 1; i < len(value); i++ {
		if value[i] == '#' && (value[i-1] == ' ' || value[i-1] == '\t') {
			value = value[:i]
			break
		}
	}
	p.vars[key] = p.expand(strings.TrimSpace(value))
	return end, nil
}

func closingQuote(s string, at int) int {
	for i := at + 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[at]:
			return i
		}
	}
	return -1
}

func unescape(s string) string {
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\'`, `'`, `\n`, "\n", `\t`, "\t", `\r`, "\r", `\a`, "\a", `\b`, "\b", `\f`, "\f", `\v`, "\v").Replace(s)
}

func (p *envFile) expand(s string) string {
	if !strings.Contains(s, "${") {
		return s
	}
	return envFileReference.ReplaceAllStringFunc(s, func(ref string) string {
		m := envFileReference.FindStringSubmatch(ref)
		if v, ok := p.vars[m[1]]; ok {
			return v
		}
		if v, ok := p.lookup(m[1]); ok {
			return v
		}
		return m[2]
	})
}
