package task

import (
	"errors"
	"fmt"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// source is a text being parsed: its name and lines, for errors.
type source struct{ yaml11.Source }

func newSource(name string, text []byte) *source {
	return &source{yaml11.Source{Name: name, Text: string(text)}}
}

func (s *source) errorAt(line, col int, field, format string, args ...any) *Error {
	return &Error{File: s.Name, Line: line, Column: col, Field: field, Message: fmt.Sprintf(format, args...), source: s.LineText(line)}
}

// documents parses every document of the text. An empty document is a null.
func (s *source) documents() ([]*yaml11.Node, error) {
	docs, err := s.Read()
	var unreadable yaml11.Errors
	if !errors.As(err, &unreadable) {
		return docs, err
	}
	var errs []*Error
	for _, u := range unreadable {
		e := &Error{File: s.Name, Message: u.Message}
		if u.Line > 0 {
			e = s.errorAt(u.Line, u.Column, "", "%s", u.Message)
		}
		e.Hint = u.Hint
		errs = append(errs, e)
	}
	return nil, joined(errs)
}

// joined makes one error of several.
func joined(errs []*Error) error {
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return Errors(errs)
}
