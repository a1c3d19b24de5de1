package serve

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/skypilot-go/sky/internal/mount/mountpoints"
)

// home is the disk of a machine.
func (f *fleet) home(id string) string { return filepath.Join(f.folder(id), "home") }

// SaveDisk copies the disk of a machine that is off into an image.
func (f *fleet) SaveDisk(instance, image string) error {
	if err := mountpoints.DetachBelow(f.folder(instance)); err != nil {
		return err
	}
	to := filepath.Join(f.disks, image)
	if err := os.RemoveAll(to); err != nil { // of a copy that a crash cut off
		return err
	}
	return copyTree(f.home(instance), to)
}

// LoadDisk gives a new machine a copy of an image as its disk.
func (f *fleet) LoadDisk(image, instance string) error {
	return copyTree(filepath.Join(f.disks, image), f.home(instance))
}

// DropDisk removes an image.
func (f *fleet) DropDisk(image string) error { return os.RemoveAll(filepath.Join(f.disks, image)) }

// copyTree copies folders, files and links, with their permissions. Sockets and the like
// are no part of a disk that is off.
func copyTree(from, to string) error {
	type dir struct {
		path string
		mode fs.FileMode
	}
	var dirs []dir
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		dst := filepath.Join(to, rel)
		switch mode := info.Mode(); {
		case mode.IsDir():
			dirs = append(dirs, dir{dst, mode.Perm()})
			return os.MkdirAll(dst, 0o700)
		case mode&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(target, dst)
		case mode.IsRegular():
			return copyFile(path, dst, mode.Perm())
		}
		return nil
	})
	if err != nil {
		return err
	}
	for n := len(dirs) - 1; n >= 0; n-- { // after what is in them
		if err := os.Chmod(dirs[n].path, dirs[n].mode); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if cerr := out.Chmod(mode); err == nil {
		err = cerr
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}
