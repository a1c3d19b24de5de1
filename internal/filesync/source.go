package filesync

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"
)

// goneFor is how long a source file may be away while something replaces it.
const goneFor = 100 * time.Millisecond

// below is the path of a reference's file as its hash is remembered.
func (s *sender) below(r *ref) string {
	if s.tree.file {
		return filepath.Base(s.tree.at)
	}
	return join(r.block.path, r.file().name)
}

// path is where the file of a reference is, for messages.
func (s *sender) path(r *ref) string {
	if s.tree.file {
		return s.tree.at
	}
	return s.tree.path(join(r.block.path, r.file().name))
}

// open opens the file of a reference.
func (s *sender) open(ctx context.Context, r *ref) (*sourceFile, error) {
	below := join(r.block.path, r.file().name)
	f, err := s.tree.openFile(below)
	if errors.Is(err, fs.ErrNotExist) {
		select {
		case <-time.After(goneFor):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		f, err = s.tree.openFile(below)
	}
	if errors.Is(err, fs.ErrNotExist) || isLoop(err) || isNotFolder(err) {
		return nil, &ChangedError{Path: s.path(r), Gone: true}
	}
	return f, err
}

// look describes the open file of a reference.
func (s *sender) look(r *ref, f *sourceFile) (item, error) {
	now, err := f.stat()
	if err == nil && now.kind != kindFile {
		err = &ChangedError{Path: s.path(r), Gone: true}
	}
	now.name = r.file().name
	return now, err
}

// readFull fills p unless the file ends before.
func readFull(f *sourceFile, p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m, err := f.read(p[n:])
		if err != nil || m == 0 {
			return n, err
		}
		n += m
	}
	return n, nil
}

// sameFile reports that a file was not written to between two looks at it.
func sameFile(a, b *item) bool {
	return a.kind == b.kind && a.size == b.size && a.mtime == b.mtime
}
