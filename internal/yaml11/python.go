package yaml11

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// Environment values that are not text become the text that Python's str()
// gives them: the shell scripts that compare with "True" depend on it.

// PyStr is str(value).
func PyStr(n *Node) string {
	if n.IsScalar() {
		switch v := n.Value.(type) {
		case string:
			return v
		case Date:
			return v.Str()
		}
	}
	return PyRepr(n)
}

// PyRepr is repr(value).
func PyRepr(n *Node) string {
	switch n.Kind {
	case List:
		parts := make([]string, len(n.Items))
		for i, item := range n.Items {
			parts[i] = PyRepr(item)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case Map:
		parts := make([]string, len(n.Entries))
		for i, e := range n.Entries {
			parts[i] = PyRepr(e.Key) + ": " + PyRepr(e.Value)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	switch v := n.Value.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int:
		return strconv.Itoa(v)
	case *big.Int:
		return v.String()
	case float64:
		return pyFloat(v)
	case Date:
		return v.Repr()
	case string:
		return pyQuote(v)
	}
	return n.Text
}

func pyFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if abs := math.Abs(f); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64) // exponents have two digits in both languages
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// Str is str(d).
func (d Date) Str() string {
	if d.DateOnly {
		return d.Format("2006-01-02")
	}
	s := d.Format("2006-01-02 15:04:05")
	if us := d.Nanosecond() / 1000; us != 0 {
		s += fmt.Sprintf(".%06d", us)
	}
	if d.Zoned {
		s += d.Format("-07:00")
	}
	return s
}

// Repr is repr(d).
func (d Date) Repr() string {
	if d.DateOnly {
		return fmt.Sprintf("datetime.date(%d, %d, %d)", d.Year(), d.Month(), d.Day())
	}
	s := fmt.Sprintf("datetime.datetime(%d, %d, %d, %d, %d", d.Year(), d.Month(), d.Day(), d.Hour(), d.Minute())
	if us := d.Nanosecond() / 1000; us != 0 {
		s += fmt.Sprintf(", %d, %d", d.Second(), us)
	} else if d.Second() != 0 {
		s += fmt.Sprintf(", %d", d.Second())
	}
	if !d.Zoned {
		return s + ")"
	}
	_, off := d.Zone()
	switch {
	case off == 0:
		return s + ", tzinfo=datetime.timezone.utc)"
	case off < 0:
		return s + fmt.Sprintf(", tzinfo=datetime.timezone(datetime.timedelta(days=-1, seconds=%d)))", 86400+off)
	}
	return s + fmt.Sprintf(", tzinfo=datetime.timezone(datetime.timedelta(seconds=%d)))", off)
}

func pyQuote(s string) string {
	q := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = '"'
	}
	var b strings.Builder
	b.WriteByte(q)
	for _, r := range s {
		switch {
		case r == rune(q) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0xad:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r > 0x7e && r != ' ' && !unicode.IsPrint(r):
			if r > 0xffff {
				fmt.Fprintf(&b, `\U%08x`, r)
			} else if r > 0xff {
				fmt.Fprintf(&b, `\u%04x`, r)
			} else {
				fmt.Fprintf(&b, `\x%02x`, r)
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte(q)
	return b.String()
}
