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

// A tree is a source that is open: what is sent of a folder, or a single file.
type tree struct {
	name      string          // for people
	at        string          // absolute, symlinks of its own name resolved
	below     string          // the path in root
	root      *os.Root        // what nothing may lead out of; nil: a path of this machine
	top       *folderHandle   // nil: the source is a file
	file      bool            // it is a file
	rules     string          // name of the ignore files, "" to send everything
	ignored   *ignore.Matcher // by what holds for the whole tree
	ruleFiles []string        // where that stands
	meta      item            // of the source itself
	state     *ownState       // what is never read
}

const (
	skyIgnore = ".skyignore"
	gitIgnore = ".gitignore"
)

// openTree opens the source and finds out which ignore rules hold. The caller
// closes it.
func openTree(src Source, useIgnore bool) (*tree, error) {
	state := findState()
	f, at, root, err := src.open(state)
	if err != nil {
		return nil, err
	}
	t := &tree{name: src.name, at: at, below: src.path, root: root, state: state}
	if err := t.begin(f, useIgnore); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// begin fills in what f, the source itself, tells. It closes f or keeps it as the
// tree's own.
func (t *tree) begin(f *os.File, useIgnore bool) error {
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	t.file = !info.IsDir()
	if t.file {
		f.Close()
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%q is neither a file nor a folder", t.name)
		}
		file, err := t.openFile(".")
		if err != nil {
			return err
		}
		defer file.close()
		t.meta, err = file.stat()
		return err
	}
	if t.top, err = handleOf(f, t); err != nil {
		return err
	}
	t.meta = item{kind: kindFolder, perm: uint16(info.Mode().Perm()), mtime: info.ModTime().UnixNano()}
	if !useIgnore {
		return nil
	}
	t.rules = gitIgnore
	if it, err := t.top.stat(skyIgnore); err == nil && it.kind == kindFile {
		t.rules = skyIgnore
		return nil
	}
	return t.gitExcludes()
}

func (t *tree) close() {
	if t.top != nil {
		t.top.close()
	}
	if t.root != nil {
		t.root.Close()
	}
}

// folder is the folder that everything sent is in.
func (t *tree) folder() string {
	if t.file {
		return filepath.Dir(t.at)
	}
	return t.at
}

// path is where something below the source is, for messages.
func (t *tree) path(below string) string { return filepath.Join(t.at, filepath.FromSlash(below)) }

// A listing is what is sent of one folder.
type listing struct {
	items   []item // files and links
	folders []item
	rules   *ignore.Matcher // for the folders
	left    Left            // what is not sent
}

// list reads the folder at path below the root, "" for the root itself; rules
// are those of the folder above. A folder that is gone has nothing in it, and
// gone is true.
func (t *tree) list(path string, rules *ignore.Matcher, buf []item) (l listing, gone bool, err error) {
	f, err := t.openFolder(path)
	if errors.Is(err, fs.ErrNotExist) && path != "" {
		return l, true, nil
	}
	if path != "" && (isLoop(err) || isNotFolder(err)) {
		return l, false, &ChangedError{Path: t.path(path), Gone: true}
	}
	if err != nil {
		return l, false, fmt.Errorf("reading the source: %w", err)
	}
	defer f.close()
	l.rules, l.items = rules, buf[:0]
	if path == "" {
		l.left.rules(t.ruleFiles...)
	}
	if t.rules != "" {
		if l.rules, err = t.folderRules(f, path, &l); err != nil {
			return l, false, err
		}
	}
	for _, n := range f.names {
		if err := l.add(t, f, n, path); err != nil {
			return l, false, err
		}
	}
	return l, false, nil
}

func (t *tree) folderRules(f *folder, path string, l *listing) (*ignore.Matcher, error) {
	for _, n := range f.names {
		if n.Name() == t.rules && n.Type().IsRegular() {
			own, err := t.rulesAt(join(path, t.rules))
			if len(own) > 0 {
				l.left.rules(join(path, t.rules))
			}
			return l.rules.In(path, own), err
		}
	}
	return l.rules, nil
}

func (l *listing) add(t *tree, f *folder, n fs.DirEntry, path string) error {
	name := n.Name()
	if isPartName(name) {
		return nil
	}
	if l.rules != nil && l.rules.Ignored(join(path, name), n.IsDir()) {
		l.left.Ignored++
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
	case t.isState(f, &it):
		l.left.State = append(l.left.State, join(path, name))
	case it.kind == kindOther:
		l.left.Special++
	case len(name) > maxName || len(path)+1+len(name) > maxPath || len(it.target) > maxPath:
		return fmt.Errorf("reading the source: the path of %q is too long", join(path, name))
	case it.kind == kindFolder:
		l.folders = append(l.folders, it)
	default:
		if it.kind == kindLink && t.root == nil && f.dangles(name) {
			l.left.dangling(join(path, name))
		}
		l.items = append(l.items, it)
	}
	return nil
}

// isState reports whether an entry is part of sky's own state.
func (t *tree) isState(f *folder, it *item) bool {
	if it.kind == kindFolder && looksLikeState(it.name, func(below string) bool { return f.has(join(it.name, below)) }) {
		return true
	}
	if !t.state.inodes[it.inode] || it.kind != kindFolder && it.kind != kindFile {
		return false
	}
	info, err := f.info(it.name)
	return err == nil && t.state.has(info)
}

// Names of files that a receiver is still writing.
const (
	partPrefix = ".sky-sync-"
	partSuffix = ".part" // a large file, kept to go on with
	tempSuffix = ".temp" // a small file or a link
	partHex    = 32
)

// isPartName reports whether a receiver's unfinished file has this name.
func isPartName(name string) bool {
	hex, ok := strings.CutPrefix(name, partPrefix)
	if !ok {
		return false
	}
	end := len(hex) - len(partSuffix)
	return end == partHex && (hex[end:] == partSuffix || hex[end:] == tempSuffix) &&
		strings.Trim(hex[:end], "0123456789abcdef") == ""
}
