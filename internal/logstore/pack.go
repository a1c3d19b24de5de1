package logstore

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// PutFolder keeps a folder with its files, folders and links as one file, see
// [Files.Put].
func (f Files) PutFolder(ctx context.Context, name, user, dir string) error {
	tmp, err := os.CreateTemp(filepath.Dir(dir), "new-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	err = pack(ctx, tmp, dir)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return fmt.Errorf("packing %s: %w", dir, err)
	}
	return f.Put(ctx, name, user, tmp.Name())
}

// FetchFolder makes the folder dir, which is there once all of it is; beside it
// is a folder "new-…" until then. [fs.ErrNotExist] if there is none of that
// name; a folder that is there already is left as it is.
func (f Files) FetchFolder(ctx context.Context, name, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	packed, whole := filepath.Join(tmp, "packed"), filepath.Join(tmp, "whole")
	if err := f.Fetch(ctx, name, packed); err != nil {
		return err
	}
	if err := unpack(ctx, packed, whole); err != nil {
		return fmt.Errorf("unpacking %s: %w", name, err)
	}
	err = os.Rename(whole, dir)
	if info, serr := os.Stat(dir); err != nil && serr == nil && info.IsDir() {
		return nil // somebody else was quicker
	}
	return err
}

func pack(ctx context.Context, to io.Writer, dir string) error {
	z, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return packOne(t, path, filepath.ToSlash(name), d)
	})
	return errors.Join(err, t.Close(), z.Close())
}

// packOne adds a file, folder or link; anything else is left out.
func packOne(t *tar.Writer, path, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	var target string
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Format = name, tar.FormatPAX // to the nanosecond
	h.Uname, h.Gname, h.Uid, h.Gid = "", "", 0, 0
	if err := t.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(t, in)
	return err
}

func unpack(ctx context.Context, packed, dir string) error {
	in, err := os.Open(packed)
	if err != nil {
		return err
	}
	defer in.Close()
	z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer z.Close()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = unpackOne(root, t, h)
		}
		if err != nil {
			return err
		}
	}
}

func unpackOne(root *os.Root, from io.Reader, h *tar.Header) error {
	name := filepath.FromSlash(h.Name)
	switch mode := h.FileInfo().Mode(); h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, mode.Perm()|0o700)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		out, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode.Perm()|0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, from)
		if err = errors.Join(err, out.Close()); err != nil {
			return err
		}
		return root.Chtimes(name, h.ModTime, h.ModTime)
	}
	return nil
}
