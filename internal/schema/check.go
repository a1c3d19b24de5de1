package schema

import (
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/similar"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// Problem is one thing that is wrong with a document, or worth knowing.
type Problem struct {
	yaml11.Place
	Path  string     // as of [Dotted]
	Text  string     // a sentence without its full stop that names the path
	Hint  string     // sentences; may be empty
	Level slog.Level // LevelError: refused; LevelWarn; LevelInfo: only for who asks
}

// Options say how a document is read.
type Options struct {
	// Newer lets unknown keys of maps that are OpenToNewer through, with a warning.
	Newer bool
	// Suggest completes "unknown field …" at a path, where it knows more than the
	// spelling of the fields there; "" if it does not.
	Suggest func(path []string) string
}

// Problems compares a value with its description. path says where the value is in its
// document; problems are in the order of the text.
func (s *Spec) Problems(n *yaml11.Node, o Options, path ...string) []Problem {
	c := &checker{Options: o, path: path, root: s}
	c.value(n, s)
	return c.problems
}

// Validate is the error of the problems that refuse a document: [yaml11.Errors], or nil.
func (s *Spec) Validate(n *yaml11.Node) error {
	var errs yaml11.Errors
	for _, p := range s.Problems(n, Options{}) {
		if p.Level >= slog.LevelError {
			errs = append(errs, &yaml11.Error{Place: p.Place, Message: p.Text, Hint: p.Hint})
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errs
}

// Dotted writes a path as people do; keys with dots or odd characters are quoted, list
// positions are in brackets.
func Dotted(path []string) string {
	var b strings.Builder
	for _, key := range path {
		switch {
		case strings.HasPrefix(key, "[") && strings.HasSuffix(key, "]"):
			b.WriteString(key)
			continue
		case b.Len() > 0:
			b.WriteByte('.')
		}
		if key == "" || strings.ContainsAny(key, ".[] \t\n\"'") {
			key = strconv.Quote(key)
		}
		b.WriteString(key)
	}
	return b.String()
}

type checker struct {
	Options
	root     *Spec
	path     []string
	problems []Problem
}

// report adds a problem of the value, or the key, at n.
func (c *checker) report(n *yaml11.Node, format string, args ...any) *Problem {
	c.problems = append(c.problems, Problem{Place: n.Place, Path: Dotted(c.path), Text: fmt.Sprintf(format, args...), Level: slog.LevelError})
	return &c.problems[len(c.problems)-1]
}

// wrong reports what is wrong with the value at the path: "should be …".
func (c *checker) wrong(n *yaml11.Node, format string, args ...any) *Problem {
	return c.report(n, "%s %s", c.label(), fmt.Sprintf(format, args...))
}

// label names the value at the path.
func (c *checker) label() string {
	switch {
	case len(c.path) > 0:
		return Dotted(c.path)
	case c.root.Title != "":
		return c.root.Title
	}
	return "the document"
}

func (c *checker) under(key string, f func()) {
	c.path = append(c.path, key)
	f()
	c.path = c.path[:len(c.path)-1]
}

func (c *checker) value(n *yaml11.Node, s *Spec) {
	if s == Free {
		return
	}
	if !s.Kinds.Takes(n) {
		c.wrongKind(n, s)
		return
	}
	if s.Deprecated != "" {
		c.wrong(n, "is deprecated: %s", s.Deprecated).Level = slog.LevelWarn
	}
	if s.Inert != "" {
		c.wrong(n, "changes nothing: %s", s.Inert).Level = slog.LevelInfo
	}
	switch {
	case n.Kind == yaml11.Map:
		c.mapping(n, s)
	case n.Kind == yaml11.List:
		c.list(n, s)
	case !n.Pending:
		c.scalar(n, s)
	}
	if s.Check != nil {
		if wrong := s.Check(n.Value); wrong != "" {
			c.wrong(n, "%s", wrong)
		}
	}
}

// Describe says in words what a value may be: "text or a list".
func (s *Spec) Describe() string {
	kinds := s.Kinds &^ yaml11.Null
	if kinds&yaml11.Scalar == yaml11.Scalar { // taken as it is written
		kinds &^= yaml11.Bool | yaml11.Number
	}
	if kinds == 0 {
		kinds = s.Kinds
	}
	if len(s.Enum) == 0 || len(s.Enum) > 10 {
		return kinds.String()
	}
	return kinds.Describe(orList(s.Enum))
}

// shown describes a value in a message, without telling secrets.
func shown(n *yaml11.Node, s *Spec) string {
	if s.Secret && n.IsScalar() && !n.IsNull() {
		return "what was given"
	}
	return n.Describe()
}

// quoted is a scalar's text in a message.
func quoted(n *yaml11.Node, s *Spec) string {
	if s.Secret {
		return "what was given"
	}
	return yaml11.Quote(n.Text)
}

func (c *checker) wrongKind(n *yaml11.Node, s *Spec) {
	p := c.wrong(n, "should be %s, not %s", s.Describe(), shown(n, s))
	if p.Hint = s.Hints[n.Kind]; p.Hint != "" {
		return
	}
	switch n.Kind {
	case yaml11.Null:
		p.Hint = "Give it a value or remove the key."
	case yaml11.Int, yaml11.Float, yaml11.Bool:
		if s.Kinds&yaml11.Text != 0 && s.Grammar == nil && s.Pattern == nil && s.Enum == nil && !s.Secret {
			p.Hint = fmt.Sprintf("Quote it to make it text: %q.", n.Text)
		}
	case yaml11.Text:
		switch {
		case n.Quoted && s.Kinds.Takes(yaml11.NewScalar(yaml11.Resolve(n.Text))):
			p.Hint = "Write it without quotes."
		case s.Kinds&yaml11.Bool != 0 && len(n.Text) == 1 && strings.ContainsAny(n.Text, "yYnN"):
			p.Hint = "Only whole words are booleans: write true or false."
		}
	}
}

func (c *checker) scalar(n *yaml11.Node, s *Spec) {
	switch x := n.Value.(type) {
	case string:
		c.text(n, s, x)
	case int:
		c.number(n, s, float64(x))
	case float64:
		c.number(n, s, x)
	case *big.Int:
		f, _ := new(big.Float).SetInt(x).Float64()
		c.inRange(n, s, f)
		if s.Min == nil && s.Max == nil && s.Kinds != yaml11.Any {
			c.wrong(n, "is too large a number: %s", yaml11.Quote(n.Text))
		}
	}
}

func (c *checker) text(n *yaml11.Node, s *Spec, x string) {
	if s.Enum != nil && !s.Enumerates(x) {
		c.wrongWord(n, s, x)
		return
	}
	if s.Grammar != nil {
		if err := s.Grammar(x); err != nil {
			c.wrong(n, "%s", err)
		}
		return
	}
	if size := len([]rune(x)); s.MaxLen > 0 && (size == 0 || size > s.MaxLen) {
		c.wrong(n, "should have 1 to %d characters, not %d", s.MaxLen, size)
	}
	if s.Pattern != nil && !s.Pattern.Match(x) {
		c.wrong(n, "should be %s, not %s", s.Pattern.Means, quoted(n, s))
	}
}

func (c *checker) wrongWord(n *yaml11.Node, s *Spec, x string) {
	var p *Problem
	if len(s.Enum) > 10 {
		p = c.wrong(n, "cannot be %s", quoted(n, s))
		p.Hint = "It can be " + orList(s.Enum) + "."
	} else {
		p = c.wrong(n, "should be %s, not %s", orList(s.Enum), quoted(n, s))
	}
	near := similar.Names(x, s.Enum)
	if word, ok := s.Aliases[strings.ToLower(x)]; ok {
		near = []string{word}
	}
	if len(s.Enum) > 1 {
		p.Text += DidYouMean(near)
	}
}

func (c *checker) number(n *yaml11.Node, s *Spec, x float64) {
	if s.Grammar == nil || s.TextOnly {
		c.inRange(n, s, x)
	} else if err := s.Grammar(n.NumberText()); err != nil {
		c.wrong(n, "%s", err)
	}
}

func (c *checker) inRange(n *yaml11.Node, s *Spec, x float64) {
	low, high, nan := s.Min != nil && x < *s.Min, s.Max != nil && x > *s.Max, x != x
	switch {
	case !low && !high && !(nan && s.Kinds != yaml11.Any):
	case s.Min != nil && s.Max != nil:
		c.wrong(n, "should be from %g to %g, not %s", *s.Min, *s.Max, n.Text)
	case s.Min != nil:
		c.wrong(n, "should be at least %g, not %s", *s.Min, n.Text)
	case s.Max != nil:
		c.wrong(n, "should be at most %g, not %s", *s.Max, n.Text)
	default:
		c.wrong(n, "should be a number, not %s", n.Text)
	}
}

func (c *checker) list(n *yaml11.Node, s *Spec) {
	if len(n.Items) < s.MinItems {
		c.wrong(n, "should have at least %d %s", s.MinItems, plural(s.MinItems, "item"))
	}
	if s.MaxItems > 0 && len(n.Items) > s.MaxItems {
		c.wrong(n, "has %d items; at most %d are allowed", len(n.Items), s.MaxItems)
	}
	seen := map[string]bool{}
	for i, item := range n.Items {
		if s.Unique && item.IsScalar() {
			if seen[item.Text] {
				c.wrong(item, "lists %s twice", yaml11.Quote(item.Text))
			}
			seen[item.Text] = true
		}
		if s.Items != nil {
			c.under("["+strconv.Itoa(i)+"]", func() { c.value(item, s.Items) })
		}
	}
}

func (c *checker) mapping(n *yaml11.Node, s *Spec) {
	if len(n.Entries) < s.MinKeys || s.MaxKeys > 0 && len(n.Entries) > s.MaxKeys {
		if s.MinKeys == s.MaxKeys {
			c.wrong(n, "should have exactly %d %s, not %d", s.MinKeys, plural(s.MinKeys, "entry"), len(n.Entries))
		} else {
			c.wrong(n, "should have at least %d %s", s.MinKeys, plural(s.MinKeys, "entry"))
		}
	}
	where := c.label()
	for _, e := range n.Entries {
		c.under(e.Key.Text, func() { c.entry(e, s, where) })
	}
	for _, key := range s.Required {
		if n.Lookup(key) == nil {
			c.under(key, func() { c.report(n, "%s needs %q", where, key) })
		}
	}
}

func (c *checker) entry(e yaml11.Entry, s *Spec, where string) {
	key := e.Key.Text
	if is := s.Key(key); is != nil {
		c.value(e.Value, is)
		return
	}
	if answer, ok := s.Gone[key]; ok {
		c.report(e.Key, "%q is not a field of %s: %s", key, where, answer)
		return
	}
	if s.Others != nil {
		if s.OthersNamed != nil && !s.OthersNamed.Match(key) {
			c.report(e.Key, "%s is not a valid key in %s: it should be %s", yaml11.Quote(key), where, s.OthersNamed.Means)
			return
		}
		c.value(e.Value, s.Others)
		return
	}
	p := c.report(e.Key, "unknown field %q in %s", key, where)
	names := s.documented()
	if s.OpenToNewer && c.Newer {
		p.Level = slog.LevelWarn
		p.Text += DidYouMean(similar.Names(key, names)) + "; the server decides whether it means anything"
		return
	}
	if c.Suggest != nil {
		if more := c.Suggest(c.path); more != "" {
			p.Text += more
			return
		}
	}
	if near := similar.Names(key, names); len(near) > 0 {
		p.Text += DidYouMean(near)
	} else if len(names) > 0 {
		slices.Sort(names)
		p.Hint = "Fields of " + where + ": " + strings.Join(names, ", ") + "."
	}
}

// documented returns the names of the keys that people write.
func (s *Spec) documented() []string {
	var names []string
	for _, k := range s.Keys {
		if !k.Internal {
			names = append(names, k.Name)
		}
	}
	return names
}

// DidYouMean continues a message about an unknown name with the nearest of those that
// there are; "" if none is near.
func DidYouMean(near []string) string {
	if len(near) == 0 {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", near[0])
}

func orList(words []string) string {
	if len(words) <= 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
