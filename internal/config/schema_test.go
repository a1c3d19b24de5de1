package config

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skypilot-go/sky/internal/schema"
	"github.com/skypilot-go/sky/internal/yaml11"
)

var update = flag.Bool("update", false, "write testdata/schema.json")

func TestSchemaGolden(t *testing.T) {
	const file = "testdata/schema.json"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n")), Schema()) {
		t.Error("the schema changed; look at the difference and run: go test ./internal/config -run SchemaGolden -update")
	}
}

// The schema and our own checks are made of the same description; they must
// judge alike.
func TestSchemaJudgesLikeWeDo(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("config.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("config.json")
	if err != nil {
		t.Fatal(err)
	}
	judge := func(text string, good bool) {
		n, err := parse([]byte(text), newSource("", ""))
		if err != nil || n == nil {
			return // not a matter of the schema
		}
		if strings.Contains(text, "regex: '('") || strings.Contains(text, ".nan") {
			return // beyond what a schema can say
		}
		if err := compiled.Validate(n.Any()); (err == nil) != good {
			t.Errorf("%q: we say %v, the schema says %v", text, good, err)
		}
	}
	for _, text := range goodConfigs {
		judge(text, true)
	}
	for _, test := range badConfigs {
		judge(test.text, false)
	}
}

func TestEveryKeyIsDocumented(t *testing.T) {
	seen := map[string]Doc{}
	for _, d := range Docs() {
		if !strings.HasSuffix(d.Path, "<name>") && !strings.HasSuffix(d.Path, "[]") && !strings.HasSuffix(d.Text, ".") {
			t.Errorf("%s needs a sentence, has %q", d.Path, d.Text)
		}
		if d.Kinds == 0 {
			t.Errorf("%s takes nothing", d.Path)
		}
		seen[d.Path] = d
	}
	for path, want := range map[string]struct{ task, server bool }{
		"kubernetes.pod_config":                                  {true, false},
		"kubernetes.dws.enabled":                                 {true, false},
		"kubernetes.namespace":                                   {false, false},
		"allowed_clouds":                                         {false, true},
		"workspaces.<name>.aws.profile":                          {false, true},
		"kubernetes.context_configs.<name>.pricing.cpu":          {false, false},
		"slurm.cluster_configs.<name>.workdir":                   {false, true},
		"aws.security_group_name[]":                              {},
		"jobs.controller.task_logs_gc_retention_hours":           {false, true},
		"nebius.region_configs.<name>.filesystems.[].mount_path": {},
	} {
		d, ok := seen[path]
		if path == "aws.security_group_name[]" {
			d, ok = seen["aws.security_group_name.[]"]
		}
		if !ok || d.Task != want.task || d.ServerOnly != want.server {
			t.Errorf("%s: %v %+v", path, ok, d)
		}
	}
}

func TestDefaultsAreValid(t *testing.T) {
	Keys().Walk(nil, func(path []string, s *Spec) bool {
		if s.Default != nil {
			if problems, _ := judge(s, fromPlain(s.Default, yaml11.Place{}), schema.Options{}); len(problems) > 0 {
				t.Errorf("the default of %s: %v", schema.Dotted(path), problems)
			}
		}
		return true
	})
}

func TestKindsInWords(t *testing.T) {
	for kind, want := range map[Kind]string{Text: "text", Number: "a number", Int: "a whole number", Text | Null: "text or nothing", Bool | List | Map: "true or false, a list or a map"} {
		if got := kind.String(); got != want {
			t.Errorf("%d is %q, want %q", kind, got, want)
		}
	}
}
