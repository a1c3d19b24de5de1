package filesync

import (
	"cmp"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// nonblock has no meaning here.
const nonblock = 0

// A folderHandle is the open folder that a tree is read below.
type folderHandle struct{ root *os.Root }

func handleOf(f *os.File, t *tree) (h *folderHandle, err error) {
	f.Close()
	h = new(folderHandle)
	if t.root != nil {
		h.root, err = t.root.OpenRoot(t.below)
	} else {
		h.root, err = os.OpenRoot(t.at)
	}
	return h, err
}

func (h *folderHandle) close() {
	if h.root != nil {
		h.root.Close()
	}
}

// stat describes one name in the folder itself.
func (h *folderHandle) stat(name string) (item, error) { return (&folder{root: h.root}).stat(name) }

// A folder is a folder of the source.
type folder struct {
	root  *os.Root
	below string
	names []fs.DirEntry
}

func (t *tree) openFolder(below string) (*folder, error) {
	f, err := t.top.root.Open(cmp.Or(below, "."))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.ReadDir(-1)
	return &folder{t.top.root, below, names}, err
}

func (f *folder) close() {}

// info describes one name as package os does.
func (f *folder) info(name string) (fs.FileInfo, error) { return f.root.Lstat(join(f.below, name)) }

// has reports whether there is something at a path below.
func (f *folder) has(below string) bool {
	_, err := f.root.Lstat(join(f.below, below))
	return err == nil
}

// dangles is not found out here.
func (f *folder) dangles(string) bool { return false }

func (f *folder) stat(name string) (item, error) {
	path := join(f.below, name)
	info, err := f.root.Lstat(path)
	if err != nil {
		return item{}, err
	}
	it := infoItem(name, info)
	if it.kind == kindLink {
		target, err := f.root.Readlink(path)
		if err != nil {
			return item{}, err
		}
		it.target = filepath.ToSlash(target)
	}
	return it, nil
}

// infoItem makes up the mode bits that Windows does not have.
func infoItem(name string, info fs.FileInfo) item {
	it := item{name: name, size: info.Size(), mtime: info.ModTime().UnixNano(), perm: 0o644}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		it.kind = kindFile
		if strings.HasSuffix(strings.ToLower(info.Name()), ".sh") {
			it.perm = 0o755
		}
	case mode&fs.ModeSymlink != 0:
		it.kind, it.perm = kindLink, 0o777
	case mode.IsDir():
		it.kind, it.perm = kindFolder, 0o755
	default:
		it.kind = kindOther
	}
	return it
}

// A sourceFile is an open file of the source.
type sourceFile struct{ file *os.File }

func (t *tree) openFile(below string) (*sourceFile, error) {
	var f *os.File
	var err error
	switch {
	case !t.file:
		f, err = t.top.root.Open(below)
	case t.root != nil:
		f, err = t.root.Open(t.below)
	default:
		f, err = os.Open(t.at)
	}
	if err != nil {
		return nil, err
	}
	return &sourceFile{f}, nil
}

func (f *sourceFile) read(p []byte) (int, error) {
	n, err := f.file.Read(p)
	if err == io.EOF {
		err = nil
	}
	return n, err
}

func (f *sourceFile) seek(offset int64) error {
	_, err := f.file.Seek(offset, io.SeekStart)
	return err
}

func (f *sourceFile) stat() (item, error) {
	info, err := f.file.Stat()
	if err != nil {
		return item{}, err
	}
	return infoItem(info.Name(), info), nil
}

func (f *sourceFile) close() { f.file.Close() }
