//go:build unix

package filesync

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const folderFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// A dest is the folder that a sync writes below. Everything in it is reached
// through descriptors of folders, name by name, so that no symlink is ever
// followed.
type dest struct {
	path   string // absolute
	fd     int    // -1 while there is no such folder
	file   string // name of the only file that is written, "" for a tree
	exists bool   // it was there before the sync
}

// openDest opens the destination of a hello, at an absolute path. Symlinks on the
// way to it are followed: the user of this machine put them there.
func openDest(h hello, path string) (*dest, error) {
	d := &dest{path: path, fd: -1}
	if h.file {
		if d.path == "/" {
			return nil, &ConflictError{Path: d.path, Have: "a folder", Want: "a file"}
		}
		d.path, d.file = filepath.Split(d.path)
		d.path = filepath.Clean(d.path)
	}
	switch err := d.open(); {
	case errors.Is(err, unix.ENOENT):
		return d, nil
	case errors.Is(err, unix.ENOTDIR):
		return nil, &ConflictError{Path: d.path, Have: "a file", Want: "a folder"}
	case err != nil:
		return nil, &os.PathError{Op: "open", Path: d.path, Err: err}
	}
	d.exists = true
	return d, nil
}

func (d *dest) open() error {
	fd, err := retry(func() (int, error) {
		return unix.Open(d.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err == nil {
		d.fd = fd
	}
	return err
}

func (d *dest) close() {
	if d.fd >= 0 {
		unix.Close(d.fd)
		d.fd = -1
	}
}

// folder opens a folder below; the caller closes it. Without a destination it
// is ENOENT; a file or symlink on the way is ENOTDIR or ELOOP.
func (d *dest) folder(path string) (int, error) {
	if d.fd < 0 {
		return -1, unix.ENOENT
	}
	if path == "" {
		path = "."
	}
	return openBeneath(d.fd, path, folderFlags)
}

// at is the path of something below, for people.
func (d *dest) at(path, name string) string {
	return filepath.Join(d.path, filepath.FromSlash(path), name)
}

// openStepwise is openBeneath with one call per element.
func openStepwise(fd int, path string, flags int) (int, error) {
	at := fd
	for rest, more := path, true; more; {
		var name string
		name, rest, more = strings.Cut(rest, "/")
		step := folderFlags
		if !more {
			step = flags
		}
		next, err := retry(func() (int, error) { return unix.Openat(at, name, step, 0) })
		if at != fd {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at = next
	}
	return at, nil
}

// obstacle finds what keeps a path from being a folder: the first element
// that is something else. None is "".
func (d *dest) obstacle(path string) (at string, kind kind, err error) {
	fd, err := d.folder("")
	if err != nil {
		return "", 0, err
	}
	defer func() { unix.Close(fd) }()
	for name := range strings.SplitSeq(path, "/") {
		at = join(at, name)
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); errors.Is(err, unix.ENOENT) {
			return "", kindFolder, nil
		} else if err != nil {
			return "", 0, err
		}
		if kind := statItem("", &st).kind; kind != kindFolder {
			return at, kind, nil
		}
		next, err := openBeneath(fd, name, folderFlags)
		if err != nil {
			return "", 0, err
		}
		unix.Close(fd)
		fd = next
	}
	return "", kindFolder, nil
}

// called says what a kind is, for people.
func (k kind) String() string {
	return [...]string{"a file", "a symlink", "a folder", "a device, pipe or socket"}[k]
}
