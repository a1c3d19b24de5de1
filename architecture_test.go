package sky_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheArchitectureIsThatOfTheTree compares ARCHITECTURE.md with the folders.
func TestTheArchitectureIsThatOfTheTree(t *testing.T) {
	content, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`((?:api|cmd|docs|internal|task|test)/[\\w./-]+)`").FindAllStringSubmatch(text, -1) {
		named[m[1]] = true
		if _, err := os.Stat(m[1]); err != nil {
			t.Errorf("ARCHITECTURE.md names what is not there: %v", err)
		}
	}
	if len(named) < 80 {
		t.Errorf("only %d paths are named", len(named))
	}
	folders, err := filepath.Glob("internal/*")
	if err != nil || len(folders) < 40 {
		t.Fatal(folders, err)
	}
	for _, f := range folders {
		if f = filepath.ToSlash(f); !named[f] {
			t.Errorf("ARCHITECTURE.md does not name %s", f)
		}
	}
	_, words, _ := strings.Cut(text, "\n## Words\n")
	words, _, _ = strings.Cut(words, "\n## ")
	if n := strings.Count(words, "**") / 2; n < 10 || n > 25 {
		t.Errorf("the glossary has %d words, not at most 25", n)
	}
}
