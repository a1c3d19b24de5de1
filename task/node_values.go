package task

import (
	"math/big"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// Values of validated nodes; a nil node gives the zero value.

func textOf(n *yaml11.Node) string {
	if n == nil {
		return ""
	}
	return n.Text
}

func intOf(n *yaml11.Node) int {
	if n == nil {
		return 0
	}
	switch x := n.Value.(type) {
	case int:
		return x
	case float64:
		return int(x)
	}
	return 0
}

func intPtr(n *yaml11.Node) *int {
	if n == nil {
		return nil
	}
	i := intOf(n)
	return &i
}

func floatOf(n *yaml11.Node, def float64) float64 {
	if n == nil {
		return def
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
	return def
}

func floatPtr(n *yaml11.Node) *float64 {
	if n == nil {
		return nil
	}
	f := floatOf(n, 0)
	return &f
}

func boolOf(n *yaml11.Node) *bool {
	if n == nil {
		return nil
	}
	if b, ok := n.Value.(bool); ok {
		return &b
	}
	return nil
}

func dataOf(n *yaml11.Node) *DataSize {
	if n == nil || len(n.Entries) == 0 {
		return nil
	}
	return &DataSize{URI: n.Entries[0].Key.Text, GB: floatOf(n.Entries[0].Value, 0)}
}

func textMap(n *yaml11.Node) map[string]string {
	if n == nil {
		return nil
	}
	out := make(map[string]string, len(n.Entries))
	for _, e := range n.Entries {
		out[e.Key.Text] = textOf(e.Value)
	}
	return out
}

func mapOfAny(n *yaml11.Node) map[string]any {
	if n == nil {
		return nil
	}
	m, _ := n.Any().(map[string]any)
	return m
}
