package task

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// The parser is go.yaml.in/yaml: the same scanner that reads these files in
// other implementations (it takes {A100:1} for a key "A100:1", which younger
// parsers do not), with line and column of every node and mistake. What a
// scalar means is decided here, by the YAML 1.1 rules of scalar.go.

type kind uint8

const (
	scalarNode kind = iota
	mappingNode
	sequenceNode
)

// node is a YAML value with its place in the text.
type node struct {
	kind    kind
	line    int
	col     int
	text    string // a scalar as written, unquoted
	value   any    // a scalar's meaning: nil, bool, int, *big.Int, float64, string, date
	quoted  bool
	flow    bool    // a collection written in one line, with braces or brackets
	entries []entry // of a mapping, in order, merges done
	items   []*node // of a sequence
	// pending: a text with a variable that has no value yet.
	pending  bool
	comments comments
	// apart: a blank line stands before it (known while formatting).
	apart bool
}

// comments stand above, behind and below a node, each line with its #.
type comments struct{ head, line, foot string }

// entry is a key and its value.
type entry struct{ key, val *node }

func (n *node) isNull() bool { return n.kind == scalarNode && n.value == nil }

// get returns the value under key, nil if there is none or it is null.
func (n *node) get(key string) *node {
	if v := n.lookup(key); v != nil && !v.isNull() {
		return v
	}
	return nil
}

// lookup is get that also finds nulls.
func (n *node) lookup(key string) *node {
	if n == nil {
		return nil
	}
	for i := range n.entries {
		if n.entries[i].key.text == key {
			return n.entries[i].val
		}
	}
	return nil
}

// keyNode returns the key itself, for its position.
func (n *node) keyNode(key string) *node {
	for i := range n.entries {
		if n.entries[i].key.text == key {
			return n.entries[i].key
		}
	}
	return n
}

// source is a text being parsed: its name and lines, for errors.
type source struct {
	name  string
	text  string
	lines []string // only while formatting
}

func (s *source) line(n int) string {
	rest := s.text
	for ; n > 1; n-- {
		i := strings.IndexByte(rest, '\n')
		if i < 0 {
			return ""
		}
		rest = rest[i+1:]
	}
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimPrefix(strings.TrimSuffix(line, "\r"), "\ufeff")
}

func (s *source) errorAt(line, col int, field, format string, args ...any) *Error {
	return &Error{File: s.name, Line: line, Column: col, Field: field, Message: fmt.Sprintf(format, args...), source: s.line(line)}
}

// maxNodes bounds what aliases may expand to.
const maxNodes = 200_000

// documents parses every document of the text. An empty document is a null.
func (s *source) documents() ([]*node, error) {
	if !utf8.ValidString(s.text) {
		return nil, &Error{File: s.name, Message: "not a UTF-8 text file, so it cannot be read as YAML"}
	}
	loader, err := yaml.NewLoader(bytes.NewReader([]byte(s.text)), yaml.WithUniqueKeys(false))
	if err != nil {
		return nil, s.syntaxError(err)
	}
	var docs []*node
	for {
		var y yaml.Node
		err := loader.Load(&y)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, s.syntaxError(err)
		}
		c := converter{source: s}
		doc := c.convert(&y)
		if len(c.errs) > 0 {
			return nil, joined(c.errs)
		}
		docs = append(docs, doc)
	}
}

// converter turns parser nodes into ours: aliases expanded, merge keys
// merged, scalars resolved, duplicate keys refused.
type converter struct {
	*source
	errs  []*Error
	count int
	open  []*yaml.Node // aliases being expanded
}

// apart: a blank line stands above line n and the comments before it.
func (s *source) apart(n int) bool {
	for n--; n > 0 && n <= len(s.lines); n-- {
		switch text := strings.TrimSpace(s.lines[n-1]); {
		case text == "":
			return true
		case text[0] != '#':
			return false
		}
	}
	return false
}

func (c *converter) fail(y *yaml.Node, format string, args ...any) {
	c.errs = append(c.errs, c.errorAt(y.Line, y.Column, "", format, args...))
}

func (c *converter) convert(y *yaml.Node) *node {
	c.count++
	n := &node{line: y.Line, col: y.Column, comments: comments{y.HeadComment, y.LineComment, y.FootComment}}
	n.apart = c.lines != nil && c.apart(y.Line)
	if c.count > maxNodes {
		if c.count == maxNodes+1 {
			c.fail(y, "the aliases in this file expand to more than %d values", maxNodes)
		}
		return n
	}
	switch y.Kind {
	case yaml.DocumentNode:
		if len(y.Content) == 0 {
			return n
		}
		n = c.convert(y.Content[0])
		n.comments.head = joinLines(y.HeadComment, n.comments.head)
		n.comments.foot = joinLines(n.comments.foot, y.FootComment)
		return n
	case yaml.AliasNode:
		for _, o := range c.open {
			if o == y.Alias {
				c.fail(y, "the value %q contains itself", y.Value)
				return n
			}
		}
		c.open = append(c.open, y.Alias)
		n = c.convert(y.Alias)
		c.open = c.open[:len(c.open)-1]
	case yaml.ScalarNode:
		c.scalar(y, n)
	case yaml.SequenceNode:
		n.kind, n.flow = sequenceNode, y.Style&yaml.FlowStyle != 0
		n.items = make([]*node, 0, len(y.Content))
		for _, item := range y.Content {
			n.items = append(n.items, c.convert(item))
		}
	case yaml.MappingNode:
		n.kind, n.flow = mappingNode, y.Style&yaml.FlowStyle != 0
		c.mapping(y, n)
	}
	return n
}

func (c *converter) scalar(y *yaml.Node, n *node) {
	n.text = y.Value
	plain := y.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	n.quoted = !plain
	switch {
	case y.Style&yaml.TaggedStyle != 0:
		v, ok := resolveTagged(y.Tag, y.Value)
		if !ok {
			c.fail(y, "%q cannot be read as %s", y.Value, y.Tag)
			return
		}
		n.value = v
	case plain:
		n.value = resolve(y.Value)
	default:
		n.value = y.Value
	}
}

func (c *converter) mapping(y *yaml.Node, n *node) {
	n.entries = make([]entry, 0, len(y.Content)/2)
	var merged []*node
	for i := 0; i+1 < len(y.Content); i += 2 {
		ky, vy := y.Content[i], y.Content[i+1]
		key := c.convert(ky)
		if key.kind != scalarNode {
			c.fail(ky, "a key must be a single value, not a list or a map")
			continue
		}
		if key.text == "<<" && !key.quoted {
			merged = append(merged, c.mergeSources(vy)...)
			continue
		}
		if key.isNull() {
			key.text = "null"
		}
		if first := n.lookup(key.text); first != nil {
			c.fail(ky, "%q appears twice here, first on line %d; remove one of them", key.text, n.keyNode(key.text).line)
			continue
		}
		n.entries = append(n.entries, entry{key, c.convert(vy)})
	}
	for _, m := range merged {
		for _, e := range m.entries {
			if n.lookup(e.key.text) == nil {
				n.entries = append(n.entries, e)
			}
		}
	}
}

func (c *converter) mergeSources(y *yaml.Node) []*node {
	v := c.convert(y)
	switch v.kind {
	case mappingNode:
		return []*node{v}
	case sequenceNode:
		for _, item := range v.items {
			if item.kind != mappingNode {
				c.fail(y, "<< merges maps; this list holds something else")
				return nil
			}
		}
		return v.items
	}
	c.fail(y, "<< merges maps; this is %s", v.describe())
	return nil
}

func joinLines(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n\n" + b
}

// joined makes one error of several.
func joined(errs []*Error) error {
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return Errors(errs)
}
