package reference

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/config"
	"github.com/skypilot-go/sky/task"
)

// written are the pages that people write.
func written(t *testing.T) map[string]string {
	pages, err := filepath.Glob(docs + "/*.md")
	if err != nil || len(pages) < 4 {
		t.Fatalf("pages: %v, %v", pages, err)
	}
	out := map[string]string{}
	for _, p := range append(pages, docs+"/../README.md", docs+"/../CONTRIBUTING.md", docs+"/../ARCHITECTURE.md") {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		out[p] = strings.ReplaceAll(string(text), "\r\n", "\n")
	}
	return out
}

// TestLinksLeadSomewhere looks at links to files and to headings.
func TestLinksLeadSomewhere(t *testing.T) {
	pages := written(t)
	for name, text := range Files() {
		if strings.HasSuffix(name, ".md") {
			pages[filepath.Join(docs, name)] = string(text)
		}
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for page, text := range pages {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			to := m[1]
			if strings.Contains(to, "://") {
				continue
			}
			path, fragment, _ := strings.Cut(to, "#")
			file := page
			if path != "" {
				file = filepath.Join(filepath.Dir(page), path)
			}
			target, err := os.ReadFile(file)
			if info, statErr := os.Stat(file); statErr == nil && info.IsDir() {
				continue
			}
			if err != nil {
				t.Errorf("%s: the link to %s leads nowhere", page, to)
				continue
			}
			if fragment != "" && !hasHeading(string(target), fragment) {
				t.Errorf("%s: %s has no heading #%s", page, path, fragment)
			}
		}
	}
}

func hasHeading(text, fragment string) bool {
	drop := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	for line := range strings.Lines(text) {
		title := strings.TrimLeft(line, "#")
		if title == line {
			continue
		}
		title = drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
		if strings.ReplaceAll(title, " ", "-") == fragment {
			return true
		}
	}
	return false
}

// TestShownYAMLIsValid: every yaml block of the pages is a task, or a
// configuration if its first line says so.
func TestShownYAMLIsValid(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	tasks := 0
	for page, text := range written(t) {
		for _, m := range block.FindAllStringSubmatch(text, -1) {
			if first, _, _ := strings.Cut(m[1], "\n"); strings.HasPrefix(first, "#") && strings.Contains(first, "config.yaml") {
				if _, err := config.Check(config.Server, []byte(m[1]), page); err != nil {
					t.Errorf("%v\n%s", err, m[1])
				}
				continue
			}
			tasks++
			if _, err := task.Parse(page, []byte(m[1])); err != nil {
				t.Errorf("%v\n%s", err, m[1])
			}
		}
	}
	if tasks < 5 {
		t.Errorf("only %d tasks found", tasks)
	}
}

func TestEveryTopLevelFieldHasAnExample(t *testing.T) {
	for _, f := range task.Reference() {
		if !strings.ContainsAny(f.Path, ".[") && f.Example == "" {
			t.Errorf("%s has no example", f.Path)
		}
	}
}

// TestTheIndexNamesEveryPage: a page that the index does not name is found by nobody.
func TestTheIndexNamesEveryPage(t *testing.T) {
	pages := written(t)
	index := pages[filepath.Join(docs, "README.md")]
	for page := range pages {
		if name := filepath.Base(page); filepath.Dir(page) == filepath.Clean(docs) && name != "README.md" && !strings.Contains(index, "("+name+")") {
			t.Errorf("docs/README.md does not name %s", name)
		}
	}
}
