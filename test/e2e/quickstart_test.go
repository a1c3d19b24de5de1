//go:build e2e && linux

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestQuickstart runs the commands of docs/quickstart.md as they stand there
// and compares what they print.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}
	steps := consoleSteps(string(text))
	if len(steps) < 10 {
		t.Fatalf("only %d commands found", len(steps))
	}
	w := newWorld(t)
	env := append([]string{}, w.env...)
	for i, kv := range env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			env[i] = "PATH=" + filepath.Dir(binary) + ":" + path
		}
	}
	for _, s := range steps {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		cmd := exec.CommandContext(ctx, "bash", "-c", s.command)
		cmd.Env, cmd.Dir = env, w.home
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			t.Fatalf("$ %s\n%s%v", s.command, out, err)
		}
		if missing := firstMissing(string(out), s.want); missing != "" {
			t.Errorf("$ %s\nprints\n%s\nand lacks, at its place,\n%s", s.command, out, missing)
		}
	}
}

// step is a command and the lines shown below it.
type step struct {
	command string
	want    []string
}

// consoleSteps reads the console blocks of a page: "$ " begins a command, "> "
// goes on with it, the rest is what it prints.
func consoleSteps(page string) []step {
	var out []step
	inside := false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		command, isCommand := strings.CutPrefix(line, "$ ")
		more, isMore := strings.CutPrefix(line, "> ")
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case !inside:
		case isCommand:
			out = append(out, step{command: command})
		case isMore:
			out[len(out)-1].command += "\n" + more
		default:
			out[len(out)-1].want = append(out[len(out)-1].want, line)
		}
	}
	return out
}

// firstMissing finds the first line of want that output does not have after the
// ones before it; "…" stands for anything.
func firstMissing(output string, want []string) string {
	rest := output
	for _, line := range want {
		if line == "…" {
			continue
		}
		var parts []string
		for _, p := range strings.Split(strings.TrimSpace(line), "…") {
			words := strings.Fields(p)
			for i, w := range words {
				words[i] = regexp.QuoteMeta(w)
			}
			parts = append(parts, strings.Join(words, `\s+`))
		}
		at := regexp.MustCompile(`(?m)^\s*` + strings.Join(parts, `.*`)).FindStringIndex(rest)
		if at == nil {
			return line
		}
		rest = rest[at[1]:]
	}
	return ""
}

func TestFirstMissing(t *testing.T) {
	const out = "one\nNAME   AGE\nc1     5 min\nend\n"
	for _, c := range []struct {
		want []string
		lack string
	}{
		{[]string{"one", "end"}, ""},
		{[]string{"…", "c1 …", "…"}, ""},
		{[]string{"NAME AGE", "c1 … min"}, ""},
		{[]string{"end", "one"}, "one"},
		{[]string{"c1 … hours"}, "c1 … hours"},
		{[]string{"5 min"}, "5 min"},
	} {
		if got := firstMissing(out, c.want); got != c.lack {
			t.Errorf("%q: %q is missing, want %q", c.want, got, c.lack)
		}
	}
}
