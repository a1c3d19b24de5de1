package keys

import "strings"

// Kind is a set of shapes a value can have.
type Kind uint8

// The shapes. A whole float such as 3.0 passes for an IntKind.
const (
	NullKind Kind = 1 << iota
	BoolKind
	IntKind
	FloatKind
	TextKind
	ListKind
	MapKind

	NumberKind = IntKind | FloatKind
	ScalarKind = BoolKind | NumberKind | TextKind
	AnyKind    = NullKind | ScalarKind | ListKind | MapKind
)

// String names the kinds the way documentation does.
func (k Kind) String() string { return (&Spec{Kinds: k}).Describe() }

// Describe says in words what a value may be: "a text or a list".
func (s *Spec) Describe() string {
	var kinds []string
	add := func(k Kind, words string) {
		if s.Kinds&k != 0 {
			kinds = append(kinds, words)
		}
	}
	add(BoolKind, "true or false")
	if s.Kinds&FloatKind != 0 {
		add(FloatKind, "a number")
	} else {
		add(IntKind, "a whole number")
	}
	switch len(s.Enum) {
	case 0:
		add(TextKind, "a text")
	case 1:
		add(TextKind, s.Enum[0])
	default:
		add(TextKind, "one of "+strings.Join(s.Enum, ", "))
	}
	add(ListKind, "a list")
	add(MapKind, "a section")
	add(NullKind, "nothing")
	if len(kinds) == 1 {
		return kinds[0]
	}
	return strings.Join(kinds[:len(kinds)-1], ", ") + " or " + kinds[len(kinds)-1]
}
