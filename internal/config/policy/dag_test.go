package policy

import (
	"slices"
	"testing"
)

func TestDocumentsOfADag(t *testing.T) {
	for _, tt := range []struct {
		dag, header string
		tasks       []string
	}{
		{"name: a\n---\nrun: echo 1\n", "name: a\n", []string{"run: echo 1\n"}},
		{"name: a\n---\nrun: |\n  ---\n  x\n---\nname: b\n", "name: a\n", []string{"run: |\n  ---\n  x\n", "name: b\n"}},
		{"name: a\r\n---\r\nrun: x", "name: a\r\n", []string{"run: x"}},
		{"name: a\n", "name: a\n", nil},
	} {
		header, tasks := documents(tt.dag)
		if header != tt.header || !slices.Equal(tasks, tt.tasks) {
			t.Errorf("%q: %q, %q", tt.dag, header, tasks)
		}
	}
}
