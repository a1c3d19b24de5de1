package task

import (
	"slices"

	"github.com/skypilot-go/sky/internal/lazyregexp"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// substituted are the fields in which ${VAR} is replaced while reading; in
// setup and run the shell does it.
var substituted = []string{"workdir", "file_mounts", "service", "volumes"}

var variable = lazyregexp.New(`\$\{?\b([a-zA-Z_][a-zA-Z0-9_]*)\b\}?`)

// variables are the values that ${VAR} stands for. Declared names without a
// value are in unset.
type variables struct {
	values map[string]string
	unset  map[string]bool
}

// replace substitutes in keys and texts of n, once: a value may hold anything
// and is not read again. Unknown variables stay. n itself is left as it is.
func (v variables) replace(n *yaml11.Node) *yaml11.Node {
	switch n.Kind {
	case yaml11.Map:
		out := *n
		out.Entries = make([]yaml11.Entry, len(n.Entries))
		for i, e := range n.Entries {
			out.Entries[i] = yaml11.Entry{Key: v.replace(e.Key), Value: v.replace(e.Value)}
		}
		return &out
	case yaml11.List:
		out := *n
		out.Items = make([]*yaml11.Node, len(n.Items))
		for i, item := range n.Items {
			out.Items[i] = v.replace(item)
		}
		return &out
	}
	s, ok := n.Value.(string)
	if !ok || !variable.MatchString(s) {
		return n
	}
	out := *n
	out.Text = variable.ReplaceAllStringFunc(s, func(m string) string {
		name := variable.FindStringSubmatch(m)[1]
		if value, ok := v.values[name]; ok {
			return value
		}
		out.Pending = out.Pending || v.unset[name]
		return m
	})
	out.Value = out.Text
	return &out
}

// replaceFields returns the document with the substituted fields replaced.
func (v variables) replaceFields(doc *yaml11.Node) *yaml11.Node {
	if doc.Kind != yaml11.Map {
		return doc
	}
	out := *doc
	out.Entries = make([]yaml11.Entry, len(doc.Entries))
	copy(out.Entries, doc.Entries)
	for i, e := range out.Entries {
		for _, f := range substituted {
			if e.Key.Text == f {
				out.Entries[i].Value = v.replace(e.Value)
			}
		}
	}
	return &out
}

// mentionsVariable: a text in n holds ${NAME} of a name in only (nil: any).
func mentionsVariable(n *yaml11.Node, only map[string]string) bool {
	switch n.Kind {
	case yaml11.Map:
		return slices.ContainsFunc(n.Entries, func(e yaml11.Entry) bool {
			return mentionsVariable(e.Key, only) || mentionsVariable(e.Value, only)
		})
	case yaml11.List:
		return slices.ContainsFunc(n.Items, func(item *yaml11.Node) bool { return mentionsVariable(item, only) })
	}
	s, ok := n.Value.(string)
	if !ok {
		return false
	}
	for _, m := range variable.FindAllStringSubmatch(s, -1) {
		if _, known := only[m[1]]; known || only == nil {
			return true
		}
	}
	return false
}
