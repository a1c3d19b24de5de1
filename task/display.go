package task

import (
	"slices"
	"strings"
)

// display is the document as written; if it holds secrets, written anew
// without them.
func (o *origin) display() string {
	if !o.shows() {
		return o.document()
	}
	hide := func(n *node, secret func(name string) bool) *node {
		out := *n
		out.entries = slices.Clone(n.entries)
		for i, e := range out.entries {
			if !e.val.isNull() && secret(e.key.text) {
				out.entries[i].val = toNode(Redacted)
			}
		}
		return &out
	}
	doc := *o.doc
	doc.entries = slices.Clone(doc.entries)
	for i, e := range doc.entries {
		switch {
		case e.key.text == "secrets" && e.val.kind == mappingNode:
			doc.entries[i].val = hide(e.val, func(string) bool { return true })
		case e.key.text == "envs" && e.val.kind == mappingNode:
			doc.entries[i].val = hide(e.val, SecretName)
		}
	}
	var w writer
	w.document(&doc)
	return w.String()
}

// shows reports whether the text holds a secret.
func (o *origin) shows() bool {
	shown := func(n *node) bool { return n != nil && !n.isNull() && n.text != Redacted }
	if secrets := o.doc.get("secrets"); secrets != nil && secrets.kind == mappingNode {
		if slices.ContainsFunc(secrets.entries, func(e entry) bool { return shown(e.val) }) {
			return true
		}
	}
	envs := o.doc.get("envs")
	return envs != nil && envs.kind == mappingNode && slices.ContainsFunc(envs.entries, func(e entry) bool { return SecretName(e.key.text) && shown(e.val) })
}

// document is the task's part of the text: what stands between the lines
// "---" around it.
func (o *origin) document() string {
	lines := strings.SplitAfter(o.text, "\n")
	from, to := 0, len(lines)
	for i, line := range lines {
		if !strings.HasPrefix(line, "---") || len(strings.TrimRight(line, "\r\n")) > 3 && line[3] != ' ' {
			continue
		}
		if i+1 <= o.doc.line {
			from = i + 1
		} else {
			to = i
			break
		}
	}
	return strings.Join(lines[from:to], "")
}
