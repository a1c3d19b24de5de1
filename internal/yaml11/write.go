package yaml11

import (
	"strings"
)

// maxKey bounds keys that stand before a colon on the same line; readers
// need to look ahead no farther than 1024 characters.
const maxKey = 1000

// Writer writes trees as YAML that 1.1 and 1.2 readers understand alike.
type Writer struct {
	strings.Builder
	Indent int // spaces before every line
}

func (w *Writer) indent(depth int) {
	for range w.Indent {
		w.WriteByte(' ')
	}
	for range depth {
		w.WriteString("  ")
	}
}

// Document writes a document, with blank lines between what takes several lines.
func (w *Writer) Document(n *Node) {
	if n.Kind == List && isBlock(n) {
		w.comment(n.Comments.Head, 0)
		w.Block(n)
		w.comment(n.Comments.Foot, 0)
		return
	}
	if n.Kind != Map || len(n.Entries) == 0 {
		w.comment(n.Comments.Head, 0)
		w.WriteString(strings.TrimPrefix(w.inline(n), " "))
		w.line(n)
		return
	}
	if w.comment(n.Comments.Head, 0); n.Comments.Head != "" {
		w.WriteByte('\n') // apart from the comment of the first field
	}
	last := false
	for i, e := range n.Entries {
		// New text gets blank lines around what takes several lines.
		if i > 0 && e.Key.Line == 0 && (isBlock(e.Value) || last) {
			w.WriteByte('\n')
		}
		w.entry(e, 0, i == 0)
		last = isBlock(e.Value)
	}
	w.comment(n.Comments.Foot, 0)
}

// Block writes n in lines of its own, without blank lines between new ones.
func (w *Writer) Block(n *Node) {
	switch {
	case n.Kind == Map && len(n.Entries) > 0:
		for i, e := range n.Entries {
			w.entry(e, 0, i == 0)
		}
	case n.Kind == List && len(n.Items) > 0:
		for i, item := range n.Items {
			if item.Apart && i > 0 {
				w.WriteByte('\n')
			}
			w.item(item, 0)
		}
	default:
		w.indent(0)
		w.WriteString(FlowText(n) + "\n")
	}
}

// isBlock: n is written on lines of its own.
func isBlock(n *Node) bool {
	switch n.Kind {
	case Map:
		return len(n.Entries) > 0 && !staysFlow(n)
	case List:
		return len(n.Items) > 0 && !staysFlow(n)
	}
	s, ok := n.Value.(string)
	return ok && literal(s)
}

func (w *Writer) entry(e Entry, depth int, first bool) {
	if e.Key.Apart && !first {
		w.WriteByte('\n')
	}
	w.comment(e.Key.Comments.Head, depth)
	w.indent(depth)
	w.keyAndValue(e, depth)
	w.comment(e.Value.Comments.Foot, depth)
	w.comment(e.Key.Comments.Foot, depth)
}

func (w *Writer) keyAndValue(e Entry, depth int) {
	key := keyText(e.Key, false)
	if len(key) > maxKey {
		w.WriteString("? " + key + "\n")
		w.indent(depth)
	} else {
		w.WriteString(key)
	}
	w.WriteByte(':')
	w.value(e.Value, depth, e.Key.Comments.Line)
}

// value writes what follows a key or a dash, up to the end of the line(s).
func (w *Writer) value(n *Node, depth int, lineComment string) {
	if lineComment == "" {
		lineComment = n.Comments.Line
	}
	if !isBlock(n) {
		w.WriteString(w.inline(n))
		if lineComment != "" {
			w.WriteString("  " + lineComment)
		}
		w.WriteByte('\n')
		return
	}
	if n.IsScalar() {
		w.literal(n.Value.(string), depth+1, lineComment)
		return
	}
	if lineComment != "" {
		w.WriteString("  " + lineComment)
	}
	w.WriteByte('\n')
	w.comment(n.Comments.Head, depth+1)
	if n.Kind == Map {
		for i, e := range n.Entries {
			w.entry(e, depth+1, i == 0)
		}
		return
	}
	for i, item := range n.Items {
		if item.Apart && i > 0 {
			w.WriteByte('\n')
		}
		w.item(item, depth+1)
	}
}

func (w *Writer) item(n *Node, depth int) {
	w.comment(n.Comments.Head, depth)
	if !n.IsScalar() && isBlock(n) {
		w.comment(n.Comments.Line, depth)
		n.Comments.Line = ""
	}
	w.indent(depth)
	w.WriteByte('-')
	if n.Kind == Map && isBlock(n) {
		for i, e := range n.Entries {
			if i == 0 && e.Key.Comments.Head == "" {
				w.WriteByte(' ')
				w.keyAndValue(e, depth+1)
				w.comment(e.Value.Comments.Foot, depth+1)
				w.comment(e.Key.Comments.Foot, depth+1)
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
	w.comment(n.Comments.Foot, depth)
}

func (w *Writer) line(n *Node) {
	if n.Comments.Line != "" {
		w.WriteString("  " + n.Comments.Line)
	}
	w.WriteByte('\n')
}

func (w *Writer) comment(text string, depth int) {
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
func (w *Writer) inline(n *Node) string {
	if n.IsScalar() {
		return " " + scalarText(n, false)
	}
	return " " + FlowText(n)
}
