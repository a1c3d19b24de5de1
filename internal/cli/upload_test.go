package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skypilot-go/sky/internal/cli/term"
	"github.com/skypilot-go/sky/task"
)

func TestHugeFilesAreAskedAboutAtATerminal(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	wd := filepath.Join(home, "wd")
	if err := os.MkdirAll(filepath.Join(wd, ".sky/api_server/sky.db"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(wd, "data")
	for _, c := range []struct {
		name     string
		size     int64
		terminal bool
		typed    string
		move     move
		aborted  bool
		says     []string
	}{
		{"small", 256 << 20, true, "n\n", move{ask: true}, false, nil},
		{"large", 256<<20 + 1, true, "n\n", move{ask: true}, false, []string{"268.4 MB in 1 file to copy"}},
		{"huge, and no", 5<<30 + 1, true, "n\n", move{ask: true}, true, []string{"5.4 GB in 1 file to copy", "Copy 5.4 GB?"}},
		{"huge, and yes", 5<<30 + 1, true, "y\n", move{ask: true}, false, []string{"Copy 5.4 GB?"}},
		{"huge with -y", 5<<30 + 1, true, "n\n", move{}, false, []string{"5.4 GB in 1 file to copy"}},
		{"huge without a terminal", 5<<30 + 1, false, "", move{ask: true}, false, []string{"5.4 GB in 1 file to copy"}},
		{"huge in a dry run", 5<<30 + 1, true, "n\n", move{silent: true, ask: true}, false, nil},
		{"what nobody else says", 1, true, "", move{notes: true}, false, []string{"Left out of " + wd + ": .sky"}},
	} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, c.size); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		a := &app{t: &term.Term{In: strings.NewReader(c.typed), Out: &said, Err: &said, InTTY: c.terminal}}
		err := a.announce(t.Context(), &task.Dag{Tasks: []*task.Task{{Workdir: wd}}}, c.move)
		if errors.Is(err, term.ErrAborted) != c.aborted || err != nil && !c.aborted {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, s := range c.says {
			if !strings.Contains(said.String(), s) {
				t.Errorf("%s: %q lacks %q", c.name, said.String(), s)
			}
		}
		if len(c.says) == 0 && said.Len() > 0 {
			t.Errorf("%s: %s", c.name, said.String())
		}
	}
}
