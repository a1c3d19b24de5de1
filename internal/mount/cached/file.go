//go:build linux

package cached

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/diskspace"
	"github.com/skypilot-go/sky/internal/mount/readahead"
	"github.com/skypilot-go/sky/internal/mount/remote"
	"github.com/skypilot-go/sky/internal/mount/vfs"
	"github.com/skypilot-go/sky/internal/storage"
)

// A file is a path whose content is in the cache or whose object is to be changed. All
// handles of a path share it.
type file struct {
	v *Volume

	// Guarded by Volume.mu.
	path    string
	refs    int // handles
	writers int
	gone    bool // it has no path any more
	forced  int  // flushes that wait for it
	running bool
	tries   int   // since it was stored
	ended   int   // tries that have ended, in all
	err     error // why the last try failed
	lasting bool  // and there is no sense in another one

	// mu is held by whoever changes the content or the state; not during requests to the
	// store, but for the content that a change needs.
	mu       sync.Mutex
	state    state
	typ      vfs.Type
	data     string
	named    bool     // the folder of the cache has the name data on the disk
	f        *os.File // of data; nil: not open
	pending  int      // bytes written since writeback was last started
	size     int64
	perm     fs.FileMode
	mtime    time.Time
	target   string
	base     base
	attempts []string
	owners   map[string]bool
	after    string
	gen      uint64 // of the content and the attributes
	recorded uint64 // gen that the journal has
	stored   uint64 // gen that the bucket has
	intent   bool   // the journal says that it is dirty
	tried    bool   // an upload was begun: the bucket may have it
	upload   *upload
	multi    atomic.Pointer[multipart]

	shown atomic.Pointer[shown]

	// Content that is in the cache, if the file is clean; pmu may be taken under mu.
	pmu     sync.Mutex
	have    present
	getting []readahead.Span   // that are under way
	more    chan struct{}      // closed when have or getting change
	getErr  error              // why the latest request failed
	getCtx  context.Context    // of the requests
	cancel  context.CancelFunc // of getCtx
	used    time.Time
}

// shown is what others see of a file without waiting for it.
type shown struct {
	attr   vfs.Attr
	state  state
	gen    uint64
	stored uint64
	owners map[string]bool
	base   base
	after  string
}

// unstored reports whether the bucket lacks something of the file.
func (s *shown) unstored() bool { return s.state != clean }

// mine reports whether one of the owners wrote the file. Of whom it is not known, is
// everybody's.
func (s *shown) mine(mine func(string) bool) bool {
	if len(s.owners) == 0 {
		return true
	}
	for o := range s.owners {
		if mine(o) {
			return true
		}
	}
	return false
}

// note renews what is shown. f.mu is held.
func (f *file) note() {
	name := f.path[strings.LastIndexByte(f.path, '/')+1:]
	a := vfs.Attr{Name: name, Type: f.typ, Perm: f.perm, Size: f.size, ModTime: f.mtime, Target: f.target}
	if f.typ == vfs.Link {
		a.Size = int64(len(f.target))
	}
	f.shown.Store(&shown{attr: a, state: f.state, gen: f.gen, stored: f.stored, owners: maps.Clone(f.owners), base: f.base, after: f.after})
}

// attributes are what the object keeps of the file.
func (f *file) attributes() storage.Attributes {
	a := storage.Attributes{ModTime: f.mtime, Link: f.target}
	if f.typ == vfs.File && f.perm != remote.FilePerm {
		a.Mode = f.perm
	}
	return a
}

// record is what the journal is to know. f.mu is held.
func (f *file) record() *record {
	r := &record{State: f.state, Type: f.typ, Data: f.data, Size: f.size, Perm: f.perm, MTime: f.mtime, Target: f.target, Base: f.base, Attempts: f.attempts, After: f.after, Boot: f.v.boot}
	r.Owners = slices.Sorted(maps.Keys(f.owners))
	if f.state == clean {
		f.pmu.Lock()
		r.Present = slices.Clone(f.have)
		f.pmu.Unlock()
	}
	return r
}

// dataPath is where content lies.
func (v *Volume) dataPath(id string) string { return filepath.Join(v.dir, "data", id) }

// opened is the file of the content. f.mu is held.
func (f *file) opened() (*os.File, error) {
	if f.f != nil {
		return f.f, nil
	}
	if f.data == "" {
		f.data, f.named = remote.NewID(), false
	}
	h, err := os.OpenFile(f.v.dataPath(f.data), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	f.f = h
	return h, nil
}

// closeData closes the file of the content if nobody needs it open. f.mu is held.
func (f *file) closeData() {
	if f.f != nil {
		_ = f.f.Close()
		f.f = nil
	}
}

// dropData removes the content from the cache. f.mu is held.
func (f *file) dropData() {
	f.stopGetting()
	f.closeData()
	if f.data != "" {
		_ = os.Remove(f.v.dataPath(f.data)) // what stays is removed at the next start
	}
	f.data, f.intent = "", false
	f.pmu.Lock()
	f.have = nil
	f.pmu.Unlock()
}

// modify makes the file ready to be changed in its first keep bytes and beyond: they are
// all in the cache, nothing of it is being uploaded, and the journal knows that what the
// cache has is not what the bucket has. f.mu is held.
func (f *file) modify(ctx context.Context, keep int64, owner string) error {
	f.stop()
	if f.state == clean {
		if err := f.fill(ctx, min(keep, f.size)); err != nil {
			return err
		}
		f.stopGetting()
		h, err := f.opened()
		if err != nil {
			return err
		}
		if err := h.Truncate(f.size); err != nil { // content that was never read may be shorter
			return err
		}
		f.state = dirty
		if !f.gone && !f.intent {
			if err := f.v.journal.put(map[string]*record{f.path: f.record()}); err != nil {
				f.state = clean
				return err
			}
			f.intent = true
		}
	}
	f.own(owner)
	f.gen++
	f.mtime = f.v.now()
	return nil
}

func (f *file) own(owner string) {
	if f.owners == nil {
		f.owners = map[string]bool{}
	}
	f.owners[owner] = true
}

// stop ends an upload or a deletion that runs, and returns when nothing of it will happen
// any more. f.mu is held.
func (f *file) stop() {
	if f.upload != nil {
		f.upload.cancel()
		<-f.upload.ended
	}
}

// fresh gives the file new, empty content. The old one stays until the journal knows.
// f.mu is held.
func (f *file) fresh() error {
	f.stopGetting()
	f.closeData()
	old, named := f.data, f.named
	f.data = ""
	if _, err := f.opened(); err != nil {
		f.data, f.named = old, named
		return err
	}
	if old != "" {
		f.v.mu.Lock()
		f.v.stale[f] = append(f.v.stale[f], old)
		f.v.mu.Unlock()
	}
	f.size = 0
	return nil
}

// keepsAll reports whether all content is in the cache.
func (f *file) keepsAll() bool {
	if f.state == dirty {
		return true
	}
	f.pmu.Lock()
	defer f.pmu.Unlock()
	return f.have.covers(0, f.base.Size)
}

// writeAt writes. f.mu is held.
func (f *file) writeAt(ctx context.Context, p []byte, off int64, owner string) (int, error) {
	if err := f.modify(ctx, f.size, owner); err != nil {
		return 0, err
	}
	h, err := f.opened()
	if err != nil {
		return 0, err
	}
	n, err := f.v.write(h, p, off)
	f.startWriteback(h, n)
	f.size = max(f.size, off+int64(n))
	f.note()
	return n, err
}

// writebackBytes is how much is written before writeback to the disk is started, so that the
// sync of a large file waits for little.
const writebackBytes = 8 << 20

// startWriteback notes that n bytes more were written, and starts writeback once they are
// many. Its errors are those of the sync. f.mu is held.
func (f *file) startWriteback(h *os.File, n int) {
	if f.pending += n; f.pending < writebackBytes {
		return
	}
	f.pending = 0
	_ = unix.SyncFileRange(int(h.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}

// write writes to the disk, and makes room there if it is full.
func (v *Volume) write(h *os.File, p []byte, off int64) (n int, err error) {
	for try := 0; ; try++ {
		err = v.step("write", func() (err error) {
			n, err = h.WriteAt(p, off)
			return err
		})
		if !diskspace.Full(err) {
			return n, err
		}
		if try > 0 || !v.evict(0) {
			return n, &vfs.Error{Errno: syscall.ENOSPC, Reason: "the disk of the cache " + v.dir + " is full of files that are not uploaded yet, or of what is not ours", Err: err}
		}
	}
}

// truncate cuts off or makes longer. f.mu is held.
func (f *file) truncate(ctx context.Context, size int64, owner string) error {
	if size == 0 && f.size > 0 {
		f.stop()
		if err := f.fresh(); err != nil {
			return err
		}
		f.state = dirty
		f.pmu.Lock()
		f.have = nil
		f.pmu.Unlock()
		f.own(owner)
		f.gen++
		f.mtime = f.v.now()
		f.note()
		return nil
	}
	if err := f.modify(ctx, min(size, f.size), owner); err != nil {
		return err
	}
	h, err := f.opened()
	if err != nil {
		return err
	}
	if err := f.v.step("truncate", func() error { return h.Truncate(size) }); err != nil {
		return err
	}
	f.size = size
	f.note()
	return nil
}

// save makes what was written last: the content first, then the record that it is to be
// uploaded. f.mu is held.
func (f *file) save() error {
	if f.gen == f.recorded || f.gone {
		return nil
	}
	if f.f != nil {
		if err := f.v.step("sync", f.f.Sync); err != nil {
			return err
		}
		if !f.named {
			if err := f.v.step("sync folder", func() error { return syncDir(filepath.Join(f.v.dir, "data")) }); err != nil {
				return err
			}
			f.named = true
		}
	}
	f.attempts = append(f.attempts, remote.NewID())
	if n := len(f.attempts); n > maxAttempts {
		f.attempts = f.attempts[n-maxAttempts:]
	}
	if err := f.v.journal.put(map[string]*record{f.path: f.record()}); err != nil {
		return err
	}
	f.recorded, f.intent = f.gen, true
	f.note()
	f.v.removeStale(f)
	return nil
}

// maxAttempts bounds how many of its own writings a file remembers.
const maxAttempts = 100

// removeStale removes content that the journal does not name any more.
func (v *Volume) removeStale(f *file) {
	v.mu.Lock()
	old := v.stale[f]
	delete(v.stale, f)
	v.mu.Unlock()
	for _, id := range old {
		_ = os.Remove(v.dataPath(id))
	}
}

// readAt reads content, from the bucket what the cache lacks. f.mu is not held.
func (h *handle) readAt(ctx context.Context, p []byte, off int64) (int, error) {
	f := h.f
	f.mu.Lock()
	size, st := f.size, f.state
	if off >= size {
		f.mu.Unlock()
		return 0, nil
	}
	p = p[:min(int64(len(p)), size-off)]
	data, err := f.opened()
	if err != nil {
		f.mu.Unlock()
		return 0, err
	}
	if st == dirty || f.gone && f.keepsAll() && f.state != deleted {
		defer f.mu.Unlock()
		return whole(data, p, off)
	}
	obj := storage.Object{Key: f.v.tree.Key(f.path), ETag: f.base.ETag, Size: f.base.Size}
	f.mu.Unlock()
	if err := h.want(ctx, obj, off, int64(len(p))); err != nil {
		if diskspace.Full(err) { // the disk has no room: straight from the bucket
			return f.v.straight(ctx, obj, p, off)
		}
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if data, err = f.opened(); err != nil {
		return 0, err
	}
	return whole(data, p[:min(int64(len(p)), max(0, f.size-off))], off)
}

// whole reads p from the disk; what the file lacks at its end is zeros.
func whole(h *os.File, p []byte, off int64) (int, error) {
	n, err := h.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		clear(p[n:])
		return len(p), nil
	}
	return n, err
}

func (v *Volume) straight(ctx context.Context, o storage.Object, p []byte, off int64) (int, error) {
	r, err := v.bucket.Get(ctx, o.Key, storage.GetOptions{Offset: off, Length: int64(len(p)), IfMatch: o.ETag})
	if err != nil {
		return 0, replaced(o.Key, err)
	}
	defer r.Close()
	return io.ReadFull(r, p)
}

// replaced says that an object is not any more what was opened.
func replaced(key string, err error) error {
	_, changed := errors.AsType[*storage.ConflictError](err)
	gone, missing := errors.AsType[*storage.NotFoundError](err)
	if changed || missing && gone.Key != "" {
		return &vfs.Error{Errno: syscall.ESTALE, Reason: fmt.Sprintf("the object %s was replaced or deleted while it was read: open it again", key), Err: err}
	}
	return err
}
