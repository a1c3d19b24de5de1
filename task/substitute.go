package task

import (
	"slices"

	"github.com/skypilot-go/sky/internal/lazyregexp"
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
func (v variables) replace(n *node) *node {
	switch n.kind {
	case mappingNode:
		out := *n
		out.entries = make([]entry, len(n.entries))
		for i, e := range n.entries {
			out.entries[i] = entry{v.replace(e.key), v.replace(e.val)}
		}
		return &out
	case sequenceNode:
		out := *n
		out.items = make([]*node, len(n.items))
		for i, item := range n.items {
			out.items[i] = v.replace(item)
		}
		return &out
	}
	s, ok := n.value.(string)
	if !ok || !variable.MatchString(s) {
		return n
	}
	out := *n
	out.text = variable.ReplaceAllStringFunc(s, func(m string) string {
		name := variable.FindStringSubmatch(m)[1]
		if value, ok := v.values[name]; ok {
			return value
		}
		out.pending = out.pending || v.unset[name]
		return m
	})
	out.value = out.text
	return &out
}

// replaceFields returns the document with the substituted fields replaced.
func (v variables) replaceFields(doc *node) *node {
	if doc.kind != mappingNode {
		return doc
	}
	out := *doc
	out.entries = make([]entry, len(doc.entries))
	copy(out.entries, doc.entries)
	for i, e := range out.entries {
		for _, f := range substituted {
			if e.key.text == f {
				out.entries[i].val = v.replace(e.val)
			}
		}
	}
	return &out
}

// mentionsVariable: a text in n holds ${NAME} of a name in only (nil: any).
func mentionsVariable(n *node, only map[string]string) bool {
	switch n.kind {
	case mappingNode:
		return slices.ContainsFunc(n.entries, func(e entry) bool {
			return mentionsVariable(e.key, only) || mentionsVariable(e.val, only)
		})
	case sequenceNode:
		return slices.ContainsFunc(n.items, func(item *node) bool { return mentionsVariable(item, only) })
	}
	s, ok := n.value.(string)
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
