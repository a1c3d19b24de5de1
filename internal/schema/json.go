package schema

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// JSONSchema describes a document to editors, as JSON Schema draft 2020-12. With
// absent, a key of the outermost map without a value is as good as absent.
func (s *Spec) JSONSchema(title string, absent bool) []byte {
	root := s.json()
	if absent {
		for _, p := range root["properties"].(map[string]any) {
			if p, ok := p.(map[string]any); ok {
				nullable(p)
			}
		}
	}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = title
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // descriptions hold only texts, numbers and the like
	}
	return append(text, '\n')
}

func (s *Spec) json() map[string]any {
	out := map[string]any{}
	put := func(key string, value any, given bool) {
		if given {
			out[key] = value
		}
	}
	doc := s.Doc
	if doc != "" && s.DefaultIs != "" {
		doc += " Default: " + s.DefaultIs + "."
	}
	put("description", doc, doc != "")
	put("type", s.Kinds.JSONSchema(), s.Kinds != AnyKind)
	put("default", s.Default, s.Default != nil)
	put("deprecated", true, s.Deprecated != "")
	put("writeOnly", true, s.Secret)
	put("minimum", s.Min, s.Min != nil)
	put("maximum", s.Max, s.Max != nil)
	switch { // of texts only: enum would forbid the other kinds
	case len(s.Enum) > 0 && s.Kinds == TextKind && !s.AnyCase:
		out["enum"] = s.Enum
	case len(s.Enum) > 0:
		out["pattern"] = enumPattern(s.Enum, s.AnyCase)
	case s.Pattern != nil:
		out["pattern"] = s.Pattern.Expr
	}
	put("minLength", 1, s.MaxLen > 0)
	put("maxLength", s.MaxLen, s.MaxLen > 0)
	if s.Kinds&ListKind != 0 {
		if s.Items != nil && s.Items != Free {
			out["items"] = s.Items.json()
		}
		put("minItems", s.MinItems, s.MinItems > 0)
		put("maxItems", s.MaxItems, s.MaxItems > 0)
		put("uniqueItems", true, s.Unique)
	}
	if s.Kinds&MapKind != 0 {
		s.jsonMap(put)
	}
	return out
}

func (s *Spec) jsonMap(put func(key string, value any, given bool)) {
	properties := map[string]any{}
	for _, k := range s.Keys {
		properties[k.Name] = k.json()
	}
	for name := range s.Gone {
		if s.Others != nil && s.Key(name) == nil { // an open map would let it through
			properties[name] = false
		}
	}
	put("properties", properties, len(properties) > 0)
	switch {
	case s.Others == nil:
		put("additionalProperties", false, true)
	case s.Others != Free:
		put("additionalProperties", s.Others.json(), true)
	}
	if s.OthersNamed != nil {
		put("propertyNames", map[string]any{"pattern": s.OthersNamed.Expr}, true)
	}
	put("required", s.Required, len(s.Required) > 0)
	put("minProperties", s.MinKeys, s.MinKeys > 0)
	put("maxProperties", s.MaxKeys, s.MaxKeys > 0)
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

// nullable lets a property be null, too.
func nullable(p map[string]any) {
	switch t := p["type"].(type) {
	case string:
		if t != "null" {
			p["type"] = []string{t, "null"}
		}
	case []string:
		if !slices.Contains(t, "null") {
			p["type"] = append(slices.Clone(t), "null")
		}
	}
	if enum, ok := p["enum"].([]string); ok {
		words := []any{nil}
		for _, w := range enum {
			words = append(words, w)
		}
		p["enum"] = words
	}
}
