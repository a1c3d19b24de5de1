package reference

import (
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/config"
)

// manyAlike is from how many siblings on keys that differ only in the name of
// a cloud are told once.
const manyAlike = 4

// fold replaces siblings that are alike, such as the prices of each cloud, by
// one key <cloud>.
func fold(docs []config.Doc) []config.Doc {
	return flatten(foldTree(tree(docs)))
}

// key is a configuration key with what is below it.
type key struct {
	doc   config.Doc
	below []*key
}

// tree nests the list, whose parents come before their children.
func tree(docs []config.Doc) []*key {
	root := &key{}
	at := map[string]*key{"": root}
	for _, d := range docs {
		k := &key{doc: d}
		at[d.Path] = k
		parent := at[parentOf(d.Path)]
		parent.below = append(parent.below, k)
	}
	return root.below
}

func parentOf(path string) string {
	i := strings.LastIndexByte(path, '.')
	return path[:max(i, 0)]
}

func foldTree(keys []*key) []*key {
	alike := map[string][]string{} // names by look
	for _, k := range keys {
		if isCloud(k.name()) {
			look := k.look()
			alike[look] = append(alike[look], k.name())
		}
	}
	var out []*key
	told := map[string]bool{}
	for _, k := range keys {
		look := k.look()
		if names := alike[look]; isCloud(k.name()) && len(names) >= manyAlike {
			if !told[look] {
				told[look] = true
				k.rename("<cloud>")
				k.doc.Text = joined(k.doc.Text, "For each of: "+strings.Join(names, ", ")+".")
				out = append(out, k)
				k.below = foldTree(k.below)
			}
			continue
		}
		k.below = foldTree(k.below)
		out = append(out, k)
	}
	return out
}

func (k *key) name() string { return strings.TrimPrefix(k.doc.Path[len(parentOf(k.doc.Path)):], ".") }

// look is everything about a key but its name.
func (k *key) look() string {
	d := k.doc
	d.Path = ""
	var b strings.Builder
	fmt.Fprintf(&b, "%v{", d)
	for _, c := range k.below {
		b.WriteString(c.name() + c.look())
	}
	return b.String() + "}"
}

func (k *key) rename(name string) {
	old := k.doc.Path
	path := joinPath(parentOf(old), name)
	k.doc.Path = path
	for _, c := range k.below {
		c.move(old, path)
	}
}

func (k *key) move(from, to string) {
	k.doc.Path = to + strings.TrimPrefix(k.doc.Path, from)
	for _, c := range k.below {
		c.move(from, to)
	}
}

func joinPath(parent, name string) string {
	if parent == "" {
		return name
	}
	return parent + "." + name
}

func isCloud(name string) bool {
	for _, c := range config.Clouds() {
		if c == name {
			return true
		}
	}
	return false
}

func flatten(keys []*key) []config.Doc {
	var out []config.Doc
	for _, k := range keys {
		out = append(append(out, k.doc), flatten(k.below)...)
	}
	return out
}
