package yaml11

import (
	"errors"
	"strings"
)

// ErrByHand refuses to edit a text that is written in a way that cannot be edited
// automatically, such as one with anchors where the edit would be.
var ErrByHand = errors.New("it is written in a way that cannot be edited automatically")

// Set returns the text of one document with v under a path of keys, replacing what is
// in the way; every other line, comments included, stays as it is.
//
// An edit works on lines, guided by the places of the nodes, and is accepted only if
// the result reads back as exactly what was meant. So a text in a form that the edit
// does not foresee is refused with [ErrByHand], never damaged. A text that cannot be
// read is [Errors].
func Set(text []byte, path []string, v *Node) ([]byte, error) {
	e, err := newEditor(text)
	if err != nil {
		return nil, err
	}
	want := set(e.tree, path, v)
	if Equal(e.tree, want) {
		return text, nil
	}
	if e.tree == nil {
		e.insert(len(e.lines), 0, Nest(path, Place{}, v))
		return e.done(want)
	}
	section := e.tree
	for i, key := range path {
		entry := own(section, key)
		if entry == nil {
			at := len(e.lines)
			if i > 0 { // right below the section's name
				if section.Entries[0].Merged {
					return nil, ErrByHand
				}
				at = e.headOf(section.Entries[0].Key.Line - 1)
			}
			e.insert(at, section.Entries[0].Key.Column-1, Nest(path[i:], Place{}, v))
			return e.done(want)
		}
		if below := entry.Value; i < len(path)-1 && below.Kind == Map && !below.Flow && len(below.Entries) > 0 {
			section = below
			continue
		}
		if err := e.replace(entry, want.Find(path[:i+1]...)); err != nil {
			return nil, err
		}
		return e.done(want)
	}
	return nil, ErrByHand
}

// Unset returns the text without the value under a path of keys, and without the maps
// that are empty then; see [Set]. It is the text itself if there is no such value.
func Unset(text []byte, path []string) ([]byte, error) {
	e, err := newEditor(text)
	if err != nil {
		return nil, err
	}
	if e.tree.Find(path...) == nil {
		return text, nil
	}
	want := e.tree.Without(path...)
	section := e.tree
	for i, key := range path {
		entry := own(section, key)
		if entry == nil {
			return nil, ErrByHand
		}
		left := want.Find(path[:i+1]...)
		switch {
		case left == nil:
			first, last := e.span(entry.Key)
			e.lines = append(e.lines[:first:first], e.lines[last+1:]...)
			return e.done(want)
		case entry.Value.Kind == Map && !entry.Value.Flow:
			section = entry.Value
		default:
			if err := e.replace(entry, left); err != nil {
				return nil, err
			}
			return e.done(want)
		}
	}
	return nil, ErrByHand
}

// editor is a text being edited.
type editor struct {
	tree  *Node // what the text says; nil: nothing
	lines []string
	bom   bool
	end   string // of lines
}

func newEditor(text []byte) (*editor, error) {
	tree, err := (&Source{Text: string(text), Simple: true}).ReadOne()
	if err != nil {
		return nil, err
	}
	e := &editor{tree: tree, end: "\n"}
	s, bom := strings.CutPrefix(string(text), "\ufeff")
	e.bom = bom
	if strings.Contains(s, "\r\n") {
		e.end = "\r\n"
	}
	e.lines = strings.SplitAfter(s, "\n")
	if last := len(e.lines) - 1; e.lines[last] == "" {
		e.lines = e.lines[:last]
	}
	if tree != nil && (tree.Kind != Map || tree.Flow || len(tree.Entries) == 0) {
		return nil, ErrByHand
	}
	return e, nil
}

// done returns the text if it says what it should.
func (e *editor) done(want *Node) ([]byte, error) {
	text := strings.Join(e.lines, "")
	if e.bom {
		text = "\ufeff" + text
	}
	got, err := (&Source{Text: text, Simple: true}).ReadOne()
	if err != nil || !Equal(got, want) {
		return nil, ErrByHand
	}
	return []byte(text), nil
}

// set returns tree with v under a path, replacing what is in the way.
func set(tree *Node, path []string, v *Node) *Node {
	if len(path) == 0 {
		return v
	}
	if tree == nil || tree.Kind != Map {
		return Nest(path, v.Place, v)
	}
	return tree.With(path[0], v.Place, set(tree.Lookup(path[0]), path[1:], v))
}

// own finds an entry that stands in the map itself.
func own(section *Node, key string) *Entry {
	for i, e := range section.Entries {
		if e.Key.Text == key && !e.Merged {
			return &section.Entries[i]
		}
	}
	return nil
}

// headOf moves a line index up over comments, to right below a section's name.
func (e *editor) headOf(line int) int {
	for line > 0 {
		above := strings.TrimSpace(e.lines[line-1])
		if above != "" && above[0] != '#' {
			break
		}
		line--
	}
	return line
}

// block writes n in lines of its own.
func (e *editor) block(indent int, n *Node) string {
	w := Writer{Indent: indent}
	w.Block(n)
	return strings.ReplaceAll(w.String(), "\n", e.end)
}

// insert puts n, as a block, before a line.
func (e *editor) insert(at, indent int, n *Node) {
	if at > 0 && !strings.HasSuffix(e.lines[at-1], "\n") {
		e.lines[at-1] += e.end
	}
	e.lines = append(e.lines[:at:at], append([]string{e.block(indent, n)}, e.lines[at:]...)...)
}

// span returns the first and last line of a key with its value: lines that are
// indented deeper, and list entries level with the key.
func (e *editor) span(key *Node) (first, last int) {
	first = key.Line - 1
	indent := key.Column - 1
	last = first
	for i := first + 1; i < len(e.lines); i++ {
		body := strings.TrimLeft(e.lines[i], " ")
		text := strings.TrimSpace(body)
		deep := len(e.lines[i]) - len(body)
		if text == "" || text[0] == '#' && deep <= indent {
			continue
		}
		item := deep == indent && (text == "-" || strings.HasPrefix(text, "- "))
		if deep <= indent && !item {
			break
		}
		last = i
	}
	return first, last
}

// replace writes another value for a key. A comment behind a value of one line
// stays.
func (e *editor) replace(at *Entry, v *Node) error {
	first, last := e.span(at.Key)
	line := strings.TrimRight(e.lines[first], "\r\n")
	before, behind := splitAt(line, at.Key.Column-1)
	behind, ok := scalarEnd(behind, at.Key)
	if !ok {
		return ErrByHand
	}
	behind, ok = strings.CutPrefix(strings.TrimLeft(behind, " \t"), ":")
	if !ok || before == line {
		return ErrByHand
	}
	out := line[:len(line)-len(behind)]
	comment := ""
	if first == last {
		if comment, ok = valueEnd(behind, at.Value); !ok {
			return ErrByHand
		}
	}
	if v.Kind == Map && len(v.Entries) > 0 && !at.Value.Flow {
		out += comment + e.end + e.block(at.Key.Column+1, v)
	} else {
		out += " " + FlowText(v) + comment + e.end
	}
	e.lines = append(e.lines[:first:first], append([]string{out}, e.lines[last+1:]...)...)
	return nil
}

// splitAt cuts a line behind its n-th character.
func splitAt(line string, n int) (string, string) {
	for i := range line {
		if n == 0 {
			return line[:i], line[i:]
		}
		n--
	}
	return line, ""
}

// valueEnd returns what follows a value of one line, such as a comment.
func valueEnd(behind string, value *Node) (string, bool) {
	if value.IsNull() && value.Text == "" {
		return behind, true
	}
	text := strings.TrimLeft(behind, " \t")
	if value.IsScalar() {
		return scalarEnd(text, value)
	}
	end := strings.LastIndexAny(text, "}]")
	if at := strings.Index(text, " #"); end < 0 || at >= 0 && at < end { // a bracket in the comment, or a # inside
		return "", false
	}
	return text[end+1:], true
}

// scalarEnd returns what follows a scalar at the beginning of text.
func scalarEnd(text string, n *Node) (string, bool) {
	switch {
	case strings.HasPrefix(text, "'"):
		return quotedEnd(text, '\'', '\'')
	case strings.HasPrefix(text, `"`):
		return quotedEnd(text, '"', '\\')
	}
	return strings.CutPrefix(text, n.Text)
}

// quotedEnd returns what follows a quoted text. escape hides the character
// behind it.
func quotedEnd(text string, quote, escape byte) (string, bool) {
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == escape && escape != quote:
			i++
		case text[i] == quote && escape == quote && i+1 < len(text) && text[i+1] == quote:
			i++
		case text[i] == quote:
			return text[i+1:], true
		}
	}
	return "", false
}
