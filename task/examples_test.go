package task

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

// exampleFiles are the task files of the examples folder, by name.
func exampleFiles(t testing.TB) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	root := filepath.Join("..", "examples")
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		data, err := os.ReadFile(path)
		files[filepath.ToSlash(path)] = data
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("there are no examples")
	}
	return files
}

func TestExamplesAreTasks(t *testing.T) {
	files := exampleFiles(t)
	if len(files) < 40 {
		t.Errorf("only %d examples", len(files))
	}
	for name, data := range files {
		d, err := Parse(name, data)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if len(d.Warnings()) > 0 {
			t.Errorf("%s: %q", name, d.Warnings())
		}
		if _, err := d.Override(Overrides{}); err != nil {
			t.Errorf("%v", err)
		}
		if err := d.Check(CheckOptions{NoFiles: true}); err != nil {
			t.Errorf("%v", err)
		}
		wire, err := d.YAML()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if back, err := Parse(name, wire); err != nil || same(d, back) != "" {
			t.Errorf("%s: not the same on the wire: %v %s", name, err, same(d, back))
		}
		if formatted, err := Format(data); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if string(formatted) != string(data) && *update {
			if err := os.WriteFile(filepath.FromSlash(name), formatted, 0o644); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestExamplesUseEveryField(t *testing.T) {
	used := map[string]bool{}
	for name, data := range exampleFiles(t) {
		docs, err := (newSource(name, data)).documents()
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range docs {
			markUsed(doc, language(), "", used)
		}
	}
	for _, f := range Reference() {
		if !used[f.Path] {
			t.Errorf("no example uses %s", f.Path)
		}
	}
}

// markUsed notes the fields that a document has, by their path in the
// reference.
func markUsed(n *yaml11.Node, s *schema.Spec, path string, used map[string]bool) {
	if s == nil {
		return
	}
	for _, e := range n.Entries {
		if f := s.Key(e.Key.Text); f != nil {
			p := join(path, e.Key.Text)
			used[p] = true
			if e.Key.Text == "any_of" || e.Key.Text == "ordered" {
				for _, item := range e.Value.Items {
					markUsed(item, s, path, used)
				}
				continue
			}
			markUsed(e.Value, f, p, used)
		} else {
			markUsed(e.Value, s.Others, join(path, "<key>"), used)
		}
	}
	for _, item := range n.Items {
		if p := path + "[]"; path == "resources" {
			markUsed(item, s, path, used)
		} else {
			markUsed(item, s.Items, p, used)
		}
	}
}

// The examples in the reference are values that the field takes.
func TestExamplesOfFields(t *testing.T) {
	walkFields(language(), "", func(path string, f *schema.Spec) {
		if f.Internal {
			return
		}
		if f.Doc == "" {
			t.Errorf("%s has no description", path)
		}
		if f.Example == "" {
			return
		}
		src := newSource(path, []byte("x: "+f.Example))
		docs, err := src.documents()
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
		v := validator{source: src}
		v.check(docs[0].Lookup("x"), f, path)
		if len(v.errs) > 0 {
			t.Errorf("%s: %v", path, v.errs[0])
		}
	})
}

func walkFields(s *schema.Spec, path string, visit func(string, *schema.Spec)) {
	if s == nil || s == schema.Free {
		return
	}
	for _, f := range s.Keys {
		visit(join(path, f.Name), f.Spec)
		walkFields(f.Spec, join(path, f.Name), visit)
	}
	walkFields(s.Others, path+".<key>", visit)
	walkFields(s.Items, path+"[]", visit)
}
