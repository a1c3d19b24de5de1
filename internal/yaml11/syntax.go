package yaml11

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// syntaxWords say in our words what the parser found. The first entry whose
// message and context occur in the parser's is taken.
var syntaxWords = []struct {
	message, context string // of the parser
	text             string // %d: the line of the context
	atContext        bool   // the place to show is where the context begins
	hint             string
}{
	{message: "unknown anchor", text: "* refers to an anchor that this file does not have", hint: "Quote the value if it should begin with a *, as in '*/us-east-1'."},
	{message: "mapping values are not allowed", text: "a colon with a space (or the line's end) behind it cannot stand inside a value", hint: "Quote the value, or look at the line before: its indentation, a space missing behind its colon."},
	{message: "expected ',' or ']'", text: "the list that begins with [ on line %d is not closed, or lacks a comma", atContext: false, hint: "Close it with ]."},
	{message: "expected ',' or '}'", text: "the map that begins with { on line %d is not closed, or lacks a comma", hint: "Close it with }, and quote values with braces."},
	{message: "unexpected end of stream", context: "quoted scalar", text: "this quote is never closed", atContext: true},
	{message: "unexpected document indicator", context: "quoted scalar", text: "this quote is not closed before the document ends", atContext: true},
	{message: "unknown escape", text: "this backslash sequence does not exist in double quotes", hint: "Write \\\\ for a backslash, or use single quotes."},
	{message: "Unicode character escape", text: "this backslash sequence is no character", hint: "Write \\\\ for a backslash, or use single quotes."},
	{message: "hexadecimal number", text: "this backslash sequence needs hexadecimal digits", hint: "Write \\\\ for a backslash, or use single quotes."},
	{message: "tab", text: "a tab stands where only spaces may", hint: "Indent with spaces."},
	{message: "cannot start any token", text: "a value cannot begin with this character", hint: "Quote the value."},
	{message: "expected ':'", text: "this line should be KEY: VALUE", atContext: true, hint: "Check for a missing colon, or a missing space behind it."},
	{message: "expected key", context: "block mapping", text: "this line is not indented like the fields around it, which begin on line %d", hint: "Give fields of the same map the same indentation."},
	{message: "expected '-'", text: "this line should be an item with a dash, like those of the list that begins on line %d", hint: "Give items of the same list the same indentation."},
	{message: "sequence entries are not allowed", text: "an item with a dash cannot stand here", hint: "Put the list on the lines after its key."},
	{message: "comment or line break", context: "block scalar", text: "text cannot follow | or > on the same line", hint: "Begin it on the next line, indented."},
	{message: "comment or line break", text: "there is more text here than there may be"},
	{message: "expected <document start>", text: "this line does not belong to the text before it", hint: "Check its indentation; a new document begins with ---."},
	{message: "expected node content", text: "a value is missing here", hint: "Check for a comma too many, or quote the value."},
	{message: "alphabetic or numeric", context: "alias", text: "a value cannot begin with * unless it is the name of an anchor", hint: "Quote the value."},
	{message: "alphabetic or numeric", context: "anchor", text: "a value cannot begin with & unless a name follows", hint: "Quote the value."},
	{message: "", context: "anchor", text: "a value cannot begin with & unless a name follows", hint: "Quote the value."},
	{message: "", context: "alias", text: "a value cannot begin with * unless it is the name of an anchor", hint: "Quote the value."},
	{message: "", context: "tag", text: "a value cannot begin with ! unless it is a tag", hint: "Quote the value."},
	{message: "control characters", text: "the file holds a control character"},
	{message: "comment without preceding", text: "a comment needs a space before its #"},
}

func (s *Source) syntaxError(err error) *Error {
	le, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return &Error{Place: Place{Source: s}, Message: "this is not YAML: " + err.Error()}
	}
	at, text, hint := le.Mark, le.Message, ""
	if le.ContextMsg != "" {
		text += " " + le.ContextMsg
	}
	text = "this is not YAML: " + text
	for _, w := range syntaxWords {
		if !strings.Contains(le.Message, w.message) || !strings.Contains(le.ContextMsg, w.context) {
			continue
		}
		text, hint = w.text, w.hint
		if strings.Contains(text, "%d") {
			text = fmt.Sprintf(text, max(le.ContextMark.Line, 1))
		}
		if before := s.LineText(at.Line); w.context == "block mapping" && strings.TrimSpace(cut(before, at.Column-1)) != "" {
			text, hint = "there is more text on this line than there may be", ""
		}
		switch begins := le.ContextMark; {
		case (w.atContext || s.ends(at.Line)) && begins.Line > 0 && !s.ends(begins.Line):
			at = begins
		case s.ends(at.Line):
			return s.endError()
		}
		break
	}
	line, col := max(at.Line, 1), max(at.Column, 1)
	if text := s.LineText(line); strings.HasPrefix(strings.TrimLeft(cut(text, col), " "), "\t") {
		return s.tabError(line, col)
	}
	return &Error{Place: Place{s, line, col}, Message: text, Hint: hint}
}

// ends reports whether the text ends before a line.
func (s *Source) ends(line int) bool {
	return line > 1+strings.Count(strings.TrimRight(s.Text, "\n"), "\n")
}

// endError is a text that lacks its end; the place is its last character.
func (s *Source) endError() *Error {
	text := strings.TrimRight(s.Text, " \t\r\n")
	line := 1 + strings.Count(text, "\n")
	last := text[strings.LastIndexByte(text, '\n')+1:]
	return &Error{Place: Place{s, line, max(utf8.RuneCountInString(last), 1)}, Message: "the text ends where a value is expected", Hint: "Close what is open: a [ or a {."}
}

// cut returns the first n characters of s.
func cut(s string, n int) string {
	r := []rune(s)
	return string(r[:max(min(n, len(r)), 0)])
}

func (s *Source) tabError(line, col int) *Error {
	return &Error{Place: Place{s, line, col}, Message: "a tab stands where only spaces may", Hint: "Indent with spaces."}
}
