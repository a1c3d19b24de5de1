package task

import (
	"strings"
)

// maxFlow bounds collections that stay in one line, in bytes.
const maxFlow = 90

// staysFlow: n was written in one line and is short and plain enough for it.
func staysFlow(n *node) bool {
	if !n.flow || hasComments(n) {
		return false
	}
	text := flowText(n)
	return len(text) <= maxFlow && !strings.Contains(text, "\n")
}

func hasComments(n *node) bool {
	for _, e := range n.entries {
		if e.key.comments != (comments{}) || e.val.comments != (comments{}) || hasComments(e.val) {
			return true
		}
	}
	for _, item := range n.items {
		if item.comments != (comments{}) || hasComments(item) {
			return true
		}
	}
	return false
}

// flowText writes a value in one line.
func flowText(n *node) string {
	var parts []string
	switch n.kind {
	case mappingNode:
		for _, e := range n.entries {
			part := flowText(e.key)
			if !e.val.isNull() || e.val.text != "" {
				part += ": " + flowText(e.val)
			}
			parts = append(parts, part)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case sequenceNode:
		for _, item := range n.items {
			parts = append(parts, flowText(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return inlineScalar(n, true)
}
