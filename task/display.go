package task

import (
	"slices"
	"strings"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// display is the document as written; if it holds secrets, written anew
// without them.
func (o *origin) display() string {
	if !o.shows() {
		return o.document()
	}
	hide := func(n *yaml11.Node, secret func(name string) bool) *yaml11.Node {
		out := *n
		out.Entries = slices.Clone(n.Entries)
		for i, e := range out.Entries {
			if !e.Value.IsNull() && secret(e.Key.Text) {
				out.Entries[i].Value = yaml11.NewScalar(Redacted)
			}
		}
		return &out
	}
	doc := *o.doc
	doc.Entries = slices.Clone(doc.Entries)
	for i, e := range doc.Entries {
		switch {
		case e.Key.Text == "secrets" && e.Value.Kind == yaml11.Map:
			doc.Entries[i].Value = hide(e.Value, func(string) bool { return true })
		case e.Key.Text == "envs" && e.Value.Kind == yaml11.Map:
			doc.Entries[i].Value = hide(e.Value, SecretName)
		}
	}
	var w yaml11.Writer
	w.Document(&doc)
	return w.String()
}

// shows reports whether the text holds a secret.
func (o *origin) shows() bool {
	shown := func(n *yaml11.Node) bool { return n != nil && !n.IsNull() && n.Text != Redacted }
	if secrets := o.doc.Get("secrets"); secrets != nil && secrets.Kind == yaml11.Map {
		if slices.ContainsFunc(secrets.Entries, func(e yaml11.Entry) bool { return shown(e.Value) }) {
			return true
		}
	}
	envs := o.doc.Get("envs")
	return envs != nil && envs.Kind == yaml11.Map && slices.ContainsFunc(envs.Entries, func(e yaml11.Entry) bool { return SecretName(e.Key.Text) && shown(e.Value) })
}

// document is the task's part of the text: what stands between the lines
// "---" around it.
func (o *origin) document() string {
	lines := strings.SplitAfter(o.Text, "\n")
	from, to := 0, len(lines)
	for i, line := range lines {
		if !strings.HasPrefix(line, "---") || len(strings.TrimRight(line, "\r\n")) > 3 && line[3] != ' ' {
			continue
		}
		if i+1 <= o.doc.Line {
			from = i + 1
		} else {
			to = i
			break
		}
	}
	return strings.Join(lines[from:to], "")
}
