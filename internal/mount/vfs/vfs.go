//go:build linux

// Package vfs is the seam between the kernel's calls and a file system over a bucket: a
// [Volume] works on paths and open files and knows nothing of FUSE, so that tests use it
// without a mount.
package vfs

import (
	"context"
	"io/fs"
	"iter"
	"time"
)

// A Type is what kind of file a name stands for.
type Type uint8

// The types.
const (
	File Type = iota
	Dir
	Link
	Unknown // in listings: a file or a link
)

// Attr describes a file.
type Attr struct {
	Name    string // the last element of its path
	Type    Type
	Perm    fs.FileMode // permission bits
	Size    int64
	ModTime time.Time
	Target  string // of a link
}

// A Caller is the process that made a call.
type Caller struct {
	PID int // 0: unknown
}

// OpenOptions say how a file is opened.
type OpenOptions struct {
	Read, Write bool
	Create      bool // make it if it is not there
	Excl        bool // with Create: fail if it is there
	Trunc       bool
	Append      bool
	Perm        fs.FileMode // of a file that is made
	By          Caller
}

// A Change is what SetAttr changes; nil stays.
type Change struct {
	Size    *int64
	Perm    *fs.FileMode
	ModTime *time.Time
	By      Caller
}

// A Volume is a file system. Paths are relative to its root, without slashes at their
// ends; "" is the root. Methods may be called concurrently. Their errors are, or wrap,
// an [*Error] or what [Errno] understands.
type Volume interface {
	Stat(ctx context.Context, path string) (Attr, error)
	// ReadDir lists a folder, without "." and "..". The sequence ends after an error.
	ReadDir(ctx context.Context, path string) iter.Seq2[Attr, error]
	Open(ctx context.Context, path string, o OpenOptions) (Handle, error)
	Mkdir(ctx context.Context, path string, perm fs.FileMode) (Attr, error)
	Rmdir(ctx context.Context, path string) error
	Unlink(ctx context.Context, path string) error
	// Rename moves a file or a folder. What is at the new path is replaced, unless
	// keep says that it must not be there.
	Rename(ctx context.Context, from, to string, keep bool) error
	Symlink(ctx context.Context, target, path string) (Attr, error)
	SetAttr(ctx context.Context, path string, c Change) (Attr, error)
	// Space reports how many bytes there are and are free; 0: no end is known.
	Space() (total, free int64)
}

// A Handle is an open file.
type Handle interface {
	// ReadAt reads as much as there is: fewer bytes than asked for mean the end.
	ReadAt(ctx context.Context, p []byte, off int64) (int, error)
	// WriteAt writes p; with OpenOptions.Append at the end of the file.
	WriteAt(ctx context.Context, p []byte, off int64) (int, error)
	Truncate(ctx context.Context, size int64) error
	// Flush is called for every close of a descriptor: its error is close's.
	Flush(ctx context.Context) error
	Sync(ctx context.Context) error
	Attr() Attr
	// Version names the content, so that the kernel's pages of a file that is opened
	// again are kept or not; "": they are never kept.
	Version() string
	// Release ends the handle; nothing is reported.
	Release()
}

// A Lender is a handle whose content can be used where it lies, without a copy.
type Lender interface {
	// Lend reads as ReadAt does. The content is in data until done is called, which has to
	// happen if there is no error; p is memory that may be used for it.
	Lend(ctx context.Context, p []byte, off int64) (data [][]byte, done func(), err error)
}
