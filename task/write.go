package task

import (
	"strings"
)

// maxKey bounds keys that stand before a colon on the same line; readers
// need to look ahead no farther than 1024 characters.
const maxKey = 1000

// writer writes trees as YAML that 1.1 and 1.2 readers understand alike.
type writer struct {
	strings.Builder
}

func (w *writer) indent(depth int) {
	for range depth {
		w.WriteString("  ")
	}
}

// document writes a map, with blank lines between what takes several lines.
func (w *writer) document(n *node) {
	if n.kind != mappingNode || len(n.entries) == 0 {
		w.comment(n.comments.head, 0)
		w.WriteString(strings.TrimPrefix(w.inline(n), " "))
		w.line(n)
		return
	}
	if w.comment(n.comments.head, 0); n.comments.head != "" {
		w.WriteByte('\n') // apart from the comment of the first field
	}
	last := false
	for i, e := range n.entries {
		// New text gets blank lines around what takes several lines.
		if i > 0 && e.key.line == 0 && (isBlock(e.val) || last) {
			w.WriteByte('\n')
		}
		w.entry(e, 0, i == 0)
		last = isBlock(e.val)
	}
	w.comment(n.comments.foot, 0)
}

// isBlock: n is written on lines of its own.
func isBlock(n *node) bool {
	switch n.kind {
	case mappingNode:
		return len(n.entries) > 0 && !staysFlow(n)
	case sequenceNode:
		return len(n.items) > 0 && !staysFlow(n)
	}
	s, ok := n.value.(string)
	return ok && literal(s)
}

func (w *writer) entry(e entry, depth int, first bool) {
	if e.key.apart && !first {
		w.WriteByte('\n')
	}
	w.comment(e.key.comments.head, depth)
	w.indent(depth)
	w.keyAndValue(e, depth)
	w.comment(e.val.comments.foot, depth)
	w.comment(e.key.comments.foot, depth)
}

func (w *writer) keyAndValue(e entry, depth int) {
	key := strings.TrimPrefix(w.inline(e.key), " ")
	if len(key) > maxKey {
		w.WriteString("? " + key + "\n")
		w.indent(depth)
	} else {
		w.WriteString(key)
	}
	w.WriteByte(':')
	w.value(e.val, depth, e.key.comments.line)
}

// value writes what follows a key or a dash, up to the end of the line(s).
func (w *writer) value(n *node, depth int, lineComment string) {
	if lineComment == "" {
		lineComment = n.comments.line
	}
	if !isBlock(n) {
		w.WriteString(w.inline(n))
		if lineComment != "" {
			w.WriteString("  " + lineComment)
		}
		w.WriteByte('\n')
		return
	}
	if n.kind == scalarNode {
		w.literal(n.value.(string), depth+1, lineComment)
		return
	}
	if lineComment != "" {
		w.WriteString("  " + lineComment)
	}
	w.WriteByte('\n')
	w.comment(n.comments.head, depth+1)
	if n.kind == mappingNode {
		for i, e := range n.entries {
			w.entry(e, depth+1, i == 0)
		}
		return
	}
	for i, item := range n.items {
		if item.apart && i > 0 {
			w.WriteByte('\n')
		}
		w.item(item, depth+1)
	}
}

func (w *writer) item(n *node, depth int) {
	w.comment(n.comments.head, depth)
	if n.kind != scalarNode && isBlock(n) {
		w.comment(n.comments.line, depth)
		n.comments.line = ""
	}
	w.indent(depth)
	w.WriteByte('-')
	if n.kind == mappingNode && isBlock(n) {
		for i, e := range n.entries {
			if i == 0 && e.key.comments.head == "" {
				w.WriteByte(' ')
				w.keyAndValue(e, depth+1)
				w.comment(e.val.comments.foot, depth+1)
				w.comment(e.key.comments.foot, depth+1)
				continue
			}
			if i == 0 {
				w.WriteByte('\n')
			}
			w.entry(e, depth+1, i == 0)
		}
	} else {
		w.value(n, depth, "")
	}
	w.comment(n.comments.foot, depth)
}

func (w *writer) line(n *node) {
	if n.comments.line != "" {
		w.WriteString("  " + n.comments.line)
	}
	w.WriteByte('\n')
}

func (w *writer) comment(text string, depth int) {
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		if line != "" {
			w.indent(depth)
			w.WriteString(line)
		}
		w.WriteByte('\n')
	}
}

// inline is a value that fits behind its key, with a space before it.
func (w *writer) inline(n *node) string {
	if n.kind == scalarNode {
		return " " + inlineScalar(n, false)
	}
	return " " + flowText(n)
}
