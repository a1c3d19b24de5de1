package gcs

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skypilot-go/sky/internal/storage"
	"github.com/skypilot-go/sky/internal/storage/rest"
)

// objectResource is the part of an object's description that is used.
type objectResource struct {
	Name        string            `json:"name,omitempty"`
	Size        string            `json:"size,omitempty"`
	Updated     time.Time         `json:"updated,omitzero"`
	TimeDeleted time.Time         `json:"timeDeleted,omitzero"`
	Generation  string            `json:"generation,omitempty"`
	MD5         string            `json:"md5Hash,omitempty"`
	CRC32C      string            `json:"crc32c,omitempty"`
	ContentType string            `json:"contentType,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

const objectFields = "name,size,updated,timeDeleted,generation,md5Hash,metadata"

func (r *objectResource) object() storage.Object {
	o := storage.Object{Key: r.Name, ETag: r.Generation, Version: r.Generation, Modified: r.Updated, Metadata: map[string]string{}, Old: !r.TimeDeleted.IsZero()}
	o.Size, _ = strconv.ParseInt(r.Size, 10, 64)
	if sum, err := base64.StdEncoding.DecodeString(r.MD5); err == nil && len(sum) == 16 {
		o.MD5 = sum
	}
	for k, v := range r.Metadata {
		o.Metadata[strings.ToLower(k)] = v
	}
	return o
}

// checkKey refuses keys that the store has not.
func (b *Bucket) checkKey(key string) error {
	why := ""
	switch {
	case key == "" || len(key) > b.Caps().MaxKey:
		why = fmt.Sprintf("a key has 1 to %d bytes, this one has %d", b.Caps().MaxKey, len(key))
	case key == "." || key == "..":
		why = "no object can have this key"
	case strings.ContainsAny(key, "\r\n"):
		why = "a key cannot have line breaks"
	case !utf8.ValidString(key):
		why = "a key is UTF-8"
	default:
		return nil
	}
	return &storage.InvalidError{Bucket: b.At, Key: key, Err: errors.New(why)}
}

// Stat describes an object.
func (b *Bucket) Stat(ctx context.Context, key string) (storage.Object, error) {
	if err := b.checkKey(key); err != nil {
		return storage.Object{}, err
	}
	var r objectResource
	err := b.JSON(ctx, rest.Call{Method: http.MethodGet, Path: b.jsonPath(key), Query: url.Values{"fields": {objectFields}}, Key: key, Permission: "storage.objects.get"}, nil, &r)
	if err != nil {
		return storage.Object{}, b.whatIsMissing(ctx, err)
	}
	return r.object(), nil
}

// whatIsMissing finds out whether it is the bucket: the JSON API says the same for both.
func (b *Bucket) whatIsMissing(ctx context.Context, err error) error {
	missing, ok := errors.AsType[*storage.NotFoundError](err)
	if !ok || missing.Key == "" || missing.Upload != "" {
		return err
	}
	if r, ok := missing.Err.(rest.Refusal); ok && strings.Contains(r.Message, "No such object") {
		return err
	}
	_, listed := b.List(ctx, storage.ListOptions{Max: 1})
	if bucket, ok := errors.AsType[*storage.NotFoundError](listed); ok {
		return bucket
	}
	return err
}

// Get reads an object by the XML API, whose answer has the metadata.
func (b *Bucket) Get(ctx context.Context, key string, g storage.GetOptions) (storage.Reader, error) {
	if err := b.checkKey(key); err != nil {
		return storage.Reader{}, err
	}
	c := rest.Call{Method: http.MethodGet, Path: b.xmlPath(key), Key: key, Permission: "storage.objects.get", Header: http.Header{}, Query: url.Values{}}
	if g.Version != "" {
		c.Query.Set("generation", g.Version)
	}
	if g.IfMatch != "" {
		c.Header.Set("X-Goog-If-Generation-Match", g.IfMatch)
	}
	if r := rest.Range(g); r != "" {
		c.Header.Set("Range", r)
	}
	answer, err := b.Send(ctx, c)
	if err != nil {
		return storage.Reader{}, err
	}
	size, err := b.Size(ctx, key, answer, g)
	if err != nil {
		return storage.Reader{}, err
	}
	o := described(key, size, answer.Header)
	if g.IfMatch != "" && o.ETag != "" && o.ETag != g.IfMatch { // what stands for the store may not know conditions
		answer.Body.Close()
		return storage.Reader{}, &storage.ConflictError{Bucket: b.At, Key: key}
	}
	return storage.Reader{ReadCloser: b.Content(ctx, key, answer), Object: o}, nil
}

// described is what the headers of an answer say.
func described(key string, size int64, h http.Header) storage.Object {
	generation := h.Get("X-Goog-Generation")
	o := storage.Object{Key: key, Size: size, ETag: generation, Version: generation, Metadata: rest.Metadata(h, "x-goog-meta-")}
	o.Modified, _ = http.ParseTime(h.Get("Last-Modified"))
	for _, line := range h.Values("X-Goog-Hash") {
		for part := range strings.SplitSeq(line, ",") {
			if text, ok := strings.CutPrefix(strings.TrimSpace(part), "md5="); ok {
				if sum, err := base64.StdEncoding.DecodeString(text); err == nil && len(sum) == 16 {
					o.MD5 = sum
				}
			}
		}
	}
	return o
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum reads a Body: its length, and its checksum as the API has it.
func sum(body io.ReadSeeker) (n int64, crc string, err error) {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return 0, "", err
	}
	h := crc32.New(castagnoli)
	if n, err = io.Copy(h, body); err != nil {
		return 0, "", err
	}
	return n, base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, h.Sum32())), nil
}

// conditions are the parameters for those of a write.
func conditions(q url.Values, p storage.PutOptions) bool {
	if p.IfAbsent {
		q.Set("ifGenerationMatch", "0")
	}
	if p.IfMatch != "" {
		q.Set("ifGenerationMatch", p.IfMatch)
	}
	return p.IfAbsent || p.IfMatch != ""
}

// checkGeneration refuses a condition that no object can meet; the API would call it
// malformed.
func (b *Bucket) checkGeneration(key, etag string) error {
	if etag == "" {
		return nil
	}
	if n, err := strconv.ParseInt(etag, 10, 64); err != nil || n == 0 { // 0 stands for nothing
		return &storage.ConflictError{Bucket: b.At, Key: key, Err: fmt.Errorf("%q is no generation", etag)}
	}
	return nil
}

// Put writes an object in one request, which has its description and its content.
func (b *Bucket) Put(ctx context.Context, key string, body io.ReadSeeker, p storage.PutOptions) (storage.Object, error) {
	if err := errors.Join(b.checkKey(key), b.checkGeneration(key, p.IfMatch)); err != nil {
		return storage.Object{}, err
	}
	size, crc, err := sum(body)
	if err != nil {
		return storage.Object{}, err
	}
	description, err := json.Marshal(objectResource{Name: key, CRC32C: crc, ContentType: p.ContentType, Metadata: p.Metadata})
	if err != nil {
		return storage.Object{}, err
	}
	var head, tail bytes.Buffer
	w := multipart.NewWriter(&head)
	part, err := w.CreatePart(textproto.MIMEHeader{"Content-Type": {"application/json; charset=UTF-8"}})
	if err != nil {
		return storage.Object{}, err
	}
	part.Write(description)
	kind := p.ContentType
	if kind == "" {
		kind = "application/octet-stream"
	}
	if _, err := w.CreatePart(textproto.MIMEHeader{"Content-Type": {kind}}); err != nil {
		return storage.Object{}, err
	}
	fmt.Fprintf(&tail, "\r\n--%s--\r\n", w.Boundary())
	q := url.Values{"uploadType": {"multipart"}, "fields": {objectFields}}
	c := rest.Call{
		Method: http.MethodPost, Path: "/upload" + b.jsonPath("") + "/o", Query: q, Key: key, Permission: "storage.objects.create",
		Conditional: conditions(q, p), Length: int64(head.Len()) + size + int64(tail.Len()),
		Header: http.Header{"Content-Type": {"multipart/related; boundary=" + w.Boundary()}},
		Body: func() io.Reader {
			return io.MultiReader(bytes.NewReader(head.Bytes()), rest.Rewound(body), bytes.NewReader(tail.Bytes()))
		},
	}
	var r objectResource
	err = b.JSON(ctx, c, nil, &r)
	// Nothing but the bucket can be missing, unless it is the object that was to be there.
	if missing, ok := errors.AsType[*storage.NotFoundError](err); ok {
		missing.Key = ""
	}
	if err != nil {
		return storage.Object{}, err
	}
	return r.object(), nil
}

// Copy copies inside the store, in as many requests as that takes it.
func (b *Bucket) Copy(ctx context.Context, key string, from storage.Source, p storage.PutOptions) (storage.Object, error) {
	src := storage.Driver(from.Bucket).(*Bucket)
	if err := errors.Join(b.checkKey(key), src.checkKey(from.Key), b.checkGeneration(key, p.IfMatch), src.checkGeneration(from.Key, from.ETag)); err != nil {
		return storage.Object{}, err
	}
	q := url.Values{}
	conditional := conditions(q, p)
	if from.ETag != "" {
		q.Set("ifSourceGenerationMatch", from.ETag)
		conditional = true
	}
	if from.Version != "" {
		q.Set("sourceGeneration", from.Version)
	}
	var in any
	if p.Metadata != nil {
		r := map[string]any{"metadata": p.Metadata}
		if p.ContentType != "" {
			r["contentType"] = p.ContentType
		}
		in = r
	}
	for {
		var out struct {
			Done         bool
			RewriteToken string
			Resource     objectResource
		}
		err := b.JSON(ctx, rest.Call{
			Method: http.MethodPost, Path: src.jsonPath(from.Key) + "/rewriteTo/b/" + url.PathEscape(b.At.Bucket) + "/o/" + rest.Escaped(key), Query: q, Key: from.Key,
			Permission: "storage.objects.create and storage.objects.get on the source", Conditional: conditional,
		}, in, &out)
		if err != nil {
			return storage.Object{}, src.whatIsMissing(ctx, err)
		}
		if out.Done {
			return out.Resource.object(), nil
		}
		if out.RewriteToken == "" {
			return storage.Object{}, b.Broken(ctx, errors.New("a copy is not done and does not say how it goes on"))
		}
		q.Set("rewriteToken", out.RewriteToken)
	}
}

// CopyPart is not possible.
func (b *Bucket) CopyPart(context.Context, storage.Upload, int, storage.Source, int64, int64) (storage.Part, error) {
	return storage.Part{}, &storage.UnsupportedError{Store: storage.GCS, Op: "copy parts of objects"}
}
