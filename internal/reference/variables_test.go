package reference

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/config"
)

// Every variable that the page of the configuration names is read by the program,
// and the page has every switch.
func TestVariablesOfThePageAreRead(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/config.md")
	if err != nil {
		t.Fatal(err)
	}
	// Where each is declared, as "Name = ..." in package config, and what reads it.
	declared := map[string]string{}
	code := map[string]string{}
	for _, root := range []string{"../../internal", "../../cmd", "../.."} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if e.IsDir() && root == "../.." && path != root {
				return fs.SkipDir
			}
			if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "internal/reference") {
				return nil
			}
			text, err := os.ReadFile(path)
			code[path] = string(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	name := regexp.MustCompile(`(\w+)\s*=\s*(?:Switch\{)?"((?:SKYPILOT|SKY|IS)_[A-Z_]+)"`)
	for path, text := range code {
		if strings.Contains(path, "internal/config/") {
			for _, m := range name.FindAllStringSubmatch(text, -1) {
				declared[m[2]] = m[1]
			}
		}
	}
	read := func(variable string) bool {
		for path, text := range code {
			if id := declared[variable]; id != "" && regexp.MustCompile(`\b`+id+`(\.On\(|\b[^\w =,}])`).MatchString(text) {
				return true
			}
			if !strings.Contains(path, "internal/config/") && strings.Contains(text, `"`+variable+`"`) {
				return true
			}
		}
		return false
	}
	found := 0
	for _, variable := range regexp.MustCompile(`\b(?:SKYPILOT|SKY)_[A-Z_]+\b`).FindAllString(string(page), -1) {
		found++
		if !read(variable) {
			t.Errorf("%s is on the page and read by nobody", variable)
		}
	}
	for _, s := range config.Switches {
		if !strings.Contains(string(page), "`"+s.Name+"`") {
			t.Errorf("%s is not on the page", s.Name)
		}
	}
	if found < len(config.Switches) || read("SKYPILOT_NO_SUCH_VARIABLE") {
		t.Errorf("%d variables are on the page", found)
	}
}
