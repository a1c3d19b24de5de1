package azure

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// checkKey refuses keys that the store has not, or takes for others.
func (b *Bucket) checkKey(key string) error {
	why := ""
	switch {
	case key == "" || len(key) > b.Caps().MaxKey:
		why = fmt.Sprintf("a key has 1 to %d bytes, this one has %d", b.Caps().MaxKey, len(key))
	case strings.Contains(key, `\`):
		why = "the store takes a backslash for a slash"
	case strings.HasSuffix(key, "."), strings.HasSuffix(key, "//"), strings.Contains(key, "./"): // one slash marks a folder
		why = "the store drops dots and slashes at the end of a name"
	case !utf8.ValidString(key):
		why = "a key is UTF-8"
	default:
		return nil
	}
	return &storage.InvalidError{Bucket: b.At, Key: key, Err: errors.New(why)}
}

// blob is a call about a blob.
func (b *Bucket) blob(method, key, permission string, query ...string) rest.Call {
	c := rest.Call{Method: method, Path: "/" + url.PathEscape(b.At.Bucket) + "/" + rest.Escaped(key), Query: url.Values{}, Header: http.Header{}, Key: key, Permission: permission}
	for i := 0; i < len(query); i += 2 {
		c.Query.Set(query[i], query[i+1])
	}
	return c
}

// described is what the headers of an answer say.
func described(key string, size int64, h http.Header) storage.Object {
	o := storage.Object{
		Key: key, Size: size, ETag: strings.Trim(h.Get("ETag"), `"`), Modified: parseTime(h.Get("Last-Modified")),
		Version: h.Get("X-Ms-Version-Id"), Metadata: metadataOf(h),
	}
	for _, name := range []string{"X-Ms-Blob-Content-Md5", "Content-Md5"} { // the first is there for ranges
		if sum, err := base64.StdEncoding.DecodeString(h.Get(name)); err == nil && len(sum) == md5.Size && o.MD5 == nil && (name != "Content-Md5" || h.Get("Content-Range") == "") {
			o.MD5 = sum
		}
	}
	return o
}

// Stat asks for a blob.
func (b *Bucket) Stat(ctx context.Context, key string) (storage.Object, error) {
	if err := b.checkKey(key); err != nil {
		return storage.Object{}, err
	}
	h, err := b.do(ctx, b.blob(http.MethodHead, key, reader))
	if err != nil {
		return storage.Object{}, err
	}
	size, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil {
		return storage.Object{}, b.Broken(ctx, fmt.Errorf("the answer does not say how long %q is", key))
	}
	return described(key, size, h), nil
}

// Get reads a blob.
func (b *Bucket) Get(ctx context.Context, key string, g storage.GetOptions) (storage.Reader, error) {
	if err := b.checkKey(key); err != nil {
		return storage.Reader{}, err
	}
	c := b.blob(http.MethodGet, key, reader)
	if g.Version != "" {
		c.Query.Set("versionid", g.Version)
	}
	if g.IfMatch != "" {
		c.Header.Set("If-Match", quoted(g.IfMatch))
	}
	if r := rest.Range(g); r != "" {
		c.Header.Set("Range", r)
	}
	answer, err := b.Send(ctx, c)
	if _, conflict := errors.AsType[*storage.ConflictError](err); conflict {
		// A condition on what is not there at all.
		if _, missing := b.Stat(ctx, key); missing != nil {
			err = missing
		}
	}
	if err != nil {
		return storage.Reader{}, err
	}
	size, err := b.Size(ctx, key, answer, g)
	if err != nil {
		return storage.Reader{}, err
	}
	return storage.Reader{ReadCloser: b.Content(ctx, key, answer), Object: described(key, size, answer.Header)}, nil
}

func quoted(etag string) string { return `"` + etag + `"` }

// conditions are headers for those of a write.
func conditions(c *rest.Call, p storage.PutOptions) {
	if p.IfAbsent {
		c.Header.Set("If-None-Match", "*")
	}
	if p.IfMatch != "" {
		c.Header.Set("If-Match", quoted(p.IfMatch))
	}
	c.Conditional = c.Conditional || p.IfAbsent || p.IfMatch != ""
}

// sum reads a body: its length and its checksum.
func sum(body io.ReadSeeker) (n int64, md string, err error) {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return 0, "", err
	}
	h := md5.New()
	if n, err = io.Copy(h, body); err != nil {
		return 0, "", err
	}
	return n, base64.StdEncoding.EncodeToString(h.Sum(nil)), nil
}

// Put writes a blob.
func (b *Bucket) Put(ctx context.Context, key string, body io.ReadSeeker, p storage.PutOptions) (storage.Object, error) {
	if err := b.checkKey(key); err != nil {
		return storage.Object{}, err
	}
	size, md, err := sum(body)
	if err != nil {
		return storage.Object{}, err
	}
	c := b.blob(http.MethodPut, key, contributor)
	c.Body, c.Length = func() io.Reader { return rest.Rewound(body) }, size
	c.Header.Set("X-Ms-Blob-Type", "BlockBlob")
	c.Header.Set("Content-MD5", md)
	if p.ContentType != "" {
		c.Header.Set("Content-Type", p.ContentType)
	}
	setMetadata(c.Header, p.Metadata)
	conditions(&c, p)
	h, err := b.do(ctx, c)
	if err != nil {
		return storage.Object{}, err
	}
	return written(key, size, h, p), nil
}

// written describes a blob by the answer to its writing.
func written(key string, size int64, h http.Header, p storage.PutOptions) storage.Object {
	o := described(key, size, h)
	o.Metadata = p.Metadata
	return o
}

// A copy of a blob of the same account ends within the request, or soon.
const copyPoll = time.Second

// Copy copies a blob inside the account.
func (b *Bucket) Copy(ctx context.Context, key string, from storage.Source, p storage.PutOptions) (storage.Object, error) {
	src := storage.Driver(from.Bucket).(*Bucket)
	if err := errors.Join(b.checkKey(key), src.checkKey(from.Key)); err != nil {
		return storage.Object{}, err
	}
	o, err := src.Stat(ctx, from.Key) // a copy of nothing is refused in words that say less
	if err != nil {
		return storage.Object{}, err
	}
	if from.ETag != "" && from.Version == "" && o.ETag != from.ETag {
		return storage.Object{}, &storage.ConflictError{Bucket: src.At, Key: from.Key}
	}
	c := b.blob(http.MethodPut, key, contributor)
	address := src.Endpoint + "/" + url.PathEscape(src.At.Bucket) + "/" + rest.Escaped(from.Key)
	q := url.Values{}
	if src.sas != nil {
		q = src.sas()
	}
	if from.Version != "" {
		q.Set("versionid", from.Version)
	}
	if len(q) > 0 {
		address += "?" + q.Encode()
	}
	c.Header.Set("X-Ms-Copy-Source", address)
	if from.ETag != "" {
		c.Header.Set("X-Ms-Source-If-Match", quoted(from.ETag))
	}
	// Without any the copy has that of the source.
	setMetadata(c.Header, p.Metadata)
	conditions(&c, p)
	h, err := b.do(ctx, c)
	for err == nil && h.Get("X-Ms-Copy-Status") == "pending" {
		select {
		case <-time.After(copyPoll):
		case <-ctx.Done():
			return storage.Object{}, context.Cause(ctx)
		}
		h, err = b.do(ctx, b.blob(http.MethodHead, key, reader))
	}
	if err != nil {
		return storage.Object{}, err
	}
	if s := h.Get("X-Ms-Copy-Status"); s != "" && s != "success" {
		return storage.Object{}, &storage.UnavailableError{Bucket: b.At, Err: fmt.Errorf("copying %q: %s %s", from.Key, s, h.Get("X-Ms-Copy-Status-Description"))}
	}
	if p.Metadata != nil && len(p.Metadata) == 0 {
		if h, err = b.do(ctx, b.blob(http.MethodPut, key, contributor, "comp", "metadata")); err != nil {
			return storage.Object{}, err
		}
	}
	return written(key, o.Size, h, p), nil
}

// CopyPart is not possible with the credentials of every caller.
func (b *Bucket) CopyPart(context.Context, storage.Upload, int, storage.Source, int64, int64) (storage.Part, error) {
	return storage.Part{}, &storage.UnsupportedError{Store: storage.Azure, Op: "copy parts of objects"}
}

// An upload is a name that its blocks begin with: nothing is sent to begin one.

// Start begins an upload.
func (b *Bucket) Start(ctx context.Context, key string, _ storage.PutOptions) (storage.Upload, error) {
	if err := b.checkKey(key); err != nil {
		return storage.Upload{}, err
	}
	// Where there is no container it is found out sooner than by the first part.
	if _, err := b.Head(ctx); err != nil {
		if _, denied := errors.AsType[*storage.DeniedError](err); !denied {
			return storage.Upload{}, err
		}
	}
	return storage.Upload{Key: key, ID: rand.Text()[:16]}, nil
}

// block is the id of a part: all of a blob have one length.
func block(u storage.Upload, n int) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s-%06d", u.ID, n))
}

// PutPart uploads a block.
func (b *Bucket) PutPart(ctx context.Context, u storage.Upload, n int, body io.ReadSeeker) (storage.Part, error) {
	size, md, err := sum(body)
	if err != nil {
		return storage.Part{}, err
	}
	id := block(u, n)
	c := b.blob(http.MethodPut, u.Key, contributor, "comp", "block", "blockid", id)
	c.Upload = u.ID
	c.Body, c.Length = func() io.Reader { return rest.Rewound(body) }, size
	c.Header.Set("Content-MD5", md)
	if _, err := b.do(ctx, c); err != nil {
		return storage.Part{}, err
	}
	return storage.Part{Number: n, Size: size, ETag: id}, nil
}

// Parts lists the blocks that have the upload's name.
func (b *Bucket) Parts(ctx context.Context, u storage.Upload) ([]storage.Part, error) {
	var out struct {
		Uncommitted struct {
			Block []struct {
				Name string
				Size int64
			}
		} `xml:"UncommittedBlocks"`
	}
	c := b.blob(http.MethodGet, u.Key, contributor, "comp", "blocklist", "blocklisttype", "uncommitted")
	err := b.XML(ctx, c, &out)
	if missing, ok := errors.AsType[*storage.NotFoundError](err); ok && missing.Key != "" {
		return nil, nil // no block was uploaded yet
	}
	if err != nil {
		return nil, err
	}
	var parts []storage.Part
	for _, x := range out.Uncommitted.Block {
		name, err := base64.StdEncoding.DecodeString(x.Name)
		number, ok := strings.CutPrefix(string(name), u.ID+"-")
		if err != nil || !ok {
			continue // of another upload
		}
		if n, err := strconv.Atoi(number); err == nil {
			parts = append(parts, storage.Part{Number: n, Size: x.Size, ETag: x.Name})
		}
	}
	slices.SortFunc(parts, func(a, b storage.Part) int { return a.Number - b.Number })
	return parts, nil
}

// Complete makes the blob of the blocks.
func (b *Bucket) Complete(ctx context.Context, u storage.Upload, parts []storage.Part, p storage.PutOptions) (storage.Object, error) {
	var in struct {
		XMLName     xml.Name `xml:"BlockList"`
		Uncommitted []string
	}
	var size int64
	for _, x := range parts {
		in.Uncommitted = append(in.Uncommitted, x.ETag)
		size += x.Size
	}
	text, err := xml.Marshal(in)
	if err != nil {
		return storage.Object{}, err
	}
	c := b.blob(http.MethodPut, u.Key, contributor, "comp", "blocklist").With(append([]byte(xml.Header), text...))
	c.Upload = u.ID
	if p.ContentType != "" {
		c.Header.Set("X-Ms-Blob-Content-Type", p.ContentType)
	}
	setMetadata(c.Header, p.Metadata)
	conditions(&c, p)
	h, err := b.do(ctx, c)
	if err != nil {
		return storage.Object{}, err
	}
	o := written(u.Key, size, h, p)
	o.MD5 = nil // that of the list
	return o, nil
}

// Abort leaves the blocks to the store, which drops them a week after the last one came,
// or when the blob is written.
func (b *Bucket) Abort(context.Context, storage.Upload) error { return nil }

// Uploads is not possible: what is unfinished has no names of its own.
func (b *Bucket) Uploads(context.Context, storage.ListOptions) (storage.UploadPage, error) {
	return storage.UploadPage{}, &storage.UnsupportedError{Store: storage.Azure, Op: "list unfinished uploads"}
}
