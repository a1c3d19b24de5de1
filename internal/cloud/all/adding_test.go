package all

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestThePageOfNewCloudsIsTrue holds docs/adding-a-cloud.md to the source: its excerpts are
// there line by line, and what it names exists.
func TestThePageOfNewCloudsIsTrue(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "adding-a-cloud.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)

	excerpts := regexp.MustCompile("(?s)```go\n// (\\S+)\n(.*?)```").FindAllStringSubmatch(page, -1)
	if n := strings.Count(page, "```go"); n == 0 || n != len(excerpts) {
		t.Errorf("%d of %d excerpts begin with the name of their file", len(excerpts), n)
	}
	for _, e := range excerpts {
		source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e[1])))
		if err != nil {
			t.Error(err)
			continue
		}
		rest := string(source)
		for line := range strings.Lines(e[2]) {
			line, _, _ = strings.Cut(strings.TrimRight(line, "\n"), " // <-")
			if strings.TrimSpace(line) == "…" {
				continue
			}
			_, after, ok := strings.Cut("\n"+rest, "\n"+line+"\n")
			if !ok {
				t.Errorf("%s has no line, or not in this order:\n%s", e[1], line)
				break
			}
			rest = after
		}
	}

	for _, m := range regexp.MustCompile(`(?m)^  (\w+\.go(?:, \w+\.go)*|\w+/) `).FindAllStringSubmatch(page, -1) {
		for _, name := range strings.Split(m[1], ", ") {
			if _, err := os.Stat(filepath.Join(root, "internal/cloud/fluffycloud", name)); err != nil {
				t.Error(err)
			}
		}
	}

	packages := map[string]map[string]bool{}
	for _, name := range []string{"vm", "rest", "cloudtest", "fakehttp", "keyfile"} {
		packages[name] = names(t, filepath.Join(root, "internal/cloud", name))
	}
	packages["cloud"] = names(t, filepath.Join(root, "internal/cloud"))
	found := 0
	for _, code := range regexp.MustCompile("`[^`\n]+`").FindAllString(page, -1) {
		for _, m := range regexp.MustCompile(`\b(vm|rest|cloudtest|fakehttp|keyfile|cloud)((?:\.[A-Z]\w*)+)`).FindAllStringSubmatch(code, -1) {
			for name := range strings.SplitSeq(strings.TrimPrefix(m[2], "."), ".") {
				if found++; !packages[m[1]][name] {
					t.Errorf("%s: package %s has no %s", code, m[1], name)
				}
			}
		}
		for _, m := range regexp.MustCompile("^`((?:internal|docs|cmd|test)/[\\w./-]+)`$").FindAllStringSubmatch(code, -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(m[1]))); err != nil {
				t.Error(err)
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d names were looked for", found)
	}
}

// names are all that a package declares, with fields and methods.
func names(t *testing.T, folder string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", folder, err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				all[n.Name.Name] = true
			case *ast.TypeSpec:
				all[n.Name.Name] = true
			case *ast.ValueSpec:
				for _, name := range n.Names {
					all[name.Name] = true
				}
			case *ast.Field:
				for _, name := range n.Names {
					all[name.Name] = true
				}
			case *ast.BlockStmt:
				return false
			}
			return true
		})
	}
	return all
}
