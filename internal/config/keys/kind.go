package keys

import (
	"strings"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// Kind is a set of kinds of values.
type Kind = yaml11.Kind

// The kinds. A whole float such as 3.0 passes for an IntKind.
const (
	NullKind   = yaml11.Null
	BoolKind   = yaml11.Bool
	IntKind    = yaml11.Int
	FloatKind  = yaml11.Float
	TextKind   = yaml11.Text
	ListKind   = yaml11.List
	MapKind    = yaml11.Map
	NumberKind = yaml11.Number
	ScalarKind = yaml11.Scalar
	AnyKind    = yaml11.Any
)

// Describe says in words what a value may be: "a text or a list".
func (s *Spec) Describe() string {
	switch len(s.Enum) {
	case 0:
		return s.Kinds.String()
	case 1:
		return s.Kinds.Describe(s.Enum[0], "a section")
	}
	return s.Kinds.Describe("one of "+strings.Join(s.Enum, ", "), "a section")
}
