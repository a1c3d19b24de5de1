package yaml11

import (
	"strings"
)

// maxFlow bounds collections that stay in one line, in bytes.
const maxFlow = 90

// staysFlow: n was written in one line and is short and plain enough for it.
func staysFlow(n *Node) bool {
	if !n.Flow || hasComments(n) {
		return false
	}
	text := FlowText(n)
	return len(text) <= maxFlow && !strings.Contains(text, "\n")
}

func hasComments(n *Node) bool {
	for _, e := range n.Entries {
		if e.Key.Comments != (Comments{}) || e.Value.Comments != (Comments{}) || hasComments(e.Value) {
			return true
		}
	}
	for _, item := range n.Items {
		if item.Comments != (Comments{}) || hasComments(item) {
			return true
		}
	}
	return false
}

// keyText writes a key. A boolean stays as it was written, since keys are looked up by
// their text.
func keyText(key *Node, flow bool) string {
	if _, ok := key.Value.(bool); ok {
		return key.Text
	}
	return scalarText(key, flow)
}

// FlowText writes a value in one line.
func FlowText(n *Node) string {
	var parts []string
	switch n.Kind {
	case Map:
		for _, e := range n.Entries {
			part := keyText(e.Key, true)
			if !e.Value.IsNull() || e.Value.Text != "" {
				part += ": " + FlowText(e.Value)
			}
			parts = append(parts, part)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case List:
		for _, item := range n.Items {
			parts = append(parts, FlowText(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return scalarText(n, true)
}
