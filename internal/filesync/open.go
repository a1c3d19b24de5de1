package filesync

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"

	"github.com/skypilot-go/sky/internal/filesync/ignore"
)

// A Source names the file or folder that is sent. It is made by [Local] or
// [Within], never from a bare string; the zero Source names nothing.
type Source struct {
	name string // for people
	dir  string // what nothing that is read may lie outside of; "": path is one of this machine
	path string
}

// Local names a path of this machine, symlinks followed. Whoever chooses the
// path reads whatever this process can read, so it is for the machine's owner and
// for paths that this program chose itself.
func Local(path string) Source { return Source{name: path, path: path} }

// Within names what is at path, with slashes, below the folder dir. The path and
// the content of dir may be those of somebody who is not trusted: everything is
// opened below dir, and a path or symlink that leads out of it is an
// [*OutsideError]. name is what people call it.
func Within(dir, path, name string) Source { return Source{name: name, dir: dir, path: path} }

// String is the name of the source for people.
func (s Source) String() string { return s.name }

// At is where the source is: a path of this machine, or with dir one below that folder,
// which nothing of it may lead out of.
func (s Source) At() (dir, path string) { return s.dir, s.path }

// An OutsideError means that a path of a source leads out of the folder that it
// must stay in.
type OutsideError struct{ Name string }

func (e *OutsideError) Error() string {
	return fmt.Sprintf("%s leads out of the uploaded files", e.Name)
}

var errNoSource = errors.New("no file or folder to send is named")

// real is where the source is, for messages about what is in it and for the cache
// of hashes.
func (s Source) real() string {
	if s.dir == "" {
		return s.path
	}
	return filepath.Join(s.dir, filepath.FromSlash(s.path))
}

// open opens the file or folder itself. The root, if the source has one, is what
// everything further is opened below; the caller closes both.
func (s Source) open(state *ownState) (f *os.File, at string, root *os.Root, err error) {
	switch {
	case s.path == "":
		return nil, "", nil, errNoSource
	case s.dir == "":
		if at, err = filepath.Abs(s.path); err == nil {
			at, err = filepath.EvalSymlinks(at)
		}
		if err == nil {
			err = state.refuse(s.name, at) // before it is opened
		}
		if err == nil {
			f, err = os.OpenFile(at, os.O_RDONLY|nonblock, 0)
		}
		return f, at, nil, err
	}
	if root, err = os.OpenRoot(s.dir); err != nil {
		return nil, "", nil, err
	}
	if f, err = root.OpenFile(s.path, os.O_RDONLY|nonblock, 0); err != nil {
		if escapes(root, err) {
			err = &OutsideError{s.name}
		}
		root.Close()
		return nil, "", nil, err
	}
	return f, s.real(), root, nil
}

// escapes reports whether err is that of a root which a path leads out of. Package
// os does not export it.
func escapes(root *os.Root, err error) bool {
	_, probe := root.Lstat("..")
	var got, want *fs.PathError
	return errors.As(err, &got) && errors.As(probe, &want) && errors.Is(got.Err, want.Err)
}

// Stat describes the source itself.
func Stat(src Source) (Entry, error) {
	t, err := openTree(src, false)
	if err != nil {
		return Entry{}, err
	}
	defer t.close()
	return t.meta.entry("."), nil
}

// Open opens the content of a file that [Walk] yielded under this path.
func Open(src Source, path string) (io.ReadCloser, error) {
	t, err := openTree(src, false)
	if err != nil {
		return nil, err
	}
	f, err := t.openFile(path)
	if err != nil {
		t.close()
		return nil, err
	}
	return &content{f, t, sync.Once{}}, nil
}

// content reads a file of a tree, which it closes in the end.
type content struct {
	f    *sourceFile
	t    *tree
	once sync.Once
}

func (c *content) Read(p []byte) (int, error) {
	n, err := c.f.read(p)
	if n == 0 && err == nil && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

func (c *content) Close() error {
	c.once.Do(func() {
		c.f.close()
		c.t.close()
	})
	return nil
}

// maxRules bounds an ignore file.
const maxRules = 4 << 20

// rulesAt reads the ignore file at a path below the source; none has no rules.
func (t *tree) rulesAt(below string) (ignore.Rules, error) {
	var f *os.File
	var err error
	if t.root != nil {
		f, err = t.root.OpenFile(path.Join(t.below, below), os.O_RDONLY|nonblock, 0)
	} else {
		f, err = os.OpenFile(filepath.Join(t.at, filepath.FromSlash(below)), os.O_RDONLY|nonblock, 0)
	}
	if errors.Is(err, fs.ErrNotExist) || isNotFolder(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ignore rules: %w", err)
	}
	defer f.Close()
	return parseRules(f, join(t.name, below))
}
