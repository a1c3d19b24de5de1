//go:build linux

// Package direct is the file system of the mode MOUNT: files are read from the bucket and
// written to it, with nothing on the disk. What one mount has closed, another one sees when
// it opens the file.
package direct

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/skypilot-go/sky/internal/mount/block"
	"github.com/skypilot-go/sky/internal/mount/owner"
	"github.com/skypilot-go/sky/internal/mount/remote"
	"github.com/skypilot-go/sky/internal/mount/vfs"
	"github.com/skypilot-go/sky/internal/storage"
)

// Options say how a bucket is mounted.
type Options struct {
	Tree   remote.Options
	Memory int64 // of all buffers together; 0: 160 MiB
	Log    *slog.Logger
	// Owner reports which job a process belongs to; nil: owner.Of.
	Owner func(pid int) string
}

// cheapCopy is the size up to which an object is copied onto itself to keep what chmod
// and utimes say.
const cheapCopy = 256 * mib

// A Volume is a bucket as a file system.
type Volume struct {
	tree   *remote.Tree
	bucket storage.Bucket
	budget *block.Budget
	memory int64
	log    *slog.Logger
	owner  func(int) string

	mu       sync.Mutex
	open     map[string]*file
	failures []Failure
}

// A Failure is a file that could not be written.
type Failure struct {
	Path  string
	Owner string
	Err   error
}

var _ vfs.Volume = (*Volume)(nil)

// New makes a volume. It does no I/O.
func New(b storage.Bucket, o Options) *Volume {
	if o.Memory == 0 {
		o.Memory = 160 * mib
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Owner == nil {
		o.Owner = owner.Of
	}
	return &Volume{tree: remote.New(b, o.Tree), bucket: b, budget: block.New(o.Memory), memory: o.Memory, log: o.Log, owner: o.Owner, open: map[string]*file{}}
}

// A file is what all handles of a path share.
type file struct {
	v      *Volume
	users  int // handles; v.mu
	mu     sync.Mutex
	path   string
	entry  remote.Entry
	exists bool // in the store
	gone   bool // deleted or replaced: what is written goes nowhere
	w      *writer
	owner  string
	all    map[*handle]bool
	shown  atomic.Pointer[vfs.Attr] // while it is being written: what it looks like
}

// use is the shared file of a path.
func (v *Volume) use(path string) *file {
	v.mu.Lock()
	defer v.mu.Unlock()
	f := v.open[path]
	if f == nil {
		f = &file{v: v, path: path, all: map[*handle]bool{}}
		v.open[path] = f
	}
	f.users++
	return f
}

func (v *Volume) unuse(f *file) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f.users--
	if f.users == 0 {
		if v.open[f.path] == f {
			delete(v.open, f.path)
		}
	}
}

// known is the shared file of a path, if there is one.
func (v *Volume) known(path string) *file {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.open[path]
}

// Stat is what is at a path: of a file that is written here, what was written.
func (v *Volume) Stat(ctx context.Context, path string) (vfs.Attr, error) {
	if f := v.known(path); f != nil {
		if a, ok := f.attr(); ok {
			return a, nil
		}
	}
	e, err := v.tree.Stat(ctx, path)
	if err != nil {
		return vfs.Attr{}, err
	}
	return e.Attr(), nil
}

// attr describes a file that is being written.
func (f *file) attr() (vfs.Attr, bool) {
	a := f.shown.Load()
	if a == nil {
		return vfs.Attr{}, false
	}
	return *a, true
}

// note renews what is shown of the file: uploads hold f.mu, and lists do not wait for
// them. f.mu is held.
func (f *file) note() {
	if f.w == nil || !f.w.dirty {
		f.shown.Store(nil)
		return
	}
	a := f.describe()
	f.shown.Store(&a)
}

func (f *file) describe() vfs.Attr {
	a := f.entry.Attr()
	a.Name = f.path[strings.LastIndexByte(f.path, '/')+1:]
	if f.w != nil && f.w.dirty {
		a.Type, a.Size, a.ModTime = vfs.File, f.w.size, f.v.now()
		if !f.w.attr.ModTime.IsZero() {
			a.ModTime = f.w.attr.ModTime
		}
		a.Perm = remote.FilePerm
		if f.w.attr.Mode != 0 {
			a.Perm = f.w.attr.Mode
		}
	}
	return a
}

// ReadDir lists a folder, with files that are being made.
func (v *Volume) ReadDir(ctx context.Context, path string) iter.Seq2[vfs.Attr, error] {
	return func(yield func(vfs.Attr, error) bool) {
		listed := map[string]bool{}
		local := v.children(path)
		for e, err := range v.tree.List(ctx, path) {
			if err != nil {
				yield(vfs.Attr{}, err)
				return
			}
			a := e.Attr()
			if _, ok := local[a.Name]; ok {
				listed[a.Name] = true
			}
			if !yield(a, nil) {
				return
			}
		}
		for name, f := range local {
			if a, ok := f.attr(); ok && !listed[name] && !yield(a, nil) {
				return
			}
		}
	}
}

// children are the open files in a folder.
func (v *Volume) children(dir string) map[string]*file {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := map[string]*file{}
	for path, f := range v.open {
		i := strings.LastIndexByte(path, '/')
		if i < 0 && dir == "" || i >= 0 && path[:i] == dir {
			out[path[i+1:]] = f
		}
	}
	return out
}

// Mkdir makes a folder.
func (v *Volume) Mkdir(ctx context.Context, path string, _ fs.FileMode) (vfs.Attr, error) {
	if err := v.absent(ctx, path); err != nil {
		return vfs.Attr{}, err
	}
	e, err := v.tree.Mkdir(ctx, path)
	return e.Attr(), err
}

func (v *Volume) absent(ctx context.Context, path string) error {
	_, err := v.tree.Look(ctx, path)
	if err == nil {
		return &vfs.Error{Errno: syscall.EEXIST, Reason: fmt.Sprintf("%q exists", path)}
	}
	if vfs.Errno(err) == syscall.ENOENT {
		if f := v.known(path); f != nil {
			if _, ok := f.attr(); ok {
				return &vfs.Error{Errno: syscall.EEXIST, Reason: fmt.Sprintf("%q exists", path)}
			}
		}
		return nil
	}
	return err
}

// Rmdir removes an empty folder.
func (v *Volume) Rmdir(ctx context.Context, path string) error {
	e, err := v.tree.Look(ctx, path)
	if err != nil {
		return err
	}
	if !e.Dir {
		return &vfs.Error{Errno: syscall.ENOTDIR, Reason: fmt.Sprintf("%q is no folder", path)}
	}
	for _, f := range v.children(path) {
		if _, dirty := f.attr(); dirty {
			return &vfs.Error{Errno: syscall.ENOTEMPTY, Reason: fmt.Sprintf("%q is not empty", path)}
		}
	}
	return v.tree.Rmdir(ctx, path)
}

// Unlink removes a file.
func (v *Volume) Unlink(ctx context.Context, path string) error {
	if f := v.known(path); f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if err := v.tree.Remove(ctx, path); err != nil {
			return err
		}
		f.vanish(ctx)
		v.detach(f)
		return nil
	}
	return v.tree.Remove(ctx, path)
}

// vanish makes what is written to a file go nowhere.
func (f *file) vanish(ctx context.Context) {
	f.gone = true
	if f.w != nil {
		f.w.reset(ctx)
		f.w = nil
	}
	f.note()
}

// detach takes a file from its path.
func (v *Volume) detach(f *file) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.open[f.path] == f {
		delete(v.open, f.path)
	}
}

// Rename moves a file or a folder, by copies inside the store.
func (v *Volume) Rename(ctx context.Context, from, to string, keep bool) error {
	if from == to {
		return nil
	}
	if err := v.settle(ctx, from); err != nil {
		return err
	}
	src, err := v.tree.Look(ctx, from)
	if err != nil {
		return err
	}
	dst, err := v.tree.Look(ctx, to)
	there := err == nil
	if err != nil && vfs.Errno(err) != syscall.ENOENT {
		return err
	}
	switch {
	case there && keep:
		return &vfs.Error{Errno: syscall.EEXIST, Reason: fmt.Sprintf("%q exists", to)}
	case src.Dir && strings.HasPrefix(to, from+"/"):
		return &vfs.Error{Errno: syscall.EINVAL, Reason: fmt.Sprintf("%q is in %q", to, from)}
	case there && src.Dir && !dst.Dir:
		return &vfs.Error{Errno: syscall.ENOTDIR, Reason: fmt.Sprintf("%q is no folder", to)}
	case there && !src.Dir && dst.Dir:
		return &vfs.Error{Errno: syscall.EISDIR, Reason: fmt.Sprintf("%q is a folder", to)}
	case there && src.Dir:
		if err := v.tree.Rmdir(ctx, to); err != nil {
			return err
		}
	}
	if src.Dir {
		err = v.tree.MoveDir(ctx, from, to)
	} else {
		err = v.tree.MoveFile(ctx, src, to, keep)
	}
	if err != nil {
		return err
	}
	v.moved(ctx, from, to)
	return nil
}

// settle uploads what was written to files at a path or below it.
func (v *Volume) settle(ctx context.Context, path string) error {
	for _, f := range v.below(path) {
		f.mu.Lock()
		err := f.commit(ctx)
		f.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *Volume) below(path string) []*file {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []*file
	for p, f := range v.open {
		if p == path || strings.HasPrefix(p, path+"/") {
			out = append(out, f)
		}
	}
	return out
}

// moved makes open files follow a rename.
func (v *Volume) moved(ctx context.Context, from, to string) {
	for _, f := range v.below(to) {
		f.mu.Lock()
		f.vanish(ctx)
		v.detach(f)
		f.mu.Unlock()
	}
	for _, f := range v.below(from) {
		f.mu.Lock()
		path := to + strings.TrimPrefix(f.path, from)
		v.mu.Lock()
		delete(v.open, f.path)
		f.path = path
		v.open[path] = f
		v.mu.Unlock()
		if e, err := v.tree.LookFile(ctx, path); err == nil && !e.Dir {
			f.replace(e)
		}
		f.mu.Unlock()
	}
}

// Symlink makes a link, as an empty object.
func (v *Volume) Symlink(ctx context.Context, target, path string) (vfs.Attr, error) {
	if err := v.absent(ctx, path); err != nil {
		return vfs.Attr{}, err
	}
	e, err := v.tree.Symlink(ctx, target, path)
	return e.Attr(), err
}

// SetAttr changes the size; the times and permissions are kept as metadata where that is
// cheap, and else accepted.
func (v *Volume) SetAttr(ctx context.Context, path string, c vfs.Change) (vfs.Attr, error) {
	if c.Size != nil {
		h, err := v.Open(ctx, path, vfs.OpenOptions{Write: true, By: c.By})
		if err != nil {
			return vfs.Attr{}, err
		}
		defer h.Release()
		if err := h.Truncate(ctx, *c.Size); err != nil {
			return vfs.Attr{}, err
		}
		if err := h.Flush(ctx); err != nil {
			return vfs.Attr{}, err
		}
	}
	if c.Perm == nil && c.ModTime == nil {
		return v.Stat(ctx, path)
	}
	f := v.known(path)
	if f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		defer f.note()
		if f.w != nil && f.w.dirty && f.w.upload == nil { // else Start has sent the metadata
			if c.Perm != nil {
				f.w.attr.Mode = *c.Perm
			}
			if c.ModTime != nil {
				f.w.attr.ModTime = *c.ModTime
			}
			return f.describe(), nil
		}
		if f.w != nil && f.w.dirty {
			v.log.Info("times and permissions of a file whose upload has begun are not kept", "path", path)
			return f.describe(), nil
		}
	}
	e, err := v.tree.Look(ctx, path)
	if err != nil {
		return vfs.Attr{}, err
	}
	a := e.Attr()
	same := (c.Perm == nil || *c.Perm == a.Perm) && (c.ModTime == nil || c.ModTime.Equal(a.ModTime))
	if e.Dir || same || a.Type == vfs.Link {
		return a, nil
	}
	if e.Object.Size > min(cheapCopy, v.bucket.Caps().MaxCopy) || !v.bucket.Caps().Metadata {
		v.log.Info("times and permissions of a large file are not kept", "path", path)
		return a, nil
	}
	if e, err = v.tree.SetAttributes(ctx, e, c.Perm, c.ModTime); err != nil {
		return vfs.Attr{}, err
	}
	if f != nil {
		f.replace(e)
	}
	return e.Attr(), nil
}

// Space knows no end.
func (v *Volume) Space() (total, free int64) { return 0, 0 }

// Forget forgets what is known of the bucket, which others may have changed.
func (v *Volume) Forget() { v.tree.Forget() }

// Busy reports how many files are open.
func (v *Volume) Busy() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.open)
}

// Written is how many bytes of open files are not in the store yet, and the files.
func (v *Volume) Written() (bytes int64, paths []string) {
	v.mu.Lock()
	files := maps.Clone(v.open)
	v.mu.Unlock()
	for path, f := range files {
		if a, ok := f.attr(); ok {
			bytes += a.Size
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return bytes, paths
}

const maxFailures = 1000

func (v *Volume) failed(f Failure) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.failures) < maxFailures {
		v.failures = append(v.failures, f)
	}
}

// Failures are the files that jobs could not write, those of one job or of all.
func (v *Volume) Failures(mine func(owner string) bool) []Failure {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []Failure
	for _, f := range v.failures {
		if mine(f.Owner) {
			out = append(out, f)
		}
	}
	return out
}
