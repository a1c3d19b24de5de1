// Package wholefile replaces files in one step: whoever reads a file, now or
// after a crash, finds the old content or the new one, never a part.
//
// The new content is written beside the file, under a name that begins with
// ".new-", and renamed. What a crash leaves under such a name means nothing.
package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write gives a file the content data and the mode perm, and makes the folder
// that it is in. A process that dies leaves it whole; a machine that loses its
// power may not, for which there is [WriteSynced].
func Write(path string, data []byte, perm fs.FileMode) error {
	return Fill(path, perm, content(data))
}

// WriteSynced is [Write] with the content on the disk before the file has its
// name: for what nothing else can tell.
func WriteSynced(path string, data []byte, perm fs.FileMode) error {
	return Fill(path, perm, func(f *os.File) error {
		return errors.Join(content(data)(f), f.Sync())
	})
}

// Edit is [WriteSynced] for a file that belongs to a person: one that exists
// keeps its mode, and a symbolic link stays one, its target being replaced.
func Edit(path string, data []byte, perm fs.FileMode) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil {
		perm = info.Mode().Perm()
	}
	return WriteSynced(path, data, perm)
}

// Fill is [Write] for content that fill writes. Its error means that the file
// stays as it was.
func Fill(path string, perm fs.FileMode, fill func(*os.File) error) error {
	folder := fs.FileMode(0o755)
	if perm&0o077 == 0 { // what only its owner reads, lies where only they look
		folder = 0o700
	}
	if err := os.MkdirAll(filepath.Dir(path), folder); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	err = fill(f)
	err = errors.Join(err, f.Chmod(perm), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

func content(data []byte) func(*os.File) error {
	return func(f *os.File) error {
		_, err := f.Write(data)
		return err
	}
}
