package task

import (
	"errors"
	"slices"

	"github.com/skypilot-go/sky/internal/yaml11"
)

// Format writes task text in one canonical layout: block style, two spaces,
// quotes where they are needed, scripts as blocks of lines. The order of keys,
// comments, single blank lines and short collections in one line stay; anchors
// and merge keys are replaced by what they stand for. Any YAML is formatted,
// also text that is no valid task; Parse reads the result as the same.
func Format(data []byte) ([]byte, error) {
	src := newSource("", data)
	src.Layout = true
	docs, err := src.documents()
	if err != nil {
		return nil, err
	}
	var w yaml11.Writer
	for i, doc := range docs {
		if i > 0 {
			w.WriteString("---\n")
		}
		w.Document(doc)
	}
	out := []byte(w.String())
	again := newSource("", []byte(w.String()))
	written, err := again.documents()
	if err != nil || !slices.EqualFunc(docs, written, yaml11.Same) {
		return nil, errors.New("this text cannot be formatted without changing what it means; please report it")
	}
	return out, nil
}
