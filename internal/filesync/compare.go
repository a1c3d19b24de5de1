//go:build unix

package filesync

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"
)

// minPrefix is the least that a file's start is worth keeping for.
const minPrefix = 64 << 10

// A plan is what a sync has to do at the destination. Comparing makes it and
// changes nothing.
type plan struct {
	mu      sync.Mutex
	blocks  map[int]*planned
	folders map[string]*folderPlan
	links   []entryPlan
	modes   []entryPlan
	clear   map[string]bool  // brought earlier, and in the way of something of another kind
	parts   map[*part]string // open ones, with their folders
	waits   atomic.Int32     // for locks of parts
	left    atomic.Int64     // files that have not arrived yet
}

// A folderPlan is for a folder that is missing or has to change.
type folderPlan struct {
	perm    uint16
	mtime   int64
	missing bool
	link    bool // a symlink stands in its place
	write   bool // something in it will change
}

type entryPlan struct {
	path string // of the folder
	item item
}

// A planned block is one of which files are wanted.
type planned struct {
	*block
	wants []wanted // by item
}

// A wanted file goes through its states in order.
type wanted struct {
	state  atomic.Uint32
	prefix bool  // the first have bytes of the present file, not of a part
	have   int64 // bytes that were offered to the sender
	hash   hash  // of these
	part   *part // while it is being written
	seen   *item // the present file, if it was offered
}

const (
	notWanted = iota
	isWanted
	isArriving
	hasArrived
)

func newPlan() *plan {
	return &plan{blocks: map[int]*planned{}, folders: map[string]*folderPlan{}, parts: map[*part]string{}, clear: map[string]bool{}}
}

// folder notes that a folder has to be made or changed.
func (p *plan) folder(b *block, change func(*folderPlan)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.folders[b.path]
	if f == nil {
		f = &folderPlan{perm: b.perm, mtime: b.mtime}
		p.folders[b.path] = f
	}
	change(f)
}

// A comparer looks at one block after another.
type comparer struct {
	*receiver
	buf []byte
}

// compare plans what b needs and returns what to ask for; all means every file.
func (c *comparer) compare(ctx context.Context, b *block) (wants []want, all bool, err error) {
	if c.hello.file {
		b.items[0].name = c.dest.file
	}
	fd, err := c.dest.folder(b.path)
	switch {
	case errors.Is(err, unix.ENOENT):
		c.plan.folder(b, func(f *folderPlan) { f.missing = true })
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		at, kind, err := c.dest.obstacle(b.path)
		if err != nil {
			return nil, false, c.describe(err, b.path, "")
		}
		if kind != kindLink && !c.clears(at) {
			return nil, false, &ConflictError{Path: c.dest.at(at, ""), Have: kind.String(), Want: kindFolder.String()}
		}
		c.plan.folder(b, func(f *folderPlan) { f.missing, f.link = true, kind == kindLink && at == b.path })
	case err != nil:
		return nil, false, c.describe(err, b.path, "")
	default:
		defer unix.Close(fd)
		if err := c.compareFolder(fd, b); err != nil {
			return nil, false, err
		}
	}
	c.listFolder(b, fd < 0)
	pb := &planned{block: b}
	for i := range b.items {
		c.work.Add(1)
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		it := &b.items[i]
		if it.kind == kindLink {
			err = c.compareLink(fd, b, it)
		} else {
			var w *want
			if w, err = c.compareFile(ctx, fd, pb, i); w != nil {
				wants = append(wants, *w)
			}
		}
		if err != nil {
			return nil, false, err
		}
	}
	if len(wants) == 0 {
		return nil, false, nil
	}
	c.plan.folder(b, func(f *folderPlan) { f.write = true })
	c.plan.left.Add(int64(len(wants)))
	c.plan.mu.Lock()
	c.plan.blocks[b.id] = pb
	c.plan.mu.Unlock()
	return wants, fd < 0, nil
}

func (c *comparer) compareFolder(fd int, b *block) error {
	if c.keepTop(b.path) {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return c.describe(err, b.path, "")
	}
	now := statItem("", &st)
	if now.perm != b.perm || !sameTime(b.mtime, now.mtime) {
		c.plan.folder(b, func(*folderPlan) {})
	}
	return nil
}

// lookup describes a name at the destination; kind is kindFolder for a folder.
func lookup(fd int, name string, st *unix.Stat_t) (found bool, err error) {
	if fd < 0 {
		return false, nil
	}
	err = unix.Fstatat(fd, name, st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

func (c *comparer) conflict(b *block, it *item, have kind) error {
	return &ConflictError{Path: c.dest.at(b.path, it.name), Have: have.String(), Want: it.kind.String()}
}

func (c *comparer) compareLink(fd int, b *block, it *item) error {
	var st unix.Stat_t
	found, err := lookup(fd, it.name, &st)
	if err != nil {
		return c.describe(err, b.path, it.name)
	}
	if found {
		switch now := statItem("", &st); now.kind {
		case kindLink:
			if target, err := readlinkat(fd, it.name); err == nil && target == it.target && sameTime(it.mtime, now.mtime) {
				c.brought.list(join(b.path, it.name), it, c.brought.unchanged(join(b.path, it.name), &now, target))
				return nil
			}
		case kindFolder, kindOther:
			if !c.clears(join(b.path, it.name)) {
				return c.conflict(b, it, now.kind)
			}
		}
	}
	c.brought.list(join(b.path, it.name), it, true)
	c.plan.folder(b, func(f *folderPlan) { f.write = true })
	c.plan.mu.Lock()
	c.plan.links = append(c.plan.links, entryPlan{b.path, *it})
	c.plan.mu.Unlock()
	return nil
}

func (c *comparer) compareFile(ctx context.Context, fd int, pb *planned, i int) (*want, error) {
	it := &pb.items[i]
	var st unix.Stat_t
	found, err := lookup(fd, it.name, &st)
	if err != nil {
		return nil, c.describe(err, pb.path, it.name)
	}
	now := statItem("", &st)
	path := join(pb.path, it.name)
	if found && now.kind != kindFile && now.kind != kindLink && !c.clears(path) {
		return nil, c.conflict(pb.block, it, now.kind)
	}
	isFile := found && now.kind == kindFile
	if isFile && now.size == it.size && sameTime(it.mtime, now.mtime) {
		if now.perm != it.perm {
			c.plan.mu.Lock()
			c.plan.modes = append(c.plan.modes, entryPlan{pb.path, *it})
			c.plan.mu.Unlock()
		}
		c.brought.list(path, it, c.brought.unchanged(path, &now, ""))
		return nil, nil
	}
	if pb.wants == nil {
		pb.wants = make([]wanted, len(pb.items))
	}
	w := &pb.wants[i]
	w.state.Store(isWanted)
	if fd >= 0 && it.size > smallFile {
		if err := c.findPart(ctx, fd, pb.path, it, w); err != nil {
			return nil, c.describe(err, pb.path, it.name)
		}
	}
	if isFile && now.size > w.have && (now.size == it.size || now.size < it.size && now.size >= minPrefix && it.size > smallFile) {
		if err := c.offer(ctx, fd, pb.path, it, &now, w); err != nil {
			return nil, c.describe(err, pb.path, it.name)
		}
	}
	// What was there and turns out to be right was not brought.
	c.brought.list(path, it, w.seen == nil || now.size != it.size || c.brought.known(path))
	return &want{item: i, have: w.have, hash: w.hash}, nil
}

// listFolder notes a folder of the source.
func (c *comparer) listFolder(b *block, missing bool) {
	if c.brought == nil {
		return
	}
	it := item{kind: kindFolder, perm: b.perm}
	c.brought.list(b.path, &it, missing || c.brought.unchanged(b.path, &it, ""))
	c.metaMu.Lock()
	c.folderMeta[b.path] = &block{perm: b.perm, mtime: b.mtime}
	c.metaMu.Unlock()
}

// clears reports whether what is at a path was brought by syncs, all of it, and plans
// to remove it.
func (c *comparer) clears(path string) bool {
	dir, name := parent(path)
	fd, err := c.dest.folder(dir)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if !c.clearable(fd, path, name) {
		return false
	}
	c.plan.mu.Lock()
	c.plan.clear[path] = true
	c.plan.mu.Unlock()
	return true
}

// offer hashes the present file, whose content may be what the sender has, or
// its start.
func (c *comparer) offer(ctx context.Context, fd int, path string, it, now *item, w *wanted) error {
	sum, ok := c.hashes.get(join(path, it.name), now)
	if !ok {
		var err error
		if sum, ok, err = c.hashPresent(ctx, fd, it.name, now); err != nil || !ok {
			return err
		}
		c.hashes.put(join(path, it.name), now, sum)
	}
	if w.part != nil {
		c.dropPart(w.part)
		w.part = nil
	}
	w.have, w.hash, w.seen, w.prefix = now.size, sum, now, now.size < it.size
	return nil
}

// hashPresent reads the present file; ok is false if it cannot be read or is
// being written to, so that it has to be replaced.
func (c *comparer) hashPresent(ctx context.Context, fd int, name string, now *item) (sum hash, ok bool, err error) {
	file, err := retry(func() (int, error) {
		return unix.Openat(fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
		return sum, false, nil
	}
	if err != nil {
		return sum, false, err
	}
	defer unix.Close(file)
	h := blake3.New()
	n, err := c.hashFile(ctx, file, now.size, h)
	if err != nil || n != now.size {
		return sum, false, err
	}
	h.Sum(sum[:0])
	return sum, true, nil
}

// hashFile adds up to limit bytes of an open file to sum.
func (c *comparer) hashFile(ctx context.Context, fd int, limit int64, sum *blake3.Hasher) (int64, error) {
	if c.buf == nil {
		c.buf = make([]byte, chunkBytes)
	}
	var done int64
	for done < limit {
		n, err := retry(func() (int, error) { return unix.Read(fd, c.buf[:min(chunkBytes, limit-done)]) })
		if err != nil || n == 0 {
			return done, err
		}
		if ctx.Err() != nil {
			return done, context.Cause(ctx)
		}
		sum.Write(c.buf[:n])
		done += int64(n)
		c.work.Add(1)
	}
	return done, nil
}

// describe gives an error of the destination its path, and its type if it has
// one.
func (r *receiver) describe(err error, path, name string) error {
	at := r.dest.at(path, name)
	if isNoSpace(err) {
		return &NoSpaceError{Path: at}
	}
	if _, isErrno := errors.AsType[unix.Errno](err); !isErrno {
		return err // says it all
	}
	return fmt.Errorf("at the destination: %w", &os.PathError{Op: "write", Path: at, Err: err})
}
