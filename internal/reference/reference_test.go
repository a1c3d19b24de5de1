package reference

import (
	"bytes"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/config"
)

var update = flag.Bool("update", false, "write the generated files")

const docs = "../../docs"

func TestReferenceIsFresh(t *testing.T) {
	files := Files()
	if *update {
		write(t, files)
	}
	const mend = "write it anew with: go generate ./internal/reference"
	for _, name := range slices.Sorted(maps.Keys(files)) {
		got, err := os.ReadFile(filepath.Join(docs, name))
		if err != nil || !bytes.Equal(bytes.ReplaceAll(got, []byte("\r\n"), []byte("\n")), files[name]) {
			t.Errorf("docs/%s is not what the code says; %s", name, mend)
		}
	}
	for _, name := range onDisk(t) {
		if files[name] == nil {
			t.Errorf("docs/%s is of something that is gone; %s", name, mend)
		}
	}
}

func write(t *testing.T, files map[string][]byte) {
	for _, name := range onDisk(t) {
		if files[name] == nil {
			os.Remove(filepath.Join(docs, name))
		}
	}
	for name, text := range files {
		file := filepath.Join(docs, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// onDisk lists the files in generated folders, by their path below docs.
func onDisk(t *testing.T) []string {
	var out []string
	for _, folder := range Folders() {
		err := filepath.WalkDir(filepath.Join(docs, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			name, err := filepath.Rel(docs, path)
			out = append(out, filepath.ToSlash(name))
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return out
}

// TestNothingOfThisMachine: what is generated is the same for everybody.
func TestNothingOfThisMachine(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skip("this machine has no home folder to look for")
	}
	for name, text := range Files() {
		if bytes.Contains(text, []byte(home+"/")) {
			t.Errorf("%s names %s", name, home)
		}
	}
}

func TestEveryKeyIsTold(t *testing.T) {
	page := string(configPage(config.Docs()))
	folded := fold(config.Docs())
	if len(folded) >= len(config.Docs()) {
		t.Errorf("%d keys were not folded", len(folded))
	}
	for _, d := range folded {
		if _, rest, nested := strings.Cut(d.Path, "."); nested && !strings.Contains(page, "`"+rest+"`") {
			t.Errorf("%s is missing", d.Path)
		}
	}
}

func TestFold(t *testing.T) {
	var docs []config.Doc
	add := func(paths ...string) {
		for _, p := range paths {
			docs = append(docs, config.Doc{Path: p, Text: "Text."})
		}
	}
	add("prices", "prices.aws", "prices.aws.file", "prices.gcp", "prices.gcp.file", "prices.azure", "prices.azure.file", "prices.lambda", "prices.lambda.file")
	add("prices.oci", "prices.oci.other", "prices.mine", "prices.mine.file")
	var got []string
	for _, d := range fold(docs) {
		got = append(got, d.Path)
	}
	want := []string{"prices", "prices.<cloud>", "prices.<cloud>.file", "prices.oci", "prices.oci.other", "prices.mine", "prices.mine.file"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestManPageEscapes(t *testing.T) {
	for in, want := range map[string]string{
		".sky.yaml": `\&.sky.yaml`,
		`a\b`:       `a\eb`,
		"--help":    `\-\-help`,
		"'x'":       `\(aqx\(aq`,
		"wait…":     `wait\[u2026]`,
	} {
		if got := text(in); got != want {
			t.Errorf("text(%q) = %q, want %q", in, got, want)
		}
	}
}
