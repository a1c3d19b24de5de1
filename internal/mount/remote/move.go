//go:build linux

package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/mount/vfs"
	"github.com/skypilot-go/sky/internal/storage"
)

// copy copies an object inside the store and describes the copy.
func (t *Tree) copy(ctx context.Context, from storage.Object, key string, o storage.PutOptions) (storage.Object, error) {
	x, err := t.copyAny(ctx, from, key, o)
	if err != nil {
		return x, err
	}
	x.Key, x.Size = key, from.Size // stores answer with less
	if x.Modified.IsZero() {
		x.Modified = t.now()
	}
	return x, nil
}

// copyAny copies in parts what is large.
func (t *Tree) copyAny(ctx context.Context, from storage.Object, key string, o storage.PutOptions) (storage.Object, error) {
	caps := t.Bucket.Caps()
	if !t.Bucket.CopiesFrom(t.Bucket) || caps.MaxCopy == 0 {
		return storage.Object{}, vfs.Refuse(syscall.ENOTSUP, "%s cannot copy objects, which renaming and changing attributes need", t.Bucket.Location())
	}
	src := storage.Source{Bucket: t.Bucket, ID: storage.ID{Key: from.Key}, ETag: from.ETag}
	if from.Size <= caps.MaxCopy {
		return t.Bucket.Copy(ctx, key, src, o)
	}
	if !caps.CopyPart {
		return storage.Object{}, vfs.Refuse(syscall.EFBIG, "%q has %d bytes: the store copies at most %d", from.Key, from.Size, caps.MaxCopy)
	}
	if o.Metadata == nil {
		o.Metadata = from.Metadata
	}
	if !caps.ConditionalParts {
		o.IfMatch, o.IfAbsent = "", false
	}
	o.Copied = true
	u, err := t.Bucket.Start(ctx, key, o)
	if err != nil {
		return storage.Object{}, err
	}
	size := max(caps.MinPart, 1<<30)
	parts := make([]storage.Part, (from.Size+size-1)/size)
	g, parallel := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range parts {
		g.Go(func() (err error) {
			at := int64(i) * size
			parts[i], err = t.Bucket.CopyPart(parallel, u, i+1, src, at, min(size, from.Size-at))
			return err
		})
	}
	if err = g.Wait(); err == nil {
		var x storage.Object
		if x, err = t.Bucket.Complete(ctx, u, parts, o); err == nil {
			return x, nil
		}
	}
	return storage.Object{}, errors.Join(err, t.Bucket.Abort(context.WithoutCancel(ctx), u))
}

// MoveFile makes the object at one path that of another one. A crash in between leaves
// both.
func (t *Tree) MoveFile(ctx context.Context, from Entry, to string, keep bool) error {
	meta := map[string]string(nil)
	if !from.Known {
		known, err := t.LookFile(ctx, from.Path)
		if err != nil {
			return err
		}
		from = known
	}
	if len(from.Object.Metadata) > 0 {
		meta = from.Object.Metadata
	}
	o, err := t.copy(ctx, from.Object, t.Key(to), storage.PutOptions{Metadata: meta, IfAbsent: keep && t.Bucket.Caps().Conditional})
	if _, exists := errors.AsType[*storage.ConflictError](err); exists && keep {
		return &vfs.Error{Errno: syscall.EEXIST, Err: err}
	}
	if err != nil {
		return err
	}
	if err := t.Bucket.Remove(ctx, []storage.ID{{Key: from.Object.Key}}); err != nil {
		return err
	}
	if o.Metadata == nil {
		o.Metadata = meta
	}
	t.Keep(from.Path)
	t.cache.changed(&Entry{Path: to, Object: o, Known: true}, from.Path, to)
	return nil
}

// MoveDir moves all objects of a folder, if they are not too many. A crash in between
// leaves some in either, none in neither: each is removed when all are copied.
func (t *Tree) MoveDir(ctx context.Context, from, to string) error {
	_, err := t.MoveDirBut(ctx, from, to, func(storage.Object) bool { return false })
	return err
}

// MoveDirBut is MoveDir for all but some objects, which stay where they are. It tells
// whether there was anything to move.
func (t *Tree) MoveDirBut(ctx context.Context, from, to string, but func(storage.Object) bool) (bool, error) {
	all, err := t.below(ctx, from, but)
	if err != nil {
		return false, err
	}
	return len(all) > 0, t.moveAll(ctx, all, from, to)
}

// below lists all objects of a folder, if they are not too many.
func (t *Tree) below(ctx context.Context, from string, but func(storage.Object) bool) ([]storage.Object, error) {
	var all []storage.Object
	o := storage.ListOptions{Prefix: t.folder(from)}
	for {
		p, err := t.Bucket.List(ctx, o)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(p.Objects, but)...)
		if len(all) > t.moved {
			return nil, vfs.Refuse(syscall.EXDEV, "the folder %q has more than %d objects, each of which would have to be copied: it is not renamed", from, t.moved)
		}
		if p.Next == "" {
			return all, nil
		}
		o.Token = p.Next
	}
}

func (t *Tree) moveAll(ctx context.Context, all []storage.Object, from, to string) error {
	g, parallel := errgroup.WithContext(ctx)
	g.SetLimit(32)
	for _, x := range all {
		g.Go(func() error {
			key := t.folder(to) + strings.TrimPrefix(x.Key, t.folder(from))
			if t.Bucket.Caps().MaxKey > 0 && len(key) > t.Bucket.Caps().MaxKey {
				return vfs.Refuse(syscall.ENAMETOOLONG, "%q would be too long a key", key)
			}
			opts := storage.PutOptions{}
			if x.Size > t.Bucket.Caps().MaxCopy { // parts have no metadata of their own
				full, err := t.Bucket.Stat(parallel, x.Key)
				if err != nil {
					return err
				}
				opts.Metadata = full.Metadata
			}
			_, err := t.copy(parallel, x, key, opts)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.cache.forget()
		return fmt.Errorf("renaming the folder %q: %w", from, err)
	}
	most := max(1, t.Bucket.Caps().MaxRemove)
	for rest := all; len(rest) > 0; {
		n := min(most, len(rest))
		ids := make([]storage.ID, n)
		for i, x := range rest[:n] {
			ids[i].Key = x.Key
		}
		if err := t.Bucket.Remove(ctx, ids); err != nil {
			t.cache.forget()
			return fmt.Errorf("renaming the folder %q: what was copied could not be removed from the old place: %w", from, err)
		}
		rest = rest[n:]
	}
	t.Keep(from)
	t.moveKept(from, to, len(all) == 0)
	t.cache.forget()
	return nil
}

// moveKept moves the folders that stay although nothing is in them.
func (t *Tree) moveKept(from, to string, itself bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for dir, at := range t.kept {
		if rest, ok := strings.CutPrefix(dir, from+"/"); ok {
			delete(t.kept, dir)
			t.kept[to+"/"+rest] = at
		}
	}
	delete(t.kept, from)
	if itself {
		t.kept[to] = t.now()
	}
}
