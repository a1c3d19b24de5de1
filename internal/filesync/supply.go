package filesync

import (
	"context"
	"runtime"

	"github.com/zeebo/blake3"
	"golang.org/x/sync/errgroup"
)

const (
	smallFile  = 128 << 10 // a file up to this size travels in a batch
	batchBytes = 192 << 10 // content of a batch
	batchFiles = 256
	chunkBytes = 256 << 10
)

// readers is how many batches or large files are read at once.
var readers = min(max(runtime.GOMAXPROCS(0), 2), 4)

// supply sends what the receiver wants until it wants no more.
func (s *sender) supply(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	jobs := make(chan []ref)
	for range readers {
		g.Go(func() error {
			for refs := range jobs {
				if err := s.answer(ctx, refs); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(jobs)
		for {
			refs, err := s.wants.take(ctx)
			if err != nil || len(refs) == 0 {
				return err
			}
			for len(refs) > 0 {
				n := batchLen(refs)
				select {
				case jobs <- refs[:n:n]:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				refs = refs[n:]
			}
		}
	})
	return g.Wait()
}

// batchLen reports how many of the refs one job takes: a large file alone, or
// small ones together.
func batchLen(refs []ref) int {
	var bytes int64
	for n := range refs {
		size := refs[n].file().size
		bytes += size
		if n > 0 && (size > smallFile || bytes > batchBytes || n >= batchFiles) {
			return n
		}
		if size > smallFile {
			return 1
		}
	}
	return len(refs)
}

func (s *sender) answer(ctx context.Context, refs []ref) error {
	if r := &refs[0]; r.file().size > smallFile {
		return s.stream(ctx, r, *r.file(), false)
	}
	f := newFrame(frameFiles)
	for i := range refs {
		var err error
		if f, err = s.appendFile(ctx, f, &refs[i]); err != nil {
			return err
		}
		if len(f) > bufferSize { // files have grown
			if err := s.send(ctx, f); err != nil {
				return err
			}
			f = newFrame(frameFiles)
		}
	}
	if len(f) == headerLen {
		return nil
	}
	return s.send(ctx, f)
}

// appendFile adds a small file to a batch. If it has grown large meanwhile it
// is streamed instead.
func (s *sender) appendFile(ctx context.Context, frame []byte, r *ref) ([]byte, error) {
	s.work.Add(1)
	was := *r.file()
	if s.knownSame(r) {
		return appendRecord(frame, s.same(r)), nil
	}
	how := byte(recordContent)
	for attempt := 0; ; attempt++ {
		content, now, ok, err := s.readSmall(ctx, r, &was)
		if err != nil {
			return frame, err
		}
		if ok {
			if how == recordContent && r.have > 0 && r.have == was.size {
				sum := hash(blake3.Sum256(content))
				s.hashes.put(s.below(r), &now, sum)
				if sum == r.hash {
					return appendRecord(frame, s.same(r)), nil
				}
			}
			rec := record{block: r.block.id, item: r.item, how: how, now: was, content: content}
			s.meter.travelled.Add(was.size)
			s.meter.answered(was.size)
			return appendRecord(frame, &rec), nil
		}
		if attempt > 0 {
			return frame, &ChangedError{Path: s.path(r)}
		}
		if now.size > smallFile {
			return frame, s.stream(ctx, r, now, true)
		}
		was, how = now, recordChanged
	}
}

// knownSame reports that the receiver has the right content, without reading
// the file.
func (s *sender) knownSame(r *ref) bool {
	it := r.file()
	if r.have == 0 || r.have != it.size {
		return false
	}
	sum, ok := s.hashes.get(s.below(r), it)
	return ok && sum == r.hash
}

// same is the answer to a want of what the receiver has already.
func (s *sender) same(r *ref) *record {
	s.meter.matched.Add(1)
	s.meter.answered(r.have)
	return &record{block: r.block.id, item: r.item, how: recordSame}
}

// readSmall reads a file that should be as was says; ok is false if it is not,
// and now reports how it is instead.
func (s *sender) readSmall(ctx context.Context, r *ref, was *item) (content []byte, now item, ok bool, err error) {
	f, err := s.open(ctx, r)
	if err != nil {
		return nil, now, false, err
	}
	defer f.close()
	buf := make([]byte, was.size+1)
	n := 0
	for n < len(buf) {
		m, err := f.read(buf[n:])
		if err != nil {
			return nil, now, false, err
		}
		if m == 0 {
			break
		}
		n += m
	}
	if now, err = s.look(r, f); err != nil {
		return nil, now, false, err
	}
	return buf[:min(n, int(was.size))], now, int64(n) == was.size && sameFile(was, &now), nil
}
