//go:build unix

package filesync

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// A folder is an open folder of the source.
type folder struct {
	path  string
	file  *os.File
	fd    int
	names []fs.DirEntry
}

// nonblock keeps the opening of a pipe from waiting for its writer.
const nonblock = unix.O_NONBLOCK

// A folderHandle is the open folder that a tree is read below.
type folderHandle struct{ file *os.File }

func handleOf(f *os.File, _ *tree) (*folderHandle, error) { return &folderHandle{f}, nil }

func (h *folderHandle) close() { h.file.Close() }

// stat describes one name in the folder itself.
func (h *folderHandle) stat(name string) (item, error) {
	return (&folder{path: h.file.Name(), fd: int(h.file.Fd())}).stat(name)
}

// openFolder opens and reads a folder below the source, "" for the source
// itself. No element of the path may be a symlink.
func (t *tree) openFolder(below string) (*folder, error) {
	path := t.path(below)
	fd, err := openBeneath(int(t.top.file.Fd()), cmp.Or(below, "."), folderFlags)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := &folder{path: path, fd: fd, file: os.NewFile(uintptr(fd), path)}
	if f.names, err = f.file.ReadDir(-1); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *folder) close() { f.file.Close() }

// info describes one name as package os does.
func (f *folder) info(name string) (fs.FileInfo, error) {
	return os.Lstat(filepath.Join(f.path, name))
}

// has reports whether there is something at a path below.
func (f *folder) has(below string) bool {
	var st unix.Stat_t
	return unix.Fstatat(f.fd, below, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// dangles reports whether a link leads to nothing.
func (f *folder) dangles(name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(f.fd, name, &st, 0)
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// stat describes one name and checks that its content can be read.
func (f *folder) stat(name string) (item, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(f.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return item{}, &fs.PathError{Op: "stat", Path: filepath.Join(f.path, name), Err: err}
	}
	it := statItem(name, &st)
	switch it.kind {
	case kindFile:
		if !plainlyReadable(&st) {
			if err := unix.Faccessat(f.fd, name, unix.R_OK, unix.AT_EACCESS); err != nil {
				return item{}, &fs.PathError{Op: "open", Path: filepath.Join(f.path, name), Err: err}
			}
		}
	case kindLink:
		target, err := readlinkat(f.fd, name)
		if err != nil {
			return item{}, &fs.PathError{Op: "readlink", Path: filepath.Join(f.path, name), Err: err}
		}
		it.target = target
	}
	return it, nil
}

func readlinkat(fd int, name string) (string, error) {
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(fd, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

func statItem(name string, st *unix.Stat_t) item {
	it := item{name: name, size: st.Size, inode: st.Ino, perm: uint16(st.Mode & 0o777),
		mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano()}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		it.kind = kindFile
	case unix.S_IFLNK:
		it.kind = kindLink
	case unix.S_IFDIR:
		it.kind = kindFolder
	default:
		it.kind = kindOther
	}
	return it
}

var effective = sync.OnceValue(func() uint32 { return uint32(os.Geteuid()) })

// plainlyReadable tells from the mode bits that the file can be read. If it
// returns false one has to ask the kernel.
func plainlyReadable(st *unix.Stat_t) bool {
	uid := effective()
	if uid == 0 || st.Mode&0o444 == 0o444 {
		return true
	}
	return st.Uid == uid && st.Mode&0o400 != 0
}

// A sourceFile is an open file of the source.
type sourceFile struct {
	fd   int
	name string
}

const fileFlags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC

// openFile opens a file below the source, "." for a source that is a file. No
// element of the path may be a symlink.
func (t *tree) openFile(below string) (*sourceFile, error) {
	if t.file && t.root != nil {
		return openWithin(t.root, t.below)
	}
	path := t.path(below)
	fd, err := retry(func() (int, error) {
		if t.file {
			return unix.Open(t.at, fileFlags, 0)
		}
		return openBeneath(int(t.top.file.Fd()), below, fileFlags)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return &sourceFile{fd, path}, nil
}

// openWithin opens a file below root. A symlink may lead to it, but not out.
func openWithin(root *os.Root, path string) (*sourceFile, error) {
	f, err := root.OpenFile(path, fileFlags&^unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: f.Name(), Err: err}
	}
	return &sourceFile{fd, f.Name()}, nil
}

func (f *sourceFile) read(p []byte) (int, error) {
	n, err := retry(func() (int, error) { return unix.Read(f.fd, p) })
	if err != nil {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: err}
	}
	return n, nil
}

func (f *sourceFile) seek(offset int64) error {
	_, err := unix.Seek(f.fd, offset, unix.SEEK_SET)
	return err
}

func (f *sourceFile) stat() (item, error) {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return item{}, &fs.PathError{Op: "stat", Path: f.name, Err: err}
	}
	return statItem("", &st), nil
}

func (f *sourceFile) close() { unix.Close(f.fd) }

// retry repeats a call that a signal interrupted.
func retry[T any](call func() (T, error)) (T, error) {
	for {
		v, err := call()
		if !errors.Is(err, unix.EINTR) {
			return v, err
		}
	}
}
