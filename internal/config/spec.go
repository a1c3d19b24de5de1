package config

import (
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/lazyregexp"
)

// Spec describes the value of one key. The tree that [Keys] returns is the only
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

	Enum        []string             // of Text
	AnyCase     bool                 // Enum and OneOf ignore case
	Pattern     *Pattern             // of Text
	Min         *float64             // of numbers
	Items       *Spec                // of a List
	Keys        []Key                // of a Map
	Others      *Spec                // of a Map: values of keys not in Keys; nil: refused
	OthersNamed *Pattern             // of a Map: what those keys must look like
	OpenToNewer bool                 // of a Map: clients pass unknown keys on to the server
	Required    []string             // of a Map
	Single      bool                 // of a Map: exactly one key
	Banned      map[string]string    // of a Map: keys that Others would take, and why not
	Renamed     map[string]string    // of a Map: keys of earlier versions → what to write today
	Check       func(n *node) string // anything else; answers what is wrong
}

// Key is a named Spec.
type Key struct {
	Name string
	*Spec
}

// Pattern is a regular expression with its meaning in words.
type Pattern struct {
	Expr  string
	Means string // completes "must be …"
	re    *lazyregexp.Regexp
}

func pattern(expr, means string) *Pattern {
	return &Pattern{expr, means, lazyregexp.New(expr)}
}

func (p *Pattern) match(s string) bool { return p.re.MatchString(s) }

// key returns the spec of a Map's key, or nil if there is none.
func (s *Spec) key(name string) *Spec {
	for i := range s.Keys {
		if s.Keys[i].Name == name {
			return s.Keys[i].Spec
		}
	}
	return s.Others
}

// at returns the spec at a path, or nil.
func (s *Spec) at(path ...string) *Spec {
	for _, name := range path {
		if s == nil {
			return nil
		}
		s = s.key(name)
	}
	return s
}

// walk calls f for s and everything under it. A key with any name shows as
// "<name>", a list element as "[]". f says whether to go deeper.
func (s *Spec) walk(path []string, f func(path []string, s *Spec) bool) {
	if !f(path, s) {
		return
	}
	path = slices.Clip(path)
	for _, k := range s.Keys {
		k.walk(append(path, k.Name), f)
	}
	if s.Others != nil && s.Others != free {
		s.Others.walk(append(path, "<name>"), f)
	}
	if s.Items != nil && s.Items != free {
		s.Items.walk(append(path, "[]"), f)
	}
}

// The builders below keep the tables of keys readable.

func text(doc string) *Spec     { return &Spec{Doc: doc, Kinds: Text} }
func whole(doc string) *Spec    { return &Spec{Doc: doc, Kinds: Int} }
func number(doc string) *Spec   { return &Spec{Doc: doc, Kinds: Number} }
func anything(doc string) *Spec { return &Spec{Doc: doc, Kinds: Any, Items: free, Others: free} }
func yesNo(doc string, standard bool) *Spec {
	return &Spec{Doc: doc, Kinds: Bool, Default: standard}
}
func list(doc string, items *Spec) *Spec       { return &Spec{Doc: doc, Kinds: List, Items: items} }
func dict(doc string, values *Spec) *Spec      { return &Spec{Doc: doc, Kinds: Map, Others: values} }
func section(doc string, keys ...Key) *Spec    { return &Spec{Doc: doc, Kinds: Map, Keys: keys} }
func choice(doc string, words ...string) *Spec { return text(doc).words(words...) }

// free takes anything, all the way down.
var free = func() *Spec {
	s := &Spec{Kinds: Any}
	s.Items, s.Others = s, s
	return s
}()

func (s *Spec) or(k Kind) *Spec           { s.Kinds |= k; return s }
func (s *Spec) def(v any) *Spec           { s.Default = v; return s }
func (s *Spec) task() *Spec               { s.TaskMay = true; return s }
func (s *Spec) serverOnly() *Spec         { s.ServerOnly = true; return s }
func (s *Spec) secret() *Spec             { s.Secret = true; return s }
func (s *Spec) admins(why string) *Spec   { s.Admins = why; return s }
func (s *Spec) patched() *Spec            { s.Patch = true; return s }
func (s *Spec) words(w ...string) *Spec   { s.Enum = w; return s }
func (s *Spec) anyCase() *Spec            { s.AnyCase = true; return s }
func (s *Spec) match(p *Pattern) *Spec    { s.Pattern = p; return s }
func (s *Spec) min(n float64) *Spec       { s.Min = &n; return s }
func (s *Spec) need(keys ...string) *Spec { s.Required = keys; return s }
func (s *Spec) open() *Spec               { s.Others = free; return s }
func (s *Spec) openToNewer() *Spec        { s.OpenToNewer = true; return s }
func (s *Spec) deprecated(d string) *Spec { s.Deprecated = d; return s }
func (s *Spec) inert(why string) *Spec    { s.Inert = why; return s }
func (s *Spec) check(f func(*node) string) *Spec {
	s.Check = f
	return s
}

func (s *Spec) renamed(pairs ...string) *Spec {
	s.Renamed = map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		s.Renamed[pairs[i]] = pairs[i+1]
	}
	return s
}

func (s *Spec) banned(why string, keys ...string) *Spec {
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
func (s *Spec) byCluster() *Spec {
	s.Kinds |= List
	s.ByCluster = true
	s.Items = &Spec{Doc: "A cluster name with shell wildcards, and its value.", Kinds: Map, Single: true, Others: &Spec{Kinds: Text | Null}}
	return s
}

// byRegion adds the form "map from region (or context) to a value".
func (s *Spec) byRegion(values Kind) *Spec {
	s.Kinds |= Map
	s.ByRegion = true
	s.Others = &Spec{Doc: "The value in one region or context.", Kinds: values}
	return s
}

func (s *Spec) names() []string {
	out := make([]string, len(s.Keys))
	for i, k := range s.Keys {
		out[i] = k.Name
	}
	return out
}

// enumerates says whether the words of s include text.
func (s *Spec) enumerates(text string) bool {
	return slices.ContainsFunc(s.Enum, func(w string) bool {
		return w == text || s.AnyCase && strings.EqualFold(w, text)
	})
}
