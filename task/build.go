package task

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/yaml11"
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
	doc   *yaml11.Node
	unset map[string]*Error // envs and secrets without a value
}

// task reads one document; nil if it has mistakes.
func (b *builder) task(doc *yaml11.Node) *Task {
	if doc.IsNull() {
		doc = &yaml11.Node{Kind: yaml11.Map, Place: yaml11.Place{Source: doc.Source, Line: max(doc.Line, 1), Column: max(doc.Column, 1)}}
	}
	before := len(b.errs)
	t := &Task{origin: &origin{source: b.source, doc: doc, unset: map[string]*Error{}}}
	defer func() { hide(b.errs[before:], t.secretValues()) }()
	if doc.Kind != yaml11.Map {
		e := b.at(doc, "", "a task is a map of fields, not %s", doc.Describe())
		e.Hint = "Write fields such as \"run: echo hello\", one per line."
		return nil
	}
	b.envs(t, doc.Get("envs"))
	b.secrets(t, doc.Get("secrets"))
	full := doc
	if mark := doc.Get("_metadata").Get(substitutedMark); mark == nil {
		full = t.variables().replaceFields(doc)
	}
	if b.sent {
		full = asSent(full, language())
	}
	b.checkTask(full)
	if len(b.errs) > before {
		return nil
	}

	t.Name = textOf(full.Get("name"))
	t.NumNodes = 1
	if n := full.Get("num_nodes"); n != nil {
		t.NumNodes = intOf(n)
	}
	t.Setup, t.Run = textOf(full.Get("setup")), textOf(full.Get("run"))
	t.EventCallback = textOf(full.Get("event_callback"))
	t.DependsOn = namesOf(full.Get("depends_on"))
	if limit := full.Get("max_duration"); limit != nil {
		if t.MaxDuration, _ = ParseSeconds(limit.NumberText()); t.MaxDuration == 0 {
			b.at(limit, "max_duration", "max_duration should be more than 0; remove it for no limit")
		}
	}
	if access := boolOf(full.Get("api_server_access")); access != nil && !*access {
		t.APIServerAccess = access // true is the default
	} else if access != nil {
		b.warn("api_server_access changes nothing: jobs are given no access to the API server")
	}
	t.Inputs, t.Outputs = dataOf(full.Get("inputs")), dataOf(full.Get("outputs"))
	t.Config = mapOfAny(full.Get("config"))
	t.Metadata = mapOfAny(full.Get("_metadata"))
	if delete(t.Metadata, substitutedMark); len(t.Metadata) == 0 {
		t.Metadata = nil
	}
	t.UserYAML = displayed(textOf(full.Get("_user_specified_yaml")))
	t.FileMountsMapping = textMap(full.Get("file_mounts_mapping"))
	b.managedSecrets(t, full.Get("managed_secrets"))
	b.resources(t, full.Get("resources"))
	t.BlockedResources = b.blocked(full.Get("blocked_resources"))
	t.EstimatedRuntime = floatOf(full.Get("estimated_runtime"), 0)
	b.variableFields(t, full)
	b.hooks(t)
	if len(b.errs) > before {
		return nil
	}
	return t
}

// checkTask validates a whole document. Top-level nulls count as absent.
func (b *builder) checkTask(doc *yaml11.Node) {
	trimmed := *doc
	trimmed.Entries = slices.DeleteFunc(slices.Clone(doc.Entries), func(e yaml11.Entry) bool {
		return e.Value.IsNull() && language().Key(e.Key.Text) != nil
	})
	b.check(&trimmed, language())
}

// variableFields reads the fields in which variables are replaced.
func (b *builder) variableFields(t *Task, doc *yaml11.Node) {
	t.Workdir, t.Git = "", nil
	if w := doc.Get("workdir"); w != nil && w.Kind == yaml11.Map {
		t.Git = &GitWorkdir{URL: b.gitURL(w.Get("url"), "workdir.url"), Ref: textOf(w.Get("ref"))}
	} else {
		t.Workdir = textOf(w)
	}
	b.fileMounts(t, doc.Get("file_mounts"))
	b.volumes(t, doc.Get("volumes"))
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

func (b *builder) envs(t *Task, n *yaml11.Node) {
	t.Envs = map[string]string{}
	if n == nil || n.Kind != yaml11.Map {
		return
	}
	for _, e := range n.Entries {
		key := yaml11.PyStr(e.Key)
		if e.Value.IsNull() {
			t.origin.unset[key] = b.errorAt(e.Key.Line, e.Key.Column, join("envs", key),
				`environment variable %s has no value; write one, give it with --env %s=VALUE, or write %s: "" for an empty one`, key, key, key)
			continue
		}
		t.Envs[key] = b.variable("envs", key, e.Value, true)
	}
}

// variable is the text of a variable's value, as Python has it, with a notice if that
// is not what is written in the file. The notice of a secret does not show it.
func (b *builder) variable(section, key string, n *yaml11.Node, shown bool) string {
	v := yaml11.PyStr(n)
	if !n.IsScalar() || n.Quoted || v == n.Text {
		return v
	}
	if shown {
		b.warn("%s:%d: %s.%s: YAML reads %s as %s, so the task gets %q; quote it to keep it as written: %s: %q", b.Name, n.Line, section, key, n.Text, scalarKind(n), v, key, n.Text)
	} else {
		b.warn("%s:%d: %s.%s: YAML reads it as %s, so the task gets it changed; quote it to keep it as written", b.Name, n.Line, section, key, scalarKind(n))
	}
	return v
}

// scalarKind is what a value is that is no text.
func scalarKind(n *yaml11.Node) string {
	switch n.Value.(type) {
	case bool:
		return "a boolean"
	case yaml11.Date:
		return "a date"
	}
	return "a number"
}

func (b *builder) secrets(t *Task, n *yaml11.Node) {
	if n == nil {
		return
	}
	if n.Kind == yaml11.List {
		for _, item := range n.Items {
			if ref, ok := strings.CutPrefix(item.Text, "secrets:"); ok {
				t.SecretRefs = append(t.SecretRefs, ref)
			}
		}
		return
	}
	for _, e := range n.Entries {
		key := yaml11.PyStr(e.Key)
		if ref, ok := strings.CutPrefix(key, "secrets:"); ok {
			if !e.Value.IsNull() {
				b.at(e.Value, join("secrets", key), "%q refers to a secret that the server keeps, so it takes no value; remove the value, or the secrets: prefix to give one here", key)
			}
			t.SecretRefs = append(t.SecretRefs, ref)
			continue
		}
		if e.Value.IsNull() {
			t.origin.unset[key] = b.errorAt(e.Key.Line, e.Key.Column, join("secrets", key),
				`secret %s has no value; write one, give it with --secret %s=VALUE, or write %s: "" for an empty one`, key, key, key)
			continue
		}
		if t.Secrets == nil {
			t.Secrets = map[string]Secret{}
		}
		t.Secrets[key] = NewSecret(b.variable("secrets", key, e.Value, false))
	}
}

func (b *builder) managedSecrets(t *Task, n *yaml11.Node) {
	if n == nil {
		return
	}
	for _, item := range n.Items {
		if item.IsScalar() {
			t.ManagedSecrets = append(t.ManagedSecrets, ManagedSecret{Name: item.Text})
			continue
		}
		e := item.Entries[0]
		t.ManagedSecrets = append(t.ManagedSecrets, ManagedSecret{Name: e.Key.Text, MountPath: textOf(e.Value.Get("mount_path"))})
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
