package transfer

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/filesync/ignore"
)

// A Source is a folder or a file to upload. Nothing outside of its root is read,
// whatever links in it say.
type Source struct {
	name string // for people
	root *os.Root
	file string // in root, if the source is a file
	skip func(dir *os.Root, name string, info fs.FileInfo) (why string)
}

// LeaveOut makes the source be without the files and folders for which skip, called with
// the folder that they are in, gives a reason. It is called before the source is used.
func (s *Source) LeaveOut(skip func(dir *os.Root, name string, info fs.FileInfo) (why string)) {
	s.skip = skip
}

// Local is a path of this machine; if it is a symbolic link, it is followed.
// Whoever chooses the path reads whatever this process can read.
func Local(name string) (*Source, error) {
	at, err := filepath.Abs(name)
	if err == nil {
		at, err = filepath.EvalSymlinks(at)
	}
	if err != nil {
		return nil, err
	}
	return open(name, at, os.OpenRoot, os.Stat)
}

// Within is a path below a root, which stays the caller's. The path and all that
// lies there may be somebody's who is not trusted; name is what people call it.
func Within(root *os.Root, at, name string) (*Source, error) {
	return open(name, at, root.OpenRoot, root.Stat)
}

func open(name, at string, openRoot func(string) (*os.Root, error), stat func(string) (fs.FileInfo, error)) (*Source, error) {
	info, err := stat(at)
	if err != nil {
		return nil, err
	}
	s := &Source{name: name}
	switch {
	case info.IsDir():
		s.root, err = openRoot(at)
	case info.Mode().IsRegular():
		s.file = filepath.Base(at)
		s.root, err = openRoot(filepath.Dir(at))
	default:
		err = fmt.Errorf("%s is neither a file nor a folder", name)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close lets go of the source.
func (s *Source) Close() error { return s.root.Close() }

// An entry is a file or a link of a source.
type entry struct {
	path  string // with slashes, below the source; of a source that is a file, its name
	size  int64
	mtime time.Time
	mode  fs.FileMode // permission bits
	link  string      // target, if it is a link
}

func entryOf(at string, info fs.FileInfo) entry {
	return entry{path: at, size: info.Size(), mtime: info.ModTime(), mode: info.Mode().Perm()}
}

const (
	skyIgnore = ".skyignore"
	gitIgnore = ".gitignore"
	gitFolder = ".git"
	maxRules  = 4 << 20 // bytes of an ignore file
)

// A walk goes through a source in the order of its keys. left is told about what is left
// out by rule; what cannot be read is yielded as an error, after which it goes on.
type walk struct {
	s     *Source
	rules string // name of the ignore files; "": none count
	left  func(kind, path string)
}

// entries yields what there is.
func (s *Source) entries(useIgnore bool, left func(kind, path string)) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		if s.file != "" {
			info, err := s.root.Stat(s.file)
			if err != nil {
				yield(entry{path: s.file}, err)
				return
			}
			yield(entryOf(s.file, info), nil)
			return
		}
		w := walk{s: s, left: left}
		var ignored *ignore.Matcher
		if useIgnore {
			w.rules = gitIgnore
			if info, err := s.root.Lstat(skyIgnore); err == nil && info.Mode().IsRegular() {
				w.rules = skyIgnore
			} else {
				exclude, err := readRules(s.root, ".git/info/exclude")
				if err != nil {
					yield(entry{path: ".git/info/exclude"}, err)
					return
				}
				ignored = ignored.In("", exclude)
			}
		}
		w.folder(s.root, "", ignored, yield)
	}
}

// folder yields what is in a folder; false ends the walk.
func (w *walk) folder(root *os.Root, at string, ignored *ignore.Matcher, yield func(entry, error) bool) bool {
	f, err := root.Open(".")
	if err != nil {
		return yield(entry{path: at}, err)
	}
	names, err := f.ReadDir(-1)
	f.Close()
	if err != nil {
		return yield(entry{path: at}, err)
	}
	if w.rules != "" {
		own, err := readRules(root, w.rules)
		if err != nil && !yield(entry{path: path.Join(at, w.rules)}, err) {
			return false
		}
		ignored = ignored.In(at, own)
	}
	// A folder stands where the keys of what is in it stand.
	order := func(d fs.DirEntry) string {
		if d.IsDir() {
			return d.Name() + "/"
		}
		return d.Name()
	}
	slices.SortFunc(names, func(a, b fs.DirEntry) int { return cmp.Compare(order(a), order(b)) })
	for _, d := range names {
		if !w.one(root, path.Join(at, d.Name()), d, ignored, yield) {
			return false
		}
	}
	return true
}

func (w *walk) one(root *os.Root, at string, d fs.DirEntry, ignored *ignore.Matcher, yield func(entry, error) bool) bool {
	if w.s.skip != nil {
		if info, err := root.Lstat(d.Name()); err == nil {
			if why := w.s.skip(root, d.Name(), info); why != "" {
				w.left(why, at)
				return true
			}
		}
	}
	switch {
	case at == gitFolder:
		w.left("git's own folder", at)
		return true
	case isPartName(d.Name()), ignored.Ignored(at, d.IsDir()):
		return true
	case d.IsDir():
		below, err := root.OpenRoot(d.Name())
		if errors.Is(err, fs.ErrNotExist) {
			return true
		}
		if err != nil {
			return yield(entry{path: at}, err)
		}
		defer below.Close()
		return w.folder(below, at, ignored, yield)
	}
	info, err := root.Lstat(d.Name())
	if errors.Is(err, fs.ErrNotExist) {
		return true // removed since the folder was read
	}
	if err != nil {
		return yield(entry{path: at}, err)
	}
	e := entryOf(at, info)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if e.link, err = root.Readlink(d.Name()); err != nil {
			return yield(e, err)
		}
		e.size, e.mode = 0, 0
	case !info.Mode().IsRegular():
		w.left("neither a file nor a folder", at)
		return true
	}
	return yield(e, nil)
}

// A rulesError means that it is not known what is to be left out.
type rulesError struct{ err error }

func (e *rulesError) Error() string { return "reading ignore rules: " + e.err.Error() }
func (e *rulesError) Unwrap() error { return e.err }

// readRules reads an ignore file; none has no rules.
func readRules(root *os.Root, name string) (ignore.Rules, error) {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	if err != nil {
		return nil, nil // a file stands where its folder would be
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, &rulesError{err}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRules+1))
	if err == nil && len(data) > maxRules {
		err = fmt.Errorf("%s is larger than %d MiB", name, maxRules>>20)
	}
	if err != nil {
		return nil, &rulesError{err}
	}
	return ignore.Parse(data), nil
}

// A file is an open file of a source, which has not changed since it was listed.
type file struct {
	*os.File
	e entry
}

// errChanged means that a file is being written to.
var errChanged = errors.New("the file changes while it is read")

func (s *Source) open(e entry) (*file, error) {
	f, err := s.root.Open(filepath.FromSlash(e.path))
	if err != nil {
		return nil, &localError{err}
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file any more", e.path)
	}
	if err != nil {
		f.Close()
		return nil, &localError{err}
	}
	e.size, e.mtime, e.mode = info.Size(), info.ModTime(), info.Mode().Perm()
	return &file{f, e}, nil
}

// unchanged checks that the file is the one that was opened.
func (f *file) unchanged() error {
	info, err := f.Stat()
	if err == nil && (info.Size() != f.e.size || !info.ModTime().Equal(f.e.mtime)) {
		err = errChanged
	}
	if err != nil {
		return &localError{err}
	}
	return nil
}

// read fills p from an offset.
func (f *file) read(p []byte, offset int64) error {
	n, err := f.ReadAt(p, offset)
	if n == len(p) {
		return nil
	}
	if err == io.EOF || err == nil {
		err = errChanged
	}
	return &localError{err}
}

// Names of files that a download is still writing.
const (
	partPrefix = ".sky-copy-"
	partSuffix = ".part"
	doneSuffix = ".done" // which pieces of the part are there
)

// isPartName reports whether an unfinished file of a download has this name.
func isPartName(name string) bool {
	rest, ok := strings.CutPrefix(name, partPrefix)
	return ok && (strings.HasSuffix(rest, partSuffix) || strings.HasSuffix(rest, doneSuffix))
}
