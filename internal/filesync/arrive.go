//go:build unix

package filesync

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
)

// wanted finds the plan of a file that the sender speaks of.
func (r *receiver) wanted(block, item int) (*planned, *wanted, error) {
	b := r.plan.blocks[block]
	if b == nil || item >= len(b.wants) {
		return nil, nil, badf("a file that was not asked for")
	}
	return b, &b.wants[item], nil
}

// records handles a files frame.
func (w *writer) records(ctx context.Context, payload []byte) error {
	d := decoder{b: payload}
	for len(d.b) > 0 && ctx.Err() == nil {
		rec := readRecord(&d)
		if d.err != nil {
			break
		}
		b, want, err := w.wanted(rec.block, rec.item)
		if err != nil {
			return err
		}
		if !want.state.CompareAndSwap(isWanted, hasArrived) {
			return badf("a file that was not asked for, or came already")
		}
		if err := w.record(b, want, &rec); err != nil {
			return w.describe(err, b.path, b.items[rec.item].name)
		}
		w.plan.left.Add(-1)
		w.work.Add(1)
	}
	return d.err
}

func (w *writer) record(b *planned, want *wanted, rec *record) error {
	it := b.items[rec.item]
	if want.part != nil && want.have == it.size && rec.how == recordSame {
		return w.complete(b, want, &it, want.hash) // all had arrived before
	}
	if want.part != nil {
		w.dropPart(want.part)
		want.part = nil
	}
	if rec.how == recordSame {
		if want.have != it.size || want.seen == nil {
			return badf("a file is called right that was not offered")
		}
		return w.touch(b.path, &it, want.seen, want.hash)
	}
	if rec.how == recordChanged {
		it.size, it.mtime, it.perm = rec.now.size, rec.now.mtime, rec.now.perm
	}
	if int64(len(rec.content)) != it.size {
		return badf("a file of the wrong size")
	}
	w.brought.arrived(join(b.path, it.name), &it)
	return w.place(b.path, &it, rec.content)
}

// chunk handles a chunk frame. The chunks of a file all come to one writer.
func (w *writer) chunk(c *chunk) error {
	b, want, err := w.wanted(c.block, c.item)
	if err != nil {
		return err
	}
	first := want.state.CompareAndSwap(isWanted, isArriving)
	if !first && want.state.Load() != isArriving {
		return badf("a chunk that was not asked for")
	}
	it := &b.items[c.item]
	if c.flags&chunkChanged != 0 {
		it.size, it.mtime, it.perm = c.now.size, c.now.mtime, c.now.perm
	}
	if err := w.addChunk(b, want, it, c, first); err != nil {
		if want.part != nil && isNoSpace(err) {
			w.discard(b.path, want.part)
		}
		return w.describe(err, b.path, it.name)
	}
	w.work.Add(1)
	if c.flags&chunkLast == 0 {
		return nil
	}
	if want.part.size != it.size {
		return badf("a file of the wrong size")
	}
	var sum hash
	want.part.sum.Sum(sum[:0])
	if sum != c.hash {
		w.discard(b.path, want.part)
		return w.describe(errors.New("the content was damaged on its way or on the disk"), b.path, it.name)
	}
	want.state.Store(hasArrived)
	w.brought.arrived(join(b.path, it.name), it)
	if err := w.complete(b, want, it, sum); err != nil {
		return w.describe(err, b.path, it.name)
	}
	w.plan.left.Add(-1)
	return nil
}

func (w *writer) addChunk(b *planned, want *wanted, it *item, c *chunk, first bool) error {
	fd, err := w.enter(b.path)
	if err != nil {
		return err
	}
	switch {
	case first && c.flags&chunkChanged == 0 && c.offset > 0:
		if c.offset != want.have || want.part == nil && !want.prefix {
			return badf("a file goes on where it did not end")
		}
		if want.prefix {
			if want.part, err = w.newPart(fd, b.path, it); err == nil {
				err = w.copyStart(fd, it.name, want.part, want.have)
			}
		}
	case first && want.part == nil:
		want.part, err = w.newPart(fd, b.path, it)
	case first, c.flags&chunkChanged != 0:
		err = want.part.restart()
	}
	if err != nil {
		return err
	}
	if c.offset != want.part.size || c.offset+c.len() > it.size {
		return badf("a chunk in the wrong place")
	}
	return want.part.add(c)
}

// complete publishes a part that is whole.
func (w *writer) complete(b *planned, want *wanted, it *item, sum hash) error {
	fd, err := w.enter(b.path)
	if err != nil {
		return err
	}
	p := want.part
	defer w.dropPart(p)
	want.part = nil
	if p.hole {
		if err := unix.Ftruncate(p.fd, p.size); err != nil {
			return err
		}
	}
	if err := unix.Fchmod(p.fd, uint32(it.perm)); err != nil {
		return err
	}
	if err := unix.UtimesNanoAt(fd, p.name, times(it.mtime), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if err := w.publish(fd, p.name, b.path, it); err != nil {
		return err
	}
	w.remember(fd, b.path, it, sum)
	return nil
}
