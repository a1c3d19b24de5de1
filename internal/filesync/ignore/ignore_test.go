package ignore

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestOneFile(t *testing.T) {
	for _, c := range []struct {
		rules string
		path  string // "/" at the end: a folder
		want  bool
	}{
		{"a", "a", true},
		{"a", "x/a", true},
		{"a", "ab", false},
		{"/a", "a", true},
		{"/a", "x/a", false},
		{"a/", "a", false},
		{"a/", "a/", true},
		{"a/", "x/a/", true},
		{"x/a", "x/a", true},
		{"x/a", "y/x/a", false},
		{"*.o", "x/y.o", true},
		{"*.o", ".o", true},
		{"x/*.o", "x/y.o", true},
		{"x/*.o", "x/y/z.o", false},
		{"tmp*", "tmp1", true},
		{"tmp*", "x/tmp", true},
		{"a?c", "abc", true},
		{"a?c", "a/c", false},
		{"**/a", "a", true},
		{"**/a", "x/y/a", true},
		{"a/**", "a/", false},
		{"a/**", "a/b", true},
		{"a/**/b", "a/b", true},
		{"a/**/b", "a/x/y/b", true},
		{"a/**/b", "a/xb", false},
		{"a/**b", "a/xb", true},
		{"a/**b", "a/x/b", false},
		{`**\/a`, "a", false},
		{`**\/a`, "x/a", true},
		{`b/**\/a`, "b/a", false},
		{`b/**\/a`, "b/x/y/a", true},
		{"**", "a", true},
		{"/**/", "a/", true},
		{"[a-c]x", "bx", true},
		{"[!a-c]x", "bx", false},
		{"[^a-c]x", "dx", true},
		{"[]]x", "]x", true},
		{"[a-]x", "-x", true},
		{"[[:digit:]]x", "7x", true},
		{"[[:nope:]]x", "7x", false},
		{"[ax", "ax", false},
		{`\#a`, "#a", true},
		{`\!a`, "!a", true},
		{`a\*`, "a*", true},
		{`a\*`, "ab", false},
		{`a\`, `a\`, false},
		{"# a", "# a", false},
		{"a  ", "a", true},
		{`a\ `, "a ", true},
		{" a", " a", true},
		{"", "a", false},
		{"/", "a", false},
		{"a\r\nb\r\n", "a", true},
		{"\ufeffa", "a", true},
		{"*\n!a", "a", false},
		{"*\n!a", "b", true},
		{"!a\n*", "a", true},
		{"*\n!*/\n!*.go", "x/", false},
		{"*\n!*/\n!*.go", "x/a.go", false},
		{"*\n!*/\n!*.go", "x/a.c", true},
		{"ü*", "über", true},
		{"a\tb", "a\tb", true},
	} {
		dir := strings.HasSuffix(c.path, "/")
		m := (*Matcher)(nil).In("", Parse([]byte(c.rules)))
		if got := m.Ignored(strings.TrimSuffix(c.path, "/"), dir); got != c.want {
			t.Errorf("rules %q, path %q: ignored %v, want %v", c.rules, c.path, got, c.want)
		}
	}
}

func TestNestedFiles(t *testing.T) {
	top := (*Matcher)(nil).In("", Parse([]byte("*.log\n/build"))) // as .git/info/exclude
	top = top.In("", Parse([]byte("!keep.log")))
	sub := top.In("sub", Parse([]byte("/only\n!*.log\nkeep.log")))
	for _, c := range []struct {
		in   *Matcher
		path string
		want bool
	}{
		{top, "a.log", true},
		{top, "keep.log", false},
		{top, "build", true},
		{sub, "sub/build", false},
		{sub, "sub/a.log", false},
		{sub, "sub/keep.log", true},
		{sub, "sub/only", true},
		{sub.In("sub/x", nil), "sub/x/only", false},
		{nil, "anything", false},
	} {
		if got := c.in.Ignored(c.path, false); got != c.want {
			t.Errorf("%q: ignored %v, want %v", c.path, got, c.want)
		}
	}
}

func TestHostilePatternEnds(t *testing.T) {
	m := (*Matcher)(nil).In("", Parse([]byte(strings.Repeat("*a", 100)+"b")))
	m.Ignored(strings.Repeat("a", 250), false)
}

// TestAsGit compares with git itself on random rules and paths.
func TestAsGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed, so its answers cannot be compared")
	}
	repo := t.TempDir()
	if out, err := exec.Command(git, "init", "-q", repo).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	piece := rapid.SampledFrom([]string{"a", "b", "ab", "*", "**", "?", "/", "/", "!", "[ab]", "[!a]", `\`, " ", "*.b", ".b", "#", "-", "[", "]"})
	line := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(piece, 1, 6).Draw(t, "pieces"), "")
	})
	name := rapid.StringMatching(`[ab.]{0,2}[ab!#]`)
	rapid.Check(t, func(rt *rapid.T) {
		lines := rapid.SliceOfN(line, 1, 4).Draw(rt, "lines")
		rules := []byte(strings.Join(lines, "\n") + "\n")
		if err := os.WriteFile(filepath.Join(repo, ".gitignore"), rules, 0o600); err != nil {
			rt.Fatal(err)
		}
		var in bytes.Buffer
		var paths []string
		for range 8 {
			p := strings.Join(rapid.SliceOfN(name, 1, 3).Draw(rt, "path"), "/")
			if strings.HasPrefix(p, ".git/") {
				continue
			}
			paths = append(paths, p)
			in.WriteString(p + "\x00")
		}
		cmd := exec.Command(git, "-C", repo, "-c", "core.excludesFile=", "check-ignore", "--no-index", "-z", "-v", "-n", "--stdin")
		cmd.Stdin = &in
		out, err := cmd.Output()
		if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() != 1) {
			rt.Fatalf("git check-ignore: %v", err)
		}
		fields := bytes.Split(out, []byte{0}) // source, line, pattern, path
		m := (*Matcher)(nil).In("", Parse(rules))
		for i, p := range paths {
			want := len(fields[i*4+2]) > 0 && fields[i*4+2][0] != '!'
			if got := ignoredBelow(m, p); got != want {
				rt.Errorf("rules %q, path %q: ignored %v, git says %v (%s)", rules, p, got, want, fields[i*4+2])
			}
		}
	})
}

// ignoredBelow asks for every folder on the way, as a walk does.
func ignoredBelow(m *Matcher, path string) bool {
	for i := range path {
		if path[i] == '/' && m.Ignored(path[:i], true) {
			return true
		}
	}
	return m.Ignored(path, false)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("*.o\n!/a/**/b/\n[a-z"), "a/b")
	f.Fuzz(func(t *testing.T, rules []byte, path string) {
		(*Matcher)(nil).In("", Parse(rules)).Ignored(path, false)
	})
}

func BenchmarkIgnored(b *testing.B) {
	m := (*Matcher)(nil).In("", Parse([]byte("*.pyc\n__pycache__/\n/build\n/dist\nnode_modules/\n.venv\n*.egg-info/\n.DS_Store\n*.log\n!keep.log\n")))
	for b.Loop() {
		m.Ignored("src/pkg/module/file_12.py", false)
	}
}
