package filesync

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/skypilot-go/sky/internal/filesync/ignore"
)

// A tree is a source: what is sent of a folder, or a single file.
type tree struct {
	root  string // absolute, symlinks of its own name resolved
	file  bool   // root is a file
	rules string // name of the ignore files, "" to send everything
	top   *ignore.Matcher
	meta  item // of root
}

const (
	skyIgnore = ".skyignore"
	gitIgnore = ".gitignore"
)

// openTree looks at the source and finds out which ignore rules hold.
func openTree(src string, useIgnore bool) (*tree, error) {
	root, err := filepath.Abs(src)
	if err != nil {
		return nil, err
	}
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return nil, err
	}
	info, err := os.Stat(root)
	if err != nil {
		return nil, err
	}
	t := &tree{root: root, file: !info.IsDir()}
	if t.meta, err = rootItem(root, info); err != nil {
		return nil, err
	}
	if t.file && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q is neither a file nor a folder", src)
	}
	if !useIgnore || t.file {
		return t, nil
	}
	t.rules = gitIgnore
	if info, err := os.Lstat(filepath.Join(root, skyIgnore)); err == nil && info.Mode().IsRegular() {
		t.rules = skyIgnore
		return t, nil
	}
	exclude, err := readRules(filepath.Join(root, ".git", "info", "exclude"))
	if err != nil {
		return nil, err
	}
	t.top = t.top.In("", exclude)
	return t, nil
}

// folder is the folder that everything sent is in.
func (t *tree) folder() string {
	if t.file {
		return filepath.Dir(t.root)
	}
	return t.root
}

// rootItem describes the source itself, and makes sure that a file can be
// read.
func rootItem(root string, info fs.FileInfo) (item, error) {
	if info.IsDir() {
		return item{kind: kindFolder, perm: uint16(info.Mode().Perm()), mtime: info.ModTime().UnixNano()}, nil
	}
	f, err := openFile(root)
	if err != nil {
		return item{}, err
	}
	defer f.close()
	return f.stat()
}

// readRules reads an ignore file; none has no rules.
func readRules(path string) (ignore.Rules, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || isNotFolder(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ignore rules: %w", err)
	}
	return ignore.Parse(data), nil
}

// A listing is what is sent of one folder.
type listing struct {
	items   []item // files and links
	folders []item
	rules   *ignore.Matcher // for the folders
	skipped int             // things that are never sent
}

// list reads the folder at path below the root, "" for the root itself; rules
// are those of the folder above. A folder that is gone has nothing in it, and
// gone is true.
func (t *tree) list(path string, rules *ignore.Matcher, buf []item) (l listing, gone bool, err error) {
	f, err := openFolder(filepath.Join(t.root, filepath.FromSlash(path)))
	if errors.Is(err, fs.ErrNotExist) && path != "" {
		return l, true, nil
	}
	if path != "" && (isLoop(err) || isNotFolder(err)) {
		return l, false, &ChangedError{Path: filepath.Join(t.root, filepath.FromSlash(path)), Gone: true}
	}
	if err != nil {
		return l, false, fmt.Errorf("reading the source: %w", err)
	}
	defer f.close()
	l.rules, l.items = rules, buf[:0]
	if t.rules != "" {
		if l.rules, err = t.folderRules(f, path, rules); err != nil {
			return l, false, err
		}
	}
	for _, n := range f.names {
		if err := l.add(f, n, path); err != nil {
			return l, false, err
		}
	}
	return l, false, nil
}

func (t *tree) folderRules(f *folder, path string, rules *ignore.Matcher) (*ignore.Matcher, error) {
	for _, n := range f.names {
		if n.Name() == t.rules && n.Type().IsRegular() {
			own, err := readRules(filepath.Join(f.path, t.rules))
			return rules.In(path, own), err
		}
	}
	return rules, nil
}

func (l *listing) add(f *folder, n fs.DirEntry, path string) error {
	name := n.Name()
	if isPartName(name) || l.rules != nil && l.rules.Ignored(join(path, name), n.IsDir()) {
		return nil
	}
	it, err := f.stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed since the folder was read
	}
	if err != nil {
		return fmt.Errorf("reading the source: %w", err)
	}
	switch {
	case it.kind == kindOther:
		l.skipped++
	case len(name) > maxName || len(path)+1+len(name) > maxPath || len(it.target) > maxPath:
		return fmt.Errorf("reading the source: the path of %q is too long", join(path, name))
	case it.kind == kindFolder:
		l.folders = append(l.folders, it)
	default:
		l.items = append(l.items, it)
	}
	return nil
}

// Names of files that a receiver is still writing.
const (
	partPrefix = ".sky-sync-"
	partSuffix = ".part" // a large file, kept to go on with
	tempSuffix = ".temp" // a small file or a link
	partHex    = 32
)

// isPartName tells whether a receiver's unfinished file has this name.
func isPartName(name string) bool {
	hex, ok := strings.CutPrefix(name, partPrefix)
	if !ok {
		return false
	}
	end := len(hex) - len(partSuffix)
	return end == partHex && (hex[end:] == partSuffix || hex[end:] == tempSuffix) &&
		strings.Trim(hex[:end], "0123456789abcdef") == ""
}
