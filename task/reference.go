package task

import (
	"slices"

	"github.com/skypilot-go/sky/internal/schema"
)

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
	reference(language(), "", &out)
	return out
}

func reference(s *schema.Spec, path string, out *[]FieldDoc) {
	if s == nil || s == schema.Free {
		return
	}
	for _, f := range s.Keys {
		if f.Internal {
			continue
		}
		p := join(path, f.Name)
		doc := FieldDoc{Path: p, Words: f.Enum, Required: slices.Contains(s.Required, f.Name), Default: f.DefaultIs, Doc: f.Doc, Example: f.Example}
		if f.Kinds != schema.AnyKind {
			doc.Types = f.Kinds.JSONTypes()
		}
		*out = append(*out, doc)
		// gpus repeats accelerators; candidates repeat resources.
		if f.Name != "any_of" && f.Name != "ordered" {
			reference(f.Spec, p, out)
		}
	}
	reference(s.Others, join(path, "<key>"), out)
	if path != "resources" {
		reference(s.Items, path+"[]", out)
	}
}
