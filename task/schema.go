package task

import (
	"regexp"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// schema describes what may stand in one place of a task file. The tables in
// fields.go are made of it, and everything that must know the language reads
// them: validation, spelling help, the JSON Schema for editors, the order of
// keys that Format writes, the reference documentation.
//
// As in JSON Schema, a restriction concerns only values of the type that it
// speaks about: a pattern texts, a minimum numbers, fields maps.
type schema struct {
	kinds yaml11.Kind // none: anything

	// Texts.
	enum    []string
	anyCase bool              // enum ignores case
	instead map[string]string // other names of words in enum, for "did you mean"
	pattern string            // whole text
	want    string            // what the pattern asks for, in words: completes "should be …"
	maxLen  int               // characters, and then at least one

	// grammar reads a text or number and says what is wrong with it; it then
	// stands for the pattern, which only editors see.
	grammar  func(text string) error
	textOnly bool // the grammar is for texts, not for numbers

	// Numbers.
	min, max *float64

	// Maps.
	title   string // of a whole document, for messages
	fields  []field
	open    bool    // keys beyond fields are let through
	values  *schema // what keys beyond fields hold
	keys    string  // pattern of keys beyond fields
	keyWant string
	maxKeys int
	minKeys int

	// Lists.
	items    *schema
	minItems int
	maxItems int
	unique   bool

	patternRE, keysRE *regexp.Regexp // of pattern and keys
	prepared          bool

	// hints answer values of a kind that is not taken.
	hints map[yaml11.Kind]string

	// gone answers keys that are no longer (or never were) in the language.
	gone map[string]string
}

// field is one key of a map.
type field struct {
	name     string
	is       *schema
	doc      string // one sentence
	def      string // the default, in words
	example  string // YAML of the value
	required bool
	internal bool // written by programs; accepted, not documented
}

func text() *schema           { return &schema{kinds: yaml11.Text} }
func number() *schema         { return &schema{kinds: yaml11.Number} }
func integer() *schema        { return &schema{kinds: yaml11.Int} }
func boolean() *schema        { return &schema{kinds: yaml11.Bool} }
func anything() *schema       { return &schema{open: true} }
func list(of *schema) *schema { return &schema{kinds: yaml11.List, items: of} }
func object(fields ...field) *schema {
	return &schema{kinds: yaml11.Map, fields: fields}
}
func openObject(fields ...field) *schema {
	return &schema{kinds: yaml11.Map, fields: fields, open: true}
}
func mapOf(values *schema) *schema {
	return &schema{kinds: yaml11.Map, open: true, values: values}
}
func choice(anyCase bool, words ...string) *schema {
	return &schema{kinds: yaml11.Text, enum: words, anyCase: anyCase}
}
func matching(pattern, want string) *schema {
	return &schema{kinds: yaml11.Text, pattern: pattern, want: want}
}

func (s *schema) or(kinds yaml11.Kind) *schema {
	s.kinds |= kinds
	return s
}

// with merges another form into s: both are accepted.
func (s *schema) with(o *schema) *schema {
	out := *s
	out.kinds |= o.kinds
	if o.fields != nil || o.kinds&yaml11.Map != 0 {
		out.fields, out.open, out.values, out.keys, out.keyWant = o.fields, o.open, o.values, o.keys, o.keyWant
		out.minKeys, out.maxKeys, out.gone = o.minKeys, o.maxKeys, o.gone
	}
	if o.items != nil {
		out.items, out.minItems, out.maxItems, out.unique = o.items, o.minItems, o.maxItems, o.unique
	}
	if o.pattern != "" {
		out.pattern, out.want = o.pattern, o.want
	}
	if o.enum != nil {
		out.enum, out.anyCase = o.enum, o.anyCase
	}
	if o.min != nil {
		out.min = o.min
	}
	if o.max != nil {
		out.max = o.max
	}
	return &out
}

func (s *schema) from(n float64) *schema { s.min = &n; return s }
func (s *schema) to(n float64) *schema   { s.max = &n; return s }

func (s *schema) field(name string) *field {
	for i := range s.fields {
		if s.fields[i].name == name {
			return &s.fields[i]
		}
	}
	return nil
}

// prepare compiles the patterns of s and all below it.
func (s *schema) prepare() *schema {
	if s.prepared {
		return s
	}
	s.prepared = true
	s.patternRE, s.keysRE = wholeText(s.pattern), wholeText(s.keys)
	for _, f := range s.fields {
		f.is.prepare()
	}
	for _, sub := range []*schema{s.values, s.items} {
		if sub != nil {
			sub.prepare()
		}
	}
	return s
}

func wholeText(pattern string) *regexp.Regexp {
	if pattern == "" {
		return nil
	}
	return regexp.MustCompile(`^(?:` + pattern + `)$`)
}
