//go:build linux

// Package remote shows the keys of a bucket as a tree of folders and files.
//
// A folder is there if a key begins with its path and a slash. An empty one is an empty
// object whose key is just that, as consoles and other tools make and understand it. A
// link is an empty object with its target as metadata.
package remote

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/mount/vfs"
	"github.com/skypilot-go/sky/internal/storage"
)

// Options say what a tree shows, and for how long it believes what it knows.
type Options struct {
	Prefix string           // of the keys that are shown, without a slash at its end
	TTL    time.Duration    // of what is known; 0: 5 s
	Max    int              // most entries that are known; 0: 50,000
	Moved  int              // most objects of a folder that is renamed; 0: 10,000
	Now    func() time.Time // nil: time.Now
}

// A Tree is a bucket as a tree. Its methods may be called concurrently.
type Tree struct {
	Bucket storage.Bucket
	prefix string
	moved  int
	now    func() time.Time
	cache  *cache

	mu   sync.Mutex
	kept map[string]time.Time // folders that stay although nothing is in them
}

// An Entry is a file or a folder.
type Entry struct {
	Path   string
	Dir    bool
	Object storage.Object // of a file; the marker of a folder, if it is known to have one
	Known  bool           // the metadata is known
}

// New makes a tree. It does no I/O.
func New(b storage.Bucket, o Options) *Tree {
	if o.TTL == 0 {
		o.TTL = 5 * time.Second
	}
	if o.Max == 0 {
		o.Max = 50_000
	}
	if o.Moved == 0 {
		o.Moved = 10_000
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	prefix := strings.Trim(o.Prefix, "/")
	if prefix != "" {
		prefix += "/"
	}
	return &Tree{Bucket: b, prefix: prefix, moved: o.Moved, now: o.Now, cache: newCache(o.TTL, o.Max, o.Now), kept: map[string]time.Time{}}
}

// Key is the key of a file.
func (t *Tree) Key(path string) string { return t.prefix + path }

// folder is what the keys in a folder begin with.
func (t *Tree) folder(path string) string {
	if path == "" {
		return t.prefix
	}
	return t.prefix + path + "/"
}

func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}

// ID names one writing of an object: it stands in the metadata, so that a writer who lost
// an answer knows the object again.
const idName = "skyupload"

// NewID makes one.
func NewID() string { return rand.Text() }

// Metadata is what an object keeps: the id of its writing, and what was said about the
// file by chmod and utimes.
func Metadata(a storage.Attributes, id string) map[string]string {
	m := a.Metadata(nil)
	if id != "" {
		m[idName] = id
	}
	return m
}

// WrittenAs reports which writing an object is of.
func WrittenAs(o storage.Object) string { return o.Metadata[idName] }

// The permissions of what says nothing about them.
const (
	FilePerm = 0o644
	DirPerm  = 0o755
)

// Attr is what a file system shows of an entry.
func (e Entry) Attr() vfs.Attr {
	_, name := split(e.Path)
	if e.Dir {
		return vfs.Attr{Name: name, Type: vfs.Dir, Perm: DirPerm, ModTime: e.Object.Modified}
	}
	a := vfs.Attr{Name: name, Type: vfs.File, Perm: FilePerm, Size: e.Object.Size, ModTime: e.Object.Modified}
	if !e.Known {
		if a.Size == 0 {
			a.Type = vfs.Unknown
		}
		return a
	}
	kept := storage.AttributesOf(e.Object.Metadata)
	if !kept.ModTime.IsZero() {
		a.ModTime = kept.ModTime
	}
	if kept.Mode != 0 {
		a.Perm = kept.Mode
	}
	if kept.Link != "" && e.Object.Size == 0 {
		a.Type, a.Target, a.Size, a.Perm = vfs.Link, kept.Link, int64(len(kept.Link)), 0o777
	}
	return a
}

// Missing is the error for a path where nothing is.
func Missing(path string) error {
	return &vfs.Error{Errno: syscall.ENOENT, Reason: fmt.Sprintf("%q does not exist", path)}
}

func notFound(err error) bool {
	e, ok := errors.AsType[*storage.NotFoundError](err)
	return ok && e.Key != "" && e.Upload == ""
}

// showable reports whether a name may stand in a file system.
func showable(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 255 && !strings.ContainsAny(name, "/\x00")
}

// Stat is what is at a path. What is known of it, at most as old as the time limit, may
// be the answer.
func (t *Tree) Stat(ctx context.Context, path string) (Entry, error) {
	if path == "" {
		return Entry{Dir: true}, nil
	}
	if e, ok := t.cache.lookup(path); ok && (e.Dir || e.Known || e.Object.Size > 0) {
		return e, nil
	}
	return t.Look(ctx, path)
}

// Look is what is at a path now.
func (t *Tree) Look(ctx context.Context, path string) (Entry, error) {
	if path == "" {
		return Entry{Dir: true}, nil
	}
	if len(t.folder(path)) > t.Bucket.Caps().MaxKey && t.Bucket.Caps().MaxKey > 0 {
		return Entry{}, vfs.Refuse(syscall.ENAMETOOLONG, "%q is too long: a key has at most %d bytes", path, t.Bucket.Caps().MaxKey)
	}
	state := t.cache.state()
	var file storage.Object
	var page storage.Page
	var isFile bool
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		file, err = t.Bucket.Stat(ctx, t.Key(path))
		isFile = err == nil
		if notFound(err) {
			err = nil
		}
		return err
	})
	g.Go(func() (err error) {
		page, err = t.first(ctx, t.folder(path))
		return err
	})
	if err := g.Wait(); err != nil {
		return Entry{}, err
	}
	e := Entry{Path: path, Known: true}
	switch {
	case len(page.Objects) > 0:
		e.Dir = true
		if page.Objects[0].Key == t.folder(path) {
			e.Object = page.Objects[0]
		}
	case isFile:
		e.Object = file
	case t.keeps(path):
		e.Dir = true
	default:
		t.cache.changed(nil, path)
		return Entry{}, Missing(path)
	}
	t.cache.learn(e, state)
	return e, nil
}

// LookFile is what is at a path that was a file: one request less than Look.
func (t *Tree) LookFile(ctx context.Context, path string) (Entry, error) {
	state := t.cache.state()
	file, err := t.Bucket.Stat(ctx, t.Key(path))
	if notFound(err) {
		return t.Look(ctx, path)
	}
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Path: path, Known: true, Object: file}
	t.cache.learn(e, state)
	return e, nil
}

// first is the first objects below a prefix: none only if there are none.
func (t *Tree) first(ctx context.Context, prefix string) (storage.Page, error) {
	o := storage.ListOptions{Prefix: prefix, Max: 2}
	for {
		p, err := t.Bucket.List(ctx, o)
		if err != nil || len(p.Objects) > 0 || p.Next == "" {
			return p, err
		}
		o.Token = p.Next
	}
}

// keeps reports whether a folder stays although nothing is in it.
func (t *Tree) keeps(path string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.kept[path]
	return ok
}

const maxKept = 10_000

// Keep makes the folder of a path stay when the last file in it goes: stores know of
// folders only by what is in them.
func (t *Tree) Keep(path string) {
	dir, _ := split(path)
	if dir == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.kept) < maxKept {
		t.kept[dir] = t.now()
	}
}

func (t *Tree) unkeep(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for dir := range t.kept {
		if dir == path || strings.HasPrefix(dir, path+"/") {
			delete(t.kept, dir)
		}
	}
}

// keptIn lists the folders of a folder that stay.
func (t *Tree) keptIn(dir string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []string
	for path := range t.kept {
		rest := path
		if dir != "" {
			var ok bool
			if rest, ok = strings.CutPrefix(path, dir+"/"); !ok {
				continue
			}
		}
		name, _, _ := strings.Cut(rest, "/")
		names = append(names, name)
	}
	return names
}

// List lists a folder. What is known of it, at most as old as the time limit, may be the
// answer. Where a file and a folder have one name, the folder is listed.
func (t *Tree) List(ctx context.Context, dir string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if all, ok := t.cache.listing(dir); ok {
			for _, e := range all {
				if !yield(e, nil) {
					return
				}
			}
			return
		}
		state := t.cache.state()
		var all []Entry
		folders := map[string]bool{}
		found := func(e Entry) bool {
			if len(all) <= t.cache.max {
				all = append(all, e)
			}
			return yield(e, nil)
		}
		prefix := t.folder(dir)
		at := func(name string) string {
			if dir == "" {
				return name
			}
			return dir + "/" + name
		}
		lists := t.Bucket.Caps().ListsMetadata
		for p, err := range t.pages(ctx, prefix) {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, full := range p.Prefixes {
				name := strings.TrimSuffix(strings.TrimPrefix(full, prefix), "/")
				if !showable(name) || folders[name] {
					continue
				}
				folders[name] = true
				if !found(Entry{Path: at(name), Dir: true}) {
					return
				}
			}
			for _, o := range p.Objects {
				name := strings.TrimPrefix(o.Key, prefix)
				if !showable(name) || folders[name] { // the folder's own marker, too
					continue
				}
				if !found(Entry{Path: at(name), Object: o, Known: lists}) {
					return
				}
			}
		}
		for _, name := range t.keptIn(dir) {
			if !folders[name] {
				folders[name] = true
				if !found(Entry{Path: at(name), Dir: true}) {
					return
				}
			}
		}
		t.cache.learnListing(dir, all, state)
	}
}

// Written notes what this mount wrote.
func (t *Tree) Written(path string, o storage.Object) {
	t.cache.changed(&Entry{Path: path, Object: o, Known: true}, path)
}

// Changed forgets what is known of a path.
func (t *Tree) Changed(path string) { t.cache.changed(nil, path) }

// Forget forgets all that is known.
func (t *Tree) Forget() { t.cache.forget() }

// Mkdir makes a folder.
func (t *Tree) Mkdir(ctx context.Context, path string) (Entry, error) {
	if !t.Bucket.Caps().Metadata && t.Bucket.Caps().ReadOnly {
		return Entry{}, vfs.Refuse(syscall.EROFS, "%s can only be read", t.Bucket.Location())
	}
	o, err := t.Bucket.Put(ctx, t.folder(path), bytes.NewReader(nil), storage.PutOptions{ContentType: "application/x-directory"})
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Path: path, Dir: true, Object: o, Known: true}
	t.cache.changed(&e, path)
	return e, nil
}

// Rmdir removes a folder that is empty.
func (t *Tree) Rmdir(ctx context.Context, path string) error {
	marker := t.folder(path)
	p, err := t.first(ctx, marker)
	if err != nil {
		return err
	}
	for _, o := range p.Objects {
		if o.Key != marker {
			return &vfs.Error{Errno: syscall.ENOTEMPTY, Reason: fmt.Sprintf("%q is not empty", path)}
		}
	}
	for _, name := range t.keptIn(path) {
		if name != "" {
			return &vfs.Error{Errno: syscall.ENOTEMPTY, Reason: fmt.Sprintf("%q is not empty", path)}
		}
	}
	if len(p.Objects) > 0 {
		if err := t.Bucket.Remove(ctx, []storage.ID{{Key: marker}}); err != nil {
			return err
		}
	} else if !t.keeps(path) {
		return Missing(path)
	}
	t.Dropped(path)
	return nil
}

// Dropped forgets a folder that was removed; its parent does not go with it.
func (t *Tree) Dropped(path string) {
	t.Keep(path)
	t.unkeep(path)
	t.cache.changed(nil, path)
}

// RemoveMarker removes what makes a folder be there although nothing is in it.
func (t *Tree) RemoveMarker(ctx context.Context, path string) error {
	err := t.Bucket.Remove(ctx, []storage.ID{{Key: t.folder(path)}})
	t.Dropped(path)
	return err
}

// Remove removes a file.
func (t *Tree) Remove(ctx context.Context, path string) error {
	if err := t.Bucket.Remove(ctx, []storage.ID{{Key: t.Key(path)}}); err != nil {
		return err
	}
	t.Keep(path)
	t.cache.changed(nil, path)
	return nil
}

// Symlink makes a link.
func (t *Tree) Symlink(ctx context.Context, target, path string) (Entry, error) {
	meta := Metadata(storage.Attributes{Link: target}, NewID())
	if n := size(meta); n > t.Bucket.Caps().MaxMetadata || !t.Bucket.Caps().Metadata {
		return Entry{}, vfs.Refuse(syscall.ENAMETOOLONG, "the target of the link %q is too long for the store: %d bytes of metadata, at most %d", path, n, t.Bucket.Caps().MaxMetadata)
	}
	o := storage.PutOptions{Metadata: meta}
	if t.Bucket.Caps().Conditional {
		o.IfAbsent = true
	}
	x, err := t.Bucket.Put(ctx, t.Key(path), bytes.NewReader(nil), o)
	if _, exists := errors.AsType[*storage.ConflictError](err); exists {
		return Entry{}, &vfs.Error{Errno: syscall.EEXIST, Err: err}
	}
	if err != nil {
		return Entry{}, err
	}
	x.Metadata = o.Metadata
	e := Entry{Path: path, Object: x, Known: true}
	t.cache.changed(&e, path)
	return e, nil
}

func size(m map[string]string) int {
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}

// SetAttributes keeps what chmod and utimes say: the object is copied onto itself.
func (t *Tree) SetAttributes(ctx context.Context, e Entry, perm *fs.FileMode, mtime *time.Time) (Entry, error) {
	kept := storage.AttributesOf(e.Object.Metadata)
	if perm != nil {
		kept.Mode = *perm
	}
	if mtime != nil {
		kept.ModTime = *mtime
	}
	meta := kept.Metadata(e.Object.Metadata)
	meta[idName] = NewID()
	o, err := t.copy(ctx, e.Object, t.Key(e.Path), storage.PutOptions{Metadata: meta, IfMatch: t.ifMatch(e.Object.ETag)})
	if err != nil {
		return Entry{}, err
	}
	o.Metadata = meta
	e.Object, e.Known = o, true
	t.cache.changed(&e, e.Path)
	return e, nil
}

// ifMatch is a condition where the store knows conditions.
func (t *Tree) ifMatch(etag string) string {
	if t.Bucket.Caps().Conditional {
		return etag
	}
	return ""
}
