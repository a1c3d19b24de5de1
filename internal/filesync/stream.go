package filesync

import (
	"bytes"
	"context"
	"errors"

	"github.com/zeebo/blake3"
)

var zeroes [chunkBytes]byte

// stream sends a large file in chunks. was is what the file is known to be;
// changed says that the receiver does not know that. A file that changes on
// the way is sent once more.
func (s *sender) stream(ctx context.Context, r *ref, was item, changed bool) error {
	if !changed && s.knownSame(r) {
		return s.send(ctx, appendRecord(newFrame(frameFiles), s.same(r)))
	}
	for range 2 {
		st := &streaming{sender: s, ref: r, was: was, sum: blake3.New()}
		now, err := st.run(ctx, changed)
		if !errors.Is(err, errChanged) {
			return err
		}
		s.meter.doneBytes.Add(-st.done)
		was, changed = now, true
	}
	return &ChangedError{Path: s.path(r)}
}

// errChanged means that a file is not what it was when it was last looked at.
var errChanged = errors.New("the file has changed")

// A streaming is one try to send a large file.
type streaming struct {
	*sender
	*ref
	was  item // what the receiver is told about the file
	sum  *blake3.Hasher
	done int64 // of the file: sent, or right at the receiver
}

// run returns errChanged and what the file is now if it changed on the way.
func (s *streaming) run(ctx context.Context, changed bool) (now item, err error) {
	f, err := s.open(ctx, s.ref)
	if err != nil {
		return now, err
	}
	defer f.close()
	if now, err = s.look(s.ref, f); err != nil {
		return now, err
	}
	if !sameFile(&s.was, &now) {
		s.was, changed = now, true // nothing of it was sent yet, so this is no retry
	}
	if !changed && s.have > 0 && s.have <= s.was.size {
		match, err := s.matches(ctx, f)
		if err != nil {
			return now, err
		}
		if match && s.have == s.was.size {
			s.hashes.put(s.below(s.ref), &now, s.want.hash)
			return now, s.send(ctx, appendRecord(newFrame(frameFiles), s.same(s.ref)))
		}
		if match {
			s.add(s.have)
		} else if err := f.seek(0); err != nil {
			return now, err
		} else {
			s.sum.Reset()
		}
	}
	return s.chunks(ctx, f, changed)
}

func (s *streaming) add(n int64) {
	s.done += n
	s.meter.doneBytes.Add(n)
}

// chunks sends the file from s.done on.
func (s *streaming) chunks(ctx context.Context, f *sourceFile, changed bool) (now item, err error) {
	buf := getBuffer()[:chunkBytes]
	defer putBuffer(buf)
	c := chunk{block: s.block.id, item: s.item, now: s.was}
	if changed {
		c.flags = chunkChanged
	}
	for last := false; !last; c.flags = 0 {
		c.offset = s.done
		want := min(chunkBytes, s.was.size-s.done)
		n, err := readFull(f, buf[:want])
		if err != nil {
			return now, err
		}
		s.work.Add(1)
		s.sum.Write(buf[:n])
		last = s.done+int64(n) == s.was.size
		if last || int64(n) < want {
			if now, err = s.look(s.ref, f); err != nil {
				return now, err
			}
			if !last || !sameFile(&s.was, &now) {
				return now, errChanged
			}
			c.flags |= chunkLast
			s.sum.Sum(c.hash[:0])
			s.hashes.put(s.below(s.ref), &now, c.hash)
		}
		c.content, c.zeros = buf[:n], 0
		if n > 0 && bytes.Equal(buf[:n], zeroes[:n]) {
			c.flags |= chunkZero
			c.content, c.zeros = nil, n
		}
		if err := s.send(ctx, appendChunk(newFrame(frameChunk), &c)); err != nil {
			return now, err
		}
		s.meter.travelled.Add(int64(n))
		s.add(int64(n))
	}
	s.meter.answered(0)
	return now, nil
}

// matches hashes as much of a file as the receiver has.
func (s *streaming) matches(ctx context.Context, f *sourceFile) (bool, error) {
	buf := getBuffer()[:chunkBytes]
	defer putBuffer(buf)
	for left := s.have; left > 0; {
		n, err := readFull(f, buf[:min(chunkBytes, left)])
		if err != nil || n == 0 {
			return false, err
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		s.sum.Write(buf[:n])
		s.work.Add(1)
		left -= int64(n)
	}
	var got hash
	s.sum.Sum(got[:0])
	return got == s.want.hash, nil
}
