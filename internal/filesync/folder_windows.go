package filesync

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A folder is an open folder of the source.
type folder struct {
	path  string
	names []fs.DirEntry
}

func openFolder(path string) (*folder, error) {
	names, err := os.ReadDir(path)
	return &folder{path, names}, err
}

func (f *folder) close() {}

func (f *folder) stat(name string) (item, error) {
	path := filepath.Join(f.path, name)
	info, err := os.Lstat(path)
	if err != nil {
		return item{}, err
	}
	it := infoItem(name, info)
	if it.kind == kindLink {
		target, err := os.Readlink(path)
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

func openFile(path string) (*sourceFile, error) {
	f, err := os.Open(path)
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
