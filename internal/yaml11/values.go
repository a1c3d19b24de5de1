package yaml11

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
)

// KindOf returns the kind of a scalar's value.
func KindOf(value any) Kind {
	switch value.(type) {
	case nil:
		return Null
	case bool:
		return Bool
	case int, *big.Int:
		return Int
	case float64:
		return Float
	}
	return Text
}

// NewMap returns a map without entries.
func NewMap() *Node { return &Node{Kind: Map} }

// NewList returns a list of items.
func NewList(items ...*Node) *Node { return &Node{Kind: List, Items: items} }

// NewScalar returns a scalar: nil, bool, int, *big.Int, float64 or string.
func NewScalar(value any) *Node {
	n := &Node{Kind: KindOf(value), Value: value}
	switch v := value.(type) {
	case nil:
		n.Text = "null"
	case string:
		n.Text, n.Quoted = v, true
	case bool:
		n.Text = strconv.FormatBool(v)
	default:
		n.Text = scalarText(n, false)
	}
	return n
}

// Append adds an entry to the map n, which it returns.
func (n *Node) Append(key string, value *Node) *Node {
	n.Entries = append(n.Entries, Entry{Key: KeyNode(key, Place{}), Value: value})
	return n
}

// Put adds an entry with a value as [Of] takes it, but with floats left floats; nil, a
// nil pointer too, is left out.
func (n *Node) Put(key string, value any) *Node {
	if v := toNode(value, false); v != nil {
		n.Append(key, v)
	}
	return n
}

// PutText is Put of a text that is not "".
func (n *Node) PutText(key, value string) *Node {
	if value != "" {
		n.Append(key, NewScalar(value))
	}
	return n
}

// PlainNumber is a float that is written without ".0" when it is whole.
type PlainNumber float64

// Of is the inverse of [Node.Any]: it makes a node of maps, slices and scalars. Keys
// are sorted, whole floats are integers, since JSON does not tell them apart.
func Of(value any) *Node { return orNull(toNode(value, true)) }

// toNode is Of; nil if there is no value. With whole, whole floats are integers.
func toNode(value any, whole bool) *Node {
	switch v := value.(type) {
	case nil:
		return nil
	case *Node:
		return v
	case bool, int, string, *big.Int:
		return NewScalar(v)
	case int64:
		return NewScalar(int(v))
	case float64:
		if whole && v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return NewScalar(int(v))
		}
		return NewScalar(v)
	case PlainNumber:
		return toNode(float64(v), true)
	case json.Number:
		if i, err := strconv.Atoi(v.String()); err == nil {
			return NewScalar(i)
		}
		if i, ok := new(big.Int).SetString(v.String(), 10); ok {
			return NewScalar(i)
		}
		f, _ := v.Float64()
		return toNode(f, whole)
	case *int:
		return pointer(v, whole)
	case *bool:
		return pointer(v, whole)
	case *float64:
		return pointer(v, true)
	case []string:
		return listOf(v, whole)
	case []int:
		return listOf(v, whole)
	case []any:
		return listOf(v, whole)
	case map[string]string:
		return mapOf(v, whole)
	case map[string]int:
		return mapOf(v, whole)
	case map[string]float64:
		return mapOf(v, true)
	case map[string]any:
		return mapOf(v, whole)
	}
	return NewScalar(fmt.Sprint(value))
}

func pointer[V any](v *V, whole bool) *Node {
	if v == nil {
		return nil
	}
	return toNode(*v, whole)
}

func orNull(n *Node) *Node {
	if n == nil {
		return NewScalar(nil)
	}
	return n
}

func mapOf[V any](m map[string]V, whole bool) *Node {
	n := NewMap()
	for _, k := range slices.Sorted(maps.Keys(m)) {
		n.Append(k, orNull(toNode(m[k], whole)))
	}
	return n
}

func listOf[V any](l []V, whole bool) *Node {
	n := NewList()
	for _, v := range l {
		n.Items = append(n.Items, orNull(toNode(v, whole)))
	}
	return n
}

// Any returns n as maps, slices and scalars that the caller may change: int, float64,
// bool, string or nil. Dates are the texts that Python has for them.
func (n *Node) Any() any {
	if n == nil {
		return nil
	}
	switch n.Kind {
	case Map:
		out := make(map[string]any, len(n.Entries))
		for _, e := range n.Entries {
			out[e.Key.Text] = e.Value.Any()
		}
		return out
	case List:
		out := make([]any, len(n.Items))
		for i, item := range n.Items {
			out[i] = item.Any()
		}
		return out
	}
	switch x := n.Value.(type) {
	case *big.Int:
		return n.Number()
	case Date:
		return x.Str()
	}
	return n.Value
}
