package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/skypilot-go/sky/internal/config/keys"
)

// Kind is a set of shapes a value can have.
type Kind = keys.Kind

// The shapes; see package keys.
const (
	Null   = keys.NullKind
	Bool   = keys.BoolKind
	Int    = keys.IntKind
	Float  = keys.FloatKind
	Text   = keys.TextKind
	List   = keys.ListKind
	Map    = keys.MapKind
	Number = keys.NumberKind
	Scalar = keys.ScalarKind
	Any    = keys.AnyKind
)

// Spec describes the value of one key.
type Spec = keys.Spec

// node is one value of a configuration and where it was written. Nodes never
// change after they are made, so layers and requests share them.
type node struct {
	kind    Kind    // exactly one
	value   any     // bool, int, float64 or string
	entries []entry // of a Map, in the order written; keys are unique
	list    []*node
	at      place
}

type entry struct {
	key  string
	at   place // of the key
	node *node
}

// place is a position in a source; line 0 means that the source has no lines.
type place struct {
	src       *source
	line, col int
}

// source is one text or flag that values come from.
type source struct {
	layer Layer
	name  string // as users know it: "~/.sky/config.yaml", "--config aws.vpc_name"
}

func (p place) origin() Origin {
	if p.src == nil {
		return Origin{}
	}
	return Origin{Layer: p.src.layer, Source: p.src.name, Line: p.line, Column: p.col}
}

// get returns the value under key, or nil.
func (n *node) get(key string) *node {
	if n == nil {
		return nil
	}
	for i := range n.entries {
		if n.entries[i].key == key {
			return n.entries[i].node
		}
	}
	return nil
}

// find returns the value under a path of keys, or nil.
func (n *node) find(path ...string) *node {
	for _, key := range path {
		if n = n.get(key); n == nil {
			return nil
		}
	}
	return n
}

// with returns a copy of the map n in which key holds v.
func (n *node) with(key string, at place, v *node) *node {
	out := *n
	out.entries = slices.Clone(n.entries)
	for i := range out.entries {
		if out.entries[i].key == key {
			out.entries[i].node, out.entries[i].at = v, at
			return &out
		}
	}
	out.entries = append(out.entries, entry{key, at, v})
	return &out
}

// without returns n less the value under path; sections left empty by that go
// too. It returns nil when nothing is left.
func (n *node) without(path ...string) *node {
	child := n.get(path[0])
	if child == nil {
		return n
	}
	var rest *node
	if len(path) > 1 {
		if rest = child.without(path[1:]...); rest == child {
			return n
		}
	}
	if rest != nil {
		return n.with(path[0], n.keyPlace(path[0]), rest)
	}
	if len(n.entries) == 1 {
		return nil
	}
	out := *n
	out.entries = slices.DeleteFunc(slices.Clone(n.entries), func(e entry) bool { return e.key == path[0] })
	return &out
}

func (n *node) keyPlace(key string) place {
	for _, e := range n.entries {
		if e.key == key {
			return e.at
		}
	}
	return n.at
}

// nest returns v under a path of keys.
func nest(path []string, at place, v *node) *node {
	for _, key := range slices.Backward(path) {
		v = &node{kind: Map, at: at, entries: []entry{{key, at, v}}}
	}
	return v
}

// plain returns n as maps, slices and scalars that the caller may change.
func (n *node) plain() any {
	if n == nil {
		return nil
	}
	switch n.kind {
	case Map:
		out := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			out[e.key] = e.node.plain()
		}
		return out
	case List:
		out := make([]any, len(n.list))
		for i, v := range n.list {
			out[i] = v.plain()
		}
		return out
	default:
		return n.value
	}
}

// fromPlain is the inverse of plain. It takes what encoding/json makes of a
// body: whole floats become integers, since JSON does not tell them apart.
func fromPlain(v any, at place) *node {
	switch v := v.(type) {
	case nil:
		return &node{kind: Null, at: at}
	case bool:
		return &node{kind: Bool, value: v, at: at}
	case int:
		return &node{kind: Int, value: v, at: at}
	case int64:
		return &node{kind: Int, value: int(v), at: at}
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return &node{kind: Int, value: int(v), at: at}
		}
		return &node{kind: Float, value: v, at: at}
	case json.Number:
		if i, err := strconv.Atoi(v.String()); err == nil {
			return fromPlain(i, at)
		}
		f, _ := v.Float64()
		return fromPlain(f, at)
	case string:
		return &node{kind: Text, value: v, at: at}
	case map[string]any:
		return mapNode(v, at)
	case map[string]string:
		return mapNode(v, at)
	case []any:
		return listNode(v, at)
	case []string:
		return listNode(v, at)
	default:
		return &node{kind: Text, value: fmt.Sprint(v), at: at}
	}
}

func mapNode[V any](m map[string]V, at place) *node {
	n := &node{kind: Map, at: at, entries: make([]entry, 0, len(m))}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		n.entries = append(n.entries, entry{k, at, fromPlain(m[k], at)})
	}
	return n
}

func listNode[V any](l []V, at place) *node {
	n := &node{kind: List, at: at, list: make([]*node, 0, len(l))}
	for _, v := range l {
		n.list = append(n.list, fromPlain(v, at))
	}
	return n
}

// same says whether two values are equal; the order of keys and whether a
// whole number is a float do not matter.
func same(a, b *node) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.kind&Number != 0 && b.kind&Number != 0 {
		return a.number() == b.number()
	}
	if a.kind != b.kind || len(a.entries) != len(b.entries) || len(a.list) != len(b.list) {
		return false
	}
	for _, e := range a.entries {
		if other := b.get(e.key); other == nil || !same(e.node, other) {
			return false
		}
	}
	for i := range a.list {
		if !same(a.list[i], b.list[i]) {
			return false
		}
	}
	return a.value == b.value
}

// number is the value of an Int or a Float.
func (n *node) number() float64 {
	if i, ok := n.value.(int); ok {
		return float64(i)
	}
	f, _ := n.value.(float64)
	return f
}
