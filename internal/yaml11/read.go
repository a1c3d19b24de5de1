package yaml11

import (
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Bounds of a text that is read: far beyond what people write, low enough that a
// hostile text costs little.
const (
	MaxBytes  = 8 << 20
	MaxDepth  = 200
	MaxValues = 200_000 // aliases counted as often as they are used
)

// Error is one thing that makes a text unreadable.
type Error struct {
	Place
	Message string
	Hint    string // what to do, if that is known
	// Key is a key that stands twice in a map, first at First. Everything else is
	// not YAML at all.
	Key   string
	First Place
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Source != nil && e.Source.Name != "" {
		b.WriteString(e.Source.Name + ":")
	}
	if e.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", e.Line, e.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	b.WriteString(e.Message)
	if e.Hint != "" {
		b.WriteString(". " + strings.TrimSuffix(e.Hint, "."))
	}
	return b.String()
}

// Errors is everything that makes a text unreadable, in the order of the text.
type Errors []*Error

func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Read reads every document of the text. A document without content is a null without
// text. The error is [Errors].
func (s *Source) Read() ([]*Node, error) {
	switch {
	case len(s.Text) > MaxBytes:
		return nil, Errors{{Place: Place{Source: s}, Message: fmt.Sprintf("larger than %d MiB", MaxBytes>>20)}}
	case !utf8.ValidString(s.Text):
		return nil, Errors{{Place: Place{Source: s}, Message: "not a UTF-8 text file"}}
	}
	if s.Layout {
		s.lines = strings.Split(s.Text, "\n")
	}
	loader, err := yaml.NewLoader(strings.NewReader(s.Text), yaml.WithUniqueKeys(false))
	if err != nil {
		return nil, Errors{s.syntaxError(err)}
	}
	var docs []*Node
	for {
		var y yaml.Node
		err := loader.Load(&y)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, Errors{s.syntaxError(err)}
		}
		c := converter{source: s}
		doc := c.convert(&y, 0)
		if len(c.errs) > 0 {
			return nil, c.errs
		}
		docs = append(docs, doc)
	}
}

// ReadOne is [Source.Read] for a text of one document; nil if it has no content.
func (s *Source) ReadOne() (*Node, error) {
	docs, err := s.Read()
	if err != nil {
		return nil, err
	}
	var one *Node
	for _, doc := range docs {
		switch {
		case doc.IsNull() && doc.Text == "":
		case one != nil:
			return nil, Errors{{Place: doc.Place, Message: "a second document begins here; there must be one"}}
		default:
			one = doc
		}
	}
	return one, nil
}

// converter makes nodes of the library's: aliases expanded, merge keys merged,
// scalars resolved, duplicate keys refused.
type converter struct {
	source *Source
	errs   Errors
	count  int
	beyond bool         // a bound is exceeded; the rest is not read
	open   []*yaml.Node // aliases being expanded
}

// apart: a blank line stands above line n and the comments before it.
func (s *Source) apart(n int) bool {
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

func (c *converter) place(y *yaml.Node) Place { return Place{c.source, y.Line, y.Column} }

func (c *converter) fail(y *yaml.Node, format string, args ...any) {
	c.errs = append(c.errs, &Error{Place: c.place(y), Message: fmt.Sprintf(format, args...)})
}

func (c *converter) convert(y *yaml.Node, depth int) *Node {
	c.count++
	n := &Node{Kind: Null, Place: c.place(y)}
	if !c.source.Simple {
		n.Comments = Comments{y.HeadComment, y.LineComment, y.FootComment}
		n.Apart = c.source.Layout && c.source.apart(y.Line)
	}
	switch {
	case c.beyond:
		return n
	case c.count > MaxValues:
		c.beyond = true
		c.fail(y, "the aliases in this file expand to more than %d values", MaxValues)
		return n
	case depth > MaxDepth:
		c.beyond = true
		c.fail(y, "nested more than %d levels deep", MaxDepth)
		return n
	}
	switch y.Kind {
	case yaml.DocumentNode:
		if len(y.Content) == 0 {
			return n
		}
		n = c.convert(y.Content[0], depth)
		if !c.source.Simple {
			n.Comments.Head = joinLines(y.HeadComment, n.Comments.Head)
			n.Comments.Foot = joinLines(n.Comments.Foot, y.FootComment)
		}
		return n
	case yaml.AliasNode:
		for _, o := range c.open {
			if o == y.Alias {
				c.fail(y, "the value %q contains itself", y.Value)
				return n
			}
		}
		c.open = append(c.open, y.Alias)
		n = c.convert(y.Alias, depth)
		c.open = c.open[:len(c.open)-1]
	case yaml.ScalarNode:
		c.scalar(y, n)
	case yaml.SequenceNode:
		c.checkTag(y, "!!seq")
		n.Kind, n.Flow = List, y.Style&yaml.FlowStyle != 0
		n.Items = make([]*Node, 0, len(y.Content))
		for _, item := range y.Content {
			n.Items = append(n.Items, c.convert(item, depth+1))
		}
	case yaml.MappingNode:
		c.checkTag(y, "!!map", "!!set")
		n.Kind, n.Flow = Map, y.Style&yaml.FlowStyle != 0
		c.mapping(y, n, depth)
	}
	return n
}

// checkTag refuses tags that are not those of the collection itself.
func (c *converter) checkTag(y *yaml.Node, own ...string) {
	if y.Style&yaml.TaggedStyle != 0 && y.Tag != "!" && !slices.Contains(own, shortTag(y.Tag)) {
		c.fail(y, "the tag %s is not supported", shortTag(y.Tag))
	}
}

var scalarTags = []string{"!", "!!str", "!!null", "!!int", "!!float", "!!bool", "!!timestamp"}

func shortTag(tag string) string {
	if rest, ok := strings.CutPrefix(tag, "tag:yaml.org,2002:"); ok {
		return "!!" + rest
	}
	return tag
}

func (c *converter) scalar(y *yaml.Node, n *Node) {
	n.Text = y.Value
	plain := y.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	n.Quoted = !plain
	switch {
	case y.Style&yaml.TaggedStyle != 0:
		if !slices.Contains(scalarTags, shortTag(y.Tag)) {
			c.fail(y, "the tag %s is not supported", shortTag(y.Tag))
			return
		}
		v, ok := resolveTagged(y.Tag, y.Value)
		if !ok {
			c.fail(y, "%q cannot be read as %s", y.Value, y.Tag)
			return
		}
		n.Value = v
	case plain:
		n.Value = Resolve(y.Value)
	default:
		n.Value = y.Value
	}
	if c.source.Simple {
		switch n.Value.(type) {
		case Date:
			n.Value = n.Text
		case *big.Int:
			n.Value = n.Number()
		}
	}
	n.Kind = KindOf(n.Value)
}

func (c *converter) mapping(y *yaml.Node, n *Node, depth int) {
	n.Entries = make([]Entry, 0, len(y.Content)/2)
	seen := make(map[string]Place, len(y.Content)/2)
	var merged []*Node
	for i := 0; i+1 < len(y.Content) && !c.beyond; i += 2 {
		ky, vy := y.Content[i], y.Content[i+1]
		key := c.convert(ky, depth+1)
		if c.beyond {
			return
		}
		if !key.IsScalar() {
			c.fail(ky, "a key must be a single value, not a list or a map")
			continue
		}
		if key.Text == "<<" && !key.Quoted {
			merged = append(merged, c.mergeSources(vy, depth+1)...)
			continue
		}
		if key.IsNull() {
			key.Text = "null"
		}
		if first, ok := seen[key.Text]; ok {
			c.fail(ky, "%q appears twice here, first on line %d; remove one of them", key.Text, first.Line)
			e := c.errs[len(c.errs)-1]
			e.Key, e.First = key.Text, first
			continue
		}
		seen[key.Text] = key.Place
		v := c.convert(vy, depth+1)
		if v.IsNull() && v.Text == "" && c.source.Simple {
			v.Place = key.Place // what is absent has no place of its own
		}
		n.Entries = append(n.Entries, Entry{Key: key, Value: v})
	}
	for _, m := range merged {
		for _, e := range m.Entries {
			if _, ok := seen[e.Key.Text]; !ok {
				seen[e.Key.Text] = e.Key.Place
				n.Entries = append(n.Entries, Entry{Key: e.Key, Value: e.Value, Merged: true})
			}
		}
	}
}

func (c *converter) mergeSources(y *yaml.Node, depth int) []*Node {
	v := c.convert(y, depth)
	switch v.Kind {
	case Map:
		return []*Node{v}
	case List:
		for _, item := range v.Items {
			if item.Kind != Map {
				c.fail(y, "<< merges maps; this list holds something else")
				return nil
			}
		}
		return v.Items
	}
	c.fail(y, "<< merges maps; this is %s", v.Describe())
	return nil
}

func joinLines(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n\n" + b
}
