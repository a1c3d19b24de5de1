package task

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestGoodInput reads testdata/good.txt: a name, a file, "--", its travelling
// form and the notices that users get.
func TestGoodInput(t *testing.T) {
	const file = "testdata/good.txt"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(data), "\n== ")
	var out strings.Builder
	out.WriteString(head)
	for c := range strings.SplitSeq(rest, "\n== ") {
		name, body, _ := strings.Cut(c, "\n")
		input, want, ok := strings.Cut(body, "\n--\n")
		if !ok {
			t.Fatalf("%s: no line with --", name)
		}
		want = strings.TrimRight(want, "\n")
		got := meaning(strings.NewReplacer(`\r`, "\r", `\ufeff`, "\ufeff").Replace(input + "\n"))
		fmt.Fprintf(&out, "\n== %s\n%s\n--\n%s\n", name, input, got)
		if got != want && !*update {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
		if strings.HasPrefix(got, "refused") || strings.HasPrefix(got, "changed") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func meaning(input string) string {
	d, err := Parse("task.yaml", []byte(input))
	if err != nil {
		return "refused: " + err.Error()
	}
	wire, err := d.YAML()
	if err != nil {
		return "refused: " + err.Error()
	}
	if back, err := Parse("wire", wire); err != nil || same(d, back) != "" {
		return fmt.Sprintf("changed on the wire: %v %s", err, same(d, back))
	}
	text := strings.TrimRight(strings.ReplaceAll(string(wire), "\n\n", "\n"), "\n")
	for _, w := range d.Warnings() {
		text += "\nnotice: " + w
	}
	return text
}

func TestFormat(t *testing.T) {
	const file = "testdata/format.txt"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(data), "\n== ")
	var out strings.Builder
	out.WriteString(head)
	for c := range strings.SplitSeq(rest, "\n== ") {
		name, body, _ := strings.Cut(c, "\n")
		input, want, _ := strings.Cut(body, "\n--\n")
		got, err := Format([]byte(input + "\n"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		fmt.Fprintf(&out, "\n== %s\n%s\n--\n%s", name, input, got)
		if strings.TrimRight(want, "\n") != strings.TrimRight(string(got), "\n") && !*update {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
		if again, err := Format(got); err != nil || string(again) != string(got) {
			t.Errorf("%s: not stable: %v\n%s", name, err, again)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Format([]byte("a: [")); err == nil {
		t.Error("broken YAML was formatted")
	}
}
