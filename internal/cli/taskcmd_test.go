package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// BenchmarkTaskCheck checks 1,000 files as one command: at most 500 ms.
func BenchmarkTaskCheck(b *testing.B) {
	examples, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(examples) == 0 {
		b.Fatalf("no examples: %v", err)
	}
	dir := b.TempDir()
	args := []string{"task", "check", "--no-files"}
	for i := range 1000 {
		data, err := os.ReadFile(examples[i%len(examples)])
		if err != nil {
			b.Fatal(err)
		}
		file := filepath.Join(dir, fmt.Sprintf("%04d.yaml", i))
		if err := os.WriteFile(file, data, 0o600); err != nil {
			b.Fatal(err)
		}
		args = append(args, file)
	}
	b.ResetTimer()
	for b.Loop() {
		var out bytes.Buffer
		if code := Main(Program{Args: args, Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &out, Environ: []string{"HOME=" + dir}}); code != 0 {
			b.Fatalf("exit code %d: %s", code, out.String())
		}
	}
}

func TestSplitKey(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string // nil: an error
	}{
		{"a", []string{"a"}},
		{"jobs.bucket", []string{"jobs", "bucket"}},
		{`kubernetes.context_configs."my.cluster".namespace`, []string{"kubernetes", "context_configs", "my.cluster", "namespace"}},
		{`"a.b"`, []string{"a.b"}},
		{"", nil},
		{".", nil},
		{"a.", nil},
		{"a..b", nil},
		{`a."b`, nil},
		{`a."b"c`, nil},
		{`a."".c`, nil},
	} {
		got, err := splitKey(c.in)
		if (err != nil) != (c.want == nil) || !slices.Equal(got, c.want) {
			t.Errorf("splitKey(%q) = %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

func TestVerdictSummary(t *testing.T) {
	mistake, warning := problem{Severity: severityError}, problem{Severity: severityWarning}
	for _, c := range []struct {
		files [][]problem
		want  string
	}{
		{nil, "0 task files checked, no mistakes"},
		{[][]problem{nil}, "1 task file checked, no mistakes"},
		{[][]problem{nil, {warning}}, "2 task files checked, no mistakes, 1 warning"},
		{[][]problem{nil, {mistake}}, "2 task files checked, 1 wrong: 1 mistake"},
		{[][]problem{{mistake, mistake}, {warning, mistake, warning}}, "2 task files checked, 2 wrong: 3 mistakes, 2 warnings"},
	} {
		var v verdict
		for _, f := range c.files {
			v.add(f)
		}
		if got := v.summary("task"); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
