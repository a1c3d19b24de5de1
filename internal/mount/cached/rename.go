//go:build linux

package cached

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/skypilot-go/sky/internal/mount/remote"
	"github.com/skypilot-go/sky/internal/mount/vfs"
	"github.com/skypilot-go/sky/internal/storage"
)

// Rename moves a file or a folder: what is not uploaded yet in the journal, what is in the
// bucket by copies there.
func (v *Volume) Rename(ctx context.Context, from, to string, keep bool) error {
	if from == to {
		return nil
	}
	src, err := v.Stat(ctx, from)
	if err != nil {
		return err
	}
	if src.Type == vfs.Dir { // nothing is opened or made in it meanwhile
		v.naming.Lock()
		defer v.naming.Unlock()
	} else {
		v.naming.RLock()
		defer v.naming.RUnlock()
	}
	dst, there, err := v.there(ctx, to)
	if err != nil {
		return err
	}
	if err := v.mayBe(to); err != nil {
		return err
	}
	dir := src.Type == vfs.Dir
	switch {
	case there && keep:
		return exists(to)
	case dir && strings.HasPrefix(to, from+"/"):
		return &vfs.Error{Errno: syscall.EINVAL, Reason: fmt.Sprintf("%q is in %q", to, from)}
	case there && dir && dst.Type != vfs.Dir:
		return &vfs.Error{Errno: syscall.ENOTDIR, Reason: fmt.Sprintf("%q is no folder", to)}
	case there && !dir && dst.Type == vfs.Dir:
		return &vfs.Error{Errno: syscall.EISDIR, Reason: fmt.Sprintf("%q is a folder", to)}
	case there && dir:
		for _, err := range v.ReadDir(ctx, to) {
			if err != nil {
				return err
			}
			return &vfs.Error{Errno: syscall.ENOTEMPTY, Reason: fmt.Sprintf("%q is not empty", to)}
		}
	}
	if err := v.settleOther(ctx, to, dir); err != nil {
		return err
	}
	if dir {
		if err := v.settle(ctx, func(path string) bool { return path == to || strings.HasPrefix(path, to+"/") }); err != nil {
			return err
		}
		return v.renameDir(ctx, from, to)
	}
	for range 100 {
		err = v.renameFile(ctx, from, to, src.Type, there)
		if !errors.Is(err, errAgain) {
			return err
		}
	}
	return vfs.Refuse(syscall.EBUSY, "%q changes all the time", from)
}

// renameFile moves a file as it is now: errAgain says that it is another one already.
func (v *Volume) renameFile(ctx context.Context, from, to string, t vfs.Type, there bool) error {
	if s := v.local(from); s != nil && s.state == dirty {
		return v.renameDirty(ctx, from, to, there)
	}
	if s := v.local(to); s == nil || s.state != dirty || t != vfs.File {
		// A deletion that is still to be done would take what is moved for something else.
		if err := v.settle(ctx, func(path string) bool { return path == to }); err != nil {
			return err
		}
		return v.renameClean(ctx, from, to)
	}
	// What is replaced is in the journal only: so has to be what replaces it, or a crash
	// would leave neither in its place.
	h, err := v.open(ctx, from, vfs.OpenOptions{Read: true})
	if err != nil {
		return err
	}
	defer h.Release()
	if err := h.f.takeOver(ctx); err != nil {
		return err
	}
	return v.renameDirty(ctx, from, to, there)
}

// takeOver makes a file that the bucket has be uploaded again.
func (f *file) takeOver(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == dirty {
		return nil
	}
	mtime := f.mtime
	if err := f.modify(ctx, f.size, ""); err != nil {
		return err
	}
	f.mtime = mtime
	f.note()
	return f.save()
}

// renameDirty moves a file that is not uploaded: one change of the journal.
func (v *Volume) renameDirty(ctx context.Context, from, to string, there bool) error {
	f := v.at(from)
	if f == nil {
		return errAgain
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != dirty || f.gone || f.path != from { // it was uploaded a moment ago
		return errAgain
	}
	f.stop()
	next := absent
	old := v.at(to)
	var attempts []string
	tried := false
	if old != nil {
		old.mu.Lock()
		defer old.mu.Unlock()
		old.stop()
		old.keepForHandles(ctx)
		next, attempts, tried = old.base, old.attempts, old.tried
	} else if there {
		e, err := v.tree.Stat(ctx, to)
		if err != nil {
			return err
		}
		next = baseOf(e.Object)
	}
	return v.move(f, old, to, next, attempts, tried)
}

// move gives a file that is not uploaded another path. Both files are locked, and nothing
// of them is uploaded.
func (v *Volume) move(f, old *file, to string, next base, attempts []string, tried bool) error {
	// What replaces something else is as safe as that was.
	if err := f.save(); err != nil {
		return err
	}
	from := f.path
	var removal *file
	if f.base.Exists || !f.base.Known || f.tried {
		removal = &file{v: v, path: from, state: deleted, typ: f.typ, gen: 1, recorded: 1, base: f.base, attempts: f.attempts, owners: f.owners, after: to}
		if f.typ == vfs.Dir {
			removal.after = ""
		}
		removal.note()
	}
	was := *f.record()
	wasTried := f.tried
	f.base, f.attempts, f.tried = next, append(attempts, remote.NewID()), tried
	f.gen++
	f.multi.Store(nil)
	changes := map[string]*record{from: nil, to: f.record()}
	if removal != nil {
		changes[from] = removal.record()
	}
	if err := v.journal.put(changes); err != nil {
		f.base, f.attempts, f.tried = was.Base, was.Attempts, wasTried
		return err
	}
	f.recorded = f.gen
	v.mu.Lock()
	delete(v.files, from)
	if removal != nil {
		v.files[from] = removal
	}
	f.path = to
	v.files[to] = f
	drop := false
	if old != nil {
		old.gone = true
		v.pending.remove(old)
		drop = old.refs == 0
	}
	v.mu.Unlock()
	if drop {
		old.dropData()
	}
	f.note()
	if removal != nil {
		v.enqueue(removal, 0)
	}
	v.enqueue(f, v.delay)
	v.announce()
	return nil
}

// renameClean moves an object in the bucket, and its content in the cache with it.
func (v *Volume) renameClean(ctx context.Context, from, to string) error {
	e, err := v.tree.LookFile(ctx, from)
	if err != nil {
		return err
	}
	if old := v.at(to); old != nil {
		old.mu.Lock()
		defer old.mu.Unlock()
		old.stop()
		old.keepForHandles(ctx)
		if old.state == deleted && !old.gone || old.state == dirty && old.typ == vfs.File && e.Attr().Type == vfs.File {
			return errAgain
		}
	}
	f := v.at(from)
	if f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.state != clean {
			return errAgain
		}
		f.stopGetting()
	}
	if err := v.step("move", func() error { return v.tree.MoveFile(ctx, e, to, false) }); err != nil {
		return err
	}
	now, err := v.tree.LookFile(ctx, to)
	if err != nil {
		return err
	}
	changes := map[string]*record{from: nil, to: nil}
	if err := v.journal.put(changes); err != nil {
		return err
	}
	old := v.at(to)
	v.mu.Lock()
	drop := false
	if old != nil {
		old.gone = true
		v.pending.remove(old)
		delete(v.files, to)
		drop = old.refs == 0
	}
	if f != nil {
		delete(v.files, from)
		f.path = to
		v.files[to] = f
		if f.data != "" {
			v.unsaved[f] = true
		}
	}
	v.mu.Unlock()
	if drop {
		old.dropData()
	}
	if f != nil {
		f.rebase(now)
		f.note()
	}
	v.announce()
	return nil
}

// renameDir moves a folder: in the bucket first, then in the journal. A crash in between
// leaves what is not uploaded at the old path.
func (v *Volume) renameDir(ctx context.Context, from, to string) error {
	below := func() []*file {
		v.mu.Lock()
		defer v.mu.Unlock()
		var out []*file
		for path, f := range v.files {
			if path == from || strings.HasPrefix(path, from+"/") {
				out = append(out, f)
			}
		}
		return out
	}
	// Nothing below is uploaded or deleted meanwhile.
	local := map[string]bool{}
	var locked []*file
	defer func() {
		for _, f := range locked {
			f.mu.Unlock()
		}
	}()
	for _, f := range below() {
		f.mu.Lock()
		locked = append(locked, f)
		f.stop()
		f.stopGetting()
		if f.state != clean {
			key := v.tree.Key(f.path)
			if f.typ == vfs.Dir {
				key += "/"
			}
			local[key] = true
		}
	}
	// What is at the new path is an empty folder, or was deleted: what would be done about
	// it is done no more.
	old := v.at(to)
	if old != nil {
		old.mu.Lock()
		defer old.mu.Unlock()
		old.stop()
	}
	moved, err := v.moveRemote(ctx, from, to, local)
	if err != nil {
		return err
	}
	if old != nil {
		v.mu.Lock()
		old.gone = true
		v.pending.remove(old)
		delete(v.files, to)
		v.mu.Unlock()
		if err := v.journal.put(map[string]*record{to: nil}); err != nil {
			return err
		}
	}
	var self bool
	for _, f := range locked {
		path := to + strings.TrimPrefix(f.path, from)
		switch {
		case f.gone || f.state == deleted:
			continue
		case f.state == clean:
			v.followClean(ctx, f, path)
			continue
		}
		self = self || f.path == from
		next, attempts := absent, []string(nil)
		old := v.at(path) // deleted, and not yet in the bucket
		if old != nil && old != f {
			old.mu.Lock()
			old.stop()
			next, attempts = old.base, old.attempts
		}
		err := v.move(f, old, path, next, attempts, old != nil)
		if old != nil {
			old.mu.Unlock()
		}
		if err != nil {
			return err
		}
	}
	return v.folderMoved(from, to, !self && !moved)
}

// moveRemote moves what the bucket has of a folder, but for the keys that the journal
// has something to say about.
func (v *Volume) moveRemote(ctx context.Context, from, to string, local map[string]bool) (moved bool, err error) {
	err = v.step("move folder", func() error {
		moved, err = v.tree.MoveDirBut(ctx, from, to, func(o storage.Object) bool { return local[o.Key] })
		return err
	})
	return moved, err
}

// followClean makes a clean file follow its object.
func (v *Volume) followClean(ctx context.Context, f *file, path string) {
	from := f.path
	e, err := v.tree.LookFile(ctx, path)
	if putErr := v.journal.put(map[string]*record{from: nil}); putErr != nil {
		v.log.Error("the journal of the cache cannot be written", "err", putErr)
	}
	v.mu.Lock()
	delete(v.files, from)
	keep := err == nil && !e.Dir
	if keep {
		f.path = path
		v.files[path] = f
		if f.data != "" {
			v.unsaved[f] = true
		}
	} else {
		f.gone = true
	}
	unused := f.refs == 0
	v.mu.Unlock()
	if keep {
		f.rebase(e)
		f.note()
	} else if unused {
		f.dropData()
	}
}

// folderMoved makes the old folder be gone although the bucket still has something to
// delete in it and, with make, the new one be there although the bucket has nothing in it.
func (v *Volume) folderMoved(from, to string, make bool) error {
	changes := map[string]*record{}
	var made, removal *file
	if make {
		made = &file{v: v, path: to, state: dirty, typ: vfs.Dir, perm: remote.DirPerm, mtime: v.now(), gen: 1, recorded: 1, intent: true}
		made.own("")
		changes[to] = made.record()
		made.note()
	}
	if v.at(from) == nil {
		removal = &file{v: v, path: from, state: deleted, typ: vfs.Dir, gen: 1, recorded: 1}
		changes[from] = removal.record()
		removal.note()
	}
	if err := v.journal.put(changes); err != nil {
		return err
	}
	for _, f := range []*file{made, removal} {
		if f != nil {
			v.mu.Lock()
			v.files[f.path] = f
			v.mu.Unlock()
			v.enqueue(f, 0)
		}
	}
	return nil
}
