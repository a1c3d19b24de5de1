package all

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cloud"
)

const root = "../../.."

// TestACloudIsOneFolderAndOneLine holds what docs/adding-a-cloud.md promises,
// by its example: outside FluffyCloud's own folders only this package imports
// it, and on one line it makes it; its facts are one file.
func TestACloudIsOneFolderAndOneLine(t *testing.T) {
	const name = "fluffycloud"
	own := []string{"internal/cloud/" + name, "cmd/" + name, "internal/testbed", "internal/cloud/fakehttp", "test"} // and what only tests are made of

	var touched []string
	calls := 0
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
			if base := d.Name(); slices.Contains(own, rel) || strings.HasSuffix(base, "fake") || base == "testdata" || base == "node_modules" || len(base) > 2 && strings.HasPrefix(base, ".") {
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
		uses := false
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				text, _ := strconv.Unquote(n.Value)
				uses = uses || strings.Contains(strings.ToLower(text), name)
			case *ast.CallExpr:
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok {
					if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == name {
						calls++
					}
				}
			}
			return true
		})
		if uses {
			touched = append(touched, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"internal/cloud/all/all.go", "internal/cloud/facts/" + name + ".go"}; !slices.Equal(touched, want) || calls != 1 {
		t.Errorf("%s is known to %v and made on %d lines; want %v and one line", name, touched, calls, want)
	}
}

func TestProvidersDoNothingUntilTheyAreAsked(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("FLUFFYCLOUD_ENDPOINT", "")
	t.Setenv("FLUFFYCLOUD_TOKEN", "")
	seen := map[string]bool{}
	for _, p := range Providers(Options{LocalRoot: filepath.Join(t.TempDir(), "none")}).All() {
		if seen[p.Name()] {
			t.Errorf("two providers are called %s", p.Name())
		}
		seen[p.Name()] = true
		_ = p.Features()
	}
	if !seen["local"] || !seen["fluffycloud"] {
		t.Errorf("there are %v", seen)
	}
}

// On a machine without credentials every rented cloud says so without asking anybody, and where
// to get some: by a file of the user's, or a command.
func TestWithoutCredentialsCloudsSayWhereToGetSome(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	for _, variable := range []string{"SEEWEB_API_KEY", "PRIME_API_KEY", "PRIME_TEAM_ID", "OCI_CLI_PROFILE", "NEBIUS_DOMAIN", "RUNPOD_API_KEY"} {
		t.Setenv(variable, "")
	}
	names := []string{
		"lambda", "runpod", "vast", "cudo", "fluidstack", "paperspace", "do", "nebius", "oci", "ibm", "scp", "vsphere", "verda", "shadeform", "hyperbolic", "primeintellect", "mithril", "seeweb", "yotta",
	}
	for _, p := range Providers(Options{}).All() {
		i := slices.Index(names, p.Name())
		if i < 0 {
			continue
		}
		names = slices.Delete(names, i, i+1)
		var auth *cloud.AuthError
		if who, err := p.Check(t.Context()); !errors.As(err, &auth) || !auth.NotSetUp || auth.Cloud != p.Name() || !strings.Contains(auth.Fix, "~/.") && !strings.Contains(auth.Fix, "prime login") {
			t.Errorf("%s: %v, %v", p.Name(), who, err)
		}
	}
	if len(names) > 0 {
		t.Errorf("no providers: %v", names)
	}
}
