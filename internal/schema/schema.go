// Package schema describes what may stand in a YAML document: the settings of a
// configuration, the fields of a task, files of pools and of credentials. One description serves the check of a
// document, the JSON Schema for editors, the reference documentation, defaults and
// redaction.
package schema

import (
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// Kind is a set of kinds of values.
type Kind = yaml11.Kind

// The kinds. A whole float such as 3.0 passes for an IntKind.
const (
	NullKind   = yaml11.Null
	BoolKind   = yaml11.Bool
	IntKind    = yaml11.Int
	FloatKind  = yaml11.Float
	TextKind   = yaml11.Text
	ListKind   = yaml11.List
	MapKind    = yaml11.Map
	NumberKind = yaml11.Number
	ScalarKind = yaml11.Scalar
	AnyKind    = yaml11.Any
)

// Spec describes one value.
//
// As in JSON Schema, a restriction concerns only values of the kind that it speaks
// about: a pattern texts, a minimum numbers, keys maps. So "a text or a list" needs no
// second concept.
type Spec struct {
	Doc       string // one sentence
	Title     string // of a whole document, in messages
	Kinds     Kind
	Default   any             // in force while the key is absent; nil: none
	DefaultIs string          // the default in words, where it is no value
	Example   string          // YAML of a value
	Internal  bool            // written by programs: accepted, not documented
	Hints     map[Kind]string // answers to values of kinds that are not taken

	// Texts.
	Enum    []string
	AnyCase bool              // Enum ignores case
	Aliases map[string]string // other names, in lower case, of words of Enum: for "did you mean"
	Pattern *Pattern
	MaxLen  int // characters, and then at least one
	// Grammar reads a text or number and says what is wrong with it: "should be …". It
	// stands in place of Pattern, which then only editors see.
	Grammar  func(text string) error
	TextOnly bool // Grammar is for texts, not for numbers

	// Numbers.
	Min, Max *float64

	// Lists.
	Items              *Spec
	MinItems, MaxItems int
	Unique             bool

	// Maps.
	Keys             []Key
	Others           *Spec    // values of keys not in Keys; nil: refused
	OthersNamed      *Pattern // what those keys must look like
	Required         []string
	MinKeys, MaxKeys int
	Gone             map[string]string // keys that are not (or no longer) taken, also where Others takes any: what to do instead

	// Check is anything else; it answers what is wrong: "should be …".
	Check func(value any) string

	// Of settings.
	Deprecated  string // what to do instead; the key still works
	Inert       string // why setting it changes nothing
	Secret      bool   // never shown
	ServerOnly  bool   // what clients send is ignored
	Quiet       bool   // … without a warning, too
	Admins      string // why a server with logins takes it from its administrators only; "": from every user
	TaskMay     bool   // tasks may set it in their config section
	Patch       bool   // layers merge by the rules for pod specs
	ByCluster   bool   // a List here is a list by cluster name
	ByRegion    bool   // a Map here is a map from region or context
	OpenToNewer bool   // clients pass unknown keys of this Map on to the server
}

// Key is a named Spec.
type Key struct {
	Name string
	*Spec
}

// New gives a key its description.
func New(name string, is *Spec) Key { return Key{name, is} }

// Pattern is a regular expression with its meaning in words.
type Pattern struct {
	Expr  string
	Means string // completes "must be …"
	re    *lazyregexp.Regexp
}

// Regexp is a pattern for a part of a text.
func Regexp(expr, means string) *Pattern {
	return &Pattern{expr, means, lazyregexp.New(expr)}
}

func (p *Pattern) Match(s string) bool { return p.re.MatchString(s) }

// Key returns the spec of one of Keys, or nil.
func (s *Spec) Key(name string) *Spec {
	for i := range s.Keys {
		if s.Keys[i].Name == name {
			return s.Keys[i].Spec
		}
	}
	return nil
}

// Find is Key for any key of a Map: Others stands for the rest.
func (s *Spec) Find(name string) *Spec {
	if k := s.Key(name); k != nil {
		return k
	}
	return s.Others
}

// At returns the spec at a path, or nil.
func (s *Spec) At(path ...string) *Spec {
	for _, name := range path {
		if s == nil {
			return nil
		}
		s = s.Find(name)
	}
	return s
}

// Walk calls f for s and everything under it. A key with any name shows as
// "<name>", a list element as "[]". f says whether to go deeper.
func (s *Spec) Walk(path []string, f func(path []string, s *Spec) bool) {
	if !f(path, s) {
		return
	}
	path = slices.Clip(path)
	for _, k := range s.Keys {
		k.Walk(append(path, k.Name), f)
	}
	if s.Others != nil && s.Others != Free {
		s.Others.Walk(append(path, "<name>"), f)
	}
	if s.Items != nil && s.Items != Free {
		s.Items.Walk(append(path, "[]"), f)
	}
}

// The builders below keep the tables of keys readable.

func Text(doc string) *Spec     { return &Spec{Doc: doc, Kinds: TextKind} }
func Whole(doc string) *Spec    { return &Spec{Doc: doc, Kinds: IntKind} }
func Number(doc string) *Spec   { return &Spec{Doc: doc, Kinds: NumberKind} }
func Anything(doc string) *Spec { return &Spec{Doc: doc, Kinds: AnyKind, Items: Free, Others: Free} }
func YesNo(doc string, standard bool) *Spec {
	return &Spec{Doc: doc, Kinds: BoolKind, Default: standard}
}
func List(doc string, items *Spec) *Spec       { return &Spec{Doc: doc, Kinds: ListKind, Items: items} }
func Dict(doc string, values *Spec) *Spec      { return &Spec{Doc: doc, Kinds: MapKind, Others: values} }
func Section(doc string, keys ...Key) *Spec    { return &Spec{Doc: doc, Kinds: MapKind, Keys: keys} }
func Choice(doc string, words ...string) *Spec { return Text(doc).Words(words...) }

// Written takes any scalar as it is written: 007 is a text. Its readers use
// [yaml11.Node.TextAt].
func Written(doc string) *Spec { return &Spec{Doc: doc, Kinds: ScalarKind | NullKind} }

// Free takes anything, all the way down.
var Free = func() *Spec {
	s := &Spec{Kinds: AnyKind}
	s.Items, s.Others = s, s
	return s
}()

func (s *Spec) Or(k Kind) *Spec            { s.Kinds |= k; return s }
func (s *Spec) Defaults(v any) *Spec       { s.Default = v; return s }
func (s *Spec) ForTasks() *Spec            { s.TaskMay = true; return s }
func (s *Spec) OnServer() *Spec            { s.ServerOnly = true; return s }
func (s *Spec) Hidden() *Spec              { s.Secret = true; return s }
func (s *Spec) ByAdmins(why string) *Spec  { s.Admins = why; return s }
func (s *Spec) Patched() *Spec             { s.Patch = true; return s }
func (s *Spec) Words(w ...string) *Spec    { s.Enum = w; return s }
func (s *Spec) Caseless() *Spec            { s.AnyCase = true; return s }
func (s *Spec) Matching(p *Pattern) *Spec  { s.Pattern = p; return s }
func (s *Spec) AtLeast(n float64) *Spec    { s.Min = &n; return s }
func (s *Spec) AtMost(n float64) *Spec     { s.Max = &n; return s }
func (s *Spec) Needs(keys ...string) *Spec { s.Required = keys; return s }
func (s *Spec) Opened() *Spec              { s.Others = Free; return s }
func (s *Spec) ForNewer() *Spec            { s.OpenToNewer = true; return s }
func (s *Spec) Instead(d string) *Spec     { s.Deprecated = d; return s }
func (s *Spec) NoEffect(why string) *Spec  { s.Inert = why; return s }
func (s *Spec) Checked(f func(value any) string) *Spec {
	s.Check = f
	return s
}

// Without answers keys that are not taken with what to do instead.
func (s *Spec) Without(answer string, keys ...string) *Spec {
	if s.Gone == nil {
		s.Gone = map[string]string{}
	}
	for _, k := range keys {
		s.Gone[k] = answer
	}
	return s
}

// With merges another form into a copy of s: both are accepted.
func (s *Spec) With(o *Spec) *Spec {
	out := *s
	out.Kinds |= o.Kinds
	if o.Kinds&MapKind != 0 {
		out.Keys, out.Others, out.OthersNamed, out.Required = o.Keys, o.Others, o.OthersNamed, o.Required
		out.MinKeys, out.MaxKeys, out.Gone = o.MinKeys, o.MaxKeys, o.Gone
	}
	if o.Items != nil {
		out.Items, out.MinItems, out.MaxItems, out.Unique = o.Items, o.MinItems, o.MaxItems, o.Unique
	}
	if o.Pattern != nil {
		out.Pattern = o.Pattern
	}
	if o.Enum != nil {
		out.Enum, out.AnyCase = o.Enum, o.AnyCase
	}
	if o.Min != nil {
		out.Min = o.Min
	}
	if o.Max != nil {
		out.Max = o.Max
	}
	return &out
}

// PerCluster adds the form "list of one-key maps from a cluster name with shell
// wildcards to a value".
func (s *Spec) PerCluster() *Spec {
	s.Kinds |= ListKind
	s.ByCluster = true
	s.Items = &Spec{Doc: "A cluster name with shell wildcards, and its value.", Kinds: MapKind, MinKeys: 1, MaxKeys: 1, Others: &Spec{Kinds: TextKind | NullKind}}
	return s
}

// PerRegion adds the form "map from region (or context) to a value".
func (s *Spec) PerRegion(values Kind) *Spec {
	s.Kinds |= MapKind
	s.ByRegion = true
	s.Others = &Spec{Doc: "The value in one region or context.", Kinds: values}
	return s
}

func (s *Spec) Names() []string {
	out := make([]string, len(s.Keys))
	for i, k := range s.Keys {
		out[i] = k.Name
	}
	return out
}

// enumerates says whether the words of s include text.
func (s *Spec) Enumerates(text string) bool {
	return slices.ContainsFunc(s.Enum, func(w string) bool {
		return w == text || s.AnyCase && strings.EqualFold(w, text)
	})
}

// Why keys are their administrators' on a server with logins.
const (
	Executes = "the server executes it"
	Connects = "the server connects to it"
	Opens    = "it names a file of the server"
	Rights   = "it chooses whose rights the server uses, or hands out"
	Confines = "it says what users may use"
)

// MapOnly leaves a map of whatever values.
func (s *Spec) MapOnly() *Spec { s.Kinds = MapKind; return s }

// Quietly is OnServer without a warning.
func (s *Spec) Quietly() *Spec { s.ServerOnly, s.Quiet = true, true; return s }

// Of says what the elements of a list are.
func (s *Spec) Of(item *Spec) *Spec { s.Items = item; return s }
