package config

import (
	"cmp"
	"strings"
)

// Schema returns the JSON Schema of a configuration as the server accepts it, for
// editors.
func Schema() []byte { return Keys().JSONSchema("sky configuration", false) }

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
