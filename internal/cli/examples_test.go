package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/task"
)

// atRoot makes the repository's root the folder of the test: examples run from there.
func atRoot(t *testing.T) { t.Chdir("../..") }

func exampleFiles(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	return files
}

// The examples pass sky task check as they are.
func TestExamplesPassTaskCheck(t *testing.T) {
	atRoot(t)
	for _, file := range exampleFiles(t, "examples/*.yaml") {
		var out bytes.Buffer
		if code := Main(Program{Args: []string{"task", "check", file}, Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &out, Environ: []string{"HOME=" + t.TempDir()}}); code != 0 {
			t.Errorf("%s: exit code %d\n%s", file, code, out.String())
		}
	}
}

// What examples run is proper shell, and their Python is proper Python.
func TestExamplesAreWellFormed(t *testing.T) {
	atRoot(t)
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	for _, file := range exampleFiles(t, "examples/*.yaml") {
		dag, err := task.Load(file)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, one := range dag.Tasks {
			for name, script := range map[string]string{"setup": one.Setup, "run": one.Run} {
				c := exec.Command(bash, "-n")
				c.Stdin = strings.NewReader(script)
				if out, err := c.CombinedOutput(); err != nil {
					t.Errorf("%s of %s: %v: %s", name, file, err, out)
				}
			}
		}
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Log("there is no python3: its files are not looked at")
		return
	}
	args := []string{"-c", "import ast, sys\nfor f in sys.argv[1:]: ast.parse(open(f).read(), f)"}
	if out, err := exec.Command(python, append(args, exampleFiles(t, "examples/*/*.py")...)...).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// The index names every example, and only what is there.
func TestTheIndexOfExamples(t *testing.T) {
	atRoot(t)
	text, err := os.ReadFile("docs/examples.md")
	if err != nil {
		t.Fatal(err)
	}
	var linked []string
	for _, link := range regexp.MustCompile(`\]\(\.\./(examples/[^)]*)\)`).FindAllStringSubmatch(string(text), -1) {
		linked = append(linked, link[1])
		if _, err := os.Stat(link[1]); err != nil {
			t.Error(err)
		}
	}
	for _, file := range slices.Concat(exampleFiles(t, "examples/*.yaml"), exampleFiles(t, "examples/*/*.py")) {
		if !slices.Contains(linked, filepath.ToSlash(file)) {
			t.Errorf("docs/examples.md does not name %s", file)
		}
	}
}
