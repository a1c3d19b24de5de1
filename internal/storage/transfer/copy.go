package transfer

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"strings"
	"sync/atomic"

	"github.com/skypilot-go/sky/internal/storage"
)

// Copy copies what is below a prefix of one bucket below a prefix of another one, or an
// object to a key. fromKey is read as the key of [Download] is. Where both buckets
// are of one store that can, the content stays inside the store; else it streams
// through this process, and nothing is written to a disk. Objects keep their metadata.
func Copy(ctx context.Context, from storage.Bucket, fromKey string, to storage.Bucket, toKey string, o Options) (Report, error) {
	e := newEngine(ctx, o)
	j, err := openJournal(o.Journal)
	if err != nil {
		e.stop(err)
		return e.finish()
	}
	c := &copier{engine: e, from: e.wrap(from), to: e.wrap(to), j: j}
	c.inside.Store(to.CopiesFrom(from))
	err = c.all(fromKey, toKey)
	e.stop(err)
	e.wg.Wait()
	e.sweep(j, c.to)
	j.close()
	return e.finish()
}

type copier struct {
	*engine
	from, to storage.Bucket
	j        *journal
	inside   atomic.Bool // the store copies
}

func (c *copier) all(fromKey, toKey string) error {
	d := &downloader{engine: c.engine, src: c.from, prefix: folder(fromKey)}
	isFolder, first, err := d.kind(fromKey)
	if err != nil {
		return err
	}
	if !isFolder {
		key := toKey
		if key == "" || strings.HasSuffix(key, "/") {
			key += fromKey[strings.LastIndexByte(fromKey, '/')+1:]
		}
		c.meter.saw(first.Size)
		c.meter.counted.Store(true)
		c.one(first, key, nil)
		return nil
	}
	objects := list(c.ctx, c.from, d.prefix)
	defer objects.close()
	var there *listing
	if c.from.Caps().Ordered && c.to.Caps().Ordered {
		there = list(c.ctx, c.to, folder(toKey))
		defer there.close()
	}
	for {
		o, err := objects.peek()
		if o == nil || err != nil {
			c.meter.counted.Store(err == nil)
			return err
		}
		objects.skip()
		key := folder(toKey) + strings.TrimPrefix(o.Key, d.prefix)
		if key == "" { // the prefix itself, as some tools mark folders
			continue
		}
		var known *storage.Object
		if there != nil {
			if known, err = there.find(key); err != nil {
				return err
			}
			if known == nil {
				known = &storage.Object{Size: -1}
			}
		}
		c.meter.saw(o.Size)
		if !c.one(*o, key, known) {
			return nil
		}
	}
}

// insideParts is from where on a store copies in parts, which take it less time than a
// whole, and insidePart their size.
const (
	insideParts = 1 << 30
	insidePart  = 256 << 20
)

func (c *copier) one(o storage.Object, key string, known *storage.Object) bool {
	memory := o.Size
	if c.inside.Load() {
		memory = 0
	}
	if o.Size > c.o.Part && c.to.Caps().Multipart {
		return c.inParts(o.Key, func() error { return c.large(o, key, known) })
	}
	return c.small(o.Key, memory, func(ctx context.Context) error {
		same, o, err := c.same(ctx, o, key, known)
		if err != nil || same {
			return err
		}
		return c.whole(ctx, o, key)
	})
}

// same reports whether the object is there already, and notes that. It gives the object
// with all that it has asked for.
func (c *copier) same(ctx context.Context, o storage.Object, key string, known *storage.Object) (bool, storage.Object, error) {
	there := storage.Object{Size: -1}
	if known != nil {
		there = *known
	} else {
		u := &uploader{engine: c.engine, dst: c.to}
		var err error
		if there, err = u.stat(ctx, key); err != nil {
			return false, o, err
		}
	}
	is := there.Size == o.Size && bytes.Equal(there.MD5, o.MD5) && o.MD5 != nil
	if there.Size == o.Size && !is {
		// Their metadata tell.
		var err error
		if o, err = c.described(ctx, c.from, o); err != nil {
			return false, o, err
		}
		if there, err = c.described(ctx, c.to, there); err != nil {
			return false, o, err
		}
		a, b := storage.AttributesOf(o.Metadata), storage.AttributesOf(there.Metadata)
		is = a.Hash != "" && a.Hash == b.Hash || a.Hash == "" && b.Source == o.ETag
	}
	if is {
		c.engine.same(o.Size)
	}
	return is, o, nil
}

// described is an object with its metadata.
func (c *copier) described(ctx context.Context, b storage.Bucket, o storage.Object) (storage.Object, error) {
	if o.Metadata != nil {
		return o, nil
	}
	full, err := b.Stat(ctx, o.Key)
	if full.Metadata == nil {
		full.Metadata = map[string]string{}
	}
	return full, err
}

// kept is the metadata of the copy: that of the object, and what it was copied from if
// nothing else would tell that they are the same.
func kept(o storage.Object) map[string]string {
	a := storage.AttributesOf(o.Metadata)
	if a.Hash == "" && o.MD5 == nil {
		a.Source = o.ETag
	}
	return a.Metadata(o.Metadata)
}

// notInside reports whether the store refuses to copy what it could, such as between
// accounts; it is not asked again.
func (c *copier) notInside(err error) bool {
	_, denied := errors.AsType[*storage.DeniedError](err)
	_, cannot := errors.AsType[*storage.UnsupportedError](err)
	if denied || cannot {
		c.inside.Store(false)
	}
	return denied || cannot
}

// whole copies an object in one request, or two.
func (c *copier) whole(ctx context.Context, o storage.Object, key string) (err error) {
	if c.inside.Load() && o.Size <= c.to.Caps().MaxCopy {
		p := storage.PutOptions{}
		if o.MD5 == nil { // the copy may have another ETag
			if o, err = c.described(ctx, c.from, o); err != nil {
				return err
			}
			p.Metadata = kept(o)
		}
		_, err := c.to.Copy(ctx, key, storage.Source{Bucket: c.from, ID: storage.ID{Key: o.Key}, ETag: o.ETag}, p)
		if err == nil {
			c.meter.bytes(o.Size)
			c.moved(o.Size)
			return nil
		}
		if !c.notInside(err) {
			return err
		}
	}
	d := &downloader{engine: c.engine, src: c.from}
	for try := 1; ; try++ {
		content, got, err := d.fetch(ctx, o)
		if err != nil {
			return err
		}
		if got.ETag == o.ETag {
			got.Digest = o.Digest
		}
		if err := checkContent(content, got); err != nil && try < tries {
			c.free(content)
			continue
		} else if err != nil {
			c.free(content)
			return err
		}
		a := storage.AttributesOf(got.Metadata)
		if a.Hash == "" {
			a.Hash = hashOf([]sum{sumOf(content)})
		}
		_, err = c.to.Put(ctx, key, bytes.NewReader(content), storage.PutOptions{Metadata: a.Metadata(got.Metadata)})
		c.free(content)
		if err == nil {
			c.meter.bytes(got.Size)
			c.moved(got.Size)
		}
		return err
	}
}

// large copies an object in parts.
func (c *copier) large(o storage.Object, key string, known *storage.Object) error {
	is, o, err := c.same(c.ctx, o, key, known)
	if err != nil || is {
		return err
	}
	most := c.to.Caps().MaxCopy
	if c.to.Caps().CopyPart {
		most = min(most, insideParts)
	}
	if c.inside.Load() && o.Size <= most {
		if err := c.slots.take(c.ctx); err != nil {
			return err
		}
		err := c.whole(c.ctx, o, key)
		c.slots.give(0)
		if c.inside.Load() {
			return err
		}
	}
	if o, err = c.described(c.ctx, c.from, o); err != nil {
		return err
	}
	l := &large{e: c.engine, j: c.j, dst: c.to, key: key, size: o.Size, o: storage.PutOptions{Metadata: kept(o)}, what: c.from.Location().At(o.Key).String() + " " + o.ETag}
	if c.inside.Load() && c.to.Caps().CopyPart {
		streamed := *l // whose upload is another one
		l.o.Copied = true
		l.what += " inside"
		l.part = partSize(o.Size, insidePart, c.to.Caps())
		l.put = func(ctx context.Context, u storage.Upload, n int, offset, length int64) (storage.Part, error) {
			return c.to.CopyPart(ctx, u, n, storage.Source{Bucket: c.from, ID: storage.ID{Key: o.Key}, ETag: o.ETag}, offset, length)
		}
		err := l.write()
		if err == nil {
			c.moved(o.Size)
		}
		if err == nil || !c.notInside(err) {
			return err
		}
		l = &streamed
	}
	return c.stream(l, o)
}

// stream copies an object in parts through this process.
func (c *copier) stream(l *large, o storage.Object) error {
	l.part = partSize(o.Size, c.o.Part, c.to.Caps())
	l.memory = l.part
	a := storage.AttributesOf(o.Metadata)
	crcs := make([]uint32, pieces(o.Size))
	sums := make([]sum, pieces(o.Size))
	l.put = func(ctx context.Context, u storage.Upload, n int, offset, length int64) (storage.Part, error) {
		r, err := c.from.Get(ctx, o.Key, storage.GetOptions{Offset: offset, Length: length, IfMatch: o.ETag})
		if err != nil {
			return storage.Part{}, err
		}
		p := c.buffer(length)
		defer c.free(p)
		_, err = io.ReadFull(r, p)
		r.Close()
		if err != nil {
			return storage.Part{}, err
		}
		for at := int64(0); at < length; at += chunk {
			piece := p[at:min(at+chunk, length)]
			if i := (offset + at) / chunk; a.CRC != "" {
				crcs[i] = crc32.Checksum(piece, castagnoli)
			} else if a.Hash != "" {
				sums[i] = sumOf(piece)
			}
		}
		return l.putBytes(ctx, u, n, p)
	}
	l.check = func(again bool) error {
		// What an earlier process has uploaded was checked on its way.
		switch {
		case again:
			return nil
		case a.CRC != "" && crcOf(crcs, o.Size) != a.CRC,
			a.CRC == "" && strings.HasPrefix(a.Hash, "b3") && hashOf(sums) != a.Hash:
			return &localError{errContent}
		}
		return nil
	}
	err := l.write()
	if err == nil {
		c.moved(o.Size)
	}
	return err
}
