package config

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// emit writes n as YAML text that reads back as the same values under YAML 1.1
// and 1.2 alike.
func emit(n *node) []byte {
	var b strings.Builder
	emitTo(&b, n, 0)
	return []byte(b.String())
}

// emitTo writes n from the start of a line.
func emitTo(b *strings.Builder, n *node, indent int) {
	pad := strings.Repeat(" ", indent)
	switch {
	case n == nil:
		b.WriteString(pad + "{}\n")
	case n.kind == Map && len(n.entries) > 0:
		for _, e := range n.entries {
			b.WriteString(pad + quoteText(e.key) + ":")
			emitAfter(b, e.node, indent)
		}
	case n.kind == List && len(n.list) > 0:
		for _, v := range n.list {
			b.WriteString(pad + "-")
			if v.kind == Map && len(v.entries) > 0 {
				var inner strings.Builder
				emitTo(&inner, v, indent+2)
				b.WriteString(" " + strings.TrimLeft(inner.String(), " "))
				continue
			}
			emitAfter(b, v, indent)
		}
	default:
		b.WriteString(pad + flowText(n) + "\n")
	}
}

// emitAfter writes n behind "key:" or "-".
func emitAfter(b *strings.Builder, n *node, indent int) {
	if n.kind == Map && len(n.entries) > 0 || n.kind == List && len(n.list) > 0 {
		b.WriteByte('\n')
		emitTo(b, n, indent+2)
		return
	}
	b.WriteString(" " + flowText(n) + "\n")
}

// flowText writes n on one line.
func flowText(n *node) string {
	switch n.kind {
	case Map:
		parts := make([]string, len(n.entries))
		for i, e := range n.entries {
			parts[i] = quoteText(e.key) + ": " + flowText(e.node)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case List:
		parts := make([]string, len(n.list))
		for i, v := range n.list {
			parts[i] = flowText(v)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case Text:
		return quoteText(n.value.(string))
	}
	return scalarText(n)
}

// scalarText writes a scalar that is not a text.
func scalarText(n *node) string {
	switch v := n.value.(type) {
	case bool:
		return strconv.FormatBool(v)
	case int:
		return strconv.Itoa(v)
	case float64:
		return formatFloat(v)
	case string:
		return v
	}
	return "null"
}

// formatFloat writes a float so that YAML 1.1 reads it as one.
func formatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return ".nan"
	case math.IsInf(f, 1):
		return ".inf"
	case math.IsInf(f, -1):
		return "-.inf"
	}
	s := strconv.FormatFloat(f, 'g', -1, 64)
	mantissa, exponent, has := strings.Cut(s, "e")
	if has && !strings.Contains(mantissa, ".") {
		return mantissa + ".0e" + exponent
	}
	if !has && !strings.Contains(s, ".") {
		return s + ".0"
	}
	return s
}

// quoteText writes a text plainly if every reader takes it for that text, else
// in double quotes.
func quoteText(s string) string {
	if plainSafe(s) {
		if kind, _ := resolve(s); kind == Text {
			return s
		}
	}
	quoted, _ := json.Marshal(s)
	text := string(quoted)
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&", "\u007f", `\u007f`, "\u0085", `\u0085`, "\ufeff", `\ufeff`).Replace(text)
}

// plainSafe is stricter than YAML: letters, digits and a few signs that have no
// meaning anywhere.
func plainSafe(s string) bool {
	if s == "" || s == "=" || s == "<<" || len(s) > 2000 {
		return false
	}
	switch lower := strings.ToLower(s); lower {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null", "~": // some readers take these for booleans
		return false
	}
	if strings.HasPrefix(s, "0o") || looksLikeDate(s) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '/':
		case (c == '-' || c == '.' || c == '+' || c == '~' || c == '@' || c == '=' || c == '$' || c == '(' || c == ')' || c == '^') && i > 0:
		case c == ' ' && i > 0 && i < len(s)-1 && s[i-1] != ' ':
		case c == ':' && i > 0 && i < len(s)-1 && s[i+1] != ' ':
		default:
			return false
		}
	}
	if s[0] == '-' || s[0] == '.' {
		return false
	}
	_, err := strconv.ParseFloat(s, 64) // 1e3 and the like: a number to YAML 1.2
	return err != nil
}

func looksLikeDate(s string) bool {
	return len(s) >= 8 && s[4] == '-' && s[0] >= '0' && s[0] <= '9'
}
