//go:build linux

package cached

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skypilot-go/sky/internal/mount/mountapi"
	"github.com/skypilot-go/sky/internal/mount/remote"
	"github.com/skypilot-go/sky/internal/mount/vfs"
	"github.com/skypilot-go/sky/internal/storage"
)

// An upload, or a deletion, is under way.
type upload struct {
	cancel context.CancelFunc
	ended  chan struct{} // closed when nothing more of it will happen
}

// A multipart upload is gone on with by the next try.
type multipart struct {
	id     string // of the content
	upload storage.Upload
	opts   storage.PutOptions
	mu     sync.Mutex
	parts  map[int]storage.Part
}

// A snapshot is what is uploaded: while it is, the content does not change.
type snapshot struct {
	path     string
	state    state
	typ      vfs.Type
	data     *os.File
	size     int64
	gen      uint64
	id       string
	attr     storage.Attributes
	base     base
	attempts []string
	after    string
	multi    *multipart
}

const (
	lastingWait = time.Minute // before what failed for a lasting reason is tried again
	maxWait     = time.Minute
	smallUpload = 16 << 20 // what is larger is uploaded in parts
	uploadPart  = 8 << 20
	partsOfFile = 4 // of one file at the same time
)

// enqueue lets a file be uploaded or deleted after a while.
func (v *Volume) enqueue(f *file, after time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f.gone || v.closed {
		return
	}
	if f.forced > 0 && after == v.delay {
		after = 0
	}
	v.pending.add(f, v.now().Add(after))
	v.wakeUp()
}

func (v *Volume) wakeUp() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// announce wakes who waits for uploads.
func (v *Volume) announce() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.progress)
	v.progress = make(chan struct{})
}

// dispatch uploads what is due.
func (v *Volume) dispatch() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		v.mu.Lock()
		for v.running < v.o.Config.Transfers && v.ctx.Err() == nil {
			f, due := v.pending.next()
			if f == nil {
				break
			}
			if wait = due.Sub(v.now()); wait > 0 {
				break
			}
			wait = time.Hour
			v.pending.remove(f)
			s := f.shown.Load()
			if f.gone || f.running || s.state == clean || s.state == dirty && f.writers > 0 && f.forced == 0 {
				continue // whoever ends using it queues it again
			}
			f.running = true
			v.running++
			v.wg.Go(func() { v.process(f) })
		}
		v.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-v.ctx.Done():
			return
		case <-v.wake:
		case <-timer.C:
		}
	}
}

// process makes one try to bring a file into the bucket, or to delete it there.
func (v *Volume) process(f *file) {
	again, err := v.try(f)
	v.mu.Lock()
	f.running = false
	v.running--
	f.ended++
	f.err, f.lasting = err, err != nil && lasting(err)
	if err == nil {
		f.tries = 0
	} else {
		f.tries++
		v.trouble = err
		again = v.o.Retry << min(f.tries-1, 10)
		again = min(max(again, v.o.Retry), maxWait)
		if f.lasting {
			again = lastingWait
		}
	}
	if err == nil && again < 0 && f.shown.Load().unstored() { // it was changed a moment ago
		again = v.delay
	}
	if again >= 0 && !f.gone && !v.closed {
		v.pending.add(f, v.now().Add(again))
	}
	v.wakeUp()
	close(v.progress)
	v.progress = make(chan struct{})
	path, tries, lasts := f.path, f.tries, f.lasting
	v.mu.Unlock()
	if err != nil && v.ctx.Err() == nil {
		v.log.Warn("a file is not in the bucket yet", "path", path, "try", tries, "lasting", lasts, "err", err)
	}
}

// lasting reports whether the store will not take the same thing a moment later.
func lasting(err error) bool {
	if storage.Temporary(err) || errors.Is(err, context.Canceled) {
		return false
	}
	if e, ok := errors.AsType[*storage.NotFoundError](err); ok {
		return e.Key == "" && e.Upload == ""
	}
	if _, ok := errors.AsType[*storage.ConflictError](err); ok {
		return false
	}
	if vfs.Errno(err) == syscall.ENOSPC {
		return false
	}
	return true
}

// try makes one try. A file that is to be tried again without an error is so after the
// time that is returned, if it is not negative.
func (v *Volume) try(f *file) (time.Duration, error) {
	const done = -1
	f.mu.Lock()
	if f.gone || f.state == clean {
		f.mu.Unlock()
		return done, nil
	}
	if f.state == dirty {
		if f.gen != f.recorded && v.unfinished(f) { // it was opened a moment ago
			f.mu.Unlock()
			return done, nil
		}
		if len(f.attempts) == 0 { // its writer died: every writing has an id
			f.recorded = 0
		}
		if err := f.save(); err != nil {
			f.mu.Unlock()
			return done, err
		}
	}
	s, err := f.snapshot()
	if err != nil {
		f.mu.Unlock()
		return done, err
	}
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	up := &upload{cancel: cancel, ended: make(chan struct{})}
	f.upload, f.tried = up, true
	f.mu.Unlock()

	var o storage.Object
	waits := false
	if s.state == deleted {
		waits, err = v.remove(ctx, s)
	} else {
		o, err = v.send(ctx, f, &s)
	}
	close(up.ended)
	if s.data != nil {
		s.data.Close()
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if f.upload == up {
		f.upload = nil
	}
	switch {
	case waits:
		return v.o.Retry, nil
	case err != nil:
		if clash, ok := errors.AsType[*clashError](err); ok && !f.gone {
			return 0, v.stepAside(f, clash)
		}
		if ctx.Err() != nil { // it was changed meanwhile, or we end
			return v.delay, nil
		}
		return done, err
	case s.state == deleted:
		return done, v.removed(f)
	}
	return v.uploaded(f, s, o)
}

// unfinished reports whether somebody writes a file, whose close nobody has to wait for.
func (v *Volume) unfinished(f *file) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return f.writers > 0 && f.forced == 0
}

// snapshot is what there is to be uploaded. f.mu is held.
func (f *file) snapshot() (snapshot, error) {
	s := snapshot{path: f.path, state: f.state, typ: f.typ, size: f.size, gen: f.gen, attr: f.attributes(), base: f.base, attempts: slices.Clone(f.attempts), after: f.after, multi: f.multi.Load()}
	if n := len(s.attempts); n > 0 {
		s.id = s.attempts[n-1]
	}
	if f.state == dirty && f.typ == vfs.File && f.data != "" {
		h, err := os.Open(f.v.dataPath(f.data))
		if err != nil {
			return s, err
		}
		s.data = h
	}
	if f.typ != vfs.File {
		s.size = 0
	}
	return s, nil
}

// uploaded notes that the bucket has a snapshot. f.mu is held.
func (v *Volume) uploaded(f *file, s snapshot, o storage.Object) (time.Duration, error) {
	if f.gone || f.path != s.path {
		return -1, nil // it was moved or replaced: whoever did so knows that it was tried
	}
	f.base = baseOf(o)
	f.multi.Store(nil)
	if f.gen != s.gen {
		f.note()
		return v.delay, nil
	}
	was := *f.record()
	f.state, f.attempts, f.owners, f.tried = clean, nil, nil, false
	var r *record
	if f.typ == vfs.File {
		f.size = o.Size
		f.pmu.Lock()
		f.have = newPresent(f.size)
		for b := range blocks(f.size) {
			f.have.add(b)
		}
		f.used = v.now()
		f.pmu.Unlock()
		if f.data == "" {
			f.have = nil
		} else {
			r = f.record()
		}
	}
	if f.typ != vfs.Dir {
		v.tree.Written(f.path, o)
	}
	if err := v.journal.put(map[string]*record{f.path: r}); err != nil {
		// The content must stay as long as the journal says that it is to be uploaded.
		f.state, f.attempts, f.tried = dirty, was.Attempts, true
		for _, o := range was.Owners {
			f.own(o)
		}
		f.note()
		return -1, fmt.Errorf("the journal of the cache: %w", &storage.UnavailableError{Bucket: v.bucket.Location(), Err: err})
	}
	f.stored, f.intent = f.gen, false
	f.note()
	v.mu.Lock()
	unused := f.typ != vfs.File && f.refs == 0
	if unused || f.typ == vfs.File && f.data == "" && f.refs == 0 {
		f.gone = true
		delete(v.files, f.path)
	}
	idle := f.refs == 0
	v.mu.Unlock()
	if idle {
		f.closeData()
	}
	v.room(0)
	return -1, nil
}

// removed notes that a deletion is done. f.mu is held.
func (v *Volume) removed(f *file) error {
	if f.gone {
		return nil
	}
	if err := v.journal.put(map[string]*record{f.path: nil}); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	f.gone = true
	if v.files[f.path] == f {
		delete(v.files, f.path)
	}
	return nil
}

// A clashError means that somebody else wrote the object.
type clashError struct {
	now storage.Object
	err error
}

func (e *clashError) Error() string { return "somebody else wrote it: " + e.err.Error() }
func (e *clashError) Unwrap() error { return e.err }

// stepAside gives content another path because somebody else wrote the object at its own:
// both are kept. f.mu is held.
func (v *Volume) stepAside(f *file, clash *clashError) error {
	from := f.path
	to := fmt.Sprintf("%s.conflict-%s-%s-%s", from, v.o.Node, v.now().UTC().Format("20060102T150405"), remote.NewID()[:6])
	was := f.base
	f.base, f.attempts = absent, []string{remote.NewID()}
	f.multi.Store(nil)
	if err := v.journal.put(map[string]*record{from: nil, to: f.record()}); err != nil {
		f.base = was
		return err
	}
	v.mu.Lock()
	if v.files[from] == f {
		delete(v.files, from)
	}
	f.path = to
	v.files[to] = f
	if len(v.conflicts) < maxConflicts {
		v.conflicts = append(v.conflicts, mountapi.File{Mount: v.o.Name, Path: to, Size: f.size, State: mountapi.Conflict, Since: v.now(), Error: fmt.Sprintf("%s was written by somebody else, too: that version has the name", from)})
	}
	v.mu.Unlock()
	v.tree.Changed(from)
	f.note()
	v.log.Error("somebody else wrote a file, too: both versions are kept", "path", from, "kept here as", to, "err", clash)
	return nil
}

const maxConflicts = 1000

// send uploads a snapshot.
func (v *Volume) send(ctx context.Context, f *file, s *snapshot) (storage.Object, error) {
	if s.typ == vfs.Dir {
		var e remote.Entry
		err := v.step("put folder", func() (err error) {
			e, err = v.tree.Mkdir(ctx, s.path)
			return err
		})
		return e.Object, err
	}
	key := v.tree.Key(s.path)
	for range 5 {
		if !s.base.Known || !v.bucket.Caps().Conditional || s.size > smallUpload && !v.bucket.Caps().ConditionalParts {
			if err := v.compare(ctx, s, key); err != nil {
				return storage.Object{}, err
			}
		}
		o, err := v.writeOne(ctx, f, s, key)
		if err == nil {
			o.Key, o.Size = key, s.size
			if o.Modified.IsZero() {
				o.Modified = v.now()
			}
			return o, nil
		}
		_, changed := errors.AsType[*storage.ConflictError](err)
		gone, missing := errors.AsType[*storage.NotFoundError](err)
		missing = missing && gone.Key != "" && gone.Upload == ""
		if ended, ok := errors.AsType[*storage.NotFoundError](err); ok && ended.Upload != "" {
			s.multi = nil // it is begun anew
			continue
		}
		if !changed && !missing {
			return o, err
		}
		s.multi = nil // its condition does not hold
		if cmpErr := v.compare(ctx, s, key); cmpErr != nil {
			return o, cmpErr
		}
	}
	return storage.Object{}, &storage.UnavailableError{Bucket: v.bucket.Location(), Err: errors.New("the object changes all the time")}
}

// compare looks what the bucket has and takes it for the base, if it is what is expected
// or was written here.
func (v *Volume) compare(ctx context.Context, s *snapshot, key string) error {
	now, err := v.bucket.Stat(ctx, key)
	if isMissing(err) {
		s.base = absent // deleted by others: what was written here is newer
		return nil
	}
	if err != nil {
		return err
	}
	if !s.base.Known || s.base.Exists && s.base.ETag == now.ETag || slices.Contains(s.attempts, remote.WrittenAs(now)) {
		s.base = baseOf(now)
		return nil
	}
	return &clashError{now, &storage.ConflictError{Bucket: v.bucket.Location(), Key: key}}
}

func isMissing(err error) bool {
	e, ok := errors.AsType[*storage.NotFoundError](err)
	return ok && e.Key != "" && e.Upload == ""
}

func (s *snapshot) options(conditional bool) storage.PutOptions {
	o := storage.PutOptions{Metadata: remote.Metadata(s.attr, s.id)}
	if conditional {
		if s.base.Exists {
			o.IfMatch = s.base.ETag
		} else {
			o.IfAbsent = true
		}
	}
	return o
}

func (v *Volume) writeOne(ctx context.Context, f *file, s *snapshot, key string) (o storage.Object, err error) {
	caps := v.bucket.Caps()
	if s.size <= smallUpload || !caps.Multipart {
		var body io.ReadSeeker = bytes.NewReader(nil)
		if s.data != nil && s.size > 0 {
			body = io.NewSectionReader(s.data, 0, s.size)
		}
		opts := s.options(caps.Conditional)
		err = v.step("put", func() error {
			o, err = v.bucket.Put(ctx, key, body, opts)
			return err
		})
		o.Metadata = opts.Metadata
		return o, err
	}
	return v.writeParts(ctx, f, s, key)
}

// partSize makes at most so many parts as the store takes, of a size that is known.
func partSize(size int64, caps storage.Caps) int64 {
	most := int64(9000)
	if caps.MaxParts > 0 {
		most = min(most, int64(caps.MaxParts))
	}
	part := max(uploadPart, caps.MinPart)
	for (size+part-1)/part > most {
		part *= 2
	}
	return part
}

func (v *Volume) writeParts(ctx context.Context, f *file, s *snapshot, key string) (o storage.Object, err error) {
	caps := v.bucket.Caps()
	m := s.multi
	if m == nil || m.id != s.id {
		if m != nil {
			_ = v.bucket.Abort(ctx, m.upload) // the bucket's rules remove what stays
		}
		m = &multipart{id: s.id, opts: s.options(caps.ConditionalParts), parts: map[int]storage.Part{}}
		err = v.step("start", func() error {
			m.upload, err = v.bucket.Start(ctx, key, m.opts)
			return err
		})
		if err != nil {
			return o, err
		}
		s.multi = m
		f.multi.Store(m) // the next try goes on with it
	}
	size := partSize(s.size, caps)
	n := int((s.size + size - 1) / size)
	g, parallel := errgroup.WithContext(ctx)
	g.SetLimit(partsOfFile)
	for i := range n {
		m.mu.Lock()
		_, has := m.parts[i+1]
		m.mu.Unlock()
		if has {
			continue
		}
		g.Go(func() error {
			return v.step("part", func() error {
				at := int64(i) * size
				p, err := v.bucket.PutPart(parallel, m.upload, i+1, io.NewSectionReader(s.data, at, min(size, s.size-at)))
				if err != nil {
					return err
				}
				m.mu.Lock()
				defer m.mu.Unlock()
				m.parts[i+1] = p
				return nil
			})
		})
	}
	if err := g.Wait(); err != nil {
		return o, err
	}
	parts := make([]storage.Part, n)
	for i := range parts {
		parts[i] = m.parts[i+1]
	}
	err = v.step("complete", func() error {
		o, err = v.bucket.Complete(ctx, m.upload, parts, m.opts)
		return err
	})
	o.Metadata = m.opts.Metadata
	return o, err
}

// remove deletes the object, if it is the one that was deleted here. It reports whether
// something else has to come before.
func (v *Volume) remove(ctx context.Context, s snapshot) (waits bool, err error) {
	if s.after != "" {
		if x := v.local(s.after); x != nil && x.state == dirty {
			return true, nil
		}
	}
	if s.typ == vfs.Dir {
		if v.removalsBelow(s.path) {
			return true, nil
		}
		return false, v.step("remove folder", func() error { return v.tree.RemoveMarker(ctx, s.path) })
	}
	key := v.tree.Key(s.path)
	now, err := v.bucket.Stat(ctx, key)
	switch {
	case isMissing(err):
		v.tree.Keep(s.path)
		v.tree.Changed(s.path)
		return false, nil
	case err != nil:
		return false, err
	case s.base.Known && now.ETag != s.base.ETag && !slices.Contains(s.attempts, remote.WrittenAs(now)):
		v.log.Error("a file that was deleted here was written by somebody else: it is kept", "path", s.path)
		v.tree.Changed(s.path)
		return false, nil
	}
	return false, v.step("remove", func() error { return v.tree.Remove(ctx, s.path) })
}

// removalsBelow reports whether deletions in a folder are not done yet.
func (v *Volume) removalsBelow(dir string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for path, f := range v.files {
		if len(path) > len(dir) && path[:len(dir)] == dir && path[len(dir)] == '/' {
			if s := f.shown.Load(); s != nil && s.state == deleted {
				return true
			}
		}
	}
	return false
}
