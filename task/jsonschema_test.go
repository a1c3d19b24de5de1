package task

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(JSONSchema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("task.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("task.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// accepts asks the schema about every task document of a text.
func accepts(t *testing.T, s *jsonschema.Schema, data []byte) error {
	t.Helper()
	docs, err := newSource("", data).documents()
	if err != nil {
		return err
	}
	for i, doc := range docs {
		if i == 0 && len(docs) > 1 && (isHeader(doc) || doc.Get("execution") != nil) || doc.IsNull() {
			continue
		}
		text, err := json.Marshal(doc.Any())
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(value); err != nil {
			return err
		}
	}
	return nil
}

func TestJSONSchemaTakesWhatParseTakes(t *testing.T) {
	s := compiledSchema(t)
	for name, data := range exampleFiles(t) {
		if err := accepts(t, s, data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	good, err := os.ReadFile("testdata/good.txt")
	if err != nil {
		t.Fatal(err)
	}
	for c := range strings.SplitSeq(string(good), "\n== ") {
		name, body, _ := strings.Cut(c, "\n")
		input, wire, ok := strings.Cut(body, "\n--\n")
		if !ok {
			continue
		}
		wire, _, _ = strings.Cut(wire, "\nnotice:")
		if err := accepts(t, s, []byte(strings.NewReplacer(`\r`, "\r", `\ufeff`, "\ufeff").Replace(input))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := accepts(t, s, []byte(wire)); err != nil {
			t.Errorf("%s, wire: %v", name, err)
		}
	}
}

func TestJSONSchemaRefusesMostOfWhatParseRefuses(t *testing.T) {
	s := compiledSchema(t)
	bad, err := os.ReadFile("testdata/bad.txt")
	if err != nil {
		t.Fatal(err)
	}
	refused, all := 0, 0
	for c := range strings.SplitSeq(string(bad), "\n== ") {
		_, body, _ := strings.Cut(c, "\n")
		if input, _, ok := strings.Cut(body, "\n--\n"); ok {
			all++
			if accepts(t, s, []byte(input)) != nil {
				refused++
			}
		}
	}
	if refused*10 < all*6 {
		t.Errorf("the schema refuses %d of %d", refused, all)
	}
}
