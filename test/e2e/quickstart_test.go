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
// and compares what they print. They stay on this machine, although a cloud is enabled.
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
	f := newFluffy(t, 50*time.Millisecond)
	for _, s := range steps {
		out := f.onThisMachine(s.command, f.home)
		if missing := firstMissing(out, s.want); missing != "" {
			t.Errorf("$ %s\nprints\n%s\nand lacks, at its place,\n%s", s.command, out, missing)
		}
	}
	f.wantNothingRented()
}

// The first commands of README.md stay on this machine, although a cloud is enabled.
func TestTheFirstCommandsOfTheReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(text), "```console\n")
	page, _, _ = strings.Cut(page, "```\n")
	f := newFluffy(t, 50*time.Millisecond)
	if out := f.sky("check", "fluffycloud"); !strings.Contains(out, "FluffyCloud: enabled") {
		t.Fatalf("the cloud is not enabled:\n%s", out)
	}
	launches := 0
	for _, s := range consoleSteps("```console\n" + page) {
		if strings.HasPrefix(s.command, "go build") || strings.HasPrefix(s.command, "sky ssh") { // the binary is there; a shell needs a terminal
			continue
		}
		out := f.onThisMachine(s.command, "../..")
		if strings.HasPrefix(s.command, "sky launch") {
			launches++
			if missing := firstMissing(out, []string{"INFRA … CHOSEN", "Local … ✔", "(head, … hello from node 0 of 2", "✓ Job finished (status: SUCCEEDED)."}); missing != "" {
				t.Errorf("$ %s\nprints\n%s\nand lacks, at its place,\n%s", s.command, out, missing)
			}
		}
	}
	if launches == 0 {
		t.Error("no launch was found in README.md")
	}
	f.sky("down", "-a", "-y")
	f.wantNothingRented()
}

// onThisMachine runs a line of a page, which must succeed; what it launches goes to this
// machine.
func (f *fluffy) onThisMachine(command, dir string) string {
	f.t.Helper()
	env := append([]string{}, f.env...)
	for i, kv := range env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			env[i] = "PATH=" + filepath.Dir(binary) + ":" + path
		}
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Env, cmd.Dir = env, dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.t.Fatalf("$ %s\n%s%v", command, out, err)
	}
	if plan := string(out); strings.Contains(plan, "Considered resources") && !regexp.MustCompile(`(?m)^ Local .*✔`).MatchString(plan) {
		f.t.Errorf("$ %s\ndoes not choose this machine:\n%s", command, plan)
	}
	return string(out)
}

// wantNothingRented checks that the cloud never had a machine.
func (f *fluffy) wantNothingRented() {
	f.t.Helper()
	for _, m := range f.cloud.Inventory().Instances {
		f.t.Errorf("a machine was rented: %+v", m)
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
