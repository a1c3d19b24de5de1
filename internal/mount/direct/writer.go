//go:build linux

package direct

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"

	"github.com/skypilot-go/sky/internal/mount/block"
	"github.com/skypilot-go/sky/internal/mount/readahead"
	"github.com/skypilot-go/sky/internal/mount/remote"
	"github.com/skypilot-go/sky/internal/mount/vfs"
	"github.com/skypilot-go/sky/internal/storage"
)

// A writer makes the new content of one file, from its beginning to its end: of what is
// written and of what stays of the old content. A small file is held in memory, so that
// it may be written in any order. Methods are called one at a time.
type writer struct {
	bucket storage.Bucket
	budget *block.Budget
	key    string
	old    storage.Object // what is replaced, if there is anything
	exists bool
	kept   int64 // bytes of old that are not cut off
	attr   storage.Attributes
	dirty  bool

	loaded bool // the whole content is in buf, if no part was made yet
	buf    buffer
	at     int64 // where buf begins in the file
	size   int64 // of the file, at least the end of buf

	upload *storage.Upload
	opts   storage.PutOptions
	next   int // number of the part that buf becomes
	parts  *parts
}

// parts are the uploads of parts that run.
type parts struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	ended  sync.Cond // one more of them has
	run    int       // how many are under way
	done   []storage.Part
	err    error
}

// parallelParts is how many parts of one file are uploaded at the same time.
const parallelParts = 8

func newWriter(b storage.Bucket, budget *block.Budget, key string, old storage.Object, exists bool) *writer {
	w := &writer{bucket: b, budget: budget, key: key, old: old, exists: exists, kept: old.Size, size: old.Size}
	if exists {
		w.attr = storage.AttributesOf(old.Metadata)
	}
	w.buf.budget = budget
	return w
}

// reset drops what was written.
func (w *writer) reset(ctx context.Context) {
	w.abort(ctx)
	w.buf.free()
	w.loaded, w.at, w.dirty = false, 0, false
	w.kept, w.size = w.old.Size, w.old.Size
	if !w.exists {
		w.kept, w.size = 0, 0
	}
}

func (w *writer) abort(ctx context.Context) {
	if w.upload == nil {
		return
	}
	w.parts.cancel(errors.New("the upload was given up"))
	w.parts.wg.Wait()
	_ = w.bucket.Abort(context.WithoutCancel(ctx), *w.upload) // what cannot be aborted now, the bucket's rules for unfinished uploads remove
	w.upload, w.parts, w.next = nil, nil, 0
}

// load takes a small file into memory.
func (w *writer) load(ctx context.Context) error {
	if w.loaded || w.upload != nil || w.buf.n > 0 || w.kept > small {
		return nil
	}
	if w.kept > 0 {
		if err := w.read(ctx, readahead.Span{At: 0, N: w.kept}); err != nil {
			return err
		}
	}
	w.loaded = true
	return nil
}

// read puts a range of the old content into the buffer.
func (w *writer) read(ctx context.Context, s readahead.Span) error {
	for s.N > 0 {
		n := min(s.N, w.room())
		got, err := w.bucket.Get(ctx, w.old.Key, storage.GetOptions{Offset: s.At, Length: n, IfMatch: w.old.ETag})
		if err != nil {
			return w.conflict(err)
		}
		err = w.buf.fill(got, int(n))
		err = errors.Join(err, got.Close())
		if err != nil {
			return w.conflict(err)
		}
		s.At, s.N = s.At+n, s.N-n
		if err := w.whole(ctx); err != nil {
			return err
		}
	}
	return nil
}

// room is how many bytes the part that is being made still takes.
func (w *writer) room() int64 {
	return max(1, partSize(w.next+1, w.bucket.Caps())-int64(w.buf.n))
}

// conflict says that somebody else wrote the object.
func (w *writer) conflict(err error) error {
	_, changed := errors.AsType[*storage.ConflictError](err)
	gone, missing := errors.AsType[*storage.NotFoundError](err)
	if changed || missing && gone.Key != "" && gone.Upload == "" {
		return &vfs.Error{Errno: syscall.EIO, Reason: fmt.Sprintf("%s was written or deleted by somebody else since it was opened here: what was written here is not stored", w.bucket.Location().At(w.key)), Err: err}
	}
	return err
}

// end is where the next byte goes.
func (w *writer) end() int64 { return w.at + int64(w.buf.n) }

// write writes p at off.
func (w *writer) write(ctx context.Context, p []byte, off int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := w.load(ctx); err != nil {
		return 0, err
	}
	if off < w.at {
		return 0, vfs.Refuse(syscall.ENOTSUP, "%s is written at %d after what comes before %d was uploaded: a file of more than %d MB is written from its beginning to its end (mode MOUNT_CACHED writes in any order)", w.bucket.Location().At(w.key), off, w.at, small/mib)
	}
	w.dirty = true
	if off > w.end() {
		if err := w.extend(ctx, off); err != nil {
			return 0, err
		}
	}
	n := 0
	if off < w.end() {
		if off >= w.at { // extending may have uploaded what was there
			n = copy(w.buf.bytes()[off-w.at:], p)
		}
	}
	for n < len(p) {
		took, err := w.buf.append(p[n:], int(w.room()))
		if err != nil {
			return n, err
		}
		n += took
		w.size = max(w.size, off+int64(n))
		if err := w.whole(ctx); err != nil {
			return n, err
		}
	}
	w.size = max(w.size, off+int64(n))
	return n, nil
}

// extend goes on to off with the old content, then with zeros.
func (w *writer) extend(ctx context.Context, off int64) error {
	if old := min(off, w.kept); !w.loaded && w.end() < old {
		for _, s := range keepOld(readahead.Span{At: w.end(), N: old - w.end()}, int64(w.buf.n), w.next+1, w.bucket.Caps()) {
			if err := w.keep(ctx, s); err != nil {
				return err
			}
		}
	}
	var zeros [64 * kib]byte
	for w.end() < off {
		if _, err := w.buf.append(zeros[:min(int64(len(zeros)), off-w.end())], int(w.room())); err != nil {
			return err
		}
		if err := w.whole(ctx); err != nil {
			return err
		}
	}
	w.size = max(w.size, w.end())
	return nil
}

// keep takes a range of the old content.
func (w *writer) keep(ctx context.Context, s step) error {
	if !s.copied {
		return w.read(ctx, s.Span)
	}
	if err := w.part(ctx); err != nil { // what waits comes before
		return err
	}
	if err := w.start(ctx); err != nil {
		return err
	}
	w.next++
	n := w.next
	src := storage.Source{Bucket: w.bucket, ID: storage.ID{Key: w.old.Key}, ETag: w.old.ETag}
	w.run(func(ctx context.Context) (storage.Part, error) {
		x, err := w.bucket.CopyPart(ctx, *w.upload, n, src, s.At, s.N)
		return x, w.conflict(err)
	})
	w.at = s.End()
	return nil
}

// whole uploads the buffer if it is a whole part.
func (w *writer) whole(ctx context.Context) error {
	if int64(w.buf.n) < partSize(w.next+1, w.bucket.Caps()) {
		return nil
	}
	return w.part(ctx)
}

// part uploads the buffer as a part.
func (w *writer) part(ctx context.Context) error {
	if w.buf.n == 0 {
		return nil
	}
	if err := w.start(ctx); err != nil {
		return err
	}
	if most := w.bucket.Caps().MaxParts; most > 0 && w.next >= most {
		return vfs.Refuse(syscall.EFBIG, "%s would have more than %d parts", w.bucket.Location().At(w.key), most)
	}
	w.next++
	n, b := w.next, w.buf.take()
	w.at += int64(b.n)
	w.loaded = false
	w.run(func(ctx context.Context) (storage.Part, error) {
		defer b.free()
		return w.bucket.PutPart(ctx, *w.upload, n, bytes.NewReader(b.bytes()))
	})
	w.parts.mu.Lock()
	defer w.parts.mu.Unlock()
	return w.parts.err
}

func (w *writer) start(ctx context.Context) error {
	if w.upload != nil {
		return nil
	}
	w.opts = w.options(w.bucket.Caps().ConditionalParts)
	w.opts.Copied = w.old.Size > 0 && w.bucket.Caps().CopyPart
	u, err := w.bucket.Start(ctx, w.key, w.opts)
	if err != nil {
		return w.conflict(err)
	}
	w.upload = &u
	w.parts = &parts{}
	w.parts.ended.L = &w.parts.mu
	w.parts.ctx, w.parts.cancel = context.WithCancelCause(context.Background())
	return nil
}

// options are those of the object that is written.
func (w *writer) options(conditional bool) storage.PutOptions {
	o := storage.PutOptions{Metadata: remote.Metadata(w.attr, remote.NewID())}
	if conditional && w.exists {
		o.IfMatch = w.old.ETag
	}
	if conditional && !w.exists {
		o.IfAbsent = true
	}
	return o
}

// run uploads a part while the caller goes on, as soon as others are up and there is
// memory for what comes next.
func (w *writer) run(f func(context.Context) (storage.Part, error)) {
	p := w.parts
	p.mu.Lock()
	for p.run >= parallelParts || p.run > 0 && w.budget.Left() < partSize(w.next+1, w.bucket.Caps()) {
		p.ended.Wait()
	}
	p.run++
	p.mu.Unlock()
	p.wg.Add(1)
	go func() {
		defer p.wg.Done()
		x, err := f(p.ctx)
		p.mu.Lock()
		if err != nil && p.err == nil {
			p.err = err
			p.cancel(err) // the others are of no use
		}
		p.done = append(p.done, x)
		p.run--
		p.ended.Broadcast()
		p.mu.Unlock()
	}()
}

// truncate cuts the file off or makes it longer.
func (w *writer) truncate(ctx context.Context, size int64) error {
	if size == w.size && (w.dirty || size > 0) {
		return nil
	}
	switch {
	case size == 0:
		w.abort(ctx)
		w.buf.free()
		w.at, w.kept, w.size, w.loaded = 0, 0, 0, true
	case w.upload == nil && w.buf.n == 0 && !w.loaded: // nothing is written yet
		w.kept = min(w.kept, size)
	case size < w.at:
		return vfs.Refuse(syscall.ENOTSUP, "%s is cut off at %d after %d bytes were uploaded", w.bucket.Location().At(w.key), size, w.at)
	case size < w.end():
		w.buf.cut(int(size - w.at))
		w.kept = min(w.kept, size)
	default:
		w.kept = min(w.kept, size)
	}
	w.size = size
	w.dirty = true
	return nil
}

// commit makes the object of what was written. After an error, what was written is gone.
func (w *writer) commit(ctx context.Context) (storage.Object, error) {
	x, err := w.finish(ctx)
	if err != nil {
		w.reset(ctx)
		return x, err
	}
	x.Key, x.Size = w.key, w.size // stores answer with less
	w.buf.free()
	w.upload, w.parts, w.next = nil, nil, 0
	w.old, w.exists, w.dirty, w.loaded, w.at = x, true, false, false, 0
	w.kept, w.size = x.Size, x.Size
	return x, nil
}

func (w *writer) finish(ctx context.Context) (storage.Object, error) {
	if err := w.load(ctx); err != nil { // only cut off or made longer
		return storage.Object{}, err
	}
	if err := w.extend(ctx, w.size); err != nil {
		return storage.Object{}, err
	}
	caps := w.bucket.Caps()
	if w.upload == nil {
		o := w.options(caps.Conditional)
		if !caps.Conditional {
			if err := w.unchanged(ctx); err != nil {
				return storage.Object{}, err
			}
		}
		x, err := w.bucket.Put(ctx, w.key, bytes.NewReader(w.buf.bytes()), o)
		x.Metadata = o.Metadata
		return x, w.conflict(err)
	}
	if err := w.part(ctx); err != nil {
		return storage.Object{}, err
	}
	w.parts.wg.Wait()
	if w.parts.err != nil {
		return storage.Object{}, w.parts.err
	}
	if !caps.ConditionalParts {
		if err := w.unchanged(ctx); err != nil {
			return storage.Object{}, err
		}
	}
	done := make([]storage.Part, len(w.parts.done))
	for _, p := range w.parts.done {
		done[p.Number-1] = p
	}
	x, err := w.bucket.Complete(ctx, *w.upload, done, w.opts)
	x.Metadata = w.opts.Metadata
	return x, w.conflict(err)
}

// unchanged looks whether the object is what it was when the file was opened, where the
// store does not compare it itself: somebody may still come in between.
func (w *writer) unchanged(ctx context.Context) error {
	now, err := w.bucket.Stat(ctx, w.key)
	missing := isMissing(err)
	if err != nil && !missing {
		return err
	}
	if missing == !w.exists && (missing || now.ETag == w.old.ETag) {
		return nil
	}
	return w.conflict(&storage.ConflictError{Bucket: w.bucket.Location(), Key: w.key})
}

func isMissing(err error) bool {
	e, ok := errors.AsType[*storage.NotFoundError](err)
	return ok && e.Key != "" && e.Upload == ""
}

// readAt reads what is in memory; ok reports whether all of the file is.
func (w *writer) readAt(ctx context.Context, p []byte, off int64) (n int, ok bool, err error) {
	if err := w.load(ctx); err != nil {
		return 0, false, err
	}
	if !w.loaded {
		return 0, false, nil
	}
	if off >= w.size {
		return 0, true, nil
	}
	p = p[:min(int64(len(p)), w.size-off)]
	if off < int64(w.buf.n) {
		n = copy(p, w.buf.bytes()[off:])
	}
	clear(p[n:])
	return len(p), true, nil
}

// A buffer is bytes that wait to be uploaded. Its memory grows with them.
type buffer struct {
	budget *block.Budget
	block  *block.Block
	n      int
}

func (b *buffer) bytes() []byte {
	if b.block == nil {
		return nil
	}
	return b.block.Data[:b.n]
}

// grow makes room for n bytes in all, of most. Whoever writes holds a part at least; more
// of them than the budget has room for do not wait for each other.
func (b *buffer) grow(n, most int) {
	have := 0
	if b.block != nil {
		have = len(b.block.Data)
	}
	if n <= have {
		return
	}
	size := max(have, 64*kib)
	for size < n {
		size *= 4
	}
	next := b.budget.Force(min(size, max(n, most)))
	copy(next.Data, b.bytes())
	b.block.Free()
	b.block = next
}

// append takes at most room bytes of p.
func (b *buffer) append(p []byte, room int) (int, error) {
	p = p[:min(len(p), room)]
	b.grow(b.n+len(p), b.n+room)
	copy(b.block.Data[b.n:], p)
	b.n += len(p)
	return len(p), nil
}

func (b *buffer) fill(r io.Reader, n int) error {
	b.grow(b.n+n, b.n+n)
	if _, err := io.ReadFull(r, b.block.Data[b.n:b.n+n]); err != nil {
		return err
	}
	b.n += n
	return nil
}

func (b *buffer) cut(n int) {
	b.n = n
}

// take is the buffer with its memory; b is empty then.
func (b *buffer) take() *buffer {
	out := *b
	b.block, b.n = nil, 0
	return &out
}

func (b *buffer) free() {
	b.block.Free()
	b.block, b.n = nil, 0
}
