// Package memory is an object store in memory, for tests: all that the contract of
// [storage.Bucket] asks for, and through [Store.ServeS3] a server that speaks the
// API of S3.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skypilot-go/sky/internal/storage"
)

// A Store has buckets. Its zero value has none yet.
type Store struct {
	// MinPart is the least size of parts but the last; it is not to be changed
	// while the store is used.
	MinPart int64
	// Region is where buckets are; "" for "us-east-1".
	Region string

	mu      sync.Mutex
	buckets map[string]*bucket
	ids     int
}

type bucket struct {
	made      time.Time
	tags      map[string]string
	versioned bool
	objects   map[string][]*version // the newest last
	keys      []string              // in order, if sorted
	sorted    bool
	uploads   map[string]*upload
}

type version struct {
	storage.Object
	data        []byte
	contentType string
	generation  string // which Google's API takes for an ETag and a version
	deleted     time.Time
}

// is reports whether an ETag is the version's.
func (v *version) is(etag string) bool { return etag == v.ETag || etag == v.generation }

type upload struct {
	storage.Upload
	o     storage.PutOptions
	parts map[int]part
}

type part struct {
	data []byte
	sum  [md5.Size]byte
}

// Bucket is a bucket of the store, which need not exist.
func (s *Store) Bucket(name string) *Bucket {
	region := cmp.Or(s.Region, "us-east-1")
	return &Bucket{store: s, at: storage.Location{Store: storage.S3, Region: region, Bucket: name}}
}

// KeepVersions makes a bucket keep the versions of its objects.
func (s *Store) KeepVersions(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[name].versioned = true
}

// Bucket implements [storage.Bucket].
type Bucket struct {
	store *Store
	at    storage.Location
}

var _ storage.Bucket = (*Bucket)(nil)

// Location names the bucket.
func (b *Bucket) Location() storage.Location { return b.at }

// Caps are everything.
func (b *Bucket) Caps() storage.Caps {
	return storage.Caps{
		Create: true, Tags: true, Multipart: true, CopyPart: true, Uploads: true, Versions: true, Conditional: true, ConditionalParts: true, Metadata: true, Ordered: true,
		MinPart: b.store.MinPart, MaxPart: 5 << 30, MaxParts: 10_000, MaxPut: 5 << 30, MaxCopy: 5 << 30, MaxRemove: 1000, MaxKey: 1024, MaxMetadata: 2048,
	}
}

// use calls f with the bucket, locked.
func (b *Bucket) use(ctx context.Context, f func(*bucket) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	x := b.store.buckets[b.at.Bucket]
	if x == nil {
		return &storage.NotFoundError{Bucket: b.at}
	}
	return f(x)
}

func (s *Store) id() string {
	s.ids++
	return strconv.Itoa(10_000_000 + s.ids)
}

// Head describes the bucket.
func (b *Bucket) Head(ctx context.Context) (info storage.BucketInfo, err error) {
	err = b.use(ctx, func(x *bucket) error {
		info = storage.BucketInfo{Region: b.at.Region, Created: x.made}
		return nil
	})
	return info, err
}

// Create makes the bucket.
func (b *Bucket) Create(ctx context.Context, tags map[string]string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	if b.store.buckets == nil {
		b.store.buckets = map[string]*bucket{}
	}
	x := b.store.buckets[b.at.Bucket]
	if x == nil {
		x = &bucket{made: time.Now(), tags: map[string]string{}, objects: map[string][]*version{}, uploads: map[string]*upload{}}
		b.store.buckets[b.at.Bucket] = x
	}
	if len(x.tags) == 0 && tags != nil {
		x.tags = maps.Clone(tags)
	}
	return nil
}

// Delete deletes the bucket.
func (b *Bucket) Delete(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	if x := b.store.buckets[b.at.Bucket]; x != nil && len(x.objects) > 0 {
		return &storage.BucketNotEmptyError{Bucket: b.at}
	}
	delete(b.store.buckets, b.at.Bucket)
	return nil
}

// Tags are the bucket's tags.
func (b *Bucket) Tags(ctx context.Context) (tags map[string]string, err error) {
	err = b.use(ctx, func(x *bucket) error { tags = maps.Clone(x.tags); return nil })
	return tags, err
}

// SetTags replaces them.
func (b *Bucket) SetTags(ctx context.Context, tags map[string]string) error {
	return b.use(ctx, func(x *bucket) error {
		x.tags = map[string]string{}
		maps.Copy(x.tags, tags)
		return nil
	})
}

// current is the version that readers see.
func (x *bucket) current(key string) *version {
	all := x.objects[key]
	if len(all) == 0 || all[len(all)-1].DeleteMarker {
		return nil
	}
	return all[len(all)-1]
}

// order is all keys in order.
func (x *bucket) order() []string {
	if !x.sorted {
		x.keys = slices.AppendSeq(x.keys[:0], maps.Keys(x.objects))
		slices.Sort(x.keys)
		x.sorted = true
	}
	return x.keys
}

func (x *bucket) add(key string, v *version) {
	if _, known := x.objects[key]; !known {
		x.sorted = false
	}
	if last := x.objects[key]; len(last) > 0 {
		last[len(last)-1].deleted = time.Now()
	}
	if x.versioned {
		x.objects[key] = append(x.objects[key], v)
	} else {
		v.Version = unversioned
		kept := slices.DeleteFunc(x.objects[key], func(v *version) bool { return v.Version == unversioned })
		x.objects[key] = append(kept, v)
	}
}

// unversioned is the version of what was written while a bucket kept no versions;
// the next one without an id replaces it.
const unversioned = "null"

// seen is the object as readers see it.
func (v *version) seen() storage.Object {
	o := v.Object
	if o.Version == unversioned {
		o.Version = ""
	}
	return o
}

func page(o storage.ListOptions) int {
	if o.Max <= 0 || o.Max > 1000 {
		return 1000
	}
	return o.Max
}

// List lists objects. Its tokens are the last key or prefix that was listed.
func (b *Bucket) List(ctx context.Context, o storage.ListOptions) (p storage.Page, err error) {
	err = b.use(ctx, func(x *bucket) error {
		keys, last, n := x.order(), "", 0
		i, _ := slices.BinarySearch(keys, max(o.Prefix, o.Token, o.After))
		if i < len(keys) && o.After != "" && keys[i] == o.After {
			i++
		}
		for ; i < len(keys) && strings.HasPrefix(keys[i], o.Prefix); i++ {
			key := keys[i]
			if o.Token != "" && (key <= o.Token || o.Delimiter != "" && strings.HasSuffix(o.Token, o.Delimiter) && strings.HasPrefix(key, o.Token)) {
				continue
			}
			v := x.current(key)
			if v == nil {
				continue
			}
			prefix, grouped := level(key, o)
			if grouped && len(p.Prefixes) > 0 && p.Prefixes[len(p.Prefixes)-1] == prefix {
				continue
			}
			if n++; n > page(o) {
				p.Next = last
				return nil
			}
			if grouped {
				p.Prefixes, last = append(p.Prefixes, prefix), prefix
				continue
			}
			listed := v.seen()
			listed.Metadata = nil
			p.Objects, last = append(p.Objects, listed), key
		}
		return nil
	})
	return p, err
}

// level is the prefix that stands for a key in a list of one level.
func level(key string, o storage.ListOptions) (prefix string, grouped bool) {
	if o.Delimiter == "" {
		return "", false
	}
	at := strings.Index(key[len(o.Prefix):], o.Delimiter)
	if at < 0 {
		return "", false
	}
	return key[:len(o.Prefix)+at+len(o.Delimiter)], true
}

// Versions lists all versions. Its tokens are how many were listed.
func (b *Bucket) Versions(ctx context.Context, o storage.ListOptions) (p storage.Page, err error) {
	err = b.use(ctx, func(x *bucket) error {
		// A token is the last key and version; deleting what was listed does not
		// change what follows.
		key, version, _ := strings.Cut(o.Token, "\x00")
		for _, k := range x.order() {
			if !strings.HasPrefix(k, o.Prefix) || k < key {
				continue
			}
			all := x.objects[k]
			for i, v := range slices.Backward(all) {
				if k == key && v.Version >= version {
					continue
				}
				if len(p.Objects) == page(o) {
					last := p.Objects[len(p.Objects)-1]
					p.Next = last.Key + "\x00" + last.Version
					return nil
				}
				listed := v.Object
				listed.Metadata, listed.Old = nil, i != len(all)-1
				p.Objects = append(p.Objects, listed)
			}
		}
		return nil
	})
	return p, err
}

// find is an object or a version of it.
func (b *Bucket) find(x *bucket, id storage.ID) (*version, error) {
	if id.Version == "" {
		if v := x.current(id.Key); v != nil {
			return v, nil
		}
	}
	for _, v := range x.objects[id.Key] {
		if id.Version != "" && (v.Version == id.Version || v.generation == id.Version) && !v.DeleteMarker {
			return v, nil
		}
	}
	return nil, &storage.NotFoundError{Bucket: b.at, Key: id.Key}
}

// Stat describes an object.
func (b *Bucket) Stat(ctx context.Context, key string) (o storage.Object, err error) {
	err = b.use(ctx, func(x *bucket) error {
		v, err := b.find(x, storage.ID{Key: key})
		if err == nil {
			o = v.seen()
		}
		return err
	})
	return o, err
}

// Get reads an object.
func (b *Bucket) Get(ctx context.Context, key string, g storage.GetOptions) (r storage.Reader, err error) {
	err = b.use(ctx, func(x *bucket) error {
		v, err := b.find(x, storage.ID{Key: key, Version: g.Version})
		if err != nil {
			return err
		}
		if g.IfMatch != "" && !v.is(g.IfMatch) {
			return &storage.ConflictError{Bucket: b.at, Key: key}
		}
		data := v.data
		if g.Offset > 0 || g.Length > 0 {
			if g.Offset >= int64(len(data)) {
				return &storage.InvalidError{Bucket: b.at, Key: key, Err: fmt.Errorf("it has %d bytes and is read at %d", len(data), g.Offset)}
			}
			data = data[g.Offset:]
			if g.Length > 0 {
				data = data[:min(g.Length, int64(len(data)))]
			}
		}
		r = storage.Reader{ReadCloser: &content{ctx, bytes.NewReader(data)}, Object: v.seen()}
		return nil
	})
	return r, err
}

// content ends with its context.
type content struct {
	ctx context.Context // of the call that it belongs to
	*bytes.Reader
}

func (c *content) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.Reader.Read(p)
}

// WriteTo goes by Read.
func (c *content) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{c})
}

func (c *content) Close() error { return nil }

func (b *Bucket) checkKey(key string) error {
	if key == "" || len(key) > b.Caps().MaxKey {
		return &storage.InvalidError{Bucket: b.at, Key: key, Err: fmt.Errorf("a key has 1 to %d bytes", b.Caps().MaxKey)}
	}
	return nil
}

// check compares the conditions of a write.
func (b *Bucket) check(x *bucket, key string, o storage.PutOptions) error {
	v := x.current(key)
	if o.IfAbsent && v != nil || o.IfMatch != "" && (v == nil || !v.is(o.IfMatch)) {
		return &storage.ConflictError{Bucket: b.at, Key: key}
	}
	return nil
}

func (b *Bucket) write(x *bucket, key string, data []byte, etag string, o storage.PutOptions) storage.Object {
	id := b.store.id()
	v := &version{data: data, contentType: o.ContentType, generation: id, Object: storage.Object{
		Key: key, Size: int64(len(data)), ETag: etag, Modified: time.Now(), Version: id, Metadata: map[string]string{},
	}}
	maps.Copy(v.Metadata, o.Metadata)
	if sum, err := hex.DecodeString(etag); err == nil && len(sum) == md5.Size {
		v.MD5 = sum
	}
	x.add(key, v)
	return v.seen()
}

func whole(body io.ReadSeeker) ([]byte, error) {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(body)
}

// Put writes an object.
func (b *Bucket) Put(ctx context.Context, key string, body io.ReadSeeker, p storage.PutOptions) (o storage.Object, err error) {
	if err := b.checkKey(key); err != nil {
		return o, err
	}
	data, err := whole(body)
	if err != nil {
		return o, err
	}
	sum := md5.Sum(data)
	err = b.use(ctx, func(x *bucket) error {
		if err := b.check(x, key, p); err != nil {
			return err
		}
		o = b.write(x, key, data, hex.EncodeToString(sum[:]), p)
		return nil
	})
	return o, err
}

// CopiesFrom reports whether the other bucket is of the same store.
func (b *Bucket) CopiesFrom(other storage.Bucket) bool {
	from, ok := storage.Driver(other).(*Bucket)
	return ok && from.store == b.store
}

// source is the object to copy, locked already.
func (b *Bucket) source(from storage.Source) (*version, error) {
	f := storage.Driver(from.Bucket).(*Bucket)
	x := b.store.buckets[f.at.Bucket]
	if x == nil {
		return nil, &storage.NotFoundError{Bucket: f.at}
	}
	v, err := f.find(x, from.ID)
	if err == nil && from.ETag != "" && !v.is(from.ETag) {
		err = &storage.ConflictError{Bucket: f.at, Key: from.Key}
	}
	return v, err
}

// Copy copies an object.
func (b *Bucket) Copy(ctx context.Context, key string, from storage.Source, p storage.PutOptions) (o storage.Object, err error) {
	if err := b.checkKey(key); err != nil {
		return o, err
	}
	err = b.use(ctx, func(x *bucket) error {
		v, err := b.source(from)
		if err == nil {
			err = b.check(x, key, p)
		}
		if err != nil {
			return err
		}
		if p.Metadata == nil {
			p.Metadata, p.ContentType = v.Metadata, v.contentType
		}
		sum := md5.Sum(v.data)
		o = b.write(x, key, v.data, hex.EncodeToString(sum[:]), p)
		return nil
	})
	return o, err
}

// Remove deletes objects.
func (b *Bucket) Remove(ctx context.Context, ids []storage.ID) error {
	return b.use(ctx, func(x *bucket) error {
		if len(ids) > b.Caps().MaxRemove {
			return &storage.InvalidError{Bucket: b.at, Err: fmt.Errorf("%d objects are too many", len(ids))}
		}
		for _, id := range ids {
			all, known := x.objects[id.Key]
			switch {
			case !known:
			case id.Version == "" && x.versioned:
				x.objects[id.Key] = append(all, &version{Object: storage.Object{Key: id.Key, Version: b.store.id(), Modified: time.Now(), DeleteMarker: true}})
			default:
				id.Version = cmp.Or(id.Version, unversioned)
				all = slices.DeleteFunc(all, func(v *version) bool { return v.Version == id.Version || v.generation == id.Version })
				if x.objects[id.Key] = all; len(all) == 0 {
					delete(x.objects, id.Key)
					x.sorted = false
				}
			}
		}
		return nil
	})
}

// Start begins an upload.
func (b *Bucket) Start(ctx context.Context, key string, o storage.PutOptions) (u storage.Upload, err error) {
	if err := b.checkKey(key); err != nil {
		return u, err
	}
	err = b.use(ctx, func(x *bucket) error {
		u = storage.Upload{Key: key, ID: "upload-" + b.store.id(), Copied: o.Copied}
		x.uploads[u.ID] = &upload{Upload: storage.Upload{Key: key, ID: u.ID, Started: time.Now()}, o: o, parts: map[int]part{}}
		return nil
	})
	return u, err
}

// upload calls f with an upload that has not ended.
func (b *Bucket) upload(ctx context.Context, u storage.Upload, f func(*bucket, *upload) error) error {
	return b.use(ctx, func(x *bucket) error {
		up := x.uploads[u.ID]
		if up == nil || up.Key != u.Key {
			return &storage.NotFoundError{Bucket: b.at, Key: u.Key, Upload: u.ID}
		}
		return f(x, up)
	})
}

// PutPart uploads a part.
func (b *Bucket) PutPart(ctx context.Context, u storage.Upload, n int, body io.ReadSeeker) (storage.Part, error) {
	data, err := whole(body)
	if err != nil {
		return storage.Part{}, err
	}
	return b.putPart(ctx, u, n, func() ([]byte, error) { return data, nil })
}

func (b *Bucket) putPart(ctx context.Context, u storage.Upload, n int, data func() ([]byte, error)) (p storage.Part, err error) {
	err = b.upload(ctx, u, func(_ *bucket, up *upload) error {
		if n < 1 || n > b.Caps().MaxParts {
			return &storage.InvalidError{Bucket: b.at, Key: u.Key, Err: fmt.Errorf("there is no part %d", n)}
		}
		data, err := data()
		if err != nil {
			return err
		}
		up.parts[n] = part{data, md5.Sum(data)}
		p = up.describe(n)
		return nil
	})
	return p, err
}

func (u *upload) describe(n int) storage.Part {
	p := u.parts[n]
	return storage.Part{Number: n, Size: int64(len(p.data)), ETag: hex.EncodeToString(p.sum[:])}
}

// CopyPart makes a part of a range of an object.
func (b *Bucket) CopyPart(ctx context.Context, u storage.Upload, n int, from storage.Source, offset, length int64) (storage.Part, error) {
	err := b.upload(ctx, u, func(_ *bucket, up *upload) error {
		if !up.o.Copied { // servers refuse it that want checksums of all parts and make none of copies
			return &storage.InvalidError{Bucket: b.at, Key: u.Key, Err: fmt.Errorf("part %d has no checksum: the upload was begun without Copied", n)}
		}
		return nil
	})
	if err != nil {
		return storage.Part{}, err
	}
	return b.putPart(ctx, u, n, func() ([]byte, error) {
		v, err := b.source(from)
		if err != nil {
			return nil, err
		}
		if offset < 0 || length < 1 || offset+length > int64(len(v.data)) {
			return nil, &storage.InvalidError{Bucket: b.at, Key: from.Key, Err: fmt.Errorf("it has %d bytes", len(v.data))}
		}
		return v.data[offset : offset+length], nil
	})
}

// Parts lists the parts.
func (b *Bucket) Parts(ctx context.Context, u storage.Upload) (parts []storage.Part, err error) {
	err = b.upload(ctx, u, func(_ *bucket, up *upload) error {
		for _, n := range slices.Sorted(maps.Keys(up.parts)) {
			parts = append(parts, up.describe(n))
		}
		return nil
	})
	return parts, err
}

// Complete makes the object.
func (b *Bucket) Complete(ctx context.Context, u storage.Upload, parts []storage.Part, p storage.PutOptions) (o storage.Object, err error) {
	err = b.upload(ctx, u, func(x *bucket, up *upload) error {
		bad := func(format string, args ...any) error {
			return &storage.InvalidError{Bucket: b.at, Key: u.Key, Err: fmt.Errorf(format, args...)}
		}
		if len(parts) == 0 {
			return bad("an upload without parts makes no object")
		}
		var data, sums []byte
		for i, given := range parts {
			have, ok := up.parts[given.Number]
			if !ok || up.describe(given.Number).ETag != given.ETag {
				return bad("there is no such part %d", given.Number)
			}
			if i > 0 && given.Number <= parts[i-1].Number {
				return bad("part %d is out of order", given.Number)
			}
			if i < len(parts)-1 && int64(len(have.data)) < b.store.MinPart {
				return bad("part %d is too small", given.Number)
			}
			data, sums = append(data, have.data...), append(sums, have.sum[:]...)
		}
		if err := b.check(x, u.Key, storage.PutOptions{IfMatch: p.IfMatch, IfAbsent: p.IfAbsent}); err != nil {
			return err
		}
		sum := md5.Sum(sums)
		o = b.write(x, u.Key, data, hex.EncodeToString(sum[:])+"-"+strconv.Itoa(len(parts)), up.o)
		delete(x.uploads, u.ID)
		return nil
	})
	return o, err
}

// Abort ends an upload.
func (b *Bucket) Abort(ctx context.Context, u storage.Upload) error {
	return b.use(ctx, func(x *bucket) error { delete(x.uploads, u.ID); return nil })
}

// Uploads lists unfinished uploads.
func (b *Bucket) Uploads(ctx context.Context, o storage.ListOptions) (p storage.UploadPage, err error) {
	err = b.use(ctx, func(x *bucket) error {
		for _, id := range slices.Sorted(maps.Keys(x.uploads)) {
			up := x.uploads[id]
			if !strings.HasPrefix(up.Key, o.Prefix) || id <= o.Token {
				continue
			}
			if len(p.Uploads) == page(o) {
				p.Next = p.Uploads[len(p.Uploads)-1].ID
				return nil
			}
			p.Uploads = append(p.Uploads, up.Upload)
		}
		return nil
	})
	return p, err
}
