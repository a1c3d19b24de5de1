package task

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// ready says what must still be given before the Dag can be sent: values of
// variables, the rest of a docker login.
func (d *Dag) ready() error {
	var errs []*Error
	for _, t := range d.Tasks {
		errs = append(errs, t.missingValues()...)
		errs = append(errs, t.checkDockerLogin()...)
	}
	return joined(errs)
}

func (t *Task) missingValues() []*Error {
	if t.origin == nil {
		return nil
	}
	var errs []*Error
	for name, e := range t.origin.unset {
		_, env := t.Envs[name]
		_, secret := t.Secrets[name]
		if !env && !secret {
			errs = append(errs, e)
		}
	}
	slices.SortFunc(errs, func(x, y *Error) int { return x.Line*1000 + x.Column - y.Line*1000 - y.Column })
	return errs
}

// dockerLogin are the variables for a private registry.
var dockerLogin = []string{"SKYPILOT_DOCKER_USERNAME", "SKYPILOT_DOCKER_PASSWORD", "SKYPILOT_DOCKER_SERVER"}

func (t *Task) checkDockerLogin() []*Error {
	var envs, secrets, missing []string
	for _, k := range dockerLogin {
		_, env := t.Envs[k]
		_, secret := t.Secrets[k]
		switch {
		case secret:
			secrets = append(secrets, k)
		case env:
			envs = append(envs, k)
		default:
			missing = append(missing, k)
		}
	}
	switch {
	case len(envs) > 0 && len(secrets) > 0:
		return []*Error{t.errorAt("envs", "the docker login is split: %s in envs, %s in secrets; put all three into one of them", strings.Join(envs, ", "), strings.Join(secrets, ", "))}
	case len(missing) > 0 && len(missing) < len(dockerLogin):
		where := "envs"
		if len(secrets) > 0 {
			where = "secrets"
		}
		return []*Error{t.errorAt(where, "the docker login is incomplete: %s also needs %s", where, strings.Join(missing, ", "))}
	}
	return nil
}

// errorAt places a mistake at a top-level field of the task's text.
func (t *Task) errorAt(field, format string, args ...any) *Error {
	return t.errorUnder(field, "", format, args...)
}

// findKey finds a key in a map, or in the first of its candidates that has it.
func findKey(n *yaml11.Node, key string) *yaml11.Node {
	if n.Lookup(key) != nil {
		return n.Key(key)
	}
	for _, list := range []*yaml11.Node{n, n.Get(string(AnyOf)), n.Get(string(Ordered))} {
		if list == nil {
			continue
		}
		for _, item := range list.Items {
			if item.Lookup(key) != nil {
				return item.Key(key)
			}
		}
	}
	return nil
}

// errorUnder places a mistake at a key under a top-level field.
func (t *Task) errorUnder(field, key, format string, args ...any) *Error {
	path := field
	if key != "" {
		path = join(field, key)
	}
	if t.origin == nil {
		return &Error{Field: path, Message: fmt.Sprintf(format, args...)}
	}
	at := t.origin.doc
	if at.Kind == yaml11.Map && at.Lookup(field) != nil {
		at = at.Key(field)
		if k := findKey(t.origin.doc.Lookup(field), key); k != nil {
			at = k
		}
	}
	if at.Line == 0 {
		return &Error{File: t.origin.Name, Field: path, Message: fmt.Sprintf(format, args...)}
	}
	return t.origin.source.errorAt(at.Line, at.Column, path, format, args...)
}

// ErrorAt is a mistake found by who acts on a field, placed in the task's text:
// at the key that field names, or at the deepest one on the way that is
// written there. field is as in [Error.Field].
func (t *Task) ErrorAt(field, format string, args ...any) *Error {
	e := &Error{Field: field, Message: fmt.Sprintf(format, args...)}
	if t.origin != nil {
		e.File = t.origin.Name
		if at := findPath(t.origin.doc, field); at.Line > 0 {
			e = t.origin.source.errorAt(at.Line, at.Column, field, "%s", e.Message)
		}
	}
	hide([]*Error{e}, t.secretValues())
	return e
}

// find returns the key that a path such as "a.b[0].c" names, or the deepest
// one on the way. Keys may hold dots; those that do are found in quotes, too.
func findPath(n *yaml11.Node, path string) *yaml11.Node {
	at := n
	for path != "" {
		if n.Kind == yaml11.List {
			index, rest, ok := strings.Cut(strings.TrimPrefix(path, "["), "]")
			i, err := strconv.Atoi(index)
			if !ok || err != nil || i < 0 || i >= len(n.Items) {
				return at
			}
			n, path = n.Items[i], strings.TrimPrefix(rest, ".")
			at = n
			continue
		}
		found := false
		for _, e := range n.Entries {
			for _, key := range []string{e.Key.Text, strconv.Quote(e.Key.Text)} {
				rest, ok := strings.CutPrefix(path, key)
				if !ok || key == "" || rest != "" && rest[0] != '.' && rest[0] != '[' {
					continue
				}
				n, path, at, found = e.Value, strings.TrimPrefix(rest, "."), e.Key, true
				break
			}
			if found {
				break
			}
		}
		if !found {
			return at
		}
	}
	return at
}
