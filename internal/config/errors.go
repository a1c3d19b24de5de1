package config

import (
	"log/slog"
	"slices"
	"strconv"
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
	Path   string // dotted; empty for the whole
	Text   string // what is wrong and what to do
}

func (p Problem) String() string {
	return joinNonEmpty(": ", p.Origin.String(), p.Path, p.Text)
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
	Text  string
}

func joinNonEmpty(sep string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), sep)
}

// dotted writes a path as people do; keys with dots or odd characters are
// quoted, list positions are in brackets.
func dotted(path []string) string {
	var b strings.Builder
	for _, key := range path {
		switch {
		case strings.HasPrefix(key, "[") && strings.HasSuffix(key, "]"):
			b.WriteString(key)
			continue
		case b.Len() > 0:
			b.WriteByte('.')
		}
		if key == "" || strings.ContainsAny(key, ".[] \t\n\"':") {
			key = strconv.Quote(key)
		}
		b.WriteString(key)
	}
	return b.String()
}

func didYouMean(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(words, " or ") + "?"
}
