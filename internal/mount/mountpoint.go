//go:build linux

package mount

// A process never calls into a mount that it serves itself, not even to look at the folder
// where it is. If it is killed while the kernel waits for the answer to such a call, its
// thread waits for ever, as the kernel ends a mount when its process is gone, and the process
// is not gone before its threads. So do all who use the mount.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/mountpoints"
)

// clearPath makes a path ready for a mount: it takes away mounts of ours whose process died,
// and refuses to cover anything else. It deletes nothing.
func clearPath(path string, detach func(path string, lazy bool) error) (restored bool, err error) {
	for range 100 {
		p, ok, err := mountpoints.At(path)
		if err != nil {
			return restored, err
		}
		if !ok {
			break
		}
		if !p.Ours() {
			break // it is treated as the folder that it is
		}
		var st unix.Stat_t
		err = unix.Stat(path, &st)
		if !errors.Is(err, unix.ENOTCONN) {
			return restored, failf(mountapi.InUse, "%s is mounted at %s by another process", p.Source, path)
		}
		if err := detach(path, true); err != nil {
			return restored, fmt.Errorf("taking away the mount at %s whose process has died: %w", path, err)
		}
		restored = true
	}
	return restored, nil
}

// place makes the folder of a mount, which must be empty, and returns its path without
// symbolic links.
func place(path string, uid, gid uint32) (string, error) {
	if err := makeFolders(path, int(uid), int(gid)); err != nil {
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EEXIST) {
			return "", failf(mountapi.NotEmpty, "%s is a file: move it away, or mount at another path", path)
		}
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	names, err := f.Readdirnames(1)
	if len(names) > 0 {
		return "", failf(mountapi.NotEmpty, "the folder %s is not empty (it holds %q): a mount would hide what lies there; move it away, or mount at another path", path, names[0])
	}
	if err != nil && err != io.EOF {
		return "", err
	}
	return path, nil
}

// makeFolders makes a folder and those above it, for the user.
func makeFolders(path string, uid, gid int) error {
	info, err := os.Stat(path)
	if err == nil {
		if !info.IsDir() {
			return &os.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
		}
		return nil
	}
	if !os.IsNotExist(err) {
		return err
	}
	if err := makeFolders(filepath.Dir(path), uid, gid); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	if os.Geteuid() == 0 {
		return os.Lchown(path, uid, gid)
	}
	return nil
}

// resolve is an absolute path without symbolic links in what exists of it.
func resolve(path string) (string, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", failf(mountapi.Invalid, "the path %q is not absolute", path)
	}
	path = filepath.Clean(path)
	if path == "/" {
		return "", failf(mountapi.Invalid, "nothing is mounted at /")
	}
	// The mount itself is not looked into: its process may have died.
	dir, err := resolveDir(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	full := filepath.Join(dir, filepath.Base(path))
	if _, err := os.Readlink(full); err == nil { // for a folder the kernel knows that it is no link
		return filepath.EvalSymlinks(full)
	}
	return full, nil
}

func resolveDir(dir string) (string, error) {
	out, err := filepath.EvalSymlinks(dir)
	if os.IsNotExist(err) && dir != "/" {
		up, err := resolveDir(filepath.Dir(dir))
		return filepath.Join(up, filepath.Base(dir)), err
	}
	return out, err
}
