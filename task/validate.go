package task

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/similar"
	"github.com/skypilot-go/sky/internal/yaml11"
)

func orList(words []string) string {
	switch len(words) {
	case 0:
		return ""
	case 1:
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// validator checks a tree against a schema and gathers mistakes.
type validator struct {
	*source
	errs []*Error
}

func (v *validator) at(n *yaml11.Node, path, format string, args ...any) *Error {
	e := v.errorAt(n.Line, n.Column, path, format, args...)
	v.errs = append(v.errs, e)
	return e
}

// label names what is at path in a message.
func label(path string) string {
	if path == "" {
		return "a task"
	}
	return path
}

// titleAt is label for maps, which may have a name of their own.
func (s *schema) titleAt(path string) string {
	if path == "" && s.title != "" {
		return s.title
	}
	return label(path)
}

func (v *validator) check(n *yaml11.Node, s *schema, path string) {
	if s.kinds != 0 && !s.kinds.Takes(n) {
		v.wrongKind(n, s, path)
		return
	}
	switch n.Kind {
	case yaml11.Map:
		v.checkMap(n, s, path)
	case yaml11.List:
		v.checkList(n, s, path)
	default:
		v.checkScalar(n, s, path)
	}
}

func (v *validator) wrongKind(n *yaml11.Node, s *schema, path string) {
	e := v.at(n, path, "%s should be %s, not %s", label(path), (s.kinds&^yaml11.Null).Describe("text", "a map"), n.Describe())
	if e.Hint = s.hints[n.Kind]; e.Hint != "" {
		return
	}
	switch n.Kind {
	case yaml11.Null:
		e.Hint = "Give it a value or remove the key."
	case yaml11.Int, yaml11.Float, yaml11.Bool:
		if s.kinds&yaml11.Text != 0 && s.grammar == nil && s.pattern == "" && s.enum == nil {
			e.Hint = fmt.Sprintf("Quote it to make it text: %q.", n.Text)
		}
	case yaml11.Text:
		switch {
		case n.Quoted && s.kinds.Takes(yaml11.NewScalar(yaml11.Resolve(n.Text))):
			e.Hint = "Write it without quotes."
		case s.kinds&yaml11.Bool != 0 && len(n.Text) == 1 && strings.ContainsAny(n.Text, "yYnN"):
			e.Hint = "Only whole words are booleans: write true or false."
		}
	}
}

func (v *validator) checkScalar(n *yaml11.Node, s *schema, path string) {
	if n.Pending {
		return
	}
	switch x := n.Value.(type) {
	case string:
		if s.enum != nil && !s.hasWord(x) {
			v.wrongWord(n, s, x, path)
			return
		}
		if s.grammar != nil {
			if err := s.grammar(x); err != nil {
				v.at(n, path, "%s %s", label(path), err)
			}
			return
		}
		if size := len([]rune(x)); s.maxLen > 0 && (size == 0 || size > s.maxLen) {
			v.at(n, path, "%s should have 1 to %d characters, not %d", label(path), s.maxLen, size)
		}
		if s.patternRE != nil && !s.patternRE.MatchString(x) {
			v.at(n, path, "%s should be %s, not %s", label(path), s.want, yaml11.Quote(x))
		}
	case int:
		v.checkNumber(n, s, float64(x), path)
	case float64:
		v.checkNumber(n, s, x, path)
	case *big.Int:
		f, _ := new(big.Float).SetInt(x).Float64()
		v.checkRange(n, s, f, path)
		if s.min == nil && s.max == nil && s.kinds != 0 {
			v.at(n, path, "%s is too large a number: %s", label(path), yaml11.Quote(n.Text))
		}
	}
}

func (v *validator) wrongWord(n *yaml11.Node, s *schema, x, path string) {
	var e *Error
	switch {
	case len(s.enum) == 1:
		e = v.at(n, path, "%s should be %s, not %s", label(path), s.enum[0], yaml11.Quote(x))
	case len(s.enum) > 10:
		e = v.at(n, path, "%s cannot be %s", label(path), yaml11.Quote(x))
		e.Hint = "It can be " + orList(s.enum) + "."
	default:
		e = v.at(n, path, "%s should be %s, not %s", label(path), orList(s.enum), yaml11.Quote(x))
	}
	near := similar.Names(x, s.enum)
	if word, ok := s.instead[strings.ToLower(x)]; ok {
		near = []string{word}
	}
	if len(near) > 0 && len(s.enum) > 1 {
		e.Message += fmt.Sprintf("; did you mean %q?", near[0])
	}
}

func (v *validator) checkNumber(n *yaml11.Node, s *schema, x float64, path string) {
	if s.grammar == nil || s.textOnly {
		v.checkRange(n, s, x, path)
	} else if err := s.grammar(n.NumberText()); err != nil {
		v.at(n, path, "%s %s", label(path), err)
	}
}

func (s *schema) hasWord(x string) bool {
	return slices.ContainsFunc(s.enum, func(w string) bool {
		return w == x || s.anyCase && strings.EqualFold(w, x)
	})
}

func (v *validator) checkRange(n *yaml11.Node, s *schema, x float64, path string) {
	low, high := s.min != nil && x < *s.min, s.max != nil && x > *s.max
	if !low && !high && x == x {
		return
	}
	switch {
	case s.min != nil && s.max != nil:
		v.at(n, path, "%s should be from %g to %g, not %s", label(path), *s.min, *s.max, n.Text)
	case s.min != nil:
		v.at(n, path, "%s should be at least %g, not %s", label(path), *s.min, n.Text)
	case s.max != nil:
		v.at(n, path, "%s should be at most %g, not %s", label(path), *s.max, n.Text)
	default:
		v.at(n, path, "%s should be a number, not %s", label(path), n.Text)
	}
}

func (v *validator) checkList(n *yaml11.Node, s *schema, path string) {
	if len(n.Items) < s.minItems {
		v.at(n, path, "%s should have at least %d %s", label(path), s.minItems, plural(s.minItems, "item"))
	}
	if s.maxItems > 0 && len(n.Items) > s.maxItems {
		v.at(n, path, "%s has %d items; at most %d are allowed", label(path), len(n.Items), s.maxItems)
	}
	seen := map[string]bool{}
	for i, item := range n.Items {
		p := fmt.Sprintf("%s[%d]", path, i)
		if s.unique && item.IsScalar() {
			if seen[item.Text] {
				v.at(item, p, "%s lists %s twice", label(path), yaml11.Quote(item.Text))
			}
			seen[item.Text] = true
		}
		if s.items != nil {
			v.check(item, s.items, p)
		}
	}
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func (v *validator) checkMap(n *yaml11.Node, s *schema, path string) {
	if len(n.Entries) < s.minKeys || s.maxKeys > 0 && len(n.Entries) > s.maxKeys {
		if s.minKeys == s.maxKeys {
			v.at(n, path, "%s should have exactly %d %s, not %d", label(path), s.minKeys, plural(s.minKeys, "entry"), len(n.Entries))
		} else {
			v.at(n, path, "%s should have at least %d %s", label(path), s.minKeys, plural(s.minKeys, "entry"))
		}
	}
	for _, e := range n.Entries {
		key := e.Key.Text
		if f := s.field(key); f != nil {
			v.check(e.Value, f.is, join(path, key))
			continue
		}
		switch {
		case !s.open:
			v.unknown(e.Key, s, path)
		case s.keysRE != nil && !s.keysRE.MatchString(key):
			v.at(e.Key, join(path, key), "%s is not a valid key in %s: it should be %s", yaml11.Quote(key), label(path), s.keyWant)
		case s.values != nil:
			v.check(e.Value, s.values, join(path, key))
		}
	}
	for _, f := range s.fields {
		if f.required && n.Lookup(f.name) == nil {
			v.at(n, join(path, f.name), "%s needs %q", s.titleAt(path), f.name)
		}
	}
}

func (v *validator) unknown(key *yaml11.Node, s *schema, path string) {
	where := s.titleAt(path)
	if answer, ok := s.gone[key.Text]; ok {
		v.at(key, join(path, key.Text), "%q is not a field of %s: %s", key.Text, where, answer)
		return
	}
	var names []string
	for _, f := range s.fields {
		if !f.internal {
			names = append(names, f.name)
		}
	}
	e := v.at(key, join(path, key.Text), "unknown field %q in %s", key.Text, where)
	if near := similar.Names(key.Text, names); len(near) > 0 {
		e.Message += fmt.Sprintf("; did you mean %q?", near[0])
	} else if len(names) > 0 {
		slices.Sort(names)
		e.Hint = "Fields of " + where + ": " + strings.Join(names, ", ") + "."
	}
}
