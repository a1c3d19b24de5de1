package filesync

import (
	"cmp"
	"io/fs"
	"iter"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/filesync/ignore"
)

// Walk yields what Send would send of src: first src itself with the path
// ".", then what is in it, sorted, each folder before what it contains.
//
// With useIgnore it leaves out what the ".skyignore" files of the tree say if
// src has one at its top, else what the ".gitignore" files and the
// exclude files of git say. Sockets, pipes and devices are left out always, and so
// is sky's own state. left, if not nil, is what was left out once the walk has
// ended. The walk ends after an error.
func Walk(src Source, useIgnore bool, left *Left) iter.Seq2[Entry, error] {
	if left == nil {
		left = new(Left)
	}
	return func(yield func(Entry, error) bool) {
		t, err := openTree(src, useIgnore)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		defer t.close()
		if yield(t.meta.entry("."), nil) && !t.file {
			t.walk("", t.ignored, left, yield)
		}
	}
}

// walk yields what is in a folder; false ends the whole walk.
func (t *tree) walk(path string, rules *ignore.Matcher, left *Left, yield func(Entry, error) bool) bool {
	l, gone, err := t.list(path, rules, nil)
	if err != nil {
		yield(Entry{}, err)
		return false
	}
	if gone {
		return true
	}
	left.add(&l.left)
	all := append(l.items, l.folders...)
	slices.SortFunc(all, func(a, b item) int { return cmp.Compare(a.name, b.name) })
	for i := range all {
		at := join(path, all[i].name)
		if !yield(all[i].entry(at), nil) {
			return false
		}
		if all[i].kind == kindFolder && !t.walk(at, l.rules, left, yield) {
			return false
		}
	}
	return true
}

func (it *item) entry(path string) Entry {
	e := Entry{Path: path, Mode: fs.FileMode(it.perm), Size: it.size, ModTime: time.Unix(0, it.mtime), Target: it.target}
	switch it.kind {
	case kindLink:
		e.Mode |= fs.ModeSymlink
	case kindFolder:
		e.Mode |= fs.ModeDir
		e.Size = 0
	}
	return e
}
