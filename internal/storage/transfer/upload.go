package transfer

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"unicode/utf8"

	"github.com/skypilot-go/sky/internal/storage"
)

// Upload puts a folder's content below a prefix, or a file at a key: under its own
// name where the key is "" or ends in "/". Folders without files leave no trace.
func Upload(ctx context.Context, src *Source, dst storage.Bucket, key string, o Options) (Report, error) {
	e := newEngine(ctx, o)
	j, err := openJournal(o.Journal)
	if err != nil {
		e.stop(err)
		return e.finish()
	}
	u := &uploader{engine: e, src: src, dst: e.wrap(dst), j: j, prefix: folder(key), key: key}
	u.all()
	e.wg.Wait()
	e.sweep(j, u.dst)
	j.close()
	return e.finish()
}

type uploader struct {
	*engine
	src         *Source
	dst         storage.Bucket
	j           *journal
	prefix, key string
}

// fewFiles are asked for one by one: a list may be long.
const fewFiles = 200

func (u *uploader) all() {
	next, stop := iter.Pull2(u.src.entries(!u.o.NoIgnore, func(kind, path string) { u.note(kind, path, true) }))
	defer stop()
	var first []entry
	more := true
	for len(first) <= fewFiles && more {
		var x entry
		if x, more = u.next(next); more {
			first = append(first, x)
		}
	}
	var there *listing
	if more && u.dst.Caps().Ordered {
		there = list(u.ctx, u.dst, u.prefix)
		defer there.close()
	}
	for _, x := range first {
		if !u.one(x, there) {
			return
		}
	}
	for more {
		var x entry
		if x, more = u.next(next); more && !u.one(x, there) {
			return
		}
	}
	u.meter.counted.Store(true)
}

// next is the next entry that can be read.
func (u *uploader) next(next func() (entry, error, bool)) (entry, bool) {
	for u.ctx.Err() == nil {
		x, err, ok := next()
		if !ok {
			return x, false
		}
		if _, rules := errors.AsType[*rulesError](err); rules {
			u.stop(err)
			break
		}
		if err != nil {
			u.result(x.path, &localError{err})
			continue
		}
		return x, true
	}
	u.stop(context.Cause(u.ctx))
	return entry{}, false
}

// one begins with an entry; false: the transfer is over.
func (u *uploader) one(x entry, there *listing) bool {
	key := u.prefix + x.path
	if u.src.file != "" && u.key != "" && u.prefix != u.key {
		key = u.key
	}
	if x.link != "" && !u.o.Links {
		u.note("a symbolic link is left out", x.path, true)
		return true
	}
	u.meter.saw(x.size)
	if !utf8.ValidString(key) {
		u.result(x.path, &localError{errors.New("its name is no UTF-8, which keys of objects are")})
		return true
	}
	var known *storage.Object // what is at the key; nil: it has to be asked for
	if there != nil {
		o, err := there.find(key)
		if err != nil {
			u.stop(err)
			return false
		}
		if known = o; o == nil {
			known = &storage.Object{Size: -1}
		}
	}
	if x.size > u.o.Part && u.dst.Caps().Multipart {
		return u.inParts(x.path, func() error { return u.large(x, key, known) })
	}
	return u.small(x.path, x.size, func(ctx context.Context) error { return u.whole(ctx, x, key, known) })
}

// ask looks at what is at a key; an object of size -1: nothing.
func (u *uploader) ask(ctx context.Context, key string, known *storage.Object) (storage.Object, error) {
	if known != nil {
		return *known, nil
	}
	return u.stat(ctx, key)
}

func (u *uploader) stat(ctx context.Context, key string) (storage.Object, error) {
	o, err := u.dst.Stat(ctx, key)
	if missing, ok := errors.AsType[*storage.NotFoundError](err); ok && missing.Key != "" {
		return storage.Object{Size: -1}, nil
	}
	return o, err
}

// changesAllowed is how often a file that changes is read again.
const changesAllowed = 3

// whole uploads a file in one request.
func (u *uploader) whole(ctx context.Context, x entry, key string, known *storage.Object) error {
	there, err := u.ask(ctx, key, known)
	if err != nil {
		return err
	}
	if x.link != "" {
		return u.link(ctx, x, key, there)
	}
	f, err := u.src.open(x)
	if err != nil {
		return err
	}
	defer f.Close()
	var content []byte
	l := local{size: f.e.size, mtime: f.e.mtime}
	for {
		switch v := compare(l, there, u.o.Reread); v {
		case same:
			u.same(l.size)
			return nil
		case askStore:
			if there, err = u.stat(ctx, key); err != nil {
				return err
			}
			continue
		case readLocal, differs:
			if content == nil {
				if content, err = u.read(f); err != nil {
					return err
				}
				defer u.free(content)
				l.size, l.mtime = f.e.size, f.e.mtime
				l.hash = hashOf([]sum{sumOf(content)})
				if there.MD5 != nil && there.Size == l.size {
					sum := md5.Sum(content)
					l.md5 = sum[:]
				}
			}
			if v == readLocal {
				continue
			}
		}
		a := storage.Attributes{ModTime: l.mtime, Mode: f.e.mode, Hash: l.hash}
		if _, err := u.dst.Put(ctx, key, bytes.NewReader(content), storage.PutOptions{Metadata: a.Metadata(nil)}); err != nil {
			return err
		}
		u.meter.bytes(l.size)
		u.moved(l.size)
		return nil
	}
}

// read reads a file as a whole, again if it changes meanwhile.
func (u *uploader) read(f *file) ([]byte, error) {
	for try := 1; ; try++ {
		if u.dst.Caps().Multipart && f.e.size > u.o.Part {
			return nil, &localError{errChanged} // it has grown since it was listed
		}
		content := u.buffer(f.e.size)
		err := f.read(content, 0)
		if err == nil {
			err = f.unchanged()
		}
		if err == nil || !errors.Is(err, errChanged) || try == changesAllowed {
			return content, err
		}
		info, err := f.Stat()
		if err != nil {
			return nil, &localError{err}
		}
		f.e = entryOf(f.e.path, info)
	}
}

// link keeps a symbolic link.
func (u *uploader) link(ctx context.Context, x entry, key string, there storage.Object) error {
	if there.Size == 0 && there.Metadata == nil {
		var err error
		if there, err = u.stat(ctx, key); err != nil {
			return err
		}
	}
	if there.Size == 0 && storage.AttributesOf(there.Metadata).Link == x.link {
		u.same(0)
		return nil
	}
	a := storage.Attributes{ModTime: x.mtime, Link: x.link}
	if _, err := u.dst.Put(ctx, key, bytes.NewReader(nil), storage.PutOptions{Metadata: a.Metadata(nil)}); err != nil {
		return err
	}
	u.moved(0)
	return nil
}

// marks are what is known of the pieces of a large file.
type marks struct {
	sums []sum
	crcs []uint32 // quicker to compare when a piece is read again
}

// marksOf reads a whole file, several pieces at the same time.
func (u *uploader) marksOf(f *file) (marks, error) {
	m := marks{make([]sum, pieces(f.e.size)), make([]uint32, pieces(f.e.size))}
	g := u.group()
	for i := range m.sums {
		offset := int64(i) * chunk
		length := min(chunk, f.e.size-offset)
		if !g.run(length, 0, func(context.Context) error {
			p := u.buffer(length)
			defer u.free(p)
			if err := f.read(p, offset); err != nil {
				return err
			}
			m.sums[i], m.crcs[i] = sumOf(p), crc32.Checksum(p, castagnoli)
			return nil
		}) {
			break
		}
	}
	return m, g.wait()
}

// large uploads a file in parts.
func (u *uploader) large(x entry, key string, known *storage.Object) error {
	there, err := u.ask(u.ctx, key, known)
	if err != nil {
		return err
	}
	f, err := u.src.open(x)
	if err != nil {
		return err
	}
	defer f.Close()
	l := local{size: f.e.size, mtime: f.e.mtime}
	var m marks
	for {
		switch v := compare(l, there, u.o.Reread); v {
		case same:
			u.same(l.size)
			return nil
		case askStore:
			if there, err = u.stat(u.ctx, key); err != nil {
				return err
			}
			continue
		case readLocal, differs:
			if m.sums == nil {
				if m, err = u.marksOf(f); err != nil {
					return err
				}
				l.hash = hashOf(m.sums)
			}
			if v == readLocal {
				continue
			}
		}
		break
	}
	a := storage.Attributes{ModTime: l.mtime, Mode: f.e.mode, Hash: l.hash, CRC: crcOf(m.crcs, l.size)}
	put := &large{
		e: u.engine, j: u.j, dst: u.dst, key: key, size: l.size, part: partSize(l.size, u.o.Part, u.dst.Caps()),
		o: storage.PutOptions{Metadata: a.Metadata(nil)}, what: l.hash,
	}
	if put.part > u.o.Memory/4 {
		// Parts that are too large for the memory are read twice: for the checksum and
		// to be sent.
		put.memory = 1 << 20
		put.put = func(ctx context.Context, up storage.Upload, n int, offset, length int64) (storage.Part, error) {
			return u.dst.PutPart(ctx, up, n, io.NewSectionReader(f, offset, length))
		}
	} else {
		put.memory = put.part
		put.put = func(ctx context.Context, up storage.Upload, n int, offset, length int64) (storage.Part, error) {
			p := u.buffer(length)
			defer u.free(p)
			if err := f.read(p, offset); err != nil {
				return storage.Part{}, err
			}
			for at := int64(0); at < length; at += chunk {
				if crc32.Checksum(p[at:min(at+chunk, length)], castagnoli) != m.crcs[(offset+at)/chunk] {
					return storage.Part{}, &localError{errChanged}
				}
			}
			return put.putBytes(ctx, up, n, p)
		}
	}
	if err := put.write(); err != nil {
		return err
	}
	if err := f.unchanged(); err != nil {
		return fmt.Errorf("%w; what was uploaded is how it was before", err)
	}
	u.moved(l.size)
	return nil
}
