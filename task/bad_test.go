package task

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the tests see into testdata")

// TestBadInput reads testdata/bad.txt: a name, a file, "--", and the mistakes
// as users see them.
func TestBadInput(t *testing.T) {
	const file = "testdata/bad.txt"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(data), "\n== ")
	var out strings.Builder
	out.WriteString(head)
	cases := strings.Split(rest, "\n== ")
	if len(cases) < 150 {
		t.Errorf("only %d cases", len(cases))
	}
	for _, c := range cases {
		name, body, _ := strings.Cut(c, "\n")
		input, want, ok := strings.Cut("\n"+body, "\n--\n")
		if !ok {
			t.Fatalf("%s: no line with --", name)
		}
		input = strings.TrimPrefix(input, "\n")
		want = strings.TrimRight(want, "\n")
		got := mistakes([]byte(strings.ReplaceAll(input+"\n", `\xff`, "\xff")))
		fmt.Fprintf(&out, "\n== %s\n%s\n--\n%s\n", name, input, got)
		if got != want && !*update {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
		if got == "" {
			t.Errorf("%s: accepted", name)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// mistakes is what a user is told about a file.
func mistakes(data []byte) string {
	d, err := Parse("task.yaml", data)
	if err == nil {
		_, err = d.Override(Overrides{})
	}
	var lines []string
	for _, e := range AllErrors(err) {
		lines = append(lines, strings.TrimPrefix(e.Error(), "task.yaml:"))
		if e.Hint != "" {
			lines = append(lines, "hint: "+e.Hint)
		}
	}
	return strings.Join(lines, "\n")
}

// TestPlacesAreInTheText: every mistake points at text that exists.
func TestPlacesAreInTheText(t *testing.T) {
	data, err := os.ReadFile("testdata/bad.txt")
	if err != nil {
		t.Fatal(err)
	}
	for c := range strings.SplitSeq(string(data), "\n== ") {
		_, body, _ := strings.Cut(c, "\n")
		input, _, _ := strings.Cut(body, "--\n")
		lines := strings.Split(input, "\n")
		d, err := Parse("task.yaml", []byte(input))
		if err == nil {
			_, err = d.Override(Overrides{})
		}
		for _, e := range AllErrors(err) {
			if e.Line == 0 {
				continue
			}
			if e.Line > len(lines) || e.Column < 1 || e.Column > len([]rune(lines[e.Line-1]))+1 {
				t.Errorf("%s: no such place in\n%s", e, input)
			}
			if s := e.Snippet(); lines[e.Line-1] != "" && !strings.HasSuffix(s, "^\n") {
				t.Errorf("%s: snippet %q", e, s)
			}
		}
		if errs := AllErrors(err); len(errs) > 1 && !slices.IsSortedFunc(errs, func(a, b *Error) int { return a.Line*1000 + a.Column - b.Line*1000 - b.Column }) {
			t.Errorf("not in order: %v", errs)
		}
	}
}
