package yaml11

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// scalarText writes a scalar: numbers as they were written, texts quoted where they
// must be.
func scalarText(n *Node, flow bool) string {
	switch n.Value.(type) {
	case nil:
		return "null"
	case string, Date, bool:
	default:
		if n.Text != "" {
			return n.Text
		}
	}
	switch v := n.Value.(type) {
	case bool:
		return fmt.Sprintf("%t", v)
	case int:
		return strconv.Itoa(v)
	case *big.Int:
		return v.String()
	case float64:
		return yamlFloatText(v)
	case Date:
		return n.Text
	case string:
		return quoteText(v, flow)
	}
	return fmt.Sprintf("%v", n.Value)
}

func yamlFloatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return ".nan"
	case math.IsInf(f, 1):
		return ".inf"
	case math.IsInf(f, -1):
		return "-.inf"
	}
	s := pyFloat(f)
	if mantissa, exp, ok := strings.Cut(s, "e"); ok && !strings.Contains(mantissa, ".") {
		s = mantissa + ".0e" + exp
	}
	return s
}

// literal: s is best written as a block of lines. (With more than one line
// break at its end it is not: what is written after it would change it.)
func literal(s string) bool {
	body := strings.Trim(s, "\n")
	if !strings.Contains(s, "\n") || body == "" || strings.HasSuffix(s, "\n\n") || s[0] == '\n' || s[0] == ' ' || s[0] == '\t' {
		return false
	}
	for _, r := range s {
		if r != '\n' && r != '\t' && !printable(r) {
			return false
		}
	}
	return true
}

func (w *Writer) literal(s string, depth int, lineComment string) {
	w.WriteString(" |")
	body := strings.TrimRight(s, "\n")
	if len(body) == len(s) {
		w.WriteByte('-')
	}
	if lineComment != "" {
		w.WriteString("  " + lineComment)
	}
	w.WriteByte('\n')
	for line := range strings.SplitSeq(body, "\n") {
		if line != "" {
			w.indent(depth)
			w.WriteString(line)
		}
		w.WriteByte('\n')
	}
}

// printable: r may stand in YAML as it is.
func printable(r rune) bool {
	switch {
	case r < 0x20, r == 0x7f, r >= 0x80 && r < 0xa0, r == 0x2028, r == 0x2029, r == 0xfeff, r == unicode.ReplacementChar:
		return false
	case r >= 0xd800 && r < 0xe000, r > 0xffff && !unicode.IsPrint(r), r == 0xfffe, r == 0xffff:
		return false
	}
	return true
}

// quoteText writes a text plain where every reader takes it for a text, else
// quoted. Within braces and brackets (flow) less may stand plain.
func quoteText(s string, flow bool) string {
	plain := s != "" && s != "=" && s != "<<"
	if plain {
		_, plain = Resolve(s).(string)
	}
	quotable := true
	for i, r := range s {
		switch {
		case !printable(r):
			quotable, plain = false, false
		case strings.ContainsRune(",[]{}\"'`&*!|%@", r):
			plain = plain && i > 0 && !(flow && strings.ContainsRune(",[]{}", r))
		case r == '#':
			plain = plain && i > 0 && s[i-1] != ' '
		case r == ':':
			plain = plain && i > 0 && i+1 < len(s) && s[i+1] != ' '
		case r == ' ':
			plain = plain && i > 0 && i+1 < len(s)
		case r == '-' && i == 0:
			plain = plain && len(s) > 1 && s[1] != ' ' && !strings.HasPrefix(s, "---") && !(flow && strings.ContainsRune(",[]{}", rune(s[1])))
		case r == '?':
			plain = plain && i > 0 && !flow
		case r == '>':
			plain = plain && i > 0
		case r == '.':
			plain = plain && !strings.HasPrefix(s, "...")
		}
	}
	switch {
	case plain && !looksNumeric(s):
		return s
	case quotable:
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	}
	return doubleQuoted(s)
}

// looksNumeric: other YAML versions might read s as a number, such as 1e3.
func looksNumeric(s string) bool {
	if c := s[0]; c != '.' && c != '+' && c != '-' && (c < '0' || c > '9') {
		return false
	}
	if strings.HasPrefix(s, "0o") {
		return true
	}
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

func doubleQuoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case printable(r):
			b.WriteRune(r)
		case r <= 0xff:
			fmt.Fprintf(&b, `\x%02X`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			fmt.Fprintf(&b, `\U%08X`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
