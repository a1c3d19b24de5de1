package transfer

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/blake3"

	"github.com/skypilot-go/sky/internal/storage"
)

// Download writes what is below a prefix into the folder dst, or an object to the file
// dst, and reports which of the two it was. A key is a prefix if it is "", ends in "/", or
// if anything lies below it. It is a [*storage.NotFoundError] if there is neither.
//
// An object whose key is no path below the folder is an error in the [FilesError], and
// no file; so is one below another object. Files keep the time, and the mode, of the
// files that they were uploaded from.
func Download(ctx context.Context, src storage.Bucket, key, dst string, o Options) (isFolder bool, r Report, err error) {
	e := newEngine(ctx, o)
	d := &downloader{engine: e, src: e.wrap(src), prefix: folder(key)}
	isFolder, first, err := d.kind(key)
	if err == nil && o.Place != nil && !strings.HasSuffix(dst, "/") {
		dst, err = o.Place(ctx, dst, isFolder)
	}
	if err == nil && isFolder {
		err = d.folder(dst)
	} else if err == nil {
		err = d.single(first, dst)
	}
	e.stop(err)
	e.wg.Wait()
	if d.dest != nil {
		d.dest.close()
	}
	r, err = e.finish()
	return isFolder, r, err
}

type downloader struct {
	*engine
	src    storage.Bucket
	prefix string
	dest   *dest
}

// kind finds out whether a key is a prefix or an object.
func (d *downloader) kind(key string) (isFolder bool, o storage.Object, err error) {
	if key == "" || strings.HasSuffix(key, "/") {
		_, err := d.src.List(d.ctx, storage.ListOptions{Prefix: d.prefix, Max: 1})
		return true, o, err
	}
	page, listed := d.src.List(d.ctx, storage.ListOptions{Prefix: d.prefix, Max: 1})
	if listed == nil && len(page.Objects)+len(page.Prefixes) > 0 {
		return true, o, nil
	}
	if _, denied := errors.AsType[*storage.DeniedError](listed); listed != nil && !denied {
		return false, o, listed
	}
	// Who may not list may be allowed to read.
	o, err = d.src.Stat(d.ctx, key)
	if err != nil && listed != nil {
		err = listed
	}
	return false, o, err
}

// single downloads one object to a file.
func (d *downloader) single(o storage.Object, dst string) (err error) {
	dir, name := filepath.Split(dst)
	if name == "" {
		return fmt.Errorf("%s ends in a slash, but %s is an object and no folder", dst, d.src.Location().At(o.Key))
	}
	if d.dest, err = openDest(filepath.Clean(dir + ".")); err != nil {
		return err
	}
	d.meter.saw(o.Size)
	d.meter.counted.Store(true)
	d.one(o, name)
	return nil
}

// folder downloads all that is below the prefix.
func (d *downloader) folder(dst string) (err error) {
	if d.dest, err = openDest(dst); err != nil {
		return err
	}
	l := list(d.ctx, d.src, d.prefix)
	defer l.close()
	ordered := d.src.Caps().Ordered
	var seen tree
	for {
		o, err := l.peek()
		if err != nil {
			return err
		}
		if o == nil {
			d.meter.counted.Store(true)
			return nil
		}
		l.skip()
		at, isFolder, err := localPath(o.Key, d.prefix)
		if err == nil && isFolder {
			err = d.marker(o, at)
			if err == nil {
				continue
			}
		}
		if err == nil && ordered {
			err = seen.add(at)
		}
		d.meter.saw(o.Size)
		if err != nil {
			d.result(o.Key, &FileError{o.Key, &localError{err}})
			continue
		}
		if !d.one(*o, at) {
			return nil
		}
	}
}

// marker makes the folder that an object without content stands for.
func (d *downloader) marker(o *storage.Object, at string) error {
	if o.Size > 0 {
		return errors.New("its key ends in a slash, which stands for a folder, but it has content")
	}
	if at == "" {
		return nil
	}
	return d.dest.folder(at)
}

// one begins with an object; false: the transfer is over.
func (d *downloader) one(o storage.Object, at string) bool {
	if o.Size > d.o.Part {
		return d.inParts(o.Key, func() error { return d.large(o, at) })
	}
	return d.small(o.Key, o.Size, func(ctx context.Context) error { return d.whole(ctx, o, at) })
}

// there reports whether the file is there already. It gives the object with all that it
// has asked for.
func (d *downloader) there(ctx context.Context, o storage.Object, at string) (bool, storage.Object, error) {
	info, err := d.dest.look(at)
	if err != nil || info == nil {
		return false, o, err
	}
	if info.Mode()&fs.ModeSymlink != 0 || !info.Mode().IsRegular() {
		return false, o, nil
	}
	l := local{size: info.Size(), mtime: info.ModTime(), doubtful: beforeBoot(info)}
	for {
		switch compare(l, o, d.o.Reread) {
		case same:
			if l.doubtful && l.hash != "" { // not any more
				d.dest.root.Chtimes(filepath.FromSlash(at), l.mtime, l.mtime)
			}
			return true, o, nil
		case differs:
			return false, o, nil
		case askStore:
			full, err := d.src.Stat(ctx, o.Key)
			if err != nil {
				return false, o, err
			}
			if o = full; o.Metadata == nil {
				o.Metadata = map[string]string{}
			}
		case readLocal:
			if err := d.read(ctx, at, &l, o.Digest); err != nil {
				return false, o, err
			}
		}
	}
}

// read reads a file of the destination to compare it. The memory that the caller holds
// is enough for one piece.
func (d *downloader) read(ctx context.Context, at string, l *local, like string) error {
	f, err := d.dest.root.Open(filepath.FromSlash(at))
	if err != nil {
		return &localError{err}
	}
	defer f.Close()
	p := d.buffer(min(l.size, chunk))
	defer d.free(p)
	sums := make([]sum, 0, pieces(l.size))
	whole, other := md5.New(), digester(like, l.size)
	for left := l.size; left > 0 || len(sums) == 0; left -= int64(len(p)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p = p[:min(left, int64(len(p)))]
		if _, err := io.ReadFull(f, p); err != nil {
			return &localError{err}
		}
		sums = append(sums, sumOf(p))
		if l.size <= chunk {
			whole.Write(p)
		}
		if other != nil {
			other.Write(p)
		}
	}
	l.hash = hashOf(sums)
	if l.size <= chunk {
		l.md5 = whole.Sum(nil)
	}
	if other != nil {
		l.digest = digest(like, other)
	}
	return nil
}

// notes what stands for a symbolic link: made as one if that was asked for. done: there
// is nothing else to do.
func (d *downloader) link(o storage.Object, at string) (done bool, err error) {
	target := storage.AttributesOf(o.Metadata).Link
	if target == "" || o.Size > 0 {
		return false, nil
	}
	if !d.o.Links {
		d.note("an object that stands for a symbolic link is left out", o.Key, true)
		return true, nil
	}
	if have, err := d.dest.root.Readlink(filepath.FromSlash(at)); err == nil && have == target {
		d.same(0)
		return true, nil
	}
	if err := d.dest.link(at, o, target); err != nil {
		return true, err
	}
	d.moved(0)
	return true, nil
}

// tries is how often content that is wrong is fetched again.
const tries = 3

// whole downloads an object in one request.
func (d *downloader) whole(ctx context.Context, o storage.Object, at string) error {
	is, o, err := d.there(ctx, o, at)
	if err != nil {
		return err
	}
	if is {
		d.same(o.Size)
		return nil
	}
	if err := d.dest.folder(path.Dir(at)); err != nil {
		return err
	}
	for try := 1; ; try++ {
		content, got, err := d.fetch(ctx, o)
		if err != nil {
			return err
		}
		if got.ETag == o.ETag {
			got.Digest = o.Digest // which answers may not have
		}
		if err := checkContent(content, got); err != nil {
			d.free(content)
			if try == tries {
				return err
			}
			continue
		}
		done, err := d.link(got, at)
		if err == nil && !done {
			if err = d.dest.whole(at, got, content); err == nil {
				d.meter.bytes(got.Size)
				d.moved(got.Size)
			}
		}
		d.free(content)
		return err
	}
}

// fetch reads a whole object, which may have changed since it was listed.
func (d *downloader) fetch(ctx context.Context, o storage.Object) ([]byte, storage.Object, error) {
	r, err := d.src.Get(ctx, o.Key, storage.GetOptions{})
	if err != nil {
		return nil, o, err
	}
	defer r.Close()
	if r.Object.Size > d.o.Part {
		return nil, o, &storage.ConflictError{Bucket: d.src.Location(), Key: o.Key, Err: errors.New("it has grown")}
	}
	content := d.buffer(r.Object.Size)
	if _, err := io.ReadFull(r, content); err != nil {
		return nil, o, err
	}
	return content, r.Object, nil
}

// errContent means that what has arrived is not what was uploaded.
var errContent = errors.New("its content does not have the hash that it was uploaded with")

// checkContent compares content with the hash that the object carries.
func checkContent(p []byte, o storage.Object) error {
	want := storage.AttributesOf(o.Metadata).Hash
	if h := digester(o.Digest, int64(len(p))); h != nil && want == "" {
		if h.Write(p); digest(o.Digest, h) != o.Digest {
			return &localError{errContent}
		}
	}
	if want == "" || !strings.HasPrefix(want, "b3:") || hashOf([]sum{sumOf(p)}) == want {
		return nil
	}
	if sum := md5.Sum(p); o.MD5 != nil && bytes.Equal(o.MD5, sum[:]) {
		return nil // another tool has replaced the content and kept the metadata
	}
	return &localError{errContent}
}

// large downloads an object in parts.
func (d *downloader) large(o storage.Object, at string) error {
	if err := d.memory.Acquire(d.ctx, chunk); err != nil { // to read what is there
		return context.Cause(d.ctx)
	}
	is, o, err := d.there(d.ctx, o, at)
	d.memory.Release(chunk)
	if err != nil {
		return err
	}
	if is {
		d.same(o.Size)
		return nil
	}
	if err := d.dest.folder(path.Dir(at)); err != nil {
		return err
	}
	if o.Metadata == nil {
		if o, err = d.src.Stat(d.ctx, o.Key); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		p, err := d.dest.openPart(at, o)
		if err != nil {
			return err
		}
		if err = d.fill(p, o); err == nil {
			if err = p.finish(at, o); err == nil {
				d.moved(o.Size)
			}
			return err
		}
		_, changed := errors.AsType[*storage.ConflictError](err)
		switch {
		case changed, errors.Is(err, errContent) && try == tries:
			p.discard()
			return err
		case errors.Is(err, errContent):
			p.discard() // fetched again as a whole
		default:
			p.close() // for the next transfer to go on with
			return err
		}
	}
}

// fill fetches the pieces that are missing, and checks the whole.
func (d *downloader) fill(p *partFile, o storage.Object) error {
	a := storage.AttributesOf(o.Metadata)
	want := checks{crc: a.CRC != "", sum: a.CRC == "" && strings.HasPrefix(a.Hash, "b3x8m:")}
	check := want.crc || want.sum
	sums, crcs := make([]sum, len(p.have)), make([]uint32, len(p.have))
	g := d.group()
	for i, n := 0, 0; i < len(p.have); i += n {
		n = d.span(p.have[i:])
		offset := int64(i) * chunk
		length := min(int64(n)*chunk, o.Size-offset)
		have := p.have[i]
		if have && !check {
			d.meter.bytes(length)
			continue
		}
		if !g.run(pieceMemory, length, func(ctx context.Context) (err error) {
			if !have {
				return d.fetchPieces(ctx, p, o, i, n, func(i int, s sum, crc uint32) { sums[i], crcs[i] = s, crc }, want)
			}
			sums[i], crcs[i], err = want.read(io.NewSectionReader(p.f, offset, length))
			if err == nil {
				d.meter.bytes(length)
			}
			return err
		}) {
			break
		}
	}
	if err := g.wait(); err != nil {
		return err
	}
	if want.crc && crcOf(crcs, o.Size) != a.CRC || want.sum && hashOf(sums) != a.Hash {
		return &localError{errContent}
	}
	if h := digester(o.Digest, o.Size); h != nil && !check {
		buf := blocks.Get().(*[block]byte)
		defer blocks.Put(buf)
		if _, err := io.CopyBuffer(h, struct{ io.Reader }{io.NewSectionReader(p.f, 0, o.Size)}, buf[:]); err != nil {
			return &localError{err}
		}
		if digest(o.Digest, h) != o.Digest {
			return &localError{errContent}
		}
	}
	return nil
}

// pieceMemory is what a piece holds on its way to the disk: a block, and as much in
// the connection.
const (
	pieceMemory = 2 * block
	block       = 256 << 10
)

// blocks are buffers on the way.
var blocks = sync.Pool{New: func() any { return new([block]byte) }}

// checks are what is made of the content of a piece.
type checks struct{ crc, sum bool }

// A checker makes it.
type checker struct {
	checks checks
	crc    uint32
	hash   *blake3.Hasher
}

func (c checks) begin() *checker {
	k := &checker{checks: c}
	if c.sum {
		k.hash = blake3.New()
	}
	return k
}

func (k *checker) Write(p []byte) (int, error) {
	if k.checks.crc {
		k.crc = crc32.Update(k.crc, castagnoli, p)
	}
	if k.hash != nil {
		k.hash.Write(p)
	}
	return len(p), nil
}

func (k *checker) end() (s sum, crc uint32) {
	if k.hash != nil {
		k.hash.Sum(s[:0])
	}
	return s, k.crc
}

// read checks what was written before.
func (c checks) read(r io.Reader) (s sum, crc uint32, err error) {
	p := blocks.Get().(*[block]byte)
	defer blocks.Put(p)
	k := c.begin()
	if _, err := io.CopyBuffer(k, struct{ io.Reader }{r}, p[:]); err != nil {
		return s, 0, &localError{err}
	}
	s, crc = k.end()
	return s, crc, nil
}

// mostPieces is how many pieces are fetched by one request at most.
const mostPieces = 8

// span is how many pieces the next request is for, of those that are left: fewer as the end
// comes near, so that all requests end at about the same time. A piece that is there already
// stands alone.
func (d *downloader) span(have []bool) int {
	if have[0] {
		return 1
	}
	most := min(max(1, len(have)/d.slots.most()), mostPieces)
	if next := slices.Index(have[:most], true); next > 0 {
		return next
	}
	return most
}

// fetchPieces fetches n pieces from the i-th on by one request, writes each, and calls done
// with its sums.
func (d *downloader) fetchPieces(ctx context.Context, p *partFile, o storage.Object, i, n int, done func(i int, s sum, crc uint32), c checks) error {
	at := int64(i) * chunk
	r, err := d.src.Get(ctx, o.Key, storage.GetOptions{Offset: at, Length: min(int64(n)*chunk, o.Size-at), IfMatch: o.ETag})
	if err != nil {
		return err
	}
	defer r.Close()
	buf := blocks.Get().(*[block]byte)
	defer blocks.Put(buf)
	for ; n > 0; i, n = i+1, n-1 {
		length := min(chunk, o.Size-at)
		k := c.begin()
		for left := length; left > 0; {
			b := buf[:min(left, block)]
			if _, err := io.ReadFull(r, b); err != nil {
				return err
			}
			k.Write(b)
			if _, err := p.f.WriteAt(b, at); err != nil {
				return &localError{err}
			}
			at, left = at+int64(len(b)), left-int64(len(b))
		}
		s, crc := k.end()
		if err := p.done(i); err != nil {
			return err
		}
		done(i, s, crc)
		d.meter.bytes(length)
	}
	return nil
}
