package task

import (
	"maps"
	"math"
	"slices"
)

// Building trees to write.

func newMap() *node { return &node{kind: mappingNode} }

// put adds a key; a nil value is left out.
func (n *node) put(key string, value any) *node {
	if v := toNode(value); v != nil {
		n.entries = append(n.entries, entry{&node{text: key, value: key}, v})
	}
	return n
}

// putText adds a key whose value is not "".
func (n *node) putText(key, value string) *node {
	if value != "" {
		n.put(key, value)
	}
	return n
}

// null is a value that is written as such.
type null struct{}

// plainNumber is a float that is written without ".0" when it is whole.
type plainNumber float64

func toNode(value any) *node {
	switch v := value.(type) {
	case nil:
		return nil
	case null:
		return &node{}
	case *node:
		return v
	case plainNumber:
		if f := float64(v); f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return &node{value: int(f)}
		}
		return &node{value: float64(v)}
	case []string:
		n := &node{kind: sequenceNode}
		for _, s := range v {
			n.items = append(n.items, toNode(s))
		}
		return n
	case []int:
		n := &node{kind: sequenceNode}
		for _, i := range v {
			n.items = append(n.items, toNode(i))
		}
		return n
	case []any:
		n := &node{kind: sequenceNode}
		for _, item := range v {
			n.items = append(n.items, orNull(toNode(item)))
		}
		return n
	case map[string]string:
		return sortedMap(v)
	case map[string]any:
		return sortedMap(v)
	case map[string]int:
		return sortedMap(v)
	case map[string]float64:
		n := newMap()
		for _, k := range slices.Sorted(maps.Keys(v)) {
			n.put(k, plainNumber(v[k]))
		}
		return n
	case string:
		return &node{value: v, text: v}
	case *int:
		if v == nil {
			return nil
		}
		return &node{value: *v}
	case *float64:
		if v == nil {
			return nil
		}
		return toNode(plainNumber(*v))
	case *bool:
		if v == nil {
			return nil
		}
		return &node{value: *v}
	case int64:
		return &node{value: int(v)}
	}
	return &node{value: value}
}

func orNull(n *node) *node {
	if n == nil {
		return &node{}
	}
	return n
}

func sortedMap[V any](m map[string]V) *node {
	n := newMap()
	for _, k := range slices.Sorted(maps.Keys(m)) {
		n.put(k, orNull(toNode(m[k])))
	}
	return n
}
