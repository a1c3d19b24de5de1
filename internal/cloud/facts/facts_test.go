package facts

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Files that hold words which are clouds' names elsewhere.
var others = map[string]string{
	"internal/cloud/cloud.go":     "ways of reaching a node",
	"internal/remote/remote.go":   "ways of reaching a node",
	"internal/daemon/daemon.go":   "folders",
	"internal/cli/gpuslive.go":    "keys of an answer",
	"internal/config/keys.go":     "log services and the section about containers",
	"internal/buckets/buckets.go": "object stores",
	"task/bucket.go":              "object stores",
	"task/build_files.go":         "object stores",
	"task/fields_storage.go":      "object stores",
}

// TestNobodyElseListsClouds looks for files outside this folder that name three or more
// clouds: a table of clouds that would have to be extended with each new one.
func TestNobodyElseListsClouds(t *testing.T) {
	const root = "../../.."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if base := d.Name(); rel == "internal/cloud/facts" || rel == "internal/storage" || rel == "test" || base == "testdata" || base == "node_modules" || len(base) > 2 && strings.HasPrefix(base, ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		named := map[string]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, _ := strconv.Unquote(lit.Value)
				if c, ok := Find(text); ok {
					named[c.Name] = true
				}
			}
			return true
		})
		if len(named) >= 3 && others[rel] == "" {
			var list []string
			for name := range named {
				list = append(list, name)
			}
			slices.Sort(list)
			t.Errorf("%s names %s; what is true of a cloud belongs into internal/cloud/facts", rel, strings.Join(list, ", "))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestNamesAreSingle(t *testing.T) {
	seen := map[string]string{}
	for _, c := range All() {
		for _, name := range slices.Concat([]string{c.Name}, c.Aliases, c.Wrong, c.Schemes) {
			if other := seen[name]; other != "" && other != c.Name {
				t.Errorf("%s is %s and %s", name, other, c.Name)
			}
			seen[name] = c.Name
			if name != strings.ToLower(name) {
				t.Errorf("%s of %s is not lower case", name, c.Name)
			}
		}
		if c.Display == "" || !strings.EqualFold(strings.ReplaceAll(c.Display, " ", ""), c.Name) {
			t.Errorf("%s is shown as %q", c.Name, c.Display)
		}
		for _, f := range c.Lacks {
			if reasons[f] == "" {
				t.Errorf("%s lacks %s, and nothing says why", c.Name, f)
			}
		}
	}
}

// TestSettingsAreDescribed makes every description, since they are made on first use.
func TestSettingsAreDescribed(t *testing.T) {
	for _, c := range All() {
		mayTasks := false
		if c.Settings != nil {
			for _, k := range c.Settings().Keys {
				if k.Doc == "" {
					t.Errorf("%s.%s says nothing about itself", c.Name, k.Name)
				}
				mayTasks = mayTasks || k.TaskMay
			}
		}
		if c.Workspace != nil && c.Workspace().Doc == "" {
			t.Errorf("the section of %s in a workspace says nothing about itself", c.Name)
		}
		if (c.TaskExample != "") != mayTasks {
			t.Errorf("%s: tasks may set something: %v, with the example %q", c.Name, mayTasks, c.TaskExample)
		}
	}
}

// Clouds that take letters of all languages in labels count characters, not bytes.
func TestLengthsOfLabelsCountCharacters(t *testing.T) {
	for _, tt := range []struct {
		cloud      string
		key, value int
	}{{"aws", 127, 255}, {"azure", 512, 256}} {
		label := Of(tt.cloud).Label
		if why := label(strings.Repeat("ü", tt.key), strings.Repeat("日", tt.value)); why != "" {
			t.Errorf("%s: %s", tt.cloud, why)
		}
		if label(strings.Repeat("ü", tt.key+1), "") == "" || label("k", strings.Repeat("日", tt.value+1)) == "" {
			t.Errorf("%s takes more characters", tt.cloud)
		}
	}
}
