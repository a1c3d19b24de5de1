//go:build linux

// Package cached is the file system of the mode MOUNT_CACHED: files are read and written
// in a cache on the disk, in any order, and uploaded when they were closed.
//
// A journal says what of the cache is to be uploaded or deleted in the bucket. What a
// process has closed or synced is on the disk before the journal says so, and the journal
// says so before the call returns: whoever opens the cache after a crash goes on. Each
// writing of an object has an id in its metadata, so that it is known again whose it is; an
// object that somebody else wrote meanwhile is kept, and what was written here is stored
// beside it under another name.
package cached

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/owner"
	"github.com/skypilot-go/sky/internal/mount/remote"
	"github.com/skypilot-go/sky/internal/mount/vfs"
	"github.com/skypilot-go/sky/internal/proc"
	"github.com/skypilot-go/sky/internal/storage"
)

// Options say how a bucket is mounted.
type Options struct {
	Dir    string // of the cache, for this mount alone
	Tree   remote.Options
	Config mountapi.Config
	Name   string // of the mount, in answers
	Node   string // of this machine, in the names of files that somebody else wrote, too; "": its host name
	Log    *slog.Logger
	Owner  func(pid int) string // nil: owner.Of
	Now    func() time.Time     // nil: time.Now
	// Retry is how long to wait before the second try of an upload; it doubles up to a
	// minute. 0: 1 s.
	Retry time.Duration
	// Step makes each call that has an effect on the disk or the bucket, in tests.
	Step func(name string, f func() error) error
}

// A Volume is a bucket as a file system with a cache.
type Volume struct {
	o       Options
	dir     string
	tree    *remote.Tree
	bucket  storage.Bucket
	journal *journal
	log     *slog.Logger
	owner   func(int) string
	now     func() time.Time
	boot    string

	chunk, ahead, limit int64
	streams             int
	age, delay          time.Duration
	bytes               atomic.Int64

	mu        sync.Mutex
	files     map[string]*file
	stale     map[*file][]string // content that the journal may still name
	unsaved   map[*file]bool     // read, and not in the journal
	pending   queue
	wake      chan struct{} // for the dispatcher
	progress  chan struct{} // closed when a file was uploaded or failed
	running   int
	conflicts []mountapi.File
	trouble   error
	closed    bool

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	naming sync.RWMutex // held for writing by renames of folders
}

var _ vfs.Volume = (*Volume)(nil)

// Open opens a cache, and goes on with what an earlier process has not uploaded.
func Open(b storage.Bucket, o Options) (*Volume, error) {
	v := &Volume{o: o, dir: o.Dir, bucket: b, log: o.Log, owner: o.Owner, now: o.Now, boot: proc.BootID(), files: map[string]*file{}, stale: map[*file][]string{}, unsaved: map[*file]bool{}, wake: make(chan struct{}, 1), progress: make(chan struct{})}
	if v.log == nil {
		v.log = slog.New(slog.DiscardHandler)
	}
	if v.owner == nil {
		v.owner = owner.Of
	}
	if v.now == nil {
		v.now = time.Now
	}
	if v.o.Step == nil {
		v.o.Step = func(_ string, f func() error) error { return f() }
	}
	if v.o.Retry == 0 {
		v.o.Retry = time.Second
	}
	if v.o.Node == "" {
		v.o.Node, _ = os.Hostname()
	}
	v.configure(o.Config)
	if o.Tree.TTL == 0 {
		o.Tree.TTL = 10 * time.Second
	}
	v.tree = remote.New(b, o.Tree)
	if err := os.MkdirAll(filepath.Join(v.dir, "data"), 0o700); err != nil {
		return nil, err
	}
	j, err := openJournal(v.dir, v.step)
	if err != nil {
		return nil, err
	}
	v.journal = j
	// The names of the cache, of its journal and of the folder of its content.
	if err := errors.Join(syncDir(filepath.Dir(v.dir)), syncDir(v.dir)); err != nil {
		j.close()
		return nil, err
	}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	if err := v.recover(); err != nil {
		j.close()
		return nil, err
	}
	v.wg.Go(v.dispatch)
	v.wg.Go(v.tidyAlways)
	return v, nil
}

func or[T int | int64 | time.Duration](x, otherwise T) T {
	if x == 0 {
		return otherwise
	}
	return x
}

func (v *Volume) configure(c mountapi.Config) {
	v.streams = or(c.ReadChunkStreams, 4)
	v.chunk = max(blockSize, or(c.ReadChunkSize, 8<<20)/blockSize*blockSize)
	v.ahead = max(or(c.BufferSize, 16<<20)+c.ReadAhead, int64(v.streams)*v.chunk)
	v.limit = or(c.CacheMaxSize, 10<<30)
	v.age = or(c.CacheMaxAge, time.Hour)
	v.delay = or(c.WriteBack, time.Second)
	v.o.Config.Transfers = or(c.Transfers, 4)
}

func (v *Volume) step(name string, f func() error) error { return v.o.Step(name, f) }

// recover takes over what the journal says.
func (v *Volume) recover() error {
	records, err := v.journal.load()
	if err != nil {
		return err
	}
	named := map[string]bool{}
	drop := map[string]*record{}
	for path, r := range records {
		// A file that was being changed, but neither closed nor synced, has no attempts yet: its
		// content may have holes now, and the bucket has a good one.
		unsynced := r.State == clean || r.State == dirty && len(r.Attempts) == 0
		if unsynced && r.Boot != v.boot {
			drop[path] = nil
			continue
		}
		f := &file{v: v, path: path, state: r.State, typ: r.Type, data: r.Data, size: r.Size, perm: r.Perm, mtime: r.MTime, target: r.Target, base: r.Base, attempts: r.Attempts, after: r.After, have: r.Present, used: v.now()}
		for _, o := range r.Owners {
			f.own(o)
		}
		if r.Data != "" {
			info, err := os.Stat(v.dataPath(r.Data))
			switch {
			case err == nil && r.State == dirty:
				f.size = info.Size() // more may have been written than the journal has heard of
			case err != nil && r.State == dirty:
				v.log.Error("content that was to be uploaded is missing from the cache: somebody removed it, or the disk is damaged", "path", path, "err", err)
				continue
			case err != nil:
				drop[path] = nil
				continue
			}
			named[r.Data] = true
		}
		if r.State != clean {
			f.gen, f.recorded, f.intent, f.tried = 1, 1, true, true
		}
		f.note()
		v.files[path] = f
	}
	if err := v.journal.put(drop); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(v.dir, "data"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !named[e.Name()] {
			_ = os.Remove(v.dataPath(e.Name())) // no path has it: it was never closed, or it is an old content
		}
	}
	for _, f := range v.files {
		if f.state != clean {
			v.enqueue(f, 0)
		}
	}
	return nil
}

// tidyAlways keeps the cache in its limits.
func (v *Volume) tidyAlways() {
	for {
		select {
		case <-v.ctx.Done():
			return
		case <-time.After(tidyEvery):
			v.tidy()
		}
	}
}

// Close ends the volume. What is not uploaded stays in the cache.
func (v *Volume) Close() {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return
	}
	v.closed = true
	var files []*file
	for _, f := range v.files {
		files = append(files, f)
	}
	v.mu.Unlock()
	v.cancel()
	v.wg.Wait()
	for _, f := range files {
		f.mu.Lock()
		if err := f.save(); err != nil {
			v.log.Error("a file is not in the journal", "path", f.path, "err", err)
		}
		f.stopGetting()
		f.mu.Unlock()
	}
	v.saveClean()
	for _, f := range files {
		f.mu.Lock()
		f.closeData()
		f.mu.Unlock()
	}
	if err := v.journal.close(); err != nil {
		v.log.Error("closing the journal of the cache", "err", err)
	}
}

func (v *Volume) at(path string) *file {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.files[path]
}

// local is what the cache says of a path that differs from the bucket, or is newer.
func (v *Volume) local(path string) *shown {
	if f := v.at(path); f != nil {
		return f.shown.Load()
	}
	return nil
}

// Stat is what is at a path.
func (v *Volume) Stat(ctx context.Context, path string) (vfs.Attr, error) {
	if path == "" {
		return vfs.Attr{Type: vfs.Dir, Perm: remote.DirPerm}, nil
	}
	s := v.local(path)
	if s != nil && s.state == deleted {
		return vfs.Attr{}, remote.Missing(path)
	}
	if s != nil && (s.state == dirty || s.base.Metadata != nil && v.isOpen(path)) {
		return s.attr, nil
	}
	e, err := v.tree.Stat(ctx, path)
	if s != nil && storage.Temporary(err) {
		return s.attr, nil // as the cache has it
	}
	if err != nil {
		return vfs.Attr{}, err
	}
	if s != nil && !e.Dir && e.Object.ETag == s.base.ETag && (s.base.Metadata != nil || !e.Known) {
		return s.attr, nil // a list knows less
	}
	return e.Attr(), nil
}

func (v *Volume) isOpen(path string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	f := v.files[path]
	return f != nil && f.refs > 0
}

// locals are the paths in a folder that the cache has something to say about.
func (v *Volume) locals(dir string) map[string]*shown {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := map[string]*shown{}
	for path, f := range v.files {
		if parent(path) != dir {
			continue
		}
		if s := f.shown.Load(); s != nil && (s.state != clean || f.refs > 0) {
			out[lastName(path)] = s
		}
	}
	return out
}

func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i]
	}
	return ""
}

func lastName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// ReadDir lists a folder: what the bucket has, but for what is deleted, and what is not
// uploaded yet.
func (v *Volume) ReadDir(ctx context.Context, dir string) iter.Seq2[vfs.Attr, error] {
	return func(yield func(vfs.Attr, error) bool) {
		local := v.locals(dir)
		s := v.local(dir)
		made := s != nil && s.state == dirty && s.attr.Type == vfs.Dir && s.base.Known && !s.base.Exists
		if !made { // the bucket has nothing of a folder that was made here
			for e, err := range v.tree.List(ctx, dir) {
				if err != nil {
					yield(vfs.Attr{}, err)
					return
				}
				a := e.Attr()
				if s := local[a.Name]; s != nil {
					delete(local, a.Name)
					if s.state == deleted {
						continue
					}
					a = s.attr
				}
				if !yield(a, nil) {
					return
				}
			}
		}
		for _, s := range local {
			if s.state == dirty && !yield(s.attr, nil) {
				return
			}
		}
	}
}

// there is what is at a path: in the cache, or else in the bucket.
func (v *Volume) there(ctx context.Context, path string) (a vfs.Attr, ok bool, err error) {
	a, err = v.Stat(ctx, path)
	if vfs.Errno(err) == syscall.ENOENT {
		return a, false, nil
	}
	return a, err == nil, err
}

func exists(path string) error {
	return &vfs.Error{Errno: syscall.EEXIST, Reason: fmt.Sprintf("%q exists", path)}
}

// make puts something new at a path, which the bucket gets later. Its base is what the
// bucket still has there.
func (v *Volume) make(path string, t vfs.Type, perm fs.FileMode, target string, by string) (*file, error) {
	f := &file{v: v, path: path, state: dirty, typ: t, perm: perm, mtime: v.now(), target: target, base: absent, gen: 1}
	f.own(by)
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := v.at(path); old != nil { // it was deleted
		old.mu.Lock()
		defer old.mu.Unlock()
		if old.state != deleted {
			return nil, exists(path)
		}
		old.stop()
		f.base, f.attempts, f.tried = old.base, old.attempts, true
		if (old.typ == vfs.Dir) != (t == vfs.Dir) {
			return nil, errAgain
		}
		v.mu.Lock()
		old.gone = true
		v.pending.remove(old)
		v.mu.Unlock()
	}
	f.note()
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := v.files[path]; now != nil && !now.gone {
		return nil, exists(path)
	}
	v.files[path] = f
	return f, nil
}

// Mkdir makes a folder.
func (v *Volume) Mkdir(ctx context.Context, path string, _ fs.FileMode) (vfs.Attr, error) {
	return v.makeNow(ctx, path, vfs.Dir, remote.DirPerm, "")
}

// Symlink makes a link.
func (v *Volume) Symlink(ctx context.Context, target, path string) (vfs.Attr, error) {
	if n := 3*len(target) + 100; n > v.bucket.Caps().MaxMetadata || !v.bucket.Caps().Metadata {
		return vfs.Attr{}, vfs.Refuse(syscall.ENAMETOOLONG, "the target of the link %q may be too long for the store, which keeps at most %d bytes", path, v.bucket.Caps().MaxMetadata)
	}
	return v.makeNow(ctx, path, vfs.Link, 0o777, target)
}

func (v *Volume) makeNow(ctx context.Context, path string, t vfs.Type, perm fs.FileMode, target string) (vfs.Attr, error) {
	v.naming.RLock()
	defer v.naming.RUnlock()
	if err := v.mayBe(path); err != nil {
		return vfs.Attr{}, err
	}
	if _, ok, err := v.there(ctx, path); err != nil || ok {
		if ok {
			err = exists(path)
		}
		return vfs.Attr{}, err
	}
	if err := v.settleOther(ctx, path, t == vfs.Dir); err != nil {
		return vfs.Attr{}, err
	}
	f, err := v.make(path, t, perm, target, "")
	if err != nil {
		return vfs.Attr{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.save(); err != nil {
		v.unmake(f)
		return vfs.Attr{}, err
	}
	v.enqueue(f, 0)
	return f.shown.Load().attr, nil
}

// unmake takes back what the journal does not have. f.mu is held.
func (v *Volume) unmake(f *file) {
	f.gone = true
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.files[f.path] == f {
		delete(v.files, f.path)
	}
}

// mayBe refuses paths that cannot be keys.
func (v *Volume) mayBe(path string) error {
	if most := v.bucket.Caps().MaxKey; most > 0 && len(v.tree.Key(path))+1 > most {
		return vfs.Refuse(syscall.ENAMETOOLONG, "%q is too long: a key has at most %d bytes", path, most)
	}
	return nil
}

// Rmdir removes a folder that is empty.
func (v *Volume) Rmdir(ctx context.Context, path string) error {
	v.naming.RLock()
	defer v.naming.RUnlock()
	a, err := v.Stat(ctx, path)
	if err != nil {
		return err
	}
	if a.Type != vfs.Dir {
		return &vfs.Error{Errno: syscall.ENOTDIR, Reason: fmt.Sprintf("%q is no folder", path)}
	}
	for _, err := range v.ReadDir(ctx, path) {
		if err != nil {
			return err
		}
		return &vfs.Error{Errno: syscall.ENOTEMPTY, Reason: fmt.Sprintf("%q is not empty", path)}
	}
	if err := v.erase(ctx, path, vfs.Dir, ""); err != nil {
		return err
	}
	v.tree.Dropped(path)
	return nil
}

// Unlink removes a file.
func (v *Volume) Unlink(ctx context.Context, path string) error {
	v.naming.RLock()
	defer v.naming.RUnlock()
	a, err := v.Stat(ctx, path)
	if err != nil {
		return err
	}
	if a.Type == vfs.Dir {
		return &vfs.Error{Errno: syscall.EISDIR, Reason: fmt.Sprintf("%q is a folder", path)}
	}
	return v.erase(ctx, path, a.Type, "")
}

// erase takes what is at a path away, here at once and in the bucket later: after another
// path is uploaded, if one is given.
func (v *Volume) erase(ctx context.Context, path string, t vfs.Type, after string) error {
	removal := &file{v: v, path: path, state: deleted, typ: t, gen: 1, after: after}
	removal.mu.Lock()
	defer removal.mu.Unlock()
	f := v.at(path)
	if f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.stop()
		f.keepForHandles(ctx)
		removal.base, removal.attempts, removal.owners = f.base, f.attempts, f.owners
	} else if t != vfs.Dir {
		e, err := v.tree.Stat(ctx, path)
		if err != nil {
			return err
		}
		removal.base = baseOf(e.Object)
	}
	return v.supersede(f, removal)
}

// keepForHandles brings all content of a file into the cache that is open and goes from
// the bucket, if it is not too much. f.mu is held.
func (f *file) keepForHandles(ctx context.Context) {
	f.v.mu.Lock()
	used := f.refs > 0
	f.v.mu.Unlock()
	if !used || f.state != clean || f.size > cheapCopy {
		return
	}
	if err := f.fill(ctx, f.size); err != nil {
		f.v.log.Warn("a file that is open and deleted cannot be read any more", "path", f.path, "err", err)
	}
}

// supersede replaces a file by its deletion. Both are locked.
func (v *Volume) supersede(f, removal *file) error {
	needed := true
	if f != nil && removal.base.Known && !removal.base.Exists && !f.tried {
		needed = removal.typ == vfs.Dir && v.removalsBelow(removal.path) // the bucket never had it
	}
	var r *record
	if needed {
		r = removal.record()
	}
	if f == nil || f.recorded > 0 || f.state == clean || needed {
		if err := v.journal.put(map[string]*record{removal.path: r}); err != nil {
			return err
		}
	}
	removal.recorded = removal.gen
	removal.note()
	v.mu.Lock()
	if f != nil {
		f.gone = true
		v.pending.remove(f)
	}
	if needed {
		v.files[removal.path] = removal
	} else {
		delete(v.files, removal.path)
	}
	unused := f != nil && f.refs == 0
	v.mu.Unlock()
	if unused {
		f.dropData()
	}
	if needed {
		v.enqueue(removal, 0)
	}
	v.announce()
	return nil
}

// SetAttr changes the size, the permissions and the time.
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
	a, err := v.Stat(ctx, path)
	if err != nil || a.Type != vfs.File || c.Perm == nil && c.ModTime == nil {
		return a, err
	}
	if (c.Perm == nil || *c.Perm == a.Perm) && (c.ModTime == nil || c.ModTime.Equal(a.ModTime)) {
		return a, nil
	}
	h, err := v.open(ctx, path, vfs.OpenOptions{Read: true})
	if err != nil {
		return vfs.Attr{}, err
	}
	defer h.Release()
	return h.f.setAttributes(ctx, c)
}

// cheapCopy is the size up to which an object is copied onto itself to keep what chmod
// and utimes say.
const cheapCopy = 256 << 20

func (f *file) setAttributes(ctx context.Context, c vfs.Change) (vfs.Attr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.v
	if f.state == clean {
		if f.base.Size > min(cheapCopy, v.bucket.Caps().MaxCopy) || !v.bucket.Caps().Metadata {
			v.log.Info("times and permissions of a large file are not kept", "path", f.path)
			return f.shown.Load().attr, nil
		}
		if f.base.Metadata == nil { // a list said that it is there
			e, err := v.tree.LookFile(ctx, f.path)
			if err != nil {
				return vfs.Attr{}, err
			}
			if e.Object.ETag != f.base.ETag {
				return vfs.Attr{}, replaced(f.path, &storage.ConflictError{Bucket: v.bucket.Location(), Key: e.Object.Key})
			}
			f.rebase(e)
		}
		o := storage.Object{Key: v.tree.Key(f.path), ETag: f.base.ETag, Size: f.base.Size, Metadata: f.base.Metadata}
		var e remote.Entry
		err := v.step("copy", func() (err error) {
			e, err = v.tree.SetAttributes(ctx, remote.Entry{Path: f.path, Object: o, Known: true}, c.Perm, c.ModTime)
			return err
		})
		if err != nil {
			return vfs.Attr{}, err
		}
		f.rebase(e)
		f.note()
		return f.shown.Load().attr, nil
	}
	f.stop()
	if c.Perm != nil {
		f.perm = *c.Perm
	}
	if c.ModTime != nil {
		f.mtime = *c.ModTime
	}
	f.gen++
	f.note()
	if v.writing(f) {
		return f.shown.Load().attr, nil // the close saves it
	}
	if err := f.save(); err != nil {
		return vfs.Attr{}, err
	}
	v.enqueue(f, v.delay)
	return f.shown.Load().attr, nil
}

func (v *Volume) writing(f *file) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return f.writers > 0
}

// rebase takes over what the bucket has: the content is the same. f.mu is held.
func (f *file) rebase(e remote.Entry) {
	a := e.Attr()
	f.base = baseOf(e.Object)
	f.typ, f.perm, f.mtime, f.size, f.target = a.Type, a.Perm, a.ModTime, e.Object.Size, a.Target
}

// Forget forgets what is known of the bucket, which others may have changed.
func (v *Volume) Forget() { v.tree.Forget() }

// Space is that of the cache's disk: writes need it.
func (v *Volume) Space() (total, free int64) {
	var st unix.Statfs_t
	if unix.Statfs(v.dir, &st) != nil {
		return 0, 0
	}
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize
}
