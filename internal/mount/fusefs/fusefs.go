//go:build linux

// Package fusefs mounts a [vfs.Volume] with FUSE, by mount(2) itself: neither libfuse nor
// fusermount is needed.
package fusefs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log"
	"log/slog"
	"os"
	"path"
	"strconv"
	"sync"
	"syscall"
	"time"

	fusenode "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/skypilot-go/sky/internal/mount/mountpoints"
	"github.com/skypilot-go/sky/internal/mount/vfs"
)

// Options say how a volume is mounted.
type Options struct {
	Name     string // shown by df: the bucket's URL
	Kind     string // "fuse." and this is the type of the file system
	ReadOnly bool
	// UID and GID are whom files belong to. Others may use the mount only if they are
	// not those of this process.
	UID, GID uint32
	// DirectWrites keeps the kernel from holding pages of files that are written. Else it
	// holds none for handles that only write.
	DirectWrites bool
	Log          *slog.Logger
	// Attacher mounts in place of this process; nil: it mounts by itself.
	Attacher Attacher
	// Refused is called, a few times a second at most, for a call of a process that failed
	// for a reason that programs do not expect, but close, whose files the volume names; it
	// may be nil.
	Refused func(pid int, call, path string, err error)
}

// A Mount is a volume that is mounted.
type Mount struct {
	path     string
	ended    chan struct{}
	attacher Attacher
}

// Available says why FUSE cannot be used here, if it cannot.
func Available() error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("/dev/fuse cannot be opened: %w", err)
	}
	return unix.Close(fd)
}

// maxRequest is the most that one call of the kernel reads or writes.
const maxRequest = 1 << 20

// New mounts a volume at a path that exists.
func New(v vfs.Volume, at string, o Options) (*Mount, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	second, none := time.Second, time.Duration(0)
	server := &shared{volume: v, o: o}
	options := &fusenode.Options{
		EntryTimeout:    &second,
		AttrTimeout:     &none,
		NegativeTimeout: &none,
		UID:             o.UID,
		GID:             o.GID,
		Logger:          log.New(discard{}, "", 0),
		MountOptions: fuse.MountOptions{
			MaxWrite:                 maxRequest,
			MaxReadAhead:             maxRequest,
			MaxBackground:            64,
			DisableReadDirPlus:       true,
			ExplicitDataCacheControl: true,
			DisableXAttrs:            true,
			Logger:                   log.New(discard{}, "", 0),
		},
	}
	attacher := o.Attacher
	if attacher == nil {
		attacher = itself{}
	}
	f, err := attacher.Attach(Attachment{Path: at, Name: o.Name, Kind: o.Kind, ReadOnly: o.ReadOnly, AllowOther: o.UID != uint32(os.Geteuid()),
		UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())})
	if err != nil {
		return nil, err
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3) // the server closes it
	f.Close()
	if err != nil {
		_ = attacher.Detach(at, true)
		return nil, err
	}
	// Of a mount that it made itself, the library would open a file, which this process must
	// not do: see package mount.
	s, err := fusenode.Mount(fmt.Sprintf("/dev/fd/%d", fd), &node{s: server}, options)
	if err != nil {
		_ = attacher.Detach(at, true)
		return nil, fmt.Errorf("mounting at %s: %w", at, err)
	}
	readAhead(at)
	m := &Mount{path: at, ended: make(chan struct{}), attacher: attacher}
	go func() {
		s.Wait()
		close(m.ended)
	}()
	return m, nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// readAhead lets the kernel read ahead more than its 128 KiB, where it may be told so.
func readAhead(at string) {
	if p, ok, _ := mountpoints.At(at); ok {
		_ = os.WriteFile("/sys/class/bdi/"+p.Device+"/read_ahead_kb", []byte(strconv.Itoa(maxRequest/1024)), 0)
	}
}

// Ended is closed when the mount is gone, whoever unmounted it.
func (m *Mount) Ended() <-chan struct{} { return m.ended }

// Unmount ends the mount. While files are open it is refused with EBUSY, unless lazy
// takes it from its path at once and lets them be used until they are closed.
func (m *Mount) Unmount(lazy bool) error {
	return m.attacher.Detach(m.path, lazy)
}

// shared is what all nodes know.
type shared struct {
	volume vfs.Volume
	o      Options

	mu    sync.Mutex
	last  time.Time
	count int
}

// errno is the number of an error. What is not expected has its reason in the log.
func (s *shared) errno(ctx context.Context, op, name string, err error) syscall.Errno {
	if err == nil {
		return 0
	}
	n := vfs.Errno(err)
	if !vfs.Expected(err) && s.mayLog() {
		s.o.Log.Warn("a call failed", "call", op, "path", name, "errno", n.Error(), "err", err.Error())
		if pid := caller(ctx).PID; s.o.Refused != nil && pid > 0 && op != "close" {
			s.o.Refused(pid, op, name, err)
		}
	}
	return n
}

// mayLog keeps a program that tries again and again from filling the log.
func (s *shared) mayLog() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.last) > time.Second {
		s.last, s.count = now, 0
	}
	s.count++
	return s.count <= 20
}

func caller(ctx context.Context) vfs.Caller {
	if c, ok := fuse.FromContext(ctx); ok {
		return vfs.Caller{PID: int(c.Pid)}
	}
	return vfs.Caller{}
}

func fileType(t vfs.Type) uint32 {
	switch t {
	case vfs.Dir:
		return fuse.S_IFDIR
	case vfs.Link:
		return fuse.S_IFLNK
	case vfs.Unknown:
		return 0
	}
	return fuse.S_IFREG
}

func (s *shared) fill(a vfs.Attr, out *fuse.Attr) {
	t := fileType(a.Type)
	if t == 0 {
		t = fuse.S_IFREG
	}
	out.Mode = t | uint32(a.Perm.Perm())
	out.Size = uint64(a.Size)
	out.Blocks = (out.Size + 511) / 512
	out.Blksize = maxRequest
	out.Nlink = 1
	out.Owner = fuse.Owner{Uid: s.o.UID, Gid: s.o.GID}
	if !a.ModTime.IsZero() {
		out.SetTimes(&a.ModTime, &a.ModTime, &a.ModTime)
	}
}

// A node is a file or a folder that the kernel knows.
type node struct {
	fusenode.Inode
	s *shared

	mu      sync.Mutex
	handles map[*file]bool
	version string // of the content that the kernel may have pages of
}

func (n *node) path() string { return n.Path(n.Root()) }

func (n *node) child(name string) string { return path.Join(n.path(), name) }

// inode is the kernel's node for a child: the one that it knows, if the type is the same.
func (n *node) inode(ctx context.Context, name string, a vfs.Attr, out *fuse.EntryOut) *fusenode.Inode {
	n.s.fill(a, &out.Attr)
	mode := out.Attr.Mode & syscall.S_IFMT
	if have := n.GetChild(name); have != nil && have.StableAttr().Mode == mode {
		out.Attr.Ino = have.StableAttr().Ino
		return have
	}
	return n.NewInode(ctx, &node{s: n.s}, fusenode.StableAttr{Mode: mode})
}

// maxName is how long a name may be, as in other file systems: the kernel itself allows
// more here.
const maxName = 255

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fusenode.Inode, syscall.Errno) {
	if len(name) > maxName {
		return nil, syscall.ENAMETOOLONG // every other call looks first
	}
	at := n.child(name)
	a, err := n.s.volume.Stat(ctx, at)
	if err != nil {
		return nil, n.s.errno(ctx, "lookup", at, err)
	}
	return n.inode(ctx, name, a, out), 0
}

// opened is one of the handles of the node.
func (n *node) opened() *file {
	n.mu.Lock()
	defer n.mu.Unlock()
	for h := range n.handles {
		return h
	}
	return nil
}

func (n *node) Getattr(ctx context.Context, fh fusenode.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f, _ := fh.(*file)
	if f == nil {
		f = n.opened()
	}
	if f != nil {
		n.s.fill(f.h.Attr(), &out.Attr)
		return 0
	}
	a, err := n.s.volume.Stat(ctx, n.path())
	if err != nil {
		return n.s.errno(ctx, "getattr", n.path(), err)
	}
	n.s.fill(a, &out.Attr)
	return 0
}

func (n *node) Setattr(ctx context.Context, fh fusenode.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	at := n.path()
	c := vfs.Change{By: caller(ctx)}
	if mode, ok := in.GetMode(); ok {
		perm := fs.FileMode(mode).Perm()
		c.Perm = &perm
	}
	if mtime, ok := in.GetMTime(); ok {
		c.ModTime = &mtime
	}
	if size, ok := in.GetSize(); ok {
		f, _ := fh.(*file)
		if f == nil { // the call by the path, of a file that is open for writing
			f = n.writing()
		}
		if f != nil && f.write {
			if err := f.h.Truncate(ctx, int64(size)); err != nil {
				return n.s.errno(ctx, "truncate", at, err)
			}
		} else {
			x := int64(size)
			c.Size = &x
		}
	}
	if uid, ok := in.GetUID(); ok && uid != n.s.o.UID {
		return n.s.errno(ctx, "chown", at, vfs.Refuse(syscall.EPERM, "files of a bucket belong to the user of its mount: no other owner is kept"))
	}
	// The times of what is deleted, or of an older kernel's access time alone, are nothing.
	if c.Size != nil || c.Perm != nil || c.ModTime != nil {
		if n.gone() {
			return n.Getattr(ctx, fh, out)
		}
		if _, err := n.s.volume.SetAttr(ctx, at, c); err != nil {
			return n.s.errno(ctx, "setattr", at, err)
		}
	}
	return n.Getattr(ctx, fh, out)
}

// gone reports whether the file was deleted while it is open.
func (n *node) gone() bool {
	_, parent := n.Parent()
	return parent == nil && !n.IsRoot()
}

func (n *node) writing() *file {
	n.mu.Lock()
	defer n.mu.Unlock()
	for h := range n.handles {
		if h.write {
			return h
		}
	}
	return nil
}

type dirStream struct {
	ctx  context.Context // of the call that made it
	next func() (vfs.Attr, error, bool)
	stop func()
	a    vfs.Attr
	err  error
	ok   bool
	s    *shared
	path string
}

func (d *dirStream) HasNext() bool { return d.ok }

func (d *dirStream) Next() (fuse.DirEntry, syscall.Errno) {
	a, err := d.a, d.err
	d.a, d.err, d.ok = d.next()
	if err != nil {
		return fuse.DirEntry{}, d.s.errno(d.ctx, "readdir", d.path, err)
	}
	return fuse.DirEntry{Name: a.Name, Mode: fileType(a.Type)}, 0
}

func (d *dirStream) Close() { d.stop() }

func (n *node) Readdir(ctx context.Context) (fusenode.DirStream, syscall.Errno) {
	at := n.path()
	// The stream is used by later calls of the kernel, too.
	ctx = context.WithoutCancel(ctx)
	next, stop := iter.Pull2(n.s.volume.ReadDir(ctx, at))
	d := &dirStream{ctx: ctx, next: next, stop: stop, s: n.s, path: at}
	if d.a, d.err, d.ok = next(); d.err != nil {
		stop()
		return nil, n.s.errno(ctx, "readdir", at, d.err)
	}
	return d, 0
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fusenode.Inode, syscall.Errno) {
	at := n.child(name)
	a, err := n.s.volume.Mkdir(ctx, at, fs.FileMode(mode).Perm())
	if err != nil {
		return nil, n.s.errno(ctx, "mkdir", at, err)
	}
	return n.inode(ctx, name, a, out), 0
}

func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno {
	return n.s.errno(ctx, "rmdir", n.child(name), n.s.volume.Rmdir(ctx, n.child(name)))
}

func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	return n.s.errno(ctx, "unlink", n.child(name), n.s.volume.Unlink(ctx, n.child(name)))
}

func (n *node) Rename(ctx context.Context, name string, to fusenode.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	from := n.child(name)
	if flags&^unix.RENAME_NOREPLACE != 0 {
		return n.s.errno(ctx, "rename", from, vfs.Refuse(syscall.EINVAL, "names of a bucket cannot be exchanged"))
	}
	if len(newName) > maxName {
		return syscall.ENAMETOOLONG
	}
	err := n.s.volume.Rename(ctx, from, to.(*node).child(newName), flags&unix.RENAME_NOREPLACE != 0)
	return n.s.errno(ctx, "rename", from, err)
}

func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fusenode.Inode, syscall.Errno) {
	at := n.child(name)
	a, err := n.s.volume.Symlink(ctx, target, at)
	if err != nil {
		return nil, n.s.errno(ctx, "symlink", at, err)
	}
	return n.inode(ctx, name, a, out), 0
}

func (n *node) Readlink(ctx context.Context) ([]byte, syscall.Errno) {
	a, err := n.s.volume.Stat(ctx, n.path())
	if err != nil {
		return nil, n.s.errno(ctx, "readlink", n.path(), err)
	}
	if a.Type != vfs.Link {
		return nil, syscall.EINVAL
	}
	return []byte(a.Target), 0
}

func (n *node) Link(ctx context.Context, _ fusenode.InodeEmbedder, name string, _ *fuse.EntryOut) (*fusenode.Inode, syscall.Errno) {
	return nil, n.s.errno(ctx, "link", n.child(name), vfs.Refuse(syscall.ENOTSUP, "buckets have no hard links"))
}

func (n *node) Mknod(ctx context.Context, name string, mode, _ uint32, out *fuse.EntryOut) (*fusenode.Inode, syscall.Errno) {
	at := n.child(name)
	if mode&syscall.S_IFMT != syscall.S_IFREG {
		return nil, n.s.errno(ctx, "mknod", at, vfs.Refuse(syscall.EPERM, "buckets hold files, folders and symbolic links: no devices, pipes or sockets"))
	}
	h, err := n.s.volume.Open(ctx, at, vfs.OpenOptions{Write: true, Create: true, Excl: true, Perm: fs.FileMode(mode).Perm(), By: caller(ctx)})
	if err != nil {
		return nil, n.s.errno(ctx, "mknod", at, err)
	}
	defer h.Release()
	if err := h.Flush(ctx); err != nil {
		return nil, n.s.errno(ctx, "mknod", at, err)
	}
	return n.inode(ctx, name, h.Attr(), out), 0
}

func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	const size = 4096
	total, free := n.s.volume.Space()
	if total == 0 {
		total, free = 1<<60, 1<<60
	}
	out.Bsize, out.Frsize, out.NameLen = size, size, maxName
	out.Blocks, out.Bfree, out.Bavail = uint64(total)/size, uint64(free)/size, uint64(free)/size
	out.Files, out.Ffree = 1<<40, 1<<40
	return 0
}

// options are those of open(2).
func options(flags uint32) vfs.OpenOptions {
	o := vfs.OpenOptions{Append: flags&syscall.O_APPEND != 0, Trunc: flags&syscall.O_TRUNC != 0, Excl: flags&syscall.O_EXCL != 0}
	switch flags & syscall.O_ACCMODE {
	case syscall.O_RDONLY:
		o.Read = true
	case syscall.O_WRONLY:
		o.Write = true
	default:
		o.Read, o.Write = true, true
	}
	o.Write = o.Write || o.Trunc
	return o
}

func (n *node) Open(ctx context.Context, flags uint32) (fusenode.FileHandle, uint32, syscall.Errno) {
	o := options(flags)
	o.By = caller(ctx)
	h, err := n.s.volume.Open(ctx, n.path(), o)
	if err != nil {
		return nil, 0, n.s.errno(ctx, "open", n.path(), err)
	}
	f := n.open(h, o)
	return f, n.flags(f), 0
}

func (n *node) open(h vfs.Handle, o vfs.OpenOptions) *file {
	f := &file{n: n, h: h, write: o.Write, uncached: o.Write && !o.Read && !n.s.o.DirectWrites}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.handles == nil {
		n.handles = map[*file]bool{}
	}
	n.handles[f] = true
	return f
}

// flags tell the kernel what to do with its pages.
func (n *node) flags(f *file) uint32 {
	if f.uncached || f.write && n.s.o.DirectWrites {
		return fuse.FOPEN_DIRECT_IO
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.version
	n.version = f.h.Version()
	if n.version != "" && n.version == old {
		return fuse.FOPEN_KEEP_CACHE
	}
	return 0
}

func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fusenode.Inode, fusenode.FileHandle, uint32, syscall.Errno) {
	at := n.child(name)
	o := options(flags)
	o.By, o.Create, o.Perm = caller(ctx), true, fs.FileMode(mode).Perm()
	h, err := n.s.volume.Open(ctx, at, o)
	if err != nil {
		return nil, nil, 0, n.s.errno(ctx, "create", at, err)
	}
	in := n.inode(ctx, name, h.Attr(), out)
	child := in.Operations().(*node)
	f := child.open(h, o)
	return in, f, child.flags(f), 0
}

func (n *node) Allocate(ctx context.Context, fh fusenode.FileHandle, off, size uint64, mode uint32) syscall.Errno {
	f, ok := fh.(*file)
	if !ok || mode&^unix.FALLOC_FL_KEEP_SIZE != 0 {
		return n.s.errno(ctx, "fallocate", n.path(), vfs.Refuse(syscall.ENOTSUP, "holes cannot be made in objects"))
	}
	if mode&unix.FALLOC_FL_KEEP_SIZE != 0 || f.h.Attr().Size >= int64(off+size) {
		return 0 // there is always room in a bucket
	}
	return n.s.errno(ctx, "fallocate", n.path(), f.h.Truncate(ctx, int64(off+size)))
}

// A file is an open file.
type file struct {
	n     *node
	h     vfs.Handle
	write bool
	// uncached: writes bypass the kernel's page cache, which saves a copy. Other handles may
	// have pages there.
	uncached bool
}

func (f *file) Read(ctx context.Context, p []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if l, ok := f.h.(vfs.Lender); ok {
		data, done, err := l.Lend(ctx, p, off)
		if err != nil {
			return nil, f.n.s.errno(ctx, "read", f.n.path(), err)
		}
		r := &lent{data: data, done: done}
		if r.Size() == 0 { // whose Done is not called
			done()
			return fuse.ReadResultData(nil), 0
		}
		return r, 0
	}
	n, err := f.h.ReadAt(ctx, p, off)
	if err != nil {
		return nil, f.n.s.errno(ctx, "read", f.n.path(), err)
	}
	return fuse.ReadResultData(p[:n]), 0
}

// lent is content that the kernel takes from where it lies.
type lent struct {
	data [][]byte
	done func()
}

func (r *lent) Slices() ([][]byte, fuse.Status) { return r.data, fuse.OK }

func (r *lent) Size() int {
	n := 0
	for _, d := range r.data {
		n += len(d)
	}
	return n
}

func (r *lent) Bytes(p []byte) ([]byte, fuse.Status) {
	p = p[:0]
	for _, d := range r.data {
		p = append(p, d...)
	}
	return p, fuse.OK
}

func (r *lent) Done() { r.done() }

func (f *file) Write(ctx context.Context, p []byte, off int64) (uint32, syscall.Errno) {
	f.invalidate(off, len(p)) // what others changed in a map is written first
	n, err := f.h.WriteAt(ctx, p, off)
	f.invalidate(off, n) // what others read meanwhile is old
	if err != nil && n == 0 {
		return 0, f.n.s.errno(ctx, "write", f.n.path(), err)
	}
	return uint32(n), 0
}

// invalidate makes the kernel drop its pages of n bytes, if writes bypass them and other
// handles may have them. New kernels do so by themselves.
func (f *file) invalidate(off int64, n int) {
	if !f.uncached || n == 0 {
		return
	}
	f.n.mu.Lock()
	alone := len(f.n.handles) == 1
	f.n.mu.Unlock()
	if !alone {
		_ = f.n.NotifyContent(off, int64(n)) // ENOENT: there are none
	}
}

func (f *file) Flush(ctx context.Context) syscall.Errno {
	err := f.h.Flush(ctx)
	if errors.Is(err, syscall.EINTR) { // close is not repeated
		err = vfs.Refuse(syscall.EIO, "closing was interrupted")
	}
	return f.n.s.errno(ctx, "close", f.n.path(), err)
}

func (f *file) Fsync(ctx context.Context, _ uint32) syscall.Errno {
	return f.n.s.errno(ctx, "fsync", f.n.path(), f.h.Sync(ctx))
}

func (f *file) Release(context.Context) syscall.Errno {
	f.h.Release()
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	delete(f.n.handles, f)
	return 0
}
