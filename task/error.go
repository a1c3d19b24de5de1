package task

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error is one thing that is wrong with a task, and where. Line and Column
// count from 1, columns in characters; both are 0 where there is no text to
// point at (a command-line flag, a task built in Go).
type Error struct {
	File         string // as given to Parse or Load; "" for flags
	Line, Column int
	Field        string // "resources.ports[1]", or the flag: "--gpus"
	Message      string // what is wrong and what to write instead
	Hint         string // more help, if there is any
	// Class is the name that API clients know the error by; "" means
	// ValueError.
	Class string

	source string // the line that Line names
}

// Error gives "file:line:col: message", without what is unknown.
func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case e.Line > 0:
		file := e.File
		if file == "" {
			file = "task"
		}
		fmt.Fprintf(&b, "%s:%d:%d: ", file, e.Line, e.Column)
	case e.File != "":
		b.WriteString(e.File + ": ")
	case e.Field != "":
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// Snippet shows the source line with a caret under the place, ending in a
// newline; "" if there is no source.
func (e *Error) Snippet() string {
	if e.Line <= 0 || e.source == "" {
		return ""
	}
	const width = 100
	line, col := e.source, min(max(e.Column, 1), utf8.RuneCountInString(e.source)+1)
	// A long line is cut around the place.
	if runes := []rune(line); len(runes) > width {
		from := min(max(col-1-width/2, 0), len(runes)-width)
		line, col = string(runes[from:from+width]), col-from
	}
	var pad strings.Builder
	for _, r := range []rune(line)[:col-1] {
		if r == '\t' {
			pad.WriteByte('\t')
		} else {
			pad.WriteByte(' ')
		}
	}
	margin := fmt.Sprintf("%4d | ", e.Line)
	return margin + line + "\n" + strings.Repeat(" ", len(margin)-2) + "| " + pad.String() + "^\n"
}

// Errors is every mistake found in one go, in the order of the text.
type Errors []*Error

// Error gives one line per mistake.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find the first *Error.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// AllErrors lists the mistakes inside err; nil if it holds none.
func AllErrors(err error) []*Error {
	if es, ok := errors.AsType[Errors](err); ok {
		return es
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return []*Error{e}
	}
	return nil
}

// hide replaces secret values in messages. Very short values stay: hiding
// them would garble the text, and they hide nothing.
func hide(errs []*Error, secrets []string) {
	for _, value := range secrets {
		if len(value) < 4 {
			continue
		}
		for _, e := range errs {
			quoted := strconv.Quote(value)
			for _, text := range []*string{&e.Message, &e.Hint, &e.Field} {
				*text = strings.ReplaceAll(*text, value, Redacted)
				*text = strings.ReplaceAll(*text, quoted[1:len(quoted)-1], Redacted)
			}
		}
	}
}
