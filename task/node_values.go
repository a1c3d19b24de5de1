package task

import (
	"math/big"
)

// Values of validated nodes; a nil node gives the zero value.

func textOf(n *node) string {
	if n == nil {
		return ""
	}
	return n.text
}

func intOf(n *node) int {
	if n == nil {
		return 0
	}
	switch x := n.value.(type) {
	case int:
		return x
	case float64:
		return int(x)
	}
	return 0
}

func intPtr(n *node) *int {
	if n == nil {
		return nil
	}
	i := intOf(n)
	return &i
}

func floatOf(n *node, def float64) float64 {
	if n == nil {
		return def
	}
	switch x := n.value.(type) {
	case int:
		return float64(x)
	case float64:
		return x
	case *big.Int:
		f, _ := new(big.Float).SetInt(x).Float64()
		return f
	}
	return def
}

func floatPtr(n *node) *float64 {
	if n == nil {
		return nil
	}
	f := floatOf(n, 0)
	return &f
}

func boolOf(n *node) *bool {
	if n == nil {
		return nil
	}
	if b, ok := n.value.(bool); ok {
		return &b
	}
	return nil
}

func dataOf(n *node) *DataSize {
	if n == nil || len(n.entries) == 0 {
		return nil
	}
	return &DataSize{URI: n.entries[0].key.text, GB: floatOf(n.entries[0].val, 0)}
}

func textMap(n *node) map[string]string {
	if n == nil {
		return nil
	}
	out := make(map[string]string, len(n.entries))
	for _, e := range n.entries {
		out[e.key.text] = textOf(e.val)
	}
	return out
}

func mapOfAny(n *node) map[string]any {
	if n == nil || n.kind != mappingNode {
		return nil
	}
	out := make(map[string]any, len(n.entries))
	for _, e := range n.entries {
		out[e.key.text] = e.val.any()
	}
	return out
}

// any is the value in Go: map[string]any, []any, string, int, float64, bool
// or nil.
func (n *node) any() any {
	switch n.kind {
	case mappingNode:
		return mapOfAny(n)
	case sequenceNode:
		out := make([]any, len(n.items))
		for i, item := range n.items {
			out[i] = item.any()
		}
		return out
	}
	switch x := n.value.(type) {
	case *big.Int:
		f, _ := new(big.Float).SetInt(x).Float64()
		return f
	case date:
		return x.str()
	default:
		return x
	}
}
