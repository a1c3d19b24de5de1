package filesync

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/skypilot-go/sky/internal/filesync/ignore"
)

// A repository is the git repository that a folder of this machine is in.
type repository struct {
	top    string // of the working tree
	common string // the folder of git that all its worktrees share
}

// repositoryOf finds the repository of a folder, as git does; false if there is
// none.
func repositoryOf(dir string) (repository, bool) {
	for top := dir; ; top = filepath.Dir(top) {
		if git, ok := gitDir(top); ok && (top == dir || isFile(filepath.Join(git, "HEAD"))) {
			r := repository{top, git}
			if text, err := os.ReadFile(filepath.Join(git, "commondir")); err == nil { // a worktree
				r.common = within(git, strings.TrimSpace(string(text)))
			}
			return r, true
		}
		if filepath.Dir(top) == top {
			return repository{}, false
		}
	}
}

// gitDir is the folder that .git is, or that the file .git of a worktree or
// submodule names.
func gitDir(top string) (string, bool) {
	at := filepath.Join(top, ".git")
	info, err := os.Stat(at)
	if err != nil {
		return "", false
	}
	if info.IsDir() {
		return at, true
	}
	if !info.Mode().IsRegular() || info.Size() > maxPath {
		return "", false
	}
	text, err := os.ReadFile(at)
	if err != nil {
		return "", false
	}
	to, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "gitdir:")
	return within(top, strings.TrimSpace(to)), ok
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// within is a path that may be relative to dir.
func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// gitExcludes are the rules of git that lie in no folder of the tree: those of
// core.excludesFile and, before these, of info/exclude.
func (t *tree) gitExcludes() error {
	if t.root != nil { // somebody else's tree: nothing outside of it is read
		rules, err := t.rulesAt(".git/info/exclude")
		t.exclude(".git/info/exclude", "", rules)
		return err
	}
	repo, ok := repositoryOf(t.at)
	if !ok {
		return nil
	}
	below, err := filepath.Rel(repo.top, t.at)
	if err != nil {
		return err
	}
	if below = filepath.ToSlash(below); below == "." {
		below = ""
	}
	global, err := excludesFile(repo)
	if err != nil {
		return err
	}
	for _, file := range []string{global, filepath.Join(repo.common, "info", "exclude")} {
		if file == "" {
			continue
		}
		rules, err := readRules(file)
		if err != nil {
			return err
		}
		t.exclude(file, below, rules)
	}
	return nil
}

// exclude adds the rules of a file; below is where in its repository the tree is.
func (t *tree) exclude(file, below string, rules ignore.Rules) {
	if len(rules) > 0 {
		t.ignored = t.ignored.InRepository(below, rules)
		t.ruleFiles = append(t.ruleFiles, file)
	}
}

// readRules reads an ignore file of this machine; none has no rules.
func readRules(path string) (ignore.Rules, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if errors.Is(err, fs.ErrNotExist) || isNotFolder(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ignore rules: %w", err)
	}
	defer f.Close()
	return parseRules(f, path)
}

// parseRules reads rules to their end.
func parseRules(f io.Reader, name string) (ignore.Rules, error) {
	data, err := io.ReadAll(io.LimitReader(f, maxRules+1))
	if err == nil && len(data) > maxRules {
		err = fmt.Errorf("%s is larger than %d MiB", name, maxRules>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("reading ignore rules: %w", err)
	}
	return ignore.Parse(data), nil
}

// excludesFile is the file that core.excludesFile names, or git's default for it.
func excludesFile(repo repository) (string, error) {
	home, _ := os.UserHomeDir() // without one, nothing below it counts
	if home == "" {
		return "", nil
	}
	xdg := cmp.Or(os.Getenv("XDG_CONFIG_HOME"), filepath.Join(home, ".config"))
	configs := []string{"/etc/gitconfig", filepath.Join(xdg, "git", "config"), filepath.Join(home, ".gitconfig")}
	if global, ok := os.LookupEnv("GIT_CONFIG_GLOBAL"); ok {
		configs = []string{configs[0], global}
	}
	file := filepath.Join(xdg, "git", "ignore")
	for _, c := range append(configs, filepath.Join(repo.common, "config")) {
		value, ok, err := configured(c, home, 0)
		if err != nil {
			return "", err
		}
		if ok {
			file = value
		}
	}
	if file == "" {
		return "", nil
	}
	return within(repo.top, atHome(file, home)), nil
}

// atHome replaces a leading "~/".
func atHome(path, home string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(home, rest)
	}
	return path
}

// maxIncludes bounds how deep files of git's configuration include each other.
const maxIncludes = 10

// configured is what a file of git's configuration, with those that it includes,
// says of core.excludesFile. Conditional includes are not followed.
func configured(path, home string, depth int) (value string, ok bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || isNotFolder(err) || depth > maxIncludes {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("reading ignore rules: %w", err)
	}
	section := ""
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		line = strings.TrimSpace(line)
		if rest, found := strings.CutPrefix(line, "["); found {
			name, after, closed := strings.Cut(rest, "]")
			if !closed {
				continue
			}
			section, line = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(after)
		}
		key, raw, _ := strings.Cut(line, "=")
		switch section + "." + strings.ToLower(strings.TrimSpace(key)) {
		case "core.excludesfile":
			value, ok = unquote(raw), true
		case "include.path":
			v, found, err := configured(within(filepath.Dir(path), atHome(unquote(raw), home)), home, depth+1)
			if err != nil {
				return "", false, err
			}
			if found {
				value, ok = v, true
			}
		}
	}
	return value, ok, nil
}

// unquote reads a value of git's configuration, up to a comment.
func unquote(raw string) string {
	var out strings.Builder
	quoted, spaces := false, ""
	for raw = strings.TrimSpace(raw); raw != ""; raw = raw[1:] {
		c := raw[0]
		switch {
		case c == '"':
			quoted = !quoted
			continue
		case c == '\\' && len(raw) > 1:
			raw = raw[1:]
			c = map[byte]byte{'n': '\n', 't': '\t'}[raw[0]]
			if c == 0 {
				c = raw[0]
			}
		case !quoted && (c == '#' || c == ';'):
			return out.String()
		case !quoted && (c == ' ' || c == '\t'):
			spaces += string(c)
			continue
		}
		out.WriteString(spaces)
		out.WriteByte(c)
		spaces = ""
	}
	return out.String()
}
