package yaml11

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// Kind is a set of kinds of values; a node has exactly one.
type Kind uint8

// The kinds.
const (
	Null Kind = 1 << iota
	Bool
	Int
	Float
	Text // also dates
	List
	Map

	Number = Int | Float
	Scalar = Bool | Number | Text // every scalar but null
	Any    = Null | Scalar | List | Map
)

// String says in words what a value may be: "a text or a list".
func (k Kind) String() string { return k.Describe("text") }

// Takes reports whether a node is of one of the kinds. A whole float such as 3.0 passes
// for an integer.
func (k Kind) Takes(n *Node) bool {
	return k&n.Kind != 0 || n.Kind == Float && k&Int != 0 && n.Number() == math.Trunc(n.Number()) && math.Abs(n.Number()) < 1<<63
}

// JSONTypes returns the kinds by their names in JSON Schema.
func (k Kind) JSONTypes() []string {
	var out []string
	for _, t := range []struct {
		kind Kind
		name string
	}{{Text, "string"}, {Int, "integer"}, {Float, "number"}, {Bool, "boolean"}, {List, "array"}, {Map, "object"}, {Null, "null"}} {
		if k&t.kind != 0 && !(t.kind == Int && k&Float != 0) { // number includes integer
			out = append(out, t.name)
		}
	}
	return out
}

// JSONSchema is the value of type in a JSON Schema.
func (k Kind) JSONSchema() any {
	if names := k.JSONTypes(); len(names) != 1 {
		return names
	}
	return k.JSONTypes()[0]
}

// Describe is [Kind.String] with another word for texts.
func (k Kind) Describe(text string) string {
	var words []string
	add := func(of Kind, word string) {
		if k&of != 0 {
			words = append(words, word)
		}
	}
	add(Bool, "true or false")
	if k&Float != 0 {
		add(Float, "a number")
	} else {
		add(Int, "a whole number")
	}
	add(Text, text)
	add(List, "a list")
	add(Map, "a map")
	add(Null, "nothing")
	if len(words) <= 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// Node is a value with its place in the text.
type Node struct {
	Kind Kind
	Place
	Text    string  // a scalar as written, unquoted
	Value   any     // a scalar's meaning: nil, bool, int, *big.Int, float64, string, Date
	Quoted  bool    // a scalar in quotes, or a block of lines
	Flow    bool    // a collection written in one line, with braces or brackets
	Entries []Entry // of a map, in order, merges done; keys are unique
	Items   []*Node // of a list
	// Pending: the text of the scalar is not known yet, so it is not checked.
	Pending  bool
	Comments Comments
	// Apart: a blank line stands before it; see [Source.Layout].
	Apart bool
}

// Comments stand above, behind and below a node, each line with its #.
type Comments struct{ Head, Line, Foot string }

// Entry is a key and its value.
type Entry struct {
	Key, Value *Node
	Merged     bool // from another map, by <<
}

// Place is a position in a text, from 1, columns in characters; Line 0 means that
// there is none.
type Place struct {
	Source       *Source
	Line, Column int
}

// IsNull reports whether there is no value.
func (n *Node) IsNull() bool { return n.Kind&(Map|List) == 0 && n.Value == nil }

// IsScalar reports whether n is neither a list nor a map.
func (n *Node) IsScalar() bool { return n.Kind&(Map|List) == 0 }

// Lookup returns the value under a key of a map, nil if there is none.
func (n *Node) Lookup(key string) *Node {
	if n == nil {
		return nil
	}
	for i := range n.Entries {
		if n.Entries[i].Key.Text == key {
			return n.Entries[i].Value
		}
	}
	return nil
}

// Get is [Node.Lookup] without nulls.
func (n *Node) Get(key string) *Node {
	if v := n.Lookup(key); v != nil && !v.IsNull() {
		return v
	}
	return nil
}

// Find returns the value under a path of keys, nil if there is none.
func (n *Node) Find(path ...string) *Node {
	for _, key := range path {
		if n = n.Lookup(key); n == nil {
			return nil
		}
	}
	return n
}

// TextAt returns the scalar under a path of keys as it is written; "" if there is none.
func (n *Node) TextAt(path ...string) string {
	if n = n.Find(path...); n == nil || !n.IsScalar() || n.IsNull() {
		return ""
	}
	return n.Text
}

// List returns the items of the list under a key of a map; nil if there is none.
func (n *Node) List(key string) []*Node {
	if n = n.Lookup(key); n == nil {
		return nil
	}
	return n.Items
}

// IsTrue reports whether n is the boolean true; nil is not.
func (n *Node) IsTrue() bool { return n != nil && n.Value == true }

// Key returns a key of a map itself, for its place; n if there is none.
func (n *Node) Key(key string) *Node {
	for i := range n.Entries {
		if n.Entries[i].Key.Text == key {
			return n.Entries[i].Key
		}
	}
	return n
}

// KeyNode is a key that was written at a place.
func KeyNode(key string, at Place) *Node {
	return &Node{Kind: Text, Place: at, Text: key, Value: key, Quoted: true}
}

// Nest returns v under a path of keys.
func Nest(path []string, at Place, v *Node) *Node {
	for _, key := range slices.Backward(path) {
		v = &Node{Kind: Map, Place: at, Entries: []Entry{{Key: KeyNode(key, at), Value: v}}}
	}
	return v
}

// With returns a copy of the map n in which key holds v. The key's place is at.
func (n *Node) With(key string, at Place, v *Node) *Node {
	out := *n
	out.Entries = slices.Clone(n.Entries)
	for i := range out.Entries {
		if out.Entries[i].Key.Text == key {
			k := *out.Entries[i].Key
			k.Place = at
			out.Entries[i] = Entry{Key: &k, Value: v}
			return &out
		}
	}
	out.Entries = append(out.Entries, Entry{Key: KeyNode(key, at), Value: v})
	return &out
}

// Without returns n less the value under path; maps left empty by that go too. It
// returns nil when nothing is left.
func (n *Node) Without(path ...string) *Node {
	child := n.Lookup(path[0])
	if child == nil {
		return n
	}
	var rest *Node
	if len(path) > 1 {
		if rest = child.Without(path[1:]...); rest == child {
			return n
		}
	}
	if rest != nil {
		return n.With(path[0], n.Key(path[0]).Place, rest)
	}
	if len(n.Entries) == 1 {
		return nil
	}
	out := *n
	out.Entries = slices.DeleteFunc(slices.Clone(n.Entries), func(e Entry) bool { return e.Key.Text == path[0] })
	return &out
}

// At returns n with every place replaced.
func (n *Node) At(at Place) *Node {
	out := *n
	out.Place = at
	out.Entries = slices.Clone(n.Entries)
	for i, e := range out.Entries {
		key := *e.Key
		key.Place = at
		out.Entries[i].Key, out.Entries[i].Value = &key, e.Value.At(at)
	}
	out.Items = slices.Clone(n.Items)
	for i := range out.Items {
		out.Items[i] = out.Items[i].At(at)
	}
	return &out
}

// Same compares what two trees mean, the order of keys included.
func Same(a, b *Node) bool {
	if a.IsScalar() != b.IsScalar() || a.IsScalar() && PyRepr(a) != PyRepr(b) ||
		!a.IsScalar() && a.Kind != b.Kind || len(a.Entries) != len(b.Entries) || len(a.Items) != len(b.Items) {
		return false
	}
	for i := range a.Entries {
		if !Same(a.Entries[i].Key, b.Entries[i].Key) || !Same(a.Entries[i].Value, b.Entries[i].Value) {
			return false
		}
	}
	for i := range a.Items {
		if !Same(a.Items[i], b.Items[i]) {
			return false
		}
	}
	return true
}

// Equal compares what two trees hold: neither the order of keys matters nor whether a
// whole number is written as a float.
func Equal(a, b *Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Kind&Number != 0 && b.Kind&Number != 0 {
		return a.Number() == b.Number()
	}
	if a.Kind != b.Kind || len(a.Entries) != len(b.Entries) || len(a.Items) != len(b.Items) {
		return false
	}
	for _, e := range a.Entries {
		if other := b.Lookup(e.Key.Text); other == nil || !Equal(e.Value, other) {
			return false
		}
	}
	for i := range a.Items {
		if !Equal(a.Items[i], b.Items[i]) {
			return false
		}
	}
	return a.Value == b.Value
}

// Number is the value of an Int or a Float, 0 of anything else.
func (n *Node) Number() float64 {
	if n == nil {
		return 0
	}
	switch x := n.Value.(type) {
	case int:
		return float64(x)
	case float64:
		return x
	case *big.Int:
		f, _ := new(big.Float).SetInt(x).Float64()
		return f
	}
	return 0
}

// Describe says what n is, for "…, not X".
func (n *Node) Describe() string {
	switch n.Kind {
	case Map:
		return "a map"
	case List:
		return "a list"
	}
	switch n.Value.(type) {
	case nil:
		return "empty"
	case bool:
		return fmt.Sprintf("%s (a boolean)", n.Text)
	case string, Date:
		return fmt.Sprintf("the text %s", Quote(n.Text))
	}
	return "the number " + n.Text
}

// Quote quotes a text for a message; a long one is cut.
func Quote(s string) string {
	if r := []rune(s); len(r) > 200 {
		s = string(r[:197]) + "..."
	}
	return strconv.Quote(s)
}

// NumberText is a scalar's text with numbers in their plain form: 0x10 as 16.
func (n *Node) NumberText() string {
	switch x := n.Value.(type) {
	case int:
		return strconv.Itoa(x)
	case float64:
		return FormatNumber(x)
	}
	return n.Text
}

// FormatNumber writes the shortest decimal text of x: 8, 0.5.
func FormatNumber(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// Source is a text to read.
type Source struct {
	Name  string // as its user knows it, for messages
	Layer string // of a configuration: where it comes from
	Text  string
	// Simple leaves dates texts, makes floats of whole numbers beyond an int, and
	// drops comments.
	Simple bool
	// Layout keeps where blank lines stand, in [Node.Apart].
	Layout bool

	lines []string // with Layout
}

// LineText returns a line of the text, from 1; "" if there is none.
func (s *Source) LineText(n int) string {
	rest := s.Text
	for ; n > 1; n-- {
		i := strings.IndexByte(rest, '\n')
		if i < 0 {
			return ""
		}
		rest = rest[i+1:]
	}
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimPrefix(strings.TrimSuffix(line, "\r"), "\ufeff")
}
