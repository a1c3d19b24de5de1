package task

import (
	"errors"
	"slices"
	"strings"
)

// Format writes task text in one canonical layout: block style, two spaces,
// quotes where they are needed, scripts as blocks of lines. The order of keys,
// comments, single blank lines and short collections in one line stay; anchors
// and merge keys are replaced by what they stand for. Any YAML is formatted,
// also text that is no valid task; Parse reads the result as the same.
func Format(data []byte) ([]byte, error) {
	src := &source{text: string(data), lines: strings.Split(string(data), "\n")}
	docs, err := src.documents()
	if err != nil {
		return nil, err
	}
	var w writer
	for i, doc := range docs {
		if i > 0 {
			w.WriteString("---\n")
		}
		w.document(doc)
	}
	out := []byte(w.String())
	again := &source{text: w.String()}
	written, err := again.documents()
	if err != nil || !slices.EqualFunc(docs, written, sameValue) {
		return nil, errors.New("this text cannot be formatted without changing what it means; please report it")
	}
	return out, nil
}

// sameValue compares what two trees mean.
func sameValue(a, b *node) bool {
	if a.kind != b.kind || len(a.entries) != len(b.entries) || len(a.items) != len(b.items) {
		return false
	}
	for i := range a.entries {
		if !sameValue(a.entries[i].key, b.entries[i].key) || !sameValue(a.entries[i].val, b.entries[i].val) {
			return false
		}
	}
	for i := range a.items {
		if !sameValue(a.items[i], b.items[i]) {
			return false
		}
	}
	return a.kind != scalarNode || pyRepr(a) == pyRepr(b)
}
