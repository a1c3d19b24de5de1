package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a text that is read: far beyond any real configuration, low enough
// that a hostile one costs nothing.
const (
	maxBytes  = 4 << 20
	maxDepth  = 200
	maxKey    = 1024    // as YAML itself has it for keys before a colon
	maxValues = 100_000 // aliases counted as often as they are used
)

// syntaxError is a text that is not YAML.
type syntaxError struct {
	at   place
	text string
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("%v: not valid YAML: %s", e.at.origin(), e.text)
}

// parse reads one YAML document. A text without content gives nil.
func parse(text []byte, src *source) (n *node, err error) {
	defer func() {
		// The YAML library indexes out of range on a few malformed texts.
		if r := recover(); r != nil {
			n, err = nil, &syntaxError{place{src: src}, "its structure cannot be read"}
		}
	}()
	if len(text) > maxBytes {
		return nil, &syntaxError{place{src: src}, fmt.Sprintf("larger than %d MiB", maxBytes>>20)}
	}
	if !utf8.Valid(text) {
		return nil, &syntaxError{place{src: src}, "not UTF-8 text"}
	}
	tokens := lexer.Tokenize(string(bytes.TrimPrefix(text, []byte("\ufeff"))))
	if tk := tooDeep(tokens); tk != nil {
		return nil, &syntaxError{tokenPlace(tk, src), "nested too deeply"}
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, readableSyntaxError(err, src)
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType || doc.Body.Type() == ast.DirectiveType {
			continue
		}
		if body != nil {
			return nil, &syntaxError{start(doc.Body, src), "a second document; a configuration is one document"}
		}
		body = doc.Body
	}
	if body == nil {
		return nil, nil
	}
	r := reader{src: src, anchors: map[string]anchored{}}
	return r.read(body, 0)
}

func tooDeep(tokens token.Tokens) *token.Token {
	flow, dashes, line := 0, 0, 0
	for _, tk := range tokens {
		switch tk.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.TagType, token.AnchorType:
			if tk.Position.Line != line {
				dashes, line = 0, tk.Position.Line
			}
			dashes++
		}
		if flow > maxDepth || dashes > maxDepth || tk.Position.Column > 10_000 && tk.Type == token.MappingValueType {
			return tk
		}
	}
	return nil
}

func readableSyntaxError(err error, src *source) error {
	var located interface {
		error
		GetMessage() string
		GetToken() *token.Token
	}
	if !errors.As(err, &located) {
		text, _, _ := strings.Cut(err.Error(), "\n")
		return &syntaxError{place{src: src}, text}
	}
	return &syntaxError{tokenPlace(located.GetToken(), src), located.GetMessage()}
}

func tokenPlace(tk *token.Token, src *source) place {
	if tk == nil || tk.Position == nil {
		return place{src: src}
	}
	return place{src, tk.Position.Line, tk.Position.Column}
}

// start is where a value begins. The library has block sections begin at their
// first colon.
func start(n ast.Node, src *source) place {
	switch m := n.(type) {
	case *ast.MappingNode:
		if !m.IsFlowStyle && len(m.Values) > 0 {
			n = m.Values[0].Key
		}
	case *ast.MappingValueNode:
		n = m.Key
	}
	return tokenPlace(n.GetToken(), src)
}

// reader turns the library's tree into nodes.
type reader struct {
	src     *source
	anchors map[string]anchored
	values  int
}

type anchored struct {
	node   *node
	values int
}

func (r *reader) fail(n ast.Node, format string, args ...any) error {
	return &syntaxError{tokenPlace(n.GetToken(), r.src), fmt.Sprintf(format, args...)}
}

func (r *reader) read(n ast.Node, depth int) (*node, error) {
	if r.values++; r.values > maxValues || depth > maxDepth {
		return nil, &syntaxError{place{src: r.src}, "too large or nested too deeply"}
	}
	at := start(n, r.src)
	switch n := n.(type) {
	case *ast.MappingNode:
		return r.readMap(n.Values, at, depth)
	case *ast.MappingValueNode:
		return r.readMap([]*ast.MappingValueNode{n}, at, depth)
	case *ast.SequenceNode:
		out := &node{kind: List, at: at, list: make([]*node, 0, len(n.Values))}
		for _, v := range n.Values {
			item, err := r.read(v, depth+1)
			if err != nil {
				return nil, err
			}
			out.list = append(out.list, item)
		}
		return out, nil
	case *ast.LiteralNode:
		return &node{kind: Text, value: n.Value.Value, at: at}, nil
	case *ast.AnchorNode:
		before := r.values
		v, err := r.read(n.Value, depth+1)
		if err == nil {
			r.anchors[n.Name.GetToken().Value] = anchored{v, r.values - before}
		}
		return v, err
	case *ast.AliasNode:
		a, ok := r.anchors[n.Value.GetToken().Value]
		if !ok {
			return nil, r.fail(n, "*%s refers to no anchor before it", n.Value.GetToken().Value)
		}
		r.values += a.values
		return a.node, nil
	case *ast.TagNode:
		return r.readTag(n, depth)
	case *ast.NullNode:
		return &node{kind: Null, at: at}, nil
	case ast.ScalarNode:
		tk := n.GetToken()
		if tk.Type == token.SingleQuoteType || tk.Type == token.DoubleQuoteType {
			return &node{kind: Text, value: tk.Value, at: at}, nil
		}
		kind, value := resolve(tk.Value)
		return &node{kind: kind, value: value, at: at}, nil
	}
	return nil, r.fail(n, "%s is not expected here", n.Type().YAMLName())
}

func (r *reader) readTag(n *ast.TagNode, depth int) (*node, error) {
	tag := n.Start.Value
	v := &node{kind: Null}
	if n.Value != nil {
		var err error
		if v, err = r.read(n.Value, depth+1); err != nil {
			return nil, err
		}
	}
	v = &node{v.kind, v.value, v.entries, v.list, tokenPlace(n.Start, r.src)}
	switch tag {
	case "!!str":
		if v.kind&(Map|List) != 0 {
			return nil, r.fail(n, "!!str stands before a list or section")
		}
		text := ""
		if n.Value != nil && n.Value.GetToken().Type != token.ImplicitNullType {
			text = n.Value.GetToken().Value
		}
		if l, ok := n.Value.(*ast.LiteralNode); ok {
			text = l.Value.Value
		}
		v.kind, v.value = Text, text
	case "!!map", "!!seq", "!!int", "!!float", "!!bool", "!!null":
	default:
		return nil, r.fail(n, "the tag %s is not supported", tag)
	}
	return v, nil
}

func (r *reader) readMap(values []*ast.MappingValueNode, at place, depth int) (*node, error) {
	out := &node{kind: Map, at: at, entries: make([]entry, 0, len(values))}
	seen := make(map[string]place, len(values))
	var merged []*node
	for _, mv := range values {
		if mv.Key.IsMergeKey() {
			v, err := r.read(mv.Value, depth+1)
			if err != nil {
				return nil, err
			}
			merged = append(merged, v)
			continue
		}
		key, keyAt, err := r.readKey(mv.Key)
		if err == nil && len(key) > maxKey {
			err = &syntaxError{keyAt, fmt.Sprintf("a key has at most %d characters", maxKey)}
		}
		if err != nil {
			return nil, err
		}
		if first, ok := seen[key]; ok {
			return nil, &duplicateKeyError{key, keyAt, first}
		}
		seen[key] = keyAt
		v, err := r.read(mv.Value, depth+1)
		if err != nil {
			return nil, err
		}
		if v.kind == Null && mv.Value.GetToken().Type == token.ImplicitNullType {
			v.at = keyAt // what is absent has no place of its own
		}
		out.entries = append(out.entries, entry{key, keyAt, v})
	}
	for _, m := range merged {
		sources := []*node{m}
		if m.kind == List {
			sources = m.list
		}
		for _, s := range sources {
			if s.kind != Map {
				return nil, &syntaxError{s.at, "<< takes a section or a list of sections"}
			}
			for _, e := range s.entries {
				if _, ok := seen[e.key]; !ok {
					seen[e.key] = e.at
					out.entries = append(out.entries, e)
				}
			}
		}
	}
	return out, nil
}

// readKey returns a key's text; keys that YAML would read as numbers or
// booleans are the text as written.
func (r *reader) readKey(n ast.Node) (string, place, error) {
	at := tokenPlace(n.GetToken(), r.src)
	for {
		switch k := n.(type) {
		case *ast.MappingKeyNode:
			n = k.Value
			at = tokenPlace(n.GetToken(), r.src)
			continue
		case *ast.LiteralNode:
			return k.Value.Value, at, nil
		case *ast.AliasNode, *ast.AnchorNode, *ast.TagNode:
			v, err := r.read(n, maxDepth-1)
			if err != nil {
				return "", at, err
			}
			if s, ok := v.value.(string); ok {
				return s, at, nil
			}
			return "", at, r.fail(n, "a key must be a text")
		case ast.ScalarNode:
			return k.GetToken().Value, at, nil
		}
		return "", at, r.fail(n, "a key must be a text")
	}
}

// duplicateKeyError is a key given twice in one section. Unlike other broken
// YAML it is never taken for an empty file, since each half looks valid.
type duplicateKeyError struct {
	key       string
	at, first place
}

func (e *duplicateKeyError) Error() string {
	return fmt.Sprintf("%v: the key %q was already given on line %d; remove one of them", e.at.origin(), e.key, e.first.line)
}
