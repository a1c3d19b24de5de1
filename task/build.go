package task

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// substitutedMark in _metadata says that ${VAR} was replaced by the sender.
const substitutedMark = "substituted"

// builder makes tasks of documents.
type builder struct {
	validator
	warnings []string
	sent     bool // by a client, see [ParseSent]
}

func (b *builder) warn(format string, args ...any) {
	if w := fmt.Sprintf(format, args...); !slices.Contains(b.warnings, w) {
		b.warnings = append(b.warnings, w)
	}
}

// origin is where a task was written. It keeps the document as it was, for
// what needs the text later: variables that get their value from flags, and
// the place of what is wrong with files.
type origin struct {
	*source
	doc   *node
	unset map[string]*Error // envs and secrets without a value
}

// task reads one document; nil if it has mistakes.
func (b *builder) task(doc *node) *Task {
	if doc.isNull() {
		doc = &node{kind: mappingNode, line: max(doc.line, 1), col: max(doc.col, 1)}
	}
	before := len(b.errs)
	t := &Task{origin: &origin{source: b.source, doc: doc, unset: map[string]*Error{}}}
	defer func() { hide(b.errs[before:], t.secretValues()) }()
	if doc.kind != mappingNode {
		e := b.at(doc, "", "a task is a map of fields, not %s", doc.describe())
		e.Hint = "Write fields such as \"run: echo hello\", one per line."
		return nil
	}
	b.envs(t, doc.get("envs"))
	b.secrets(t, doc.get("secrets"))
	full := doc
	if mark := doc.get("_metadata").get(substitutedMark); mark == nil {
		full = t.variables().replaceFields(doc)
	}
	if b.sent {
		full = asSent(full, language())
	}
	b.checkTask(full)
	if len(b.errs) > before {
		return nil
	}

	t.Name = textOf(full.get("name"))
	t.NumNodes = 1
	if n := full.get("num_nodes"); n != nil {
		t.NumNodes = intOf(n)
	}
	t.Setup, t.Run = textOf(full.get("setup")), textOf(full.get("run"))
	t.EventCallback = textOf(full.get("event_callback"))
	t.DependsOn = namesOf(full.get("depends_on"))
	if limit := full.get("max_duration"); limit != nil {
		if t.MaxDuration, _ = ParseSeconds(limit.numberText()); t.MaxDuration == 0 {
			b.at(limit, "max_duration", "max_duration should be more than 0; remove it for no limit")
		}
	}
	if access := boolOf(full.get("api_server_access")); access != nil && !*access {
		t.APIServerAccess = access // true is the default
	}
	t.Inputs, t.Outputs = dataOf(full.get("inputs")), dataOf(full.get("outputs"))
	t.Config = mapOfAny(full.get("config"))
	t.Metadata = mapOfAny(full.get("_metadata"))
	if delete(t.Metadata, substitutedMark); len(t.Metadata) == 0 {
		t.Metadata = nil
	}
	t.UserYAML = displayed(textOf(full.get("_user_specified_yaml")))
	t.FileMountsMapping = textMap(full.get("file_mounts_mapping"))
	b.managedSecrets(t, full.get("managed_secrets"))
	b.resources(t, full.get("resources"))
	b.variableFields(t, full)
	b.hooks(t)
	if len(b.errs) > before {
		return nil
	}
	return t
}

// checkTask validates a whole document. Top-level nulls count as absent.
func (b *builder) checkTask(doc *node) {
	trimmed := *doc
	trimmed.entries = slices.DeleteFunc(slices.Clone(doc.entries), func(e entry) bool {
		return e.val.isNull() && language().field(e.key.text) != nil
	})
	b.check(&trimmed, language(), "")
}

// variableFields reads the fields in which variables are replaced.
func (b *builder) variableFields(t *Task, doc *node) {
	t.Workdir, t.Git = "", nil
	if w := doc.get("workdir"); w != nil && w.kind == mappingNode {
		t.Git = &GitWorkdir{URL: b.gitURL(w.get("url"), "workdir.url"), Ref: textOf(w.get("ref"))}
	} else {
		t.Workdir = textOf(w)
	}
	b.fileMounts(t, doc.get("file_mounts"))
	b.volumes(t, doc.get("volumes"))
	b.service(t, doc)
}

// variables are the values for ${VAR}: envs, then secrets.
func (t *Task) variables() variables {
	v := variables{values: map[string]string{}, unset: map[string]bool{}}
	maps.Copy(v.values, t.Envs)
	for k, s := range t.Secrets {
		v.values[k] = s.Reveal()
	}
	if t.origin != nil {
		for k := range t.origin.unset {
			_, set := v.values[k]
			v.unset[k] = !set
		}
	}
	return v
}

func (b *builder) envs(t *Task, n *node) {
	t.Envs = map[string]string{}
	if n == nil || n.kind != mappingNode {
		return
	}
	for _, e := range n.entries {
		key := pyStr(e.key)
		if e.val.isNull() {
			t.origin.unset[key] = b.errorAt(e.key.line, e.key.col, join("envs", key),
				`environment variable %s has no value; write one, give it with --env %s=VALUE, or write %s: "" for an empty one`, key, key, key)
			continue
		}
		t.Envs[key] = b.variable("envs", key, e.val, true)
	}
}

// variable is the text of a variable's value, as Python has it, with a notice if that
// is not what is written in the file. The notice of a secret does not show it.
func (b *builder) variable(section, key string, n *node, shown bool) string {
	v := pyStr(n)
	if n.kind != scalarNode || n.quoted || v == n.text {
		return v
	}
	if shown {
		b.warn("%s:%d: %s.%s: YAML reads %s as %s, so the task gets %q; quote it to keep it as written: %s: %q", b.name, n.line, section, key, n.text, scalarKind(n), v, key, n.text)
	} else {
		b.warn("%s:%d: %s.%s: YAML reads it as %s, so the task gets it changed; quote it to keep it as written", b.name, n.line, section, key, scalarKind(n))
	}
	return v
}

// scalarKind is what a value is that is no text.
func scalarKind(n *node) string {
	switch n.value.(type) {
	case bool:
		return "a boolean"
	case date:
		return "a date"
	}
	return "a number"
}

func (b *builder) secrets(t *Task, n *node) {
	if n == nil {
		return
	}
	if n.kind == sequenceNode {
		for _, item := range n.items {
			if ref, ok := strings.CutPrefix(item.text, "secrets:"); ok {
				t.SecretRefs = append(t.SecretRefs, ref)
			}
		}
		return
	}
	for _, e := range n.entries {
		key := pyStr(e.key)
		if ref, ok := strings.CutPrefix(key, "secrets:"); ok {
			if !e.val.isNull() {
				b.at(e.val, join("secrets", key), "%q refers to a secret that the server keeps, so it takes no value; remove the value, or the secrets: prefix to give one here", key)
			}
			t.SecretRefs = append(t.SecretRefs, ref)
			continue
		}
		if e.val.isNull() {
			t.origin.unset[key] = b.errorAt(e.key.line, e.key.col, join("secrets", key),
				`secret %s has no value; write one, give it with --secret %s=VALUE, or write %s: "" for an empty one`, key, key, key)
			continue
		}
		if t.Secrets == nil {
			t.Secrets = map[string]Secret{}
		}
		t.Secrets[key] = NewSecret(b.variable("secrets", key, e.val, false))
	}
}

func (b *builder) managedSecrets(t *Task, n *node) {
	if n == nil {
		return
	}
	for _, item := range n.items {
		if item.kind == scalarNode {
			t.ManagedSecrets = append(t.ManagedSecrets, ManagedSecret{Name: item.text})
			continue
		}
		e := item.entries[0]
		t.ManagedSecrets = append(t.ManagedSecrets, ManagedSecret{Name: e.key.text, MountPath: textOf(e.val.get("mount_path"))})
	}
}

func (b *builder) hooks(t *Task) {
	t.Hooks = nil
	list, _ := t.Config["hooks"].([]any)
	for _, item := range list {
		m := item.(map[string]any)
		h := Hook{Run: m["run"].(string), Timeout: 3600, Events: slices.Clone(HookEvents)}
		switch s := m["timeout"].(type) {
		case int:
			h.Timeout = s
		case float64: // 60.0
			h.Timeout = int(s)
		}
		if events, ok := m["events"].([]any); ok {
			h.Events = nil
			for _, e := range events {
				h.Events = append(h.Events, e.(string))
			}
		}
		t.Hooks = append(t.Hooks, h)
	}
}
