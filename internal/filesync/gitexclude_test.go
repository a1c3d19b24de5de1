//go:build unix

package filesync

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// walked lists the files that a source has besides git's own.
func walked(t *testing.T, src string, left *Left) (list []string) {
	t.Helper()
	for e, err := range Walk(Local(src), true, left) {
		must(t, err)
		if e.Mode.IsRegular() && !strings.HasPrefix(e.Path, ".git") {
			list = append(list, e.Path)
		}
	}
	return list
}

func TestGitsExcludeFilesCount(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	repo, tree := filepath.Join(home, "repo"), filepath.Join(home, "tree")
	write(t, home, map[string]string{
		"repo/.git/HEAD": "ref: x", "repo/.git/info/exclude": "/sub/private\n*.secret\n!keep.mine\n", "repo/.git/config": "[core]\n\tbare = false\n",
		"repo/.git/worktrees/tree/HEAD": "ref: y", "repo/.git/worktrees/tree/commondir": "../..\n",
		"tree/.git":  "gitdir: " + repo + "/.git/worktrees/tree\n",
		".gitconfig": "[user]\n name = x ; [core]\n[include]\n path = more.config\n", "more.config": "[Core]\n\texcludesFile = \"~/my excludes\" # mine\n",
		"my excludes": "*.mine\n", ".config/git/ignore": "*.unused\n",
	})
	for _, dir := range []string{repo, tree} {
		write(t, dir, map[string]string{"a": "", "a.secret": "", "a.mine": "", "keep.mine": "", "a.unused": "", "sub/private": "", "sub/b": "", "other/private": ""})
	}
	all := []string{"a", "a.unused", "keep.mine", "other/private", "sub/b"}
	for _, c := range []struct {
		name, src string
		want      []string
	}{
		{"a repository", repo, all},
		{"a worktree", tree, all},
		{"a folder of a repository", filepath.Join(repo, "sub"), []string{"b"}},
	} {
		var left Left
		if got := walked(t, c.src, &left); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if left.RuleFiles != 2 || left.Ignored == 0 {
			t.Errorf("%s: %+v", c.name, left)
		}
	}
	must(t, os.Remove(filepath.Join(home, ".gitconfig")))
	if got := walked(t, repo, nil); !slices.Contains(got, "a.mine") || slices.Contains(got, "a.unused") {
		t.Errorf("with the default of core.excludesFile: %q", got)
	}
	write(t, home, map[string]string{"plain/a.unused": ""})
	if got := walked(t, filepath.Join(home, "plain"), nil); len(got) != 1 {
		t.Errorf("outside of repositories: %q", got)
	}
	// A tree of somebody else has rules of its own only.
	var list []string
	for e, err := range Walk(Within(home, "tree", "theirs"), true, nil) {
		must(t, err)
		list = append(list, e.Path)
	}
	if !slices.Contains(list, "a.secret") {
		t.Errorf("an upload is read with the excludes of another repository: %q", list)
	}
}

func TestValuesOfGitsConfigurationAreReadAsGitDoes(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed, so its answers cannot be compared")
	}
	dir := t.TempDir()
	for _, line := range []string{"x", " x y ", `"x y "`, `"a # b" # c`, `a ; b`, `a\tb`, `a\\b`, `a\"b`, `"a" b "c;d"`, "", "a\\\nb", `~/x`} {
		file := filepath.Join(dir, "config")
		must(t, os.WriteFile(file, []byte("[other]\nexcludesfile = no\n[core]\n\tExcludesFile = "+line+"\n[core \"sub\"]\nexcludesfile = no\n"), 0o600))
		want, err := exec.Command(git, "config", "-z", "--file", file, "core.excludesfile").Output()
		must(t, err)
		if got, ok, err := configured(file, dir, 0); err != nil || !ok || got != strings.TrimSuffix(string(want), "\x00") {
			t.Errorf("%q is %q, git says %q (%v)", line, got, want, err)
		}
	}
}
