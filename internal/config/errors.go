package config

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/api"
)

// Error says everything that is wrong with a configuration. It is also an
// [*api.Error] of class InvalidSkyPilotConfigError to errors.As.
type Error struct {
	Head     string // what was being done; may be empty
	Problems []Problem
}

// Problem is one mistake.
type Problem struct {
	Origin Origin
	Path   string // dotted, for programs; empty for the whole
	Text   string // what is wrong and what to do; it names the key
	Hint   string // more help, in sentences; may be empty
}

// ProblemAt is a Problem of a key.
func ProblemAt(at Origin, path, text string) Problem {
	return Problem{Origin: at, Path: path, Text: path + ": " + text}
}

func (p Problem) String() string {
	text := joinNonEmpty(": ", p.Origin.String(), p.Text)
	switch {
	case p.Hint == "":
		return text
	case strings.HasSuffix(text, "?"):
		return text + " " + p.Hint
	}
	return text + ". " + p.Hint
}

func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	if e.Head != "" {
		lines = append(lines, e.Head)
	}
	for _, p := range e.Problems {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// As lets an Error travel to API clients under the class name they know.
func (e *Error) As(target any) bool {
	t, ok := target.(**api.Error)
	if ok {
		*t = &api.Error{Type: api.ErrInvalidConfig, Message: e.Error(), Err: e}
	}
	return ok
}

// Warning is something a person should hear of that stops nothing; at LevelInfo,
// only who asks.
type Warning struct {
	Level slog.Level
	Problem
}

func joinNonEmpty(sep string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), sep)
}
