package all

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/kubernetes"
	"github.com/skypilot-go/sky/internal/cloud/sshpool"
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

// TestNobodyIsAskedWithoutCredentials: where no cloud is set up, a check of all of them reads
// files and waits for nobody.
func TestNobodyIsAskedWithoutCredentials(t *testing.T) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); name != "PATH" && name != "TMPDIR" {
			t.Setenv(name, "")
		}
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	synctest.Test(t, func(t *testing.T) {
		for _, p := range Providers(Options{
			Pools:      sshpool.Options{Home: home, File: filepath.Join(home, "pools")},
			Kubernetes: kubernetes.Options{Contexts: kubernetes.NewContexts(home), Dir: home},
		}).All() {
			if p.Name() == "local" || p.Name() == "docker" { // they are this machine
				continue
			}
			began := time.Now()
			_, err := p.Check(t.Context())
			if auth, ok := errors.AsType[*cloud.AuthError](err); !ok || !auth.NotSetUp || auth.Fix == "" {
				t.Errorf("%s: %v", p.Name(), err)
			}
			if waited := time.Since(began); waited > 0 {
				t.Errorf("%s waited %v", p.Name(), waited)
			}
		}
	})
}
