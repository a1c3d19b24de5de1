package task

import (
	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// validator checks a tree against a schema and gathers mistakes.
type validator struct {
	*source
	errs []*Error
}

func (v *validator) at(n *yaml11.Node, path, format string, args ...any) *Error {
	e := v.errorAt(n.Line, n.Column, path, format, args...)
	v.errs = append(v.errs, e)
	return e
}

func (v *validator) check(n *yaml11.Node, s *schema.Spec, path ...string) {
	for _, p := range s.Problems(n, schema.Options{}, path...) {
		e := v.errorAt(p.Line, p.Column, p.Path, "%s", p.Text)
		e.Hint = p.Hint
		v.errs = append(v.errs, e)
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
