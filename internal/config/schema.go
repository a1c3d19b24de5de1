package config

import (
	"cmp"
	"encoding/json"
	"regexp"
	"strings"
	"unicode"

	"github.com/skypilot-go/sky/internal/config/keys"
)

// Schema returns the JSON Schema (2020-12) of a configuration as the server
// accepts it, for editors.
func Schema() []byte {
	s := schemaOf(Keys())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "sky configuration"
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // the description is ours
	}
	return append(text, '\n')
}

func schemaOf(s *Spec) map[string]any {
	out := map[string]any{}
	if s.Doc != "" {
		out["description"] = s.Doc
	}
	if s.Kinds != Any {
		out["type"] = s.Kinds.JSONSchema()
	}
	if s.Default != nil {
		out["default"] = s.Default
	}
	if s.Deprecated != "" {
		out["deprecated"] = true
	}
	if s.Secret {
		out["writeOnly"] = true
	}
	if s.Min != nil {
		out["minimum"] = *s.Min
	}
	switch { // of texts only: enum would forbid the other kinds
	case len(s.Enum) > 0 && s.Kinds == Text && !s.AnyCase:
		out["enum"] = s.Enum
	case len(s.Enum) > 0:
		out["pattern"] = enumPattern(s.Enum, s.AnyCase)
	case s.Pattern != nil:
		out["pattern"] = s.Pattern.Expr
	}
	if s.Kinds&List != 0 && s.Items != nil && s.Items != keys.Free {
		out["items"] = schemaOf(s.Items)
	}
	if s.Kinds&Map != 0 {
		sectionSchema(out, s)
	}
	return out
}

func sectionSchema(out map[string]any, s *Spec) {
	properties := map[string]any{}
	for _, k := range s.Keys {
		properties[k.Name] = schemaOf(k.Spec)
	}
	for name := range s.Banned {
		properties[name] = false
	}
	for name := range s.Renamed { // an open section would let the old name through
		if s.Others != nil && s.Find(name) == s.Others {
			properties[name] = false
		}
	}
	if len(properties) > 0 {
		out["properties"] = properties
	}
	switch {
	case s.Others == nil:
		out["additionalProperties"] = false
	case s.Others != keys.Free:
		out["additionalProperties"] = schemaOf(s.Others)
	}
	if s.OthersNamed != nil {
		out["propertyNames"] = map[string]any{"pattern": s.OthersNamed.Expr}
	}
	if len(s.Required) > 0 {
		out["required"] = s.Required
	}
	if s.Single {
		out["minProperties"], out["maxProperties"] = 1, 1
	}
}

// enumPattern matches the words; JSON Schema has no flag to ignore case.
func enumPattern(words []string, anyCase bool) string {
	alternatives := make([]string, len(words))
	for i, w := range words {
		w = regexp.QuoteMeta(w)
		if anyCase {
			var b strings.Builder
			for _, r := range w {
				if u, l := unicode.ToUpper(r), unicode.ToLower(r); u != l {
					b.WriteString("[" + string(u) + string(l) + "]")
				} else {
					b.WriteRune(r)
				}
			}
			w = b.String()
		}
		alternatives[i] = w
	}
	return "^(" + strings.Join(alternatives, "|") + ")$"
}

// Doc is one key as documentation lists it.
type Doc struct {
	Path       string // dotted; <name> stands for any name, [] for list elements
	Kinds      Kind
	Default    any
	Text       string
	Values     []string // the words a text can be
	Deprecated string
	Inert      string
	Task       bool   // tasks may set it
	ServerOnly bool   // only the server's value counts
	Admins     string // why a server with logins takes it from its administrators only; "": from every user
}

// Docs lists every key in the order of the description.
func Docs() []Doc {
	var out []Doc
	task, server, admins := map[string]bool{}, map[string]bool{}, map[string]string{}
	Keys().Walk(nil, func(path []string, s *Spec) bool {
		if len(path) == 0 {
			return true
		}
		name, parent := strings.Join(path, "."), strings.Join(path[:len(path)-1], ".")
		task[name], server[name], admins[name] = s.TaskMay || task[parent], s.ServerOnly || server[parent], cmp.Or(s.Admins, admins[parent])
		out = append(out, Doc{name, s.Kinds, s.Default, s.Doc, s.Enum, s.Deprecated, s.Inert, task[name], server[name], admins[name]})
		return true
	})
	return out
}
