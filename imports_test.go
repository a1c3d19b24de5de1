package sky_test

import (
	"bufio"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/skypilot-go/sky"

// layers lists the packages from top to bottom: a package imports only from
// layers below its own. Packages of one layer do not know each other, except
// where a folder holds them together. A new package needs a place here; a * stands for
// any name.
var layers = [][]string{
	{"cmd/sky", "cmd/sky-agent", "examples/gridsearch", "cmd/sky-mount", "cmd/fluffycloud", "test/load", "test/kubernetes/served", "internal/mutate", "internal/testbed", "internal/cloud/*/*fake"},
	{"test/harness"}, // the binary in workstations of its own, for test/e2e and test/attack
	{"internal/cloud/fakehttp"},
	{"internal/reference"},
	{"internal/daemon", "internal/cli"},
	{"internal/server"},
	{"internal/requests", "internal/jobs", "internal/auth", "internal/workspaces", "internal/controller", "internal/serve", "internal/serve/simulate"},
	{"internal/execution"},
	{"internal/volumes", "internal/buckets", "internal/credentials", "internal/installation", "internal/taskfiles"},
	{"internal/cluster", "internal/logstore"},
	{"internal/provision", "internal/optimizer", "internal/serve/replicas"},
	{"internal/remote", "internal/cloud/all"},
	{"internal/nodestorage"},
	{"internal/agent", "internal/mount"},
	{"internal/agentclient", "internal/cloud/local", "internal/cloud/fluffycloud", "internal/cloud/cloudtest", "internal/cloud/sshpool", "internal/cloud/docker", "internal/cloud/kubernetes", "internal/cloud/aws", "internal/cloud/azure", "internal/cloud/gcp", "internal/cloud/lambda", "internal/cloud/runpod", "internal/cloud/cudo",
		"internal/cloud/do",
		"internal/cloud/fluidstack",
		"internal/cloud/hyperbolic",
		"internal/cloud/ibm",
		"internal/cloud/paperspace",
		"internal/cloud/primeintellect",
		"internal/cloud/mithril",
		"internal/cloud/nebius",
		"internal/cloud/oci",
		"internal/cloud/scp",
		"internal/cloud/seeweb",
		"internal/cloud/shadeform",
		"internal/cloud/vast",
		"internal/cloud/verda",
		"internal/cloud/vsphere",
		"internal/cloud/yotta",
	},
	{"internal/remote/sshconn"},
	{"internal/lease"},
	{"internal/catalog", "internal/state"},
	{"internal/serve/spec"},
	{"internal/cloud", "internal/config", "internal/upload", "internal/storage/transfer", "internal/serve/balancer"},
	{"internal/storage/storetest", "internal/storage/memory"},
	{"internal/filesync", "internal/notify", "internal/fsm", "internal/pki", "internal/proc", "internal/buildid", "internal/table", "internal/openapi", "internal/metrics", "internal/trace", "internal/registry", "internal/envelope", "internal/serve/probe", "internal/mount/mountapi"},
	{"internal/storage"},
	{"internal/azureauth"},
	{"internal/wholefile", "internal/destination", "internal/mount/mountpoints", "internal/bounded", "internal/httpcall", "internal/googleauth", "internal/porttest", "internal/failpoint", "internal/diskspace", "internal/tcpowner", "internal/bench", "callback", "test/commands"},
	{"."}, // the Go SDK
	{"api", "task"},
	{"internal/cloud/facts"},
	{"internal/schema"},
	{"internal/yaml11"},
	{"internal/lazyregexp", "internal/similar"},
}

// forbidden are imports that layers alone would allow.
var forbidden = map[string][]string{
	// The command line is the SDK's first user and reaches the server only
	// through it.
	"internal/cli": {"internal/server", "internal/requests", "internal/execution", "internal/cluster", "internal/provision",
		"internal/optimizer", "internal/remote", "internal/agent", "internal/agentclient", "internal/state", "internal/cloud"},
	// A client must not grow into a server.
	".": {"internal"},
	// The agent carries no cloud and no database of the server.
	"internal/agent": {"internal/state", "internal/cloud", "internal/remote"},
}

func TestImportsPointDownwards(t *testing.T) {
	for dir, imports := range packages(t) {
		from := layerOf(dir)
		if from < 0 {
			t.Errorf("%s has no place in the layers of imports_test.go", dir)
			continue
		}
		for _, imp := range imports {
			if to := layerOf(imp); to < from || to == from && top(imp) != top(dir) {
				t.Errorf("%s imports %s, which is not below it", dir, imp)
			}
			if imp == "internal/cloud/facts" { // tables, for everybody
				continue
			}
			for _, bad := range forbidden[top(dir)] {
				if imp == bad || strings.HasPrefix(imp, bad+"/") {
					t.Errorf("%s must not import %s", dir, imp)
				}
			}
		}
	}
}

// top is the listed package that a folder belongs to.
func top(dir string) string {
	for d := dir; ; d = path.Dir(d) {
		for _, l := range layers {
			for _, p := range l {
				if ok, _ := path.Match(p, d); ok {
					return p
				}
			}
		}
		if d == "." {
			return dir
		}
	}
}

func layerOf(dir string) int {
	t := top(dir)
	if t == "." && dir != "." {
		return -1
	}
	for i, l := range layers {
		for _, p := range l {
			if p == t {
				return i
			}
		}
	}
	return -1
}

// packages lists every package folder with the folders of ours that it imports
// outside tests.
func packages(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); p != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(p))
		if _, ok := out[dir]; !ok {
			out[dir] = nil
		}
		for _, spec := range f.Imports {
			imp := strings.Trim(spec.Path.Value, `"`)
			// Templates call methods by name: with them the linker drops no method
			// of any library, and the binary is twice as large.
			if imp == "text/template" || imp == "html/template" {
				t.Errorf("%s imports %s", p, imp)
			}
			if imp == module {
				out[dir] = append(out[dir], ".")
			} else if rest, ok := strings.CutPrefix(imp, module+"/"); ok {
				out[dir] = append(out[dir], rest)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for dir := range packages(t) {
		files, _ := filepath.Glob(filepath.Join(dir, "*.go"))
		documented := false
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc == nil {
				continue
			}
			documented = true
			first := bufio.NewScanner(strings.NewReader(f.Doc.Text()))
			first.Scan()
			if want := "Package " + f.Name.Name; f.Name.Name != "main" && !strings.HasPrefix(first.Text(), want) {
				t.Errorf("%s: the package comment begins %q, not %q", file, first.Text(), want)
			}
		}
		if !documented {
			t.Errorf("package %s has no package comment", dir)
		}
	}
}

func TestNoFolderIsNamedForNothing(t *testing.T) {
	for dir := range packages(t) {
		switch path.Base(dir) {
		case "util", "utils", "common", "helpers", "types", "models", "misc":
			t.Errorf("%s: name the folder for what it provides", dir)
		}
	}
}
