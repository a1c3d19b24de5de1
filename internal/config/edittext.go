package config

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// An edit works on lines, guided by the positions of the parsed text, and is
// accepted only if the result reads back as exactly what was meant. So a text
// in a form that the edit does not foresee is refused, never damaged.

// editor is a text being edited.
type editor struct {
	file  string
	tree  *node // what the text says
	lines []string
	bom   bool
	end   string // of lines
	root  *ast.MappingNode
}

func newEditor(text []byte, file string) (*editor, error) {
	tree, err := parse(text, &source{LayerUser, file})
	if err != nil {
		return nil, asError(err)
	}
	e := &editor{file: file, tree: tree, end: "\n"}
	s, bom := strings.CutPrefix(string(text), "\ufeff")
	e.bom = bom
	if strings.Contains(s, "\r\n") {
		e.end = "\r\n"
	}
	e.lines = strings.SplitAfter(s, "\n")
	if last := len(e.lines) - 1; e.lines[last] == "" {
		e.lines = e.lines[:last]
	}
	if tree == nil {
		return e, nil
	}
	f, err := parser.ParseBytes([]byte(s), 0)
	if err != nil {
		return nil, e.byHand()
	}
	for _, doc := range f.Docs {
		if m, ok := doc.Body.(*ast.MappingNode); ok {
			e.root = m
		}
	}
	if e.root == nil || e.root.IsFlowStyle {
		return nil, e.byHand()
	}
	return e, nil
}

func (e *editor) byHand() error {
	return fmt.Errorf("%s is written in a way that cannot be edited automatically; edit it by hand", e.file)
}

// done returns the text if it says what it should.
func (e *editor) done(want *node) ([]byte, error) {
	text := strings.Join(e.lines, "")
	if e.bom {
		text = "\ufeff" + text
	}
	got, err := parse([]byte(text), &source{})
	if err != nil || !same(got, want) {
		return nil, e.byHand()
	}
	return []byte(text), nil
}

func setText(text []byte, file string, keys []string, v *node) ([]byte, error) {
	e, err := newEditor(text, file)
	if err != nil {
		return nil, err
	}
	want := set(e.tree, keys, v)
	if same(e.tree, want) {
		return text, nil
	}
	if e.root == nil {
		e.insert(len(e.lines), 0, nest(keys, place{}, v))
		return e.done(want)
	}
	section := e.root
	for i, key := range keys {
		mv := find(section, key)
		if mv == nil {
			at := len(e.lines)
			if i > 0 { // right below the section's name
				at = section.Values[0].Key.GetToken().Position.Line - 1
				at = e.headOf(at)
			}
			e.insert(at, column(section.Values[0])-1, nest(keys[i:], place{}, v))
			return e.done(want)
		}
		below, isMap := mv.Value.(*ast.MappingNode)
		if i < len(keys)-1 && isMap && !below.IsFlowStyle {
			section = below
			continue
		}
		if err := e.replace(mv, want.find(keys[:i+1]...)); err != nil {
			return nil, err
		}
		return e.done(want)
	}
	return nil, e.byHand()
}

func unsetText(text []byte, file string, keys []string) ([]byte, error) {
	e, err := newEditor(text, file)
	if err != nil {
		return nil, err
	}
	if e.tree.find(keys...) == nil {
		return text, nil
	}
	want := e.tree.without(keys...)
	section := e.root
	for i, key := range keys {
		mv := find(section, key)
		if mv == nil {
			return nil, e.byHand()
		}
		below, isMap := mv.Value.(*ast.MappingNode)
		left := want.find(keys[:i+1]...)
		switch {
		case left == nil:
			first, last := e.span(mv)
			e.lines = append(e.lines[:first:first], e.lines[last+1:]...)
			return e.done(want)
		case isMap && !below.IsFlowStyle:
			section = below
		default:
			if err := e.replace(mv, left); err != nil {
				return nil, err
			}
			return e.done(want)
		}
	}
	return nil, e.byHand()
}

// set returns tree with v under keys, replacing what is in the way.
func set(tree *node, keys []string, v *node) *node {
	if len(keys) == 0 {
		return v
	}
	if tree == nil || tree.kind != Map {
		return nest(keys, v.at, v)
	}
	return tree.with(keys[0], v.at, set(tree.get(keys[0]), keys[1:], v))
}

func find(section *ast.MappingNode, key string) *ast.MappingValueNode {
	for _, mv := range section.Values {
		if _, simple := mv.Key.(ast.ScalarNode); simple && !mv.Key.IsMergeKey() && mv.Key.GetToken().Value == key {
			return mv
		}
	}
	return nil
}

func column(mv *ast.MappingValueNode) int { return mv.Key.GetToken().Position.Column }

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

// insert puts n, as a block, before a line.
func (e *editor) insert(at, indent int, n *node) {
	var b strings.Builder
	emitTo(&b, n, indent)
	block := strings.ReplaceAll(b.String(), "\n", e.end)
	if at > 0 && !strings.HasSuffix(e.lines[at-1], "\n") {
		e.lines[at-1] += e.end
	}
	e.lines = append(e.lines[:at:at], append([]string{block}, e.lines[at:]...)...)
}

// span returns the first and last line of a key with its value: lines that are
// indented deeper, and list entries level with the key.
func (e *editor) span(mv *ast.MappingValueNode) (first, last int) {
	first = mv.Key.GetToken().Position.Line - 1
	indent := column(mv) - 1
	last = first
	for i := first + 1; i < len(e.lines); i++ {
		body := strings.TrimLeft(e.lines[i], " ")
		text := strings.TrimSpace(body)
		deep := len(e.lines[i]) - len(body)
		if text == "" || text[0] == '#' && deep <= indent {
			continue
		}
		entry := deep == indent && (text == "-" || strings.HasPrefix(text, "- "))
		if deep <= indent && !entry {
			break
		}
		last = i
	}
	return first, last
}

// replace writes another value for a key. A comment behind a value of one line
// stays.
func (e *editor) replace(mv *ast.MappingValueNode, v *node) error {
	first, last := e.span(mv)
	colon := mv.Start.Position
	if colon.Line-1 != first {
		return e.byHand()
	}
	line := strings.TrimRight(e.lines[first], "\r\n")
	head, behind := splitAt(line, colon.Column)
	comment := ""
	if first == last {
		rest, ok := valueEnd(behind, mv.Value)
		if !ok {
			return e.byHand()
		}
		comment = rest
	}
	out := head
	if v.kind == Map && len(v.entries) > 0 && !flowStyle(mv.Value) {
		var b strings.Builder
		emitTo(&b, v, column(mv)+1)
		out += comment + e.end + strings.ReplaceAll(b.String(), "\n", e.end)
	} else {
		out += " " + flowText(v) + comment + e.end
	}
	e.lines = append(e.lines[:first:first], append([]string{out}, e.lines[last+1:]...)...)
	return nil
}

func flowStyle(n ast.Node) bool {
	m, ok := n.(*ast.MappingNode)
	return ok && m.IsFlowStyle
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
func valueEnd(behind string, value ast.Node) (string, bool) {
	text := strings.TrimLeft(behind, " \t")
	switch v := value.(type) {
	case *ast.NullNode:
		if v.GetToken().Type == token.ImplicitNullType {
			return behind, true
		}
		return strings.TrimPrefix(text, v.GetToken().Value), true
	case *ast.MappingNode, *ast.SequenceNode:
		end := strings.LastIndexAny(text, "}]")
		if at := strings.Index(text, " #"); end < 0 || at >= 0 && at < end { // a bracket in the comment, or a # inside
			return "", false
		}
		return text[end+1:], true
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		tk := v.GetToken()
		switch tk.Type {
		case token.SingleQuoteType:
			return quotedEnd(text, '\'', '\'')
		case token.DoubleQuoteType:
			return quotedEnd(text, '"', '\\')
		}
		rest, ok := strings.CutPrefix(text, tk.Value)
		return rest, ok
	}
	return "", false
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
