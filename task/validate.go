package task

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// typeOf names n's JSON type; integers are also numbers.
func (n *node) typeOf() string {
	switch n.kind {
	case mappingNode:
		return "object"
	case sequenceNode:
		return "array"
	}
	switch v := n.value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case int, *big.Int:
		return "integer"
	case float64:
		if v == float64(int64(v)) {
			return "integer"
		}
		return "number"
	}
	return "string"
}

var typeWords = map[string]string{
	"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
	"object": "a map", "array": "a list", "null": "nothing",
}

// describe says what n is, for "…, not X".
func (n *node) describe() string {
	switch t := n.typeOf(); t {
	case "object", "array":
		return typeWords[t]
	case "null":
		return "empty"
	case "string":
		return fmt.Sprintf("the text %s", quoteShort(n.text))
	case "boolean":
		return fmt.Sprintf("%s (a boolean)", n.text)
	}
	return "the number " + n.text
}

func quoteShort(s string) string {
	if r := []rune(s); len(r) > 200 {
		s = string(r[:197]) + "..."
	}
	return strconv.Quote(s)
}

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

func (v *validator) at(n *node, path, format string, args ...any) *Error {
	e := v.errorAt(n.line, n.col, path, format, args...)
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

func (v *validator) check(n *node, s *schema, path string) {
	if len(s.types) > 0 {
		t := n.typeOf()
		if !slices.Contains(s.types, t) && !(t == "integer" && slices.Contains(s.types, "number")) {
			v.wrongType(n, s, path)
			return
		}
	}
	switch n.kind {
	case mappingNode:
		v.checkMap(n, s, path)
	case sequenceNode:
		v.checkList(n, s, path)
	default:
		v.checkScalar(n, s, path)
	}
}

func (v *validator) wrongType(n *node, s *schema, path string) {
	var want []string
	for _, t := range s.types {
		if t != "null" {
			want = append(want, typeWords[t])
		}
	}
	e := v.at(n, path, "%s should be %s, not %s", label(path), orList(want), n.describe())
	if e.Hint = s.hints[n.typeOf()]; e.Hint != "" {
		return
	}
	switch n.typeOf() {
	case "null":
		e.Hint = "Give it a value or remove the key."
	case "integer", "number", "boolean":
		if slices.Contains(s.types, "string") && s.grammar == nil && s.pattern == "" && s.enum == nil {
			e.Hint = fmt.Sprintf("Quote it to make it text: %q.", n.text)
		}
	case "string":
		plain := node{value: resolve(n.text), text: n.text}
		switch t := plain.typeOf(); {
		case n.quoted && (slices.Contains(s.types, t) || t == "integer" && slices.Contains(s.types, "number")):
			e.Hint = "Write it without quotes."
		case slices.Contains(s.types, "boolean") && len(n.text) == 1 && strings.ContainsAny(n.text, "yYnN"):
			e.Hint = "Only whole words are booleans: write true or false."
		}
	}
}

func (v *validator) checkScalar(n *node, s *schema, path string) {
	if n.pending {
		return
	}
	switch x := n.value.(type) {
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
			v.at(n, path, "%s should be %s, not %s", label(path), s.want, quoteShort(x))
		}
	case int:
		v.checkNumber(n, s, float64(x), path)
	case float64:
		v.checkNumber(n, s, x, path)
	case *big.Int:
		f, _ := new(big.Float).SetInt(x).Float64()
		v.checkRange(n, s, f, path)
		if s.min == nil && s.max == nil && len(s.types) > 0 {
			v.at(n, path, "%s is too large a number: %s", label(path), quoteShort(n.text))
		}
	}
}

func (v *validator) wrongWord(n *node, s *schema, x, path string) {
	var e *Error
	switch {
	case len(s.enum) == 1:
		e = v.at(n, path, "%s should be %s, not %s", label(path), s.enum[0], quoteShort(x))
	case len(s.enum) > 10:
		e = v.at(n, path, "%s cannot be %s", label(path), quoteShort(x))
		e.Hint = "It can be " + orList(s.enum) + "."
	default:
		e = v.at(n, path, "%s should be %s, not %s", label(path), orList(s.enum), quoteShort(x))
	}
	near, ok := s.instead[strings.ToLower(x)]
	if !ok {
		near, ok = closestFold(x, s.enum)
	}
	if ok && len(s.enum) > 1 {
		e.Message += fmt.Sprintf("; did you mean %q?", near)
	}
}

func (v *validator) checkNumber(n *node, s *schema, x float64, path string) {
	if s.grammar == nil || s.textOnly {
		v.checkRange(n, s, x, path)
	} else if err := s.grammar(n.numberText()); err != nil {
		v.at(n, path, "%s %s", label(path), err)
	}
}

// numberText is a scalar as a grammar wants to read it: 0x10 as 16.
func (n *node) numberText() string {
	switch x := n.value.(type) {
	case int:
		return strconv.Itoa(x)
	case float64:
		return formatNumber(x)
	}
	return n.text
}

// formatNumber writes the shortest decimal text of x: 8, 0.5.
func formatNumber(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

func (s *schema) hasWord(x string) bool {
	return slices.ContainsFunc(s.enum, func(w string) bool {
		return w == x || s.anyCase && strings.EqualFold(w, x)
	})
}

func (v *validator) checkRange(n *node, s *schema, x float64, path string) {
	low, high := s.min != nil && x < *s.min, s.max != nil && x > *s.max
	if !low && !high && x == x {
		return
	}
	switch {
	case s.min != nil && s.max != nil:
		v.at(n, path, "%s should be from %g to %g, not %s", label(path), *s.min, *s.max, n.text)
	case s.min != nil:
		v.at(n, path, "%s should be at least %g, not %s", label(path), *s.min, n.text)
	case s.max != nil:
		v.at(n, path, "%s should be at most %g, not %s", label(path), *s.max, n.text)
	default:
		v.at(n, path, "%s should be a number, not %s", label(path), n.text)
	}
}

func (v *validator) checkList(n *node, s *schema, path string) {
	if len(n.items) < s.minItems {
		v.at(n, path, "%s should have at least %d %s", label(path), s.minItems, plural(s.minItems, "item"))
	}
	if s.maxItems > 0 && len(n.items) > s.maxItems {
		v.at(n, path, "%s has %d items; at most %d are allowed", label(path), len(n.items), s.maxItems)
	}
	seen := map[string]bool{}
	for i, item := range n.items {
		p := fmt.Sprintf("%s[%d]", path, i)
		if s.unique && item.kind == scalarNode {
			if seen[item.text] {
				v.at(item, p, "%s lists %s twice", label(path), quoteShort(item.text))
			}
			seen[item.text] = true
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

func (v *validator) checkMap(n *node, s *schema, path string) {
	if len(n.entries) < s.minKeys || s.maxKeys > 0 && len(n.entries) > s.maxKeys {
		if s.minKeys == s.maxKeys {
			v.at(n, path, "%s should have exactly %d %s, not %d", label(path), s.minKeys, plural(s.minKeys, "entry"), len(n.entries))
		} else {
			v.at(n, path, "%s should have at least %d %s", label(path), s.minKeys, plural(s.minKeys, "entry"))
		}
	}
	for _, e := range n.entries {
		key := e.key.text
		if f := s.field(key); f != nil {
			v.check(e.val, f.is, join(path, key))
			continue
		}
		switch {
		case !s.open:
			v.unknown(e.key, s, path)
		case s.keysRE != nil && !s.keysRE.MatchString(key):
			v.at(e.key, join(path, key), "%s is not a valid key in %s: it should be %s", quoteShort(key), label(path), s.keyWant)
		case s.values != nil:
			v.check(e.val, s.values, join(path, key))
		}
	}
	for _, f := range s.fields {
		if f.required && n.lookup(f.name) == nil {
			v.at(n, join(path, f.name), "%s needs %q", s.titleAt(path), f.name)
		}
	}
}

func (v *validator) unknown(key *node, s *schema, path string) {
	where := s.titleAt(path)
	if answer, ok := s.gone[key.text]; ok {
		v.at(key, join(path, key.text), "%q is not a field of %s: %s", key.text, where, answer)
		return
	}
	var names []string
	for _, f := range s.fields {
		if !f.internal {
			names = append(names, f.name)
		}
	}
	e := v.at(key, join(path, key.text), "unknown field %q in %s", key.text, where)
	if near, ok := closest(key.text, names); ok {
		e.Message += fmt.Sprintf("; did you mean %q?", near)
	} else if len(names) > 0 {
		slices.Sort(names)
		e.Hint = "Fields of " + where + ": " + strings.Join(names, ", ") + "."
	}
}
