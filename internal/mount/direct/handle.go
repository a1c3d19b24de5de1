//go:build linux

package direct

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/skypilot-go/sky/internal/mount/remote"
	"github.com/skypilot-go/sky/internal/mount/vfs"
	"github.com/skypilot-go/sky/internal/storage"
)

// A handle is an open file.
type handle struct {
	f *file
	o vfs.OpenOptions

	mu  sync.Mutex // of what follows
	obj storage.Object
	r   *reader
}

func (v *Volume) now() time.Time { return time.Now() }

// Open opens a file, as it is in the store now.
func (v *Volume) Open(ctx context.Context, path string, o vfs.OpenOptions) (vfs.Handle, error) {
	f := v.use(path)
	h, err := f.open(ctx, o)
	if err != nil {
		v.unuse(f)
		return nil, err
	}
	return h, nil
}

func (f *file) open(ctx context.Context, o vfs.OpenOptions) (*handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.note()
	v := f.v
	if f.w == nil || !f.w.dirty { // else what was written here is what there is
		look := v.tree.LookFile
		if o.Create {
			look = v.tree.Look
		}
		e, err := look(ctx, f.path)
		missing := vfs.Errno(err) == syscall.ENOENT
		switch {
		case missing && !o.Create:
			return nil, err
		case err != nil && !missing:
			return nil, err
		case err == nil && e.Dir:
			return nil, &vfs.Error{Errno: syscall.EISDIR, Reason: fmt.Sprintf("%q is a folder", f.path)}
		}
		if missing {
			e = remote.Entry{Path: f.path, Known: true}
		}
		f.entry, f.exists = e, !missing
		if f.w != nil { // of another handle
			f.w = newWriter(v.bucket, v.budget, v.tree.Key(f.path), e.Object, f.exists)
		}
		if f.exists && o.Create && o.Excl {
			return nil, &vfs.Error{Errno: syscall.EEXIST, Reason: fmt.Sprintf("%q exists", f.path)}
		}
	} else if o.Create && o.Excl {
		return nil, &vfs.Error{Errno: syscall.EEXIST, Reason: fmt.Sprintf("%q exists", f.path)}
	}
	if o.Write {
		if v.bucket.Caps().ReadOnly {
			return nil, vfs.Refuse(syscall.EROFS, "%s can only be read", v.bucket.Location())
		}
		f.owner = v.owner(o.By.PID)
		if f.w == nil {
			f.w = newWriter(v.bucket, v.budget, v.tree.Key(f.path), f.entry.Object, f.exists)
			if !f.exists {
				f.w.dirty, f.w.loaded = true, true
				if o.Perm != 0 && o.Perm.Perm() != remote.FilePerm {
					f.w.attr.Mode = o.Perm.Perm()
				}
				if o.Excl && v.bucket.Caps().Conditional { // one of several wins
					if err := f.commit(ctx); err != nil {
						if vfs.Errno(err) == syscall.EIO {
							return nil, &vfs.Error{Errno: syscall.EEXIST, Err: err}
						}
						return nil, err
					}
				}
			}
		}
		if o.Trunc {
			if err := f.w.truncate(ctx, 0); err != nil {
				return nil, err
			}
		}
	}
	h := &handle{f: f, o: o, obj: f.entry.Object}
	f.all[h] = true
	return h, nil
}

// commit uploads what was written. f.mu is held.
func (f *file) commit(ctx context.Context) error {
	if f.w == nil || !f.w.dirty || f.gone {
		return nil
	}
	defer f.note()
	f.w.key = f.v.tree.Key(f.path)
	x, err := f.w.commit(context.WithoutCancel(ctx))
	if err != nil {
		f.v.tree.Changed(f.path)
		f.v.failed(Failure{Path: f.path, Owner: f.owner, Err: err})
		f.v.log.LogAttrs(ctx, slog.LevelError, "a file was not stored", slog.String("path", f.path), slog.Any("err", err))
		f.w = nil
		if vfs.Errno(err) == syscall.ENOENT {
			err = &vfs.Error{Errno: syscall.EIO, Err: err}
		}
		return err
	}
	if x.Modified.IsZero() {
		x.Modified = f.v.now()
	}
	f.exists = true
	f.replace(remote.Entry{Path: f.path, Object: x, Known: true})
	f.v.tree.Written(f.path, x)
	return nil
}

// replace makes the handles see what was written here. f.mu is held.
func (f *file) replace(e remote.Entry) {
	old := f.entry.Object.ETag
	f.entry = e
	if f.w != nil && !f.w.dirty {
		f.w = newWriter(f.v.bucket, f.v.budget, f.v.tree.Key(f.path), e.Object, true)
	}
	for h := range f.all {
		h.mu.Lock()
		if h.obj.ETag == old { // others have opened what is not there any more
			h.obj = e.Object
			if h.r != nil {
				h.r.close()
				h.r = nil
			}
		}
		h.mu.Unlock()
	}
}

// ReadAt reads.
func (h *handle) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	data, done, err := h.Lend(ctx, p, off)
	if err != nil {
		return 0, err
	}
	defer done()
	n := 0
	for _, d := range data {
		n += copy(p[n:], d)
	}
	return n, nil
}

// Lend reads without copying what was read ahead.
func (h *handle) Lend(ctx context.Context, p []byte, off int64) (data [][]byte, done func(), err error) {
	if h.o.Write || h.f.written() {
		if n, ok, err := h.readOwn(ctx, p, off); ok || err != nil {
			return [][]byte{p[:n]}, func() {}, err
		}
	}
	h.mu.Lock()
	if h.r == nil {
		h.r = newReader(h.f.v.bucket, h.obj, h.f.v.budget, h.f.v.memory)
	}
	r := h.r
	h.mu.Unlock()
	return r.lend(ctx, p, off)
}

func (f *file) written() bool {
	if !f.mu.TryLock() {
		return true
	}
	defer f.mu.Unlock()
	return f.w != nil && f.w.dirty
}

// readOwn reads what was written here: from memory, or after it is uploaded.
func (h *handle) readOwn(ctx context.Context, p []byte, off int64) (int, bool, error) {
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.w == nil || !f.w.dirty {
		return 0, false, nil
	}
	if n, ok, err := f.w.readAt(ctx, p, off); ok || err != nil {
		return n, ok, err
	}
	if !h.o.Write {
		return 0, false, nil // others see it when it is closed
	}
	return 0, false, f.commit(ctx)
}

// writer is what the file is written with. f.mu is held.
func (h *handle) writer() (*writer, error) {
	f := h.f
	if !h.o.Write {
		return nil, &vfs.Error{Errno: syscall.EBADF}
	}
	if f.w == nil && !f.gone {
		return nil, vfs.Refuse(syscall.EIO, "%q could not be stored: open it again", f.path)
	}
	return f.w, nil
}

// WriteAt writes.
func (h *handle) WriteAt(ctx context.Context, p []byte, off int64) (int, error) {
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	w, err := h.writer()
	if err != nil {
		return 0, err
	}
	defer f.note()
	if f.gone {
		return len(p), nil
	}
	if h.o.Append {
		off = w.size
	}
	return w.write(context.WithoutCancel(ctx), p, off)
}

// Truncate cuts the file off or makes it longer.
func (h *handle) Truncate(ctx context.Context, size int64) error {
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	w, err := h.writer()
	if err != nil || f.gone {
		return err
	}
	defer f.note()
	return w.truncate(context.WithoutCancel(ctx), size)
}

// Flush uploads what was written.
func (h *handle) Flush(ctx context.Context) error {
	if !h.o.Write {
		return nil
	}
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	return h.f.commit(ctx)
}

// Sync uploads what was written: a store has no other way to keep it.
func (h *handle) Sync(ctx context.Context) error { return h.Flush(ctx) }

// Attr describes the file.
func (h *handle) Attr() vfs.Attr {
	if a, ok := h.f.attr(); ok {
		return a
	}
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	return h.f.describe()
}

// Version is the ETag.
func (h *handle) Version() string {
	if h.o.Write {
		return ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.obj.ETag
}

// Release ends the handle.
func (h *handle) Release() {
	f := h.f
	if h.o.Write {
		_ = h.Flush(context.Background()) // the kernel has flushed before; its error is in the log
	}
	h.mu.Lock()
	if h.r != nil {
		h.r.close()
		h.r = nil
	}
	h.mu.Unlock()
	f.mu.Lock()
	delete(f.all, h)
	if len(f.all) == 0 {
		f.w = nil
	}
	f.mu.Unlock()
	f.v.unuse(f)
}
