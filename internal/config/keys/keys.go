// Package keys describes the keys of a configuration: what each may hold, who may set it
// and how its layers merge. Package config reads configurations by such a description.
package keys

import (
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Spec describes the value of one key. The tree of them is the only
// description of the configuration: validation, the JSON Schema, defaults,
// redaction, what clients may send and what tasks may set all follow it.
//
// The fields below Kinds constrain values of one kind each and leave the
// others alone, so that "a text or a list" needs no second concept.
type Spec struct {
	Doc        string // one sentence
	Kinds      Kind
	Default    any    // in force while the key is absent; nil: none
	Deprecated string // what to do instead; the key still works
	Inert      string // why setting it changes nothing
	Secret     bool   // never shown
	ServerOnly bool   // what clients send is ignored
	Quiet      bool   // … without a warning, too
	Admins     string // why a server with logins takes it from its administrators only; "": from every user
	TaskMay    bool   // tasks may set it in their config section
	Patch      bool   // layers merge by the rules for pod specs, see patch
	ByCluster  bool   // a List here is a list by cluster name
	ByRegion   bool   // a Map here is a map from region or context

	Enum        []string               // of Text
	AnyCase     bool                   // Enum and OneOf ignore case
	Pattern     *Pattern               // of Text
	Min         *float64               // of numbers
	Items       *Spec                  // of a List
	Keys        []Key                  // of a Map
	Others      *Spec                  // of a Map: values of keys not in Keys; nil: refused
	OthersNamed *Pattern               // of a Map: what those keys must look like
	OpenToNewer bool                   // of a Map: clients pass unknown keys on to the server
	Required    []string               // of a Map
	Single      bool                   // of a Map: exactly one key
	Banned      map[string]string      // of a Map: keys that Others would take, and why not
	Renamed     map[string]string      // of a Map: keys of earlier versions → what to write today
	Check       func(value any) string // anything else; answers what is wrong
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

func Regexp(expr, means string) *Pattern {
	return &Pattern{expr, means, lazyregexp.New(expr)}
}

func (p *Pattern) Match(s string) bool { return p.re.MatchString(s) }

// key returns the spec of a Map's key, or nil if there is none.
func (s *Spec) Find(name string) *Spec {
	for i := range s.Keys {
		if s.Keys[i].Name == name {
			return s.Keys[i].Spec
		}
	}
	return s.Others
}

// at returns the spec at a path, or nil.
func (s *Spec) At(path ...string) *Spec {
	for _, name := range path {
		if s == nil {
			return nil
		}
		s = s.Find(name)
	}
	return s
}

// walk calls f for s and everything under it. A key with any name shows as
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
func (s *Spec) Needs(keys ...string) *Spec { s.Required = keys; return s }
func (s *Spec) Opened() *Spec              { s.Others = Free; return s }
func (s *Spec) ForNewer() *Spec            { s.OpenToNewer = true; return s }
func (s *Spec) Instead(d string) *Spec     { s.Deprecated = d; return s }
func (s *Spec) NoEffect(why string) *Spec  { s.Inert = why; return s }
func (s *Spec) Checked(f func(value any) string) *Spec {
	s.Check = f
	return s
}

func (s *Spec) Formerly(pairs ...string) *Spec {
	s.Renamed = map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		s.Renamed[pairs[i]] = pairs[i+1]
	}
	return s
}

func (s *Spec) Bans(why string, keys ...string) *Spec {
	if s.Banned == nil {
		s.Banned = map[string]string{}
	}
	for _, k := range keys {
		s.Banned[k] = why
	}
	return s
}

// byCluster adds the form "list of one-key maps from a cluster name with shell
// wildcards to a value".
func (s *Spec) PerCluster() *Spec {
	s.Kinds |= ListKind
	s.ByCluster = true
	s.Items = &Spec{Doc: "A cluster name with shell wildcards, and its value.", Kinds: MapKind, Single: true, Others: &Spec{Kinds: TextKind | NullKind}}
	return s
}

// byRegion adds the form "map from region (or context) to a value".
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
