package term

import (
	"strings"

	"github.com/skypilot-go/sky/internal/table"
)

// Style is the middle of an ANSI colour sequence.
type Style string

const (
	Bold   Style = "1"
	Dim    Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
	Blue   Style = "34"
	Purple Style = "35"
	Cyan   Style = "36"
	Grey   Style = "90"
	Title  Style = "1;36" // section titles
)

// Apply colours text whatever it is written to.
func (s Style) Apply(text string) string {
	if text == "" {
		return ""
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// Style colours text for results, if results are shown in colours.
func (t *Term) Style(s Style, text string) string {
	if !t.OutColor {
		return text
	}
	return s.Apply(text)
}

func (t *Term) errStyle(s Style, text string) string {
	if !t.ErrColor {
		return text
	}
	return s.Apply(text)
}

// ErrStyle colours text for the error stream, if that is shown in colours.
func (t *Term) ErrStyle(s Style, text string) string { return t.errStyle(s, text) }

var markup = map[string]Style{
	"bold": Bold, "dim": Dim, "red": Red, "green": Green, "yellow": Yellow, "blue": Blue, "magenta": Purple,
	"cyan": Cyan, "grey": Grey, "bright_black": Grey, "italic": "3", "underline": "4",
}

// Markup turns "[bold cyan]text[/]" into ANSI colours, or drops the tags when
// color is false. Brackets that are no tag stay; "\[" is a bracket.
func Markup(text string, color bool) string {
	var b strings.Builder
	open := 0
	for text != "" {
		i := strings.IndexByte(text, '[')
		if i < 0 {
			break
		}
		if i > 0 && text[i-1] == '\\' {
			b.WriteString(text[:i-1] + "[")
			text = text[i+1:]
			continue
		}
		end := strings.IndexByte(text[i:], ']')
		if end < 0 {
			break
		}
		tag := text[i+1 : i+end]
		codes, ok := tagCodes(tag)
		if !ok {
			b.WriteString(text[:i+1])
			text = text[i+1:]
			continue
		}
		b.WriteString(text[:i])
		text = text[i+end+1:]
		switch {
		case !color:
		case codes == "":
			if open > 0 {
				b.WriteString("\x1b[0m")
			}
			open = 0
		default:
			b.WriteString("\x1b[" + codes + "m")
			open++
		}
	}
	b.WriteString(text)
	if color && open > 0 {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}

// tagCodes are the colours of a tag; "" for a closing one.
func tagCodes(tag string) (string, bool) {
	name, closing := strings.CutPrefix(tag, "/")
	var codes []string
	for w := range strings.FieldsSeq(name) {
		s, ok := markup[w]
		if !ok {
			return "", false
		}
		codes = append(codes, string(s))
	}
	if closing {
		return "", true
	}
	return strings.Join(codes, ";"), len(codes) > 0
}

// Plain drops ANSI colours from text unless results are shown in colours.
func (t *Term) Plain(text string) string {
	if t.OutColor {
		return text
	}
	return table.Plain(text)
}
