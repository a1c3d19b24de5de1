//go:build linux

package cached

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/skypilot-go/sky/internal/mount/readahead"
	"github.com/skypilot-go/sky/internal/mount/remote"
	"github.com/skypilot-go/sky/internal/mount/vfs"
	"github.com/skypilot-go/sky/internal/storage"
)

// A handle is an open file.
type handle struct {
	f     *file
	o     vfs.OpenOptions
	owner string

	mu     sync.Mutex
	window readahead.Window
	once   sync.Once
}

// errAgain means that a path changed while it was looked at.
var errAgain = errors.New("the path has changed")

// Open opens a file.
func (v *Volume) Open(ctx context.Context, path string, o vfs.OpenOptions) (vfs.Handle, error) {
	v.naming.RLock()
	defer v.naming.RUnlock()
	h, err := v.open(ctx, path, o)
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (v *Volume) open(ctx context.Context, path string, o vfs.OpenOptions) (*handle, error) {
	if o.Write && v.bucket.Caps().ReadOnly {
		return nil, vfs.Refuse(syscall.EROFS, "%s can only be read", v.bucket.Location())
	}
	for range 100 {
		f, err := v.find(ctx, path, o)
		if errors.Is(err, errAgain) {
			continue
		}
		if err != nil {
			return nil, err
		}
		h := &handle{f: f, o: o}
		if o.Write {
			h.owner = v.owner(o.By.PID)
		}
		v.mu.Lock()
		if v.files[path] != f {
			v.mu.Unlock()
			continue
		}
		f.refs++
		if o.Write {
			f.writers++
		}
		v.mu.Unlock()
		if o.Trunc {
			f.mu.Lock()
			err = f.truncate(ctx, 0, h.owner)
			f.mu.Unlock()
			if err != nil {
				h.Release()
				return nil, err
			}
		}
		return h, nil
	}
	return nil, vfs.Refuse(syscall.EBUSY, "%q changes all the time", path)
}

// find is the file at a path, which may be made by it.
func (v *Volume) find(ctx context.Context, path string, o vfs.OpenOptions) (*file, error) {
	f := v.at(path)
	var s *shown
	if f != nil {
		s = f.shown.Load()
	}
	if s != nil && s.state == dirty {
		switch {
		case o.Create && o.Excl:
			return nil, exists(path)
		case s.attr.Type == vfs.Dir:
			return nil, &vfs.Error{Errno: syscall.EISDIR, Reason: fmt.Sprintf("%q is a folder", path)}
		case s.attr.Type == vfs.Link:
			return nil, &vfs.Error{Errno: syscall.ELOOP, Reason: fmt.Sprintf("%q is a link", path)}
		}
		return f, nil
	}
	var e remote.Entry
	err := remote.Missing(path)
	if s == nil || s.state != deleted {
		e, err = v.tree.Stat(ctx, path)
	}
	switch {
	case vfs.Errno(err) == syscall.ENOENT:
		if f != nil && s.state == clean { // others deleted it
			v.let(f)
			return nil, errAgain
		}
		if !o.Create {
			return nil, err
		}
		if err := v.mayBe(path); err != nil {
			return nil, err
		}
		perm := o.Perm.Perm()
		if perm == 0 {
			perm = remote.FilePerm
		}
		if err := v.settleOther(ctx, path, false); err != nil {
			return nil, err
		}
		f, err = v.make(path, vfs.File, perm, "", v.owner(o.By.PID))
		if vfs.Errno(err) == syscall.EEXIST {
			return nil, errAgain
		}
		return f, err
	case err == nil && !e.Known && !e.Dir && o.Write: // what it keeps of others is kept
		if _, err := v.tree.LookFile(ctx, path); err != nil && vfs.Errno(err) != syscall.ENOENT {
			return nil, err
		}
		return nil, errAgain
	case err != nil && s != nil && storage.Temporary(err) && f.keepsAll():
		v.log.Warn("the store cannot be reached: a file is opened as the cache has it", "path", path, "err", err)
		return f, nil
	case err != nil:
		return nil, err
	case o.Create && o.Excl:
		return nil, exists(path)
	case e.Dir:
		return nil, &vfs.Error{Errno: syscall.EISDIR, Reason: fmt.Sprintf("%q is a folder", path)}
	case e.Attr().Type == vfs.Link:
		return nil, &vfs.Error{Errno: syscall.ELOOP, Reason: fmt.Sprintf("%q is a link", path)}
	}
	if f != nil {
		if s.base.ETag == e.Object.ETag {
			return f, nil
		}
		v.let(f) // others wrote it
	}
	f = &file{v: v, path: path, state: clean, used: v.now()}
	f.rebase(e)
	f.note()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.files[path] != nil {
		return nil, errAgain
	}
	v.files[path] = f
	return f, nil
}

// let takes a clean file from the cache, as the bucket has another one. Whoever has it open
// keeps what the cache has of it.
func (v *Volume) let(f *file) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != clean || f.gone {
		return
	}
	if err := v.journal.put(map[string]*record{f.path: nil}); err != nil {
		v.log.Error("the journal of the cache cannot be written", "err", err)
		return
	}
	v.mu.Lock()
	f.gone = true
	if v.files[f.path] == f {
		delete(v.files, f.path)
	}
	unused := f.refs == 0
	v.mu.Unlock()
	if unused {
		f.dropData()
	}
}

// ReadAt reads.
func (h *handle) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	return h.readAt(ctx, p, off)
}

// WriteAt writes into the cache.
func (h *handle) WriteAt(ctx context.Context, p []byte, off int64) (int, error) {
	if !h.o.Write {
		return 0, &vfs.Error{Errno: syscall.EBADF}
	}
	if len(p) == 0 {
		return 0, nil
	}
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if h.o.Append {
		off = h.f.size
	}
	return h.f.writeAt(ctx, p, off, h.owner)
}

// Truncate cuts the file off or makes it longer.
func (h *handle) Truncate(ctx context.Context, size int64) error {
	if !h.o.Write {
		return &vfs.Error{Errno: syscall.EBADF}
	}
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if size == h.f.size {
		return nil
	}
	return h.f.truncate(ctx, size, h.owner)
}

// Flush makes what was written last here; the bucket gets it later.
func (h *handle) Flush(context.Context) error {
	if !h.o.Write {
		return nil
	}
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	return h.f.save()
}

// Sync makes what anybody wrote to the file last here, also if it was opened to read.
func (h *handle) Sync(context.Context) error {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if h.f.state != dirty {
		return nil
	}
	return h.f.save()
}

// Attr describes the file.
func (h *handle) Attr() vfs.Attr { return h.f.shown.Load().attr }

// Version is that of the object, or of what was written here.
func (h *handle) Version() string {
	s := h.f.shown.Load()
	if s.state == clean {
		return s.base.ETag
	}
	return ""
}

// Release ends the handle.
func (h *handle) Release() { h.once.Do(h.release) }

func (h *handle) release() {
	f, v := h.f, h.f.v
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.o.Write {
		if err := f.save(); err != nil {
			v.log.Error("a file is not in the journal", "path", f.path, "err", err)
		}
	}
	v.mu.Lock()
	f.refs--
	if h.o.Write {
		f.writers--
	}
	last, idle := f.refs == 0, f.writers == 0
	if last && f.state == clean && !f.gone && f.data != "" {
		v.unsaved[f] = true
	}
	gone := f.gone
	v.mu.Unlock()
	if last {
		if gone {
			f.dropData()
			v.removeStale(f)
		} else {
			f.stopGetting()
			f.closeData()
		}
	}
	if idle && f.state == dirty && !gone {
		v.enqueue(f, v.delay)
	}
}
