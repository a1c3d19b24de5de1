package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/task"
)

// What README.md and the quickstart show first runs on this machine, whichever
// clouds the reader has enabled.
func TestFirstCommandsCostNothing(t *testing.T) {
	launches := 0
	for _, page := range []string{"../../README.md", "../../docs/quickstart.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		written := pageFiles(string(text))
		for line := range strings.Lines(string(text)) {
			line = strings.Replace(strings.TrimPrefix(line, "$ "), "go run ./cmd/sky ", "sky ", 1)
			if !strings.HasPrefix(line, "sky launch ") && !strings.HasPrefix(line, "sky jobs launch ") {
				continue
			}
			for _, args := range skyCommands(line) {
				root := newApp(Program{Stdin: &bytes.Buffer{}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}, Environ: []string{}}).root()
				cmd, rest, err := root.Find(args)
				if err == nil {
					err = cmd.ParseFlags(rest)
				}
				if err != nil {
					t.Errorf("%s: %s: %v", page, line, err)
					continue
				}
				if f := cmd.Flags().Lookup("dryrun"); f != nil && f.Value.String() == "true" {
					continue
				}
				launches++
				if cmd.Flags().Lookup("infra").Value.String() == "local" {
					continue
				}
				words := cmd.Flags().Args()
				data := written[words[0]]
				if data == nil {
					if data, err = os.ReadFile(filepath.Join("../..", words[0])); err != nil {
						t.Errorf("%s: %s: %v", page, line, err)
						continue
					}
				}
				dag, err := task.Parse(words[0], data)
				if err != nil {
					t.Errorf("%s: %s: %v", page, line, err)
					continue
				}
				for _, one := range dag.Tasks {
					if len(one.Resources) == 0 || slices.ContainsFunc(one.Resources, func(r task.Resources) bool { return r.Cloud != "local" }) {
						t.Errorf("%s: %s rents machines where a cloud is enabled: %s lacks \"infra: local\"", page, strings.TrimSpace(line), words[0])
					}
				}
			}
		}
	}
	if launches < 4 {
		t.Errorf("%d launches found", launches)
	}
}

// pageFiles are the files that a page writes with "cat > NAME <<'END'".
func pageFiles(page string) map[string][]byte {
	out := map[string][]byte{}
	name := ""
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, "$ cat > "); ok {
			name, _, _ = strings.Cut(rest, " ")
			continue
		}
		switch text, ok := strings.CutPrefix(line, "> "); {
		case !ok || text == "END\n":
			name = ""
		case name != "":
			out[name] = append(out[name], text...)
		}
	}
	return out
}
