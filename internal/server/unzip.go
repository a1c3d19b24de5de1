package server

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// maxUnpacked bounds what one zip may become on disk.
const maxUnpacked = 1 << 40

// badZip means that what the client sent cannot be unpacked.
type badZip struct{ reason string }

func (e *badZip) Error() string { return "The uploaded files cannot be used: " + e.reason + "." }

// unzip unpacks an archive whose author is not trusted: nothing lands outside of
// dir, not by name and not through a link, and links point inside. Files that
// exist are an error unless they are to be replaced.
func unzip(archive, dir string, replace bool) error {
	z, err := zip.OpenReader(archive)
	if err != nil {
		return &badZip{"they are no zip archive"}
	}
	defer z.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var size uint64
	for _, f := range z.File {
		if size += f.UncompressedSize64; size > maxUnpacked {
			return &badZip{"unpacked they are larger than 1 TiB"}
		}
		if err := unzipOne(root, f, replace); err != nil {
			return err
		}
	}
	return nil
}

func unzipOne(root *os.Root, f *zip.File, replace bool) error {
	name := path.Clean(strings.TrimSuffix(f.Name, "/"))
	if !filepath.IsLocal(filepath.FromSlash(name)) || strings.ContainsAny(f.Name, "\\\x00") {
		return &badZip{"the entry " + quoted(f.Name) + " leads out of the upload"}
	}
	if strings.HasSuffix(f.Name, "/") {
		return outside(f, root.MkdirAll(name, 0o700))
	}
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return outside(f, err)
	}
	if replace {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return outside(f, err)
		}
	}
	from, err := f.Open()
	if err != nil {
		return &badZip{"the entry " + quoted(f.Name) + " is damaged"}
	}
	defer from.Close()
	if f.Mode()&fs.ModeSymlink != 0 {
		target, err := io.ReadAll(io.LimitReader(from, 4096))
		if err != nil {
			return &badZip{"the entry " + quoted(f.Name) + " is damaged"}
		}
		if to := string(target); path.IsAbs(to) || !filepath.IsLocal(filepath.FromSlash(path.Join(path.Dir(name), to))) {
			return &badZip{"the link " + quoted(f.Name) + " leads out of the upload"}
		}
		return outside(f, root.Symlink(string(target), name))
	}
	mode := fs.FileMode(0o600)
	if f.Mode()&0o100 != 0 {
		mode = 0o700
	}
	to, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	if err != nil {
		return outside(f, err)
	}
	n, err := io.Copy(to, io.LimitReader(from, int64(min(f.UncompressedSize64, maxUnpacked))+1))
	err = errors.Join(err, to.Close())
	if _, disk := errors.AsType[*fs.PathError](err); disk {
		return fmt.Errorf("unpacking %s: %w", f.Name, err)
	}
	if err != nil || uint64(n) != f.UncompressedSize64 {
		return &badZip{"the entry " + quoted(f.Name) + " is damaged"}
	}
	return nil
}

// outside is the error of a step that a hostile name or link made fail.
func outside(f *zip.File, err error) error {
	if err == nil {
		return nil
	}
	return &badZip{"the entry " + quoted(f.Name) + " could not be unpacked: " + err.Error()}
}
