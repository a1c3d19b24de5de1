package task

import "strings"

// FieldDoc is what the reference says about one field.
type FieldDoc struct {
	Path     string // "resources.cpus"; [] after lists, <key> for keys that users choose
	Types    []string
	Words    []string // the only texts it takes; nil: any
	Required bool
	Default  string
	Doc      string
	Example  string // YAML of the value
}

// Reference lists every documented field, in the order in which files are
// written.
func Reference() []FieldDoc {
	var out []FieldDoc
	language().reference("", &out)
	return out
}

func (s *schema) reference(path string, out *[]FieldDoc) {
	for _, f := range s.fields {
		if f.internal {
			continue
		}
		p := join(path, f.name)
		*out = append(*out, FieldDoc{
			Path: p, Types: f.is.kinds.JSONTypes(), Words: f.is.enum, Required: f.required,
			Default: f.def, Doc: f.doc, Example: f.example,
		})
		// gpus repeats accelerators; candidates repeat resources.
		if last := p[strings.LastIndex(p, ".")+1:]; last != "any_of" && last != "ordered" {
			f.is.reference(p, out)
		}
	}
	if s.values != nil {
		s.values.reference(join(path, "<key>"), out)
	}
	if s.items != nil && s.items.fields != nil && path != "resources" {
		s.items.reference(path+"[]", out)
	}
}
