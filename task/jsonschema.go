package task

import (
	"encoding/json"
	"strings"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// JSONSchema describes a task document to editors, as JSON Schema draft
// 2020-12. It accepts whatever Parse accepts in a document of one task, and
// refuses most of what Parse refuses.
func JSONSchema() []byte {
	root := language().jsonSchema(true)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "sky task"
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // the tables hold only texts and numbers
	}
	return append(out, '\n')
}

func (s *schema) jsonSchema(root bool) map[string]any {
	out := map[string]any{}
	if s.kinds == 0 {
		return out
	}
	out["type"] = s.kinds.JSONSchema()
	s.jsonText(out)
	if s.min != nil {
		out["minimum"] = *s.min
	}
	if s.max != nil {
		out["maximum"] = *s.max
	}
	s.jsonMap(out, root)
	if s.items != nil {
		out["items"] = s.items.jsonSchema(false)
	}
	if s.minItems > 0 {
		out["minItems"] = s.minItems
	}
	if s.maxItems > 0 {
		out["maxItems"] = s.maxItems
	}
	if s.unique {
		out["uniqueItems"] = true
	}
	return out
}

func (s *schema) jsonText(out map[string]any) {
	switch {
	case s.enum != nil && s.anyCase:
		alternatives := make([]string, len(s.enum))
		for i, w := range s.enum {
			alternatives[i] = anyCasePattern(w)
		}
		out["pattern"] = "^(?:" + strings.Join(alternatives, "|") + ")$"
	case s.enum != nil:
		// A pattern, as an enum would also refuse values of other types.
		out["pattern"] = "^(?:" + strings.Join(s.enum, "|") + ")$"
	case s.pattern != "":
		out["pattern"] = "^(?:" + s.pattern + ")$"
	}
	if s.maxLen > 0 {
		out["minLength"], out["maxLength"] = 1, s.maxLen
	}
}

// anyCasePattern writes a word for readers of patterns without flags.
func anyCasePattern(word string) string {
	var b strings.Builder
	for _, r := range word {
		lower, upper := strings.ToLower(string(r)), strings.ToUpper(string(r))
		if lower == upper {
			b.WriteRune(r)
		} else {
			b.WriteString("[" + lower + upper + "]")
		}
	}
	return b.String()
}

func (s *schema) jsonMap(out map[string]any, root bool) {
	if s.kinds&yaml11.Map == 0 {
		return
	}
	props, required := map[string]any{}, []string{}
	for _, f := range s.fields {
		p := f.is.jsonSchema(false)
		if root {
			p = nullable(p) // a top-level field without a value is as good as absent
		}
		if f.doc != "" {
			p["description"] = f.doc
			if f.def != "" {
				p["description"] = f.doc + " Default: " + f.def + "."
			}
		}
		props[f.name] = p
		if f.required {
			required = append(required, f.name)
		}
	}
	if len(props) > 0 {
		out["properties"] = props
	}
	if len(required) > 0 {
		out["required"] = required
	}
	switch {
	case !s.open:
		out["additionalProperties"] = false
	case s.values != nil:
		out["additionalProperties"] = s.values.jsonSchema(false)
	}
	if s.keys != "" {
		out["propertyNames"] = map[string]any{"pattern": "^(?:" + s.keys + ")$"}
	}
	if s.minKeys > 0 {
		out["minProperties"] = s.minKeys
	}
	if s.maxKeys > 0 {
		out["maxProperties"] = s.maxKeys
	}
}

func nullable(p map[string]any) map[string]any {
	switch t := p["type"].(type) {
	case string:
		if t != "null" {
			p["type"] = []string{t, "null"}
		}
	case []string:
		for _, x := range t {
			if x == "null" {
				return p
			}
		}
		p["type"] = append(append([]string{}, t...), "null")
	}
	return p
}
