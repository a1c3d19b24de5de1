//go:build linux

package cached

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"github.com/skypilot-go/sky/internal/mount/readahead"
	"github.com/skypilot-go/sky/internal/mount/remote"
	"github.com/skypilot-go/sky/internal/storage"
)

// errStopped ends requests whose content is not wanted any more.
var errStopped = errors.New("the content is not wanted any more")

// want brings a range of the object into the cache, and asks for what is read next.
func (h *handle) want(ctx context.Context, o storage.Object, off, n int64) error {
	h.mu.Lock()
	ahead := h.window.See(off, n)
	h.mu.Unlock()
	ahead = min(ahead, n+h.f.v.ahead)
	return h.f.get(ctx, o, off, n, ahead)
}

// fill brings the beginning of the object into the cache. f.mu is held.
func (f *file) fill(ctx context.Context, size int64) error {
	if size == 0 {
		return nil
	}
	if _, err := f.opened(); err != nil {
		return err
	}
	o := storage.Object{Key: f.v.tree.Key(f.path), ETag: f.base.ETag, Size: f.base.Size}
	return f.getFrom(ctx, f.f, o, 0, size, size)
}

func (f *file) get(ctx context.Context, o storage.Object, off, must, wanted int64) error {
	f.mu.Lock()
	h, err := f.opened()
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.getFrom(ctx, h, o, off, must, wanted)
}

// getFrom asks for what is missing of a range and waits for the part of it that must be
// there.
func (f *file) getFrom(ctx context.Context, h *os.File, o storage.Object, off, must, wanted int64) error {
	f.v.room(wanted)
	// Blocks are brought whole.
	first := off / blockSize * blockSize
	must, wanted = off+must-first, off+wanted-first
	must = min((must+blockSize-1)/blockSize*blockSize, o.Size-first)
	wanted = max(must, min((wanted+blockSize-1)/blockSize*blockSize, o.Size-first))
	failed := 0
	for {
		f.pmu.Lock()
		f.used = f.v.now()
		if f.have == nil {
			f.have = newPresent(o.Size)
		}
		if f.more == nil {
			f.more = make(chan struct{})
		}
		if f.have.covers(first, must) {
			f.ask(h, o, first, must, wanted)
			f.pmu.Unlock()
			return nil
		}
		err := f.getErr
		f.getErr = nil
		if err != nil {
			if failed++; failed > 1 || !errors.Is(err, errStopped) && !storage.Temporary(err) {
				f.pmu.Unlock()
				return replaced(o.Key, err)
			}
		}
		f.ask(h, o, first, must, wanted)
		more := f.more
		f.pmu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ask makes requests for what is neither there nor under way. f.pmu is held.
func (f *file) ask(h *os.File, o storage.Object, off, must, wanted int64) {
	all := append(f.have.spans(o.Size), f.getting...)
	slices.SortFunc(all, func(a, b readahead.Span) int { return int(min(max(a.At-b.At, -1), 1)) })
	if f.getCtx == nil {
		f.getCtx, f.cancel = context.WithCancel(context.Background())
	}
	for _, s := range readahead.Missing(off, wanted, must, o.Size, all) {
		for s.N > 0 {
			if len(f.getting) >= f.v.streams {
				return
			}
			part := readahead.Span{At: s.At, N: min(s.N, f.v.chunk)}
			s.At, s.N = part.End(), s.N-part.N
			f.getting = append(f.getting, part)
			go f.bring(f.getCtx, h, f.have, o, part)
		}
	}
}

// bring reads a range into the cache.
func (f *file) bring(ctx context.Context, h *os.File, have present, o storage.Object, s readahead.Span) {
	err := f.copyRange(ctx, h, have, o, s)
	f.pmu.Lock()
	defer f.pmu.Unlock()
	if i := slices.Index(f.getting, s); i >= 0 {
		f.getting = slices.Delete(f.getting, i, i+1)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = errStopped
		}
		f.getErr = err
	}
	f.changed()
}

// changed wakes who waits. f.pmu is held.
func (f *file) changed() {
	if f.more != nil {
		close(f.more)
	}
	f.more = make(chan struct{})
}

func (f *file) copyRange(ctx context.Context, h *os.File, have present, o storage.Object, s readahead.Span) error {
	r, err := f.v.bucket.Get(ctx, o.Key, storage.GetOptions{Offset: s.At, Length: s.N, IfMatch: o.ETag})
	if err != nil {
		return err
	}
	defer r.Close()
	f.learn(r.Object)
	buf := make([]byte, min(256<<10, s.N))
	for done := int64(0); done < s.N; {
		n, err := io.ReadFull(r, buf[:min(int64(len(buf)), s.N-done)])
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := f.v.write(h, buf[:n], s.At+done); err != nil {
			return err
		}
		before := (s.At + done) / blockSize
		done += int64(n)
		after := (s.At + done) / blockSize
		if done == s.N {
			after = blocks(s.At + done)
		}
		if after == before {
			continue
		}
		f.pmu.Lock()
		for b := before; b < after; b++ {
			have.add(b)
		}
		f.changed()
		f.pmu.Unlock()
		f.v.bytes.Add((after - before) * blockSize)
	}
	return nil
}

// learn takes over the attributes of an object that only a list has described.
func (f *file) learn(o storage.Object) {
	if !f.mu.TryLock() { // they are not worth waiting for
		return
	}
	defer f.mu.Unlock()
	if f.state == clean && f.base.Metadata == nil && o.Metadata != nil && o.ETag == f.base.ETag {
		f.rebase(remote.Entry{Path: f.path, Object: o, Known: true})
		f.note()
	}
}

// stopGetting ends all requests for content, and returns when none of them writes any
// more. f.mu is held.
func (f *file) stopGetting() {
	f.pmu.Lock()
	if f.cancel != nil {
		f.cancel()
	}
	for len(f.getting) > 0 {
		if f.more == nil {
			f.more = make(chan struct{})
		}
		more := f.more
		f.pmu.Unlock()
		<-more
		f.pmu.Lock()
	}
	f.getCtx, f.cancel, f.getErr = nil, nil, nil
	f.pmu.Unlock()
}

// room drops content from the cache if it would grow beyond its limit.
func (v *Volume) room(n int64) {
	if v.bytes.Load()+n > v.limit {
		v.evict(max(n, 1))
	}
}

// evict drops content that nobody uses until there is room for n bytes more; with 0, all
// of it. It reports whether anything was dropped.
func (v *Volume) evict(n int64) bool {
	v.mu.Lock()
	var all []candidate
	var total int64
	files := map[string]*file{}
	for path, f := range v.files {
		s := f.shown.Load()
		if s == nil {
			continue
		}
		if s.state != clean {
			total += s.attr.Size
			continue
		}
		f.pmu.Lock()
		c := candidate{path, f.have.count() * blockSize, f.used}
		f.pmu.Unlock()
		total += c.bytes
		if f.refs == 0 && !f.running {
			all = append(all, c)
			files[path] = f
		}
	}
	v.bytes.Store(total)
	v.mu.Unlock()
	limit := v.limit - n
	oldest := v.now().Add(-v.age)
	if n == 0 {
		limit = 0
	}
	dropped := false
	for _, c := range victims(all, total, limit, oldest) {
		if v.forgetFile(files[c.path]) {
			dropped = true
		}
	}
	return dropped
}

// forgetFile drops a file from the cache, if it is clean and nobody uses it.
func (v *Volume) forgetFile(f *file) bool {
	if !f.mu.TryLock() {
		return false
	}
	defer f.mu.Unlock()
	v.mu.Lock()
	if f.refs > 0 || f.state != clean || f.gone || v.files[f.path] != f {
		v.mu.Unlock()
		return false
	}
	delete(v.files, f.path)
	f.gone = true
	v.mu.Unlock()
	// First the record, then what it names.
	if err := v.journal.put(map[string]*record{f.path: nil}); err != nil {
		v.log.Error("the journal of the cache cannot be written", "err", err)
	}
	f.pmu.Lock()
	n := f.have.count() * blockSize
	f.pmu.Unlock()
	f.dropData()
	v.bytes.Add(-n)
	return true
}

// tidy drops what has not been used for long, and writes down what the cache has.
func (v *Volume) tidy() {
	v.evictOld()
	v.saveClean()
}

func (v *Volume) evictOld() {
	v.evict(1) // what is too old goes even if there is room
}

// saveClean records content that was read, so that the next process has it.
func (v *Volume) saveClean() {
	v.mu.Lock()
	var some []*file
	for f := range v.unsaved {
		some = append(some, f)
	}
	v.unsaved = map[*file]bool{}
	v.mu.Unlock()
	for len(some) > 0 {
		n := min(len(some), 500)
		changes := map[string]*record{}
		var locked []*file
		for _, f := range some[:n] {
			if !f.mu.TryLock() {
				continue
			}
			locked = append(locked, f)
			if f.state == clean && !f.gone && f.data != "" && v.at(f.path) == f {
				if f.f != nil { // the machine may lose its power; the record names its boot for that
					changes[f.path] = f.record()
				} else if _, err := os.Stat(v.dataPath(f.data)); err == nil {
					changes[f.path] = f.record()
				}
			}
		}
		if err := v.journal.put(changes); err != nil {
			v.log.Warn("what the cache holds could not be noted", "err", err)
		}
		for _, f := range locked {
			f.mu.Unlock()
		}
		some = some[n:]
	}
}

// tidyEvery is how often the cache is looked through.
const tidyEvery = 30 * time.Second
