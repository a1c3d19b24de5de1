package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// Kind is a set of kinds of values.
type Kind = schema.Kind

// The kinds; see package keys.
const (
	Null   = schema.NullKind
	Bool   = schema.BoolKind
	Int    = schema.IntKind
	Float  = schema.FloatKind
	Text   = schema.TextKind
	List   = schema.ListKind
	Map    = schema.MapKind
	Number = schema.NumberKind
	Scalar = schema.ScalarKind
	Any    = schema.AnyKind
)

// Spec describes the value of one key.
type Spec = schema.Spec

// Nodes never change after they are made, so layers and requests share them. The
// [yaml11.Source.Layer] of their source is a [Layer].

// newSource is a text or flag that values come from, by the name that users know it
// by: "~/.sky/config.yaml", "--config aws.vpc_name".
func newSource(layer Layer, name string) *yaml11.Source {
	return &yaml11.Source{Layer: string(layer), Name: name}
}

func originOf(p yaml11.Place) Origin {
	if p.Source == nil {
		return Origin{}
	}
	return Origin{Layer: Layer(p.Source.Layer), Source: p.Source.Name, Line: p.Line, Column: p.Column}
}

// parse reads one YAML document. A text without content gives nil. The error is
// [yaml11.Errors].
func parse(text []byte, src *yaml11.Source) (*yaml11.Node, error) {
	src.Text, src.Simple = string(text), true
	defer func() { src.Text = "" }() // values need only the name
	return src.ReadOne()
}

// fromPlain makes a node of values from elsewhere.
func fromPlain(v any, at yaml11.Place) *yaml11.Node { return yaml11.Of(v).At(at) }

// emit writes n as YAML text that reads back as the same values under YAML 1.1 and 1.2
// alike.
func emit(n *yaml11.Node) []byte {
	if n == nil {
		n = yaml11.NewMap()
	}
	var w yaml11.Writer
	w.Block(n)
	return []byte(w.String())
}

// notYAML is what is wrong with a text that is not YAML, "" if err is about a key given
// twice. Such a text is never taken for an empty one, since each half looks valid.
func notYAML(err error) string {
	var unreadable yaml11.Errors
	if !errors.As(err, &unreadable) || unreadable[0].Key != "" {
		return ""
	}
	return problemOf(unreadable[0]).String()
}

func problemOf(e *yaml11.Error) Problem {
	if e.Key != "" {
		return ProblemAt(originOf(e.Place), e.Key, fmt.Sprintf("already given on line %d; remove one of the two", e.First.Line))
	}
	text := "not valid YAML: " + e.Message
	if e.Hint != "" {
		text += ". " + strings.TrimSuffix(e.Hint, ".")
	}
	return Problem{Origin: originOf(e.Place), Text: text}
}

// asError turns a failure to read or edit a text into an [*Error].
func asError(err error) *Error {
	var unreadable yaml11.Errors
	if !errors.As(err, &unreadable) {
		return &Error{Problems: []Problem{{Text: err.Error()}}}
	}
	out := &Error{}
	for _, e := range unreadable {
		out.Problems = append(out.Problems, problemOf(e))
	}
	return out
}
