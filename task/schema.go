package task

import (
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// The tables in fields.go are [schema.Spec]s, and everything that must know the
// language reads them: validation, spelling help, the JSON Schema for editors, the order
// of keys that Format writes, the reference documentation.

// field is one key of a map.
type field struct {
	name     string
	is       *schema.Spec
	doc      string // one sentence
	def      string // the default, in words
	example  string // YAML of the value
	required bool
	internal bool // written by programs; accepted, not documented
}

// object is a map of these fields.
func object(fields ...field) *schema.Spec {
	s := schema.Section("")
	for _, f := range fields {
		is := *f.is // shared by fields that differ in what follows
		is.Doc, is.DefaultIs, is.Example, is.Internal = f.doc, f.def, f.example, f.internal
		s.Keys = append(s.Keys, schema.New(f.name, &is))
		if f.required {
			s.Required = append(s.Required, f.name)
		}
	}
	return s
}

func openObject(fields ...field) *schema.Spec { return object(fields...).Opened() }

func text() *schema.Spec                     { return schema.Text("") }
func number() *schema.Spec                   { return schema.Number("") }
func integer() *schema.Spec                  { return schema.Whole("") }
func boolean() *schema.Spec                  { return &schema.Spec{Kinds: yaml11.Bool} }
func anything() *schema.Spec                 { return schema.Anything("") }
func list(of *schema.Spec) *schema.Spec      { return schema.List("", of) }
func mapOf(of *schema.Spec) *schema.Spec     { return schema.Dict("", of) }
func choice(w ...string) *schema.Spec        { return schema.Choice("", w...) }
func choiceAnyCase(w ...string) *schema.Spec { return choice(w...).Caseless() }

// single is a map with one key.
func single(values *schema.Spec) *schema.Spec {
	return &schema.Spec{Kinds: yaml11.Map, Others: values, MinKeys: 1, MaxKeys: 1}
}

// named is a map whose keys look like this.
func named(values *schema.Spec, pattern, want string) *schema.Spec {
	s := mapOf(values)
	s.OthersNamed = whole(pattern, want)
	return s
}

// atLeastOne refuses an empty map.
func atLeastOne(s *schema.Spec) *schema.Spec {
	s.MinKeys = 1
	return s
}

// set is a list of different values, at least one.
func set(of *schema.Spec) *schema.Spec {
	return &schema.Spec{Kinds: yaml11.List, Items: of, MinItems: 1, Unique: true}
}

// whole is a pattern for a whole text.
func whole(pattern, want string) *schema.Pattern {
	return schema.Regexp("^(?:"+strings.TrimSuffix(strings.TrimPrefix(pattern, "^"), "$")+")$", want)
}

func matching(pattern, want string) *schema.Spec { return text().Matching(whole(pattern, want)) }

func checked(s *schema.Spec, grammar func(string) error, pattern string) *schema.Spec {
	s.Grammar, s.Pattern = grammar, whole(pattern, "")
	return s
}

func textGrammar(s *schema.Spec, grammar func(string) error, pattern string) *schema.Spec {
	s = checked(s, grammar, pattern)
	s.TextOnly = true
	return s
}

func checkedNumber(s *schema.Spec, grammar func(string) error) *schema.Spec {
	s.Grammar = grammar
	return s
}

func errOnly(parse func(string) (string, error)) func(string) error {
	return func(s string) error { _, err := parse(s); return err }
}

func checkPositive(s string) error {
	if f, ok := parseDecimal(s); !ok || f <= 0 {
		return fmt.Errorf("should be more than 0, not %s", s)
	}
	return nil
}
