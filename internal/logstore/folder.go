package logstore

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// Folder keeps logs as files below a folder.
type Folder string

func (d Folder) path(name string) string { return filepath.Join(string(d), filepath.FromSlash(name)) }

// Append opens the file; it and its folder are made at once.
func (d Folder) Append(name string) (Appender, error) {
	path := d.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &fileAppender{f, info.Size()}, nil
}

// Open opens the file.
func (d Folder) Open(name string) (Log, error) {
	f, err := os.Open(d.path(name))
	if err != nil {
		return nil, err
	}
	return fileLog{f}, nil
}

// Remove removes the files, and folders below d that have none left.
func (d Folder) Remove(names ...string) error {
	for _, name := range names {
		if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if dir := path.Dir(name); dir != "." {
			_ = os.Remove(d.path(dir)) // fails while there is anything in it
		}
	}
	return nil
}

// List looks for files whose names match.
func (d Folder) List(pattern string) (map[string]int64, error) {
	found, err := filepath.Glob(d.path(pattern))
	if err != nil {
		return nil, err
	}
	sizes := make(map[string]int64, len(found))
	for _, path := range found {
		name, err := filepath.Rel(string(d), path)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		sizes[filepath.ToSlash(name)] = info.Size()
	}
	return sizes, nil
}

type fileAppender struct {
	*os.File
	size int64
}

func (a *fileAppender) Write(p []byte) (int, error) {
	n, err := a.File.Write(p)
	a.size += int64(n)
	return n, err
}

func (a *fileAppender) Size() int64 { return a.size }

type fileLog struct{ *os.File }

func (l fileLog) Size() (int64, error) {
	info, err := l.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (fileLog) Grew() {}
